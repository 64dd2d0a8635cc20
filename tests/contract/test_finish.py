"""`finish`: a claim ends once, by its token (G6), and saying it again is harmless (G7)."""

from __future__ import annotations

import pytest

from oncron import _defaults as limits
from oncron._model import FinishStatus, Outcome, OutcomeKind, Overlap, RunFilter, RunRecord, RunState
from oncron._store import ReadableStore
from tests.contract.given import (
    SECOND,
    at,
    beat,
    claim,
    claimed,
    declared,
    enqueue,
    enqueued,
    finish,
    fired,
    new_run,
    outcome,
    picture,
    run_now,
    run_of,
)

ENDINGS = [OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.LOST, OutcomeKind.CANCELLED, OutcomeKind.SKIPPED]


async def a_claimed_run(store: ReadableStore, **options: object) -> RunRecord:
    await enqueued(store, now=at(0), **options)
    return await claimed(store, now=at(1))


@pytest.mark.parametrize("kind", ENDINGS)
async def test_an_ending_is_recorded_with_what_it_says(store: ReadableStore, kind: OutcomeKind) -> None:
    run = await a_claimed_run(store)

    answer = await finish(
        store,
        run,
        kind,
        result='{"ok":true}',
        error="Traceback",
        reason="because",
        progress="3/3",
        checkpoint='{"at":3}',
        log="one\ntwo",
        now=at(2),
    )

    assert (answer.run_id, answer.status, answer.state) == (run.id, FinishStatus.RECORDED, RunState(kind.value))
    assert (answer.freed, answer.due_at) == (False, None)
    ended = await run_now(store, run.id)
    assert (ended.state, ended.outcome, ended.ended_at) == (RunState(kind.value), kind.value, at(2))
    assert (ended.result, ended.error, ended.reason) == ('{"ok":true}', "Traceback", "because")
    assert (ended.progress, ended.checkpoint, ended.log) == ("3/3", '{"at":3}', "one\ntwo")
    assert (ended.worker, ended.token, ended.attempt, ended.started_at) == ("w1", run.token, 1, at(1))


async def test_a_run_whose_lease_expired_may_be_finished_while_nobody_reaped_it(store: ReadableStore) -> None:
    """It is still its holder's: first come, first served."""
    run = await a_claimed_run(store)

    assert (await finish(store, run, now=at(500))).status is FinishStatus.RECORDED
    assert (await store.reap(now=at(501))).runs == ()


async def test_a_run_that_does_not_exist_any_more_is_a_lost_lease(store: ReadableStore) -> None:
    gone = Outcome(run_id="0197742a-0000-7000-8000-000000000000", token=5, kind=OutcomeKind.SUCCEEDED)

    [answer] = await store.finish([gone], now=at(1))

    assert answer.status is FinishStatus.LEASE_LOST


async def test_each_outcome_of_a_batch_has_its_answer_in_order(store: ReadableStore) -> None:
    for _ in range(3):
        await enqueued(store, now=at(0))
    runs = (await claim(store, now=at(1))).runs
    await finish(store, runs[1], OutcomeKind.FAILED, now=at(2))
    gone = Outcome(run_id="0197742a-0000-7000-8000-000000000000", token=5, kind=OutcomeKind.SUCCEEDED)

    answers = await store.finish([gone, *(outcome(run) for run in runs)], now=at(3))

    assert [answer.run_id for answer in answers] == [gone.run_id, *(run.id for run in runs)]
    assert [answer.status for answer in answers] == [
        FinishStatus.LEASE_LOST,
        FinishStatus.RECORDED,
        FinishStatus.REPEATED,
        FinishStatus.RECORDED,
    ]
    assert answers[2].state is RunState.FAILED


# --- one ending (G6), repeatable (G7) -------------------------------------------------------


@pytest.mark.parametrize("kind", OutcomeKind)
async def test_the_same_token_again_is_told_what_was_recorded(store: ReadableStore, kind: OutcomeKind) -> None:
    run = await a_claimed_run(store)
    first = await finish(store, run, kind, delay=SECOND, now=at(2))
    before = await picture(store)

    again = await finish(store, run, kind, delay=SECOND, now=at(3))

    assert (again.status, again.state, again.due_at) == (FinishStatus.REPEATED, first.state, first.due_at)
    assert await picture(store) == before


async def test_the_first_outcome_of_a_token_wins_over_a_different_one(store: ReadableStore) -> None:
    run = await a_claimed_run(store)
    await finish(store, run, OutcomeKind.SUCCEEDED, result="1", now=at(2))
    before = await picture(store)

    for kind in OutcomeKind:
        answer = await finish(store, run, kind, result="2", now=at(3))
        assert (answer.status, answer.state) == (FinishStatus.REPEATED, RunState.SUCCEEDED)

    assert await picture(store) == before


async def test_one_claim_in_a_batch_twice_ends_once(store: ReadableStore) -> None:
    run = await a_claimed_run(store)

    answers = await store.finish([outcome(run), outcome(run, OutcomeKind.FAILED)], now=at(2))

    assert [answer.status for answer in answers] == [FinishStatus.RECORDED, FinishStatus.REPEATED]
    assert [answer.state for answer in answers] == [RunState.SUCCEEDED, RunState.SUCCEEDED]


