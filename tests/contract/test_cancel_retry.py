"""`cancel` asks once and for good; `retry` re-opens what has ended (G6). Both may be repeated (G7)."""

from __future__ import annotations

import pytest

from oncron._model import OutcomeKind, Overlap, RunRecord, RunState
from oncron._store import ReadableStore
from oncron.errors import NotFound
from tests.contract.given import (
    SECOND,
    at,
    changed,
    claim,
    claimed,
    declared,
    enqueue,
    enqueued,
    finish,
    fired,
    picture,
    run_now,
    run_of,
    seen,
)

NOBODY = "0197742a-0000-7000-8000-000000000000"


async def an_ended_run(store: ReadableStore, kind: OutcomeKind = OutcomeKind.FAILED, **options: object) -> RunRecord:
    run = await enqueued(store, now=at(0), **options)
    await finish(store, await claimed(store, now=at(1)), kind, result="1", error="E", reason="R", now=at(2))
    return await run_now(store, run.id)


# --- cancel ---------------------------------------------------------------------------------


async def test_a_pending_run_ends_as_cancelled_here_and_now(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))

    answer = await store.cancel(run.id, now=at(1))

    assert (answer.state, answer.ended_at, answer.attempt) == (RunState.CANCELLED, at(1), 0)
    assert await run_now(store, run.id) == answer


async def test_a_running_run_is_asked_to_stop(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))

    answer = await store.cancel(run.id, now=at(2))

    assert (answer.state, answer.cancel_requested, answer.ended_at) == (RunState.RUNNING, True, None)
    assert (answer.worker, answer.token) == ("w1", run.token)
    assert await store.cancel(run.id, now=at(3)) == answer, "asking again changes nothing"


async def test_a_run_that_waits_for_a_retry_ends_as_cancelled(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))
    await finish(store, run, OutcomeKind.RETRY, delay=60 * SECOND, now=at(2))

    assert (await store.cancel(run.id, now=at(3))).state is RunState.CANCELLED


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.CANCELLED])
async def test_a_run_that_has_ended_is_left_as_it_is(store: ReadableStore, kind: OutcomeKind) -> None:
    run = await an_ended_run(store, kind)

    assert await store.cancel(run.id, now=at(9)) == run
    assert await run_now(store, run.id) == run


async def test_cancelling_another_opening_changes_nothing(store: ReadableStore) -> None:
    """G7: the request was made for the run as it was before somebody re-opened it."""
    run = await an_ended_run(store)
    await store.retry(run.id, now=at(3))

    answer = await store.cancel(run.id, opening=1, now=at(4))

    assert (answer.state, answer.opening) == (RunState.PENDING, 2)
    assert (await store.cancel(run.id, opening=2, now=at(5))).state is RunState.CANCELLED


async def test_cancelling_a_pending_run_frees_its_unique_key(store: ReadableStore) -> None:
    run = await enqueued(store, unique="k", now=at(0))

    await store.cancel(run.id, now=at(1))

    assert (await enqueue(store, unique="k", now=at(1))).is_new


async def test_a_run_that_does_not_exist_cannot_be_cancelled_or_retried(store: ReadableStore) -> None:
    with pytest.raises(NotFound, match=NOBODY):
        await store.cancel(NOBODY, now=at(1))
    with pytest.raises(NotFound, match=NOBODY):
        await store.retry(NOBODY, now=at(1))


# --- retry ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [OutcomeKind.FAILED, OutcomeKind.LOST, OutcomeKind.SUCCEEDED, OutcomeKind.SKIPPED, OutcomeKind.CANCELLED]
)
async def test_an_ended_run_is_re_opened_as_pending_and_due_now(store: ReadableStore, kind: OutcomeKind) -> None:
    run = await an_ended_run(store, kind)

    answer = await store.retry(run.id, now=at(50))

    assert (answer.is_new, answer.occupied) == (True, False)
    again = answer.run
    assert again == await run_now(store, run.id)
    assert (again.state, again.opening, again.due_at) == (RunState.PENDING, 2, at(50))
    assert (again.ended_at, again.result, again.error, again.reason) == (None, None, None, None)
    assert (again.created_at, again.token, again.attempt) == (run.created_at, run.token, 1)
    assert (await claimed(store, now=at(50))).token > run.token