# --- retry and release ----------------------------------------------------------------------


async def test_a_retry_makes_the_run_pending_after_its_delay_and_spends_the_attempt(store: ReadableStore) -> None:
    run = await a_claimed_run(store)

    answer = await finish(
        store, run, OutcomeKind.RETRY, delay=5 * SECOND, retry_delay=8 * SECOND, error="E", reason="R", now=at(2)
    )

    assert (answer.status, answer.state, answer.due_at) == (FinishStatus.RECORDED, RunState.PENDING, at(7))
    waiting = await run_now(store, run.id)
    assert (waiting.state, waiting.due_at, waiting.retry_delay) == (RunState.PENDING, at(7), 8 * SECOND)
    assert (waiting.error, waiting.reason, waiting.ended_at, waiting.worker) == ("E", "R", None, None)
    assert (waiting.attempt, waiting.given_back, waiting.attempts_spent) == (1, 0, 1)


async def test_a_retry_may_give_its_attempt_back(store: ReadableStore) -> None:
    run = await a_claimed_run(store)

    await finish(store, run, OutcomeKind.RETRY, spend_attempt=False, now=at(2))

    waiting = await run_now(store, run.id)
    assert (waiting.attempt, waiting.given_back, waiting.attempts_spent) == (1, 1, 0)


async def test_a_release_spends_no_attempt(store: ReadableStore) -> None:
    run = await a_claimed_run(store)

    answer = await finish(store, run, OutcomeKind.RELEASED, delay=SECOND, now=at(2))

    assert (answer.state, answer.due_at) == (RunState.PENDING, at(3))
    waiting = await run_now(store, run.id)
    assert (waiting.attempt, waiting.given_back, waiting.attempts_spent, waiting.releases) == (1, 1, 0, 1)


async def released_in_a_row(store: ReadableStore, times: int) -> RunRecord:
    for _ in range(times):
        run = await claimed(store, now=at(1))
        await finish(store, run, OutcomeKind.RELEASED, now=at(1))
    return run


async def test_ten_releases_in_a_row_are_free_and_each_further_one_spends_an_attempt(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0), retries=3)

    await released_in_a_row(store, limits.RELEASES_IN_A_ROW)
    assert (await run_now(store, run.id)).attempts_spent == 0
    await released_in_a_row(store, 2)

    waiting = await run_now(store, run.id)
    assert (waiting.attempts_spent, waiting.attempt, waiting.state) == (2, 12, RunState.PENDING)


async def test_a_release_that_spends_the_last_attempt_ends_the_run_as_lost(store: ReadableStore) -> None:
    """Else a run that no worker can keep would go round for ever, beyond its `1 + retries` attempts."""
    run = await enqueued(store, now=at(0), retries=1)

    await released_in_a_row(store, limits.RELEASES_IN_A_ROW + 2)

    ended = await run_now(store, run.id)
    assert (ended.state, ended.attempts_spent, ended.ended_at) == (RunState.LOST, 2, at(1))
    assert (await claim(store, now=at(2))).runs == ()


async def test_a_retry_between_makes_the_releases_count_anew(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))
    await released_in_a_row(store, limits.RELEASES_IN_A_ROW)
    await finish(store, await claimed(store, now=at(1)), OutcomeKind.RETRY, now=at(1))

    await released_in_a_row(store, 1)

    waiting = await run_now(store, run.id)
    assert (waiting.attempts_spent, waiting.releases) == (1, 1)


async def test_progress_checkpoint_and_log_are_kept_for_the_next_attempt(store: ReadableStore) -> None:
    run = await a_claimed_run(store)
    await finish(store, run, OutcomeKind.RETRY, progress="1/3", checkpoint="1", log="one", now=at(2))

    again = await claimed(store, now=at(2))
    await finish(store, again, OutcomeKind.RETRY, now=at(3))

    assert (again.progress, again.checkpoint, again.log) == ("1/3", "1", "one")
    waiting = await run_now(store, run.id)
    assert (waiting.progress, waiting.checkpoint, waiting.log) == ("1/3", "1", "one"), "saying nothing forgets nothing"


async def test_what_a_later_attempt_says_replaces_what_an_earlier_one_said(store: ReadableStore) -> None:
    run = await a_claimed_run(store)
    await finish(store, run, OutcomeKind.RETRY, error="first", now=at(2))

    await finish(store, await claimed(store, now=at(2)), OutcomeKind.SUCCEEDED, result="1", now=at(3))

    ended = await run_now(store, run.id)
    assert (ended.result, ended.error) == ("1", None)


# --- cancel is sticky -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OutcomeKind.RETRY, OutcomeKind.RELEASED])
async def test_giving_back_a_run_that_was_asked_to_cancel_ends_it_as_cancelled(
    store: ReadableStore, kind: OutcomeKind
) -> None:
    run = await a_claimed_run(store)
    await store.cancel(run.id, now=at(2))

    answer = await finish(store, run, kind, error="E", now=at(3))

    assert (answer.status, answer.state, answer.due_at) == (FinishStatus.RECORDED, RunState.CANCELLED, None)
    ended = await run_now(store, run.id)
    assert (ended.state, ended.ended_at, ended.cancel_requested) == (RunState.CANCELLED, at(3), True)
    again = await finish(store, run, kind, now=at(4))
    assert (again.status, again.state) == (FinishStatus.REPEATED, RunState.CANCELLED)