async def test_a_re_opened_run_has_its_attempts_anew_and_counts_on(store: ReadableStore) -> None:
    run = await an_ended_run(store, retries=1)

    again = (await store.retry(run.id, now=at(3))).run

    assert (again.attempt, again.attempts_spent, again.releases) == (1, 0, 0)
    third = await claimed(store, now=at(3))
    assert (third.attempt, third.attempts_spent, third.is_last_attempt) == (2, 1, False)


async def test_retry_clears_the_cancel_request(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))
    await store.cancel(run.id, now=at(2))
    await finish(store, run, OutcomeKind.CANCELLED, now=at(2))

    again = (await store.retry(run.id, now=at(3))).run

    assert not again.cancel_requested
    assert (await claimed(store, now=at(3))).id == run.id


async def test_an_open_run_is_not_re_opened(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))

    answer = await store.retry(run.id, now=at(1))

    assert (answer.run, answer.is_new, answer.occupied) == (run, False, False)


async def test_repeating_a_retry_by_the_opening_seen_re_opens_once(store: ReadableStore) -> None:
    """G7: by the time of the repetition the run may have ended a second time."""
    run = await an_ended_run(store)
    await store.retry(run.id, opening=1, now=at(3))
    await finish(store, await claimed(store, now=at(3)), now=at(4))

    answer = await store.retry(run.id, opening=1, now=at(5))

    assert not answer.is_new
    assert (answer.run.state, answer.run.opening) == (RunState.SUCCEEDED, 2)


async def test_the_old_token_does_not_end_the_new_opening(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))
    await finish(store, run, OutcomeKind.FAILED, now=at(2))
    await store.retry(run.id, now=at(3))

    answer = await finish(store, run, OutcomeKind.FAILED, now=at(4))

    assert answer.state is RunState.FAILED, "the repeated finish is told what it recorded"
    assert (await run_now(store, run.id)).state is RunState.PENDING


async def test_retry_is_refused_while_the_unique_key_is_taken(store: ReadableStore) -> None:
    run = await an_ended_run(store, unique="k")
    holder = await enqueued(store, unique="k", now=at(3))
    before = await picture(store)

    answer = await store.retry(run.id, now=at(4))

    assert (answer.run, answer.is_new, answer.occupied) == (holder, False, True)
    assert await picture(store) == before


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.WAIT, Overlap.QUEUE, Overlap.CANCEL])
async def test_retry_is_refused_while_the_place_of_its_schedule_is_taken(
    store: ReadableStore, overlap: Overlap
) -> None:
    await declared(store, overlap=overlap)
    await fired(store, at(1))
    run = await claimed(store, now=at(1))
    await finish(store, run, OutcomeKind.FAILED, now=at(1))
    await fired(store, at(2))

    answer = await store.retry(run.id, now=at(3))

    assert (answer.is_new, answer.occupied) == (False, True)
    assert answer.run == await run_of(store, at(2))
    assert (await run_now(store, run.id)).state is RunState.FAILED


async def test_a_re_opened_run_takes_the_place_of_its_schedule(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    run = await claimed(store, now=at(1))
    await finish(store, run, OutcomeKind.FAILED, now=at(1))

    again = (await store.retry(run.id, now=at(2))).run

    assert (again.serial, again.parked) == (True, False)
    assert (await fired(store, at(3))).results[0].created == 0


async def test_under_allow_retry_finds_no_place_taken(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    run = await claimed(store, now=at(1))
    await finish(store, run, OutcomeKind.FAILED, now=at(1))
    await fired(store, at(2))
    await changed(store, await seen(store), now=at(2), overlap=Overlap.ALLOW)

    answer = await store.retry(run.id, now=at(3))

    assert (answer.is_new, answer.run.serial) == (True, False)
    assert len((await claim(store, now=at(3))).runs) == 2


async def test_a_backfilled_run_is_retried_whoever_has_the_place(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    backfill = (await enqueue(store, schedule="report", tick=at(-5), backfill="b", now=at(0))).run
    await finish(store, await claimed(store, now=at(0)), OutcomeKind.FAILED, now=at(0))
    await fired(store, at(1))

    assert (await store.retry(backfill.id, now=at(2))).is_new