@pytest.mark.parametrize("kind", ENDINGS)
async def test_an_ending_of_a_run_that_was_asked_to_cancel_stays_what_it_is(
    store: ReadableStore, kind: OutcomeKind
) -> None:
    """Success stays success: the work was done."""
    run = await a_claimed_run(store)
    await store.cancel(run.id, now=at(2))

    assert (await finish(store, run, kind, now=at(3))).state is RunState(kind.value)


# --- what an ending frees -------------------------------------------------------------------


async def test_an_ending_frees_the_unique_key_and_a_retry_does_not(store: ReadableStore) -> None:
    run = await a_claimed_run(store, unique="k")
    await finish(store, run, OutcomeKind.RETRY, now=at(2))
    assert not (await enqueue(store, unique="k", now=at(2))).is_new

    await finish(store, await claimed(store, now=at(3)), now=at(3))

    assert (await enqueue(store, unique="k", now=at(3))).is_new


async def test_a_place_freed_in_a_batch_is_filled_in_that_batch(store: ReadableStore) -> None:
    for name in ("a", "b"):
        await declared(store, name, overlap=Overlap.QUEUE)
        await fired(store, at(1), at(2), name=name)
    runs = (await claim(store, now=at(2))).runs
    assert len(runs) == 2

    answers = await store.finish([outcome(run) for run in runs], now=at(3))

    assert [answer.freed for answer in answers] == [True, True]
    assert [(await run_of(store, at(2), name)).parked for name in ("a", "b")] == [False, False]


# --- runs to enqueue with success (the outbox) ----------------------------------------------


async def test_success_enqueues_in_the_same_step(store: ReadableStore) -> None:
    run = await a_claimed_run(store)
    following = new_run("next", args="[1]", delay=5 * SECOND)

    await finish(store, run, enqueue=(following, new_run("next")), now=at(2))

    written = await run_now(store, following.id)
    assert (written.task, written.args, written.due_at, written.created_at) == ("next", "[1]", at(7), at(2))
    assert len(await store.runs(RunFilter(task="next"))) == 2


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.SUCCEEDED])
async def test_anything_but_success_enqueues_nothing(store: ReadableStore, kind: OutcomeKind) -> None:
    run = await a_claimed_run(store)

    await finish(store, run, kind, enqueue=(new_run("next"),), now=at(2))

    assert await store.runs(RunFilter(task="next")) == []


async def test_a_repeated_success_enqueues_nothing_again(store: ReadableStore) -> None:
    """G7; also when the follower has ended and was pruned meanwhile."""
    run = await a_claimed_run(store)
    done = outcome(run, enqueue=(new_run("next", due_at=at(0)),))
    await store.finish([done], now=at(2))
    await finish(store, await claimed(store, tasks=("next",), now=at(1)), now=at(1))
    await store.prune(ended_before=at(2), failed_before=at(2), now=at(4))
    assert [each.id for each in await store.runs(RunFilter())] == [run.id]

    await store.finish([done], now=at(5))

    assert await store.runs(RunFilter(task="next")) == []


async def test_a_stale_token_enqueues_nothing(store: ReadableStore) -> None:
    run = await a_claimed_run(store)
    await store.reap(now=at(60))

    await finish(store, run, enqueue=(new_run("next"),), now=at(61))

    assert await store.runs(RunFilter(task="next")) == []


async def test_what_success_enqueues_obeys_unique_keys_and_places(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    await enqueued(store, "holder", unique="k", now=at(0))
    run = await claimed(store, now=at(1))
    refused = new_run("next", unique="k")
    place_is_free_now = new_run("next", schedule="report")

    answer = await finish(store, run, enqueue=(refused, place_is_free_now), now=at(2))

    assert answer.status is FinishStatus.RECORDED
    assert [run.id for run in await store.runs(RunFilter(task="next"))] == [place_is_free_now.id]


async def test_a_finished_run_is_no_longer_among_what_its_worker_holds(store: ReadableStore) -> None:
    run = await a_claimed_run(store)
    await finish(store, run, now=at(2))

    pulse = await beat(store, held=[run], now=at(3))

    assert (pulse.lost, pulse.strays) == ((run.id,), ())


async def test_any_text_survives(store: ReadableStore) -> None:
    text = "\\u0000 \ud7ff \U0001f600 ' \" \\ % \r\n\t" + "x" * 70_000
    run = await a_claimed_run(store, args=text)

    await finish(
        store, run, OutcomeKind.FAILED,
        result=text, error=text, reason=text, progress=text, checkpoint=text, log=text, now=at(2),
    )  # fmt: skip

    ended = await run_now(store, run.id)
    texts = {ended.args, ended.result, ended.error, ended.reason, ended.progress, ended.checkpoint, ended.log}
    assert texts == {text}
