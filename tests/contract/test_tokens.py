"""Tokens (G5): each claim has one, greater than every earlier one of its run and of its schedule."""

from __future__ import annotations

from msgspec.structs import replace

from oncron._model import FinishStatus, Outcome, OutcomeKind, Overlap, RunRecord, RunState, Status
from oncron._store import ReadableStore
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
    outcome,
    picture,
    run_now,
    seen,
    spec,
)


async def test_a_token_is_at_least_the_time_of_the_store_in_microseconds(store: ReadableStore) -> None:
    """So it also grows over a fail-over that lost the newest tokens."""
    await enqueued(store, now=at(0))

    assert (await claimed(store, now=at(1))).token == at(1)


async def test_a_later_claim_of_the_run_has_a_greater_token_even_at_the_same_instant(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    first = await claimed(store, now=at(1))
    await finish(store, first, OutcomeKind.RELEASED, now=at(1))

    assert (await claimed(store, now=at(1))).token == first.token + 1


async def test_a_later_claim_has_a_greater_token_even_when_the_clock_stepped_back(store: ReadableStore) -> None:
    await enqueued(store, due_at=at(-1000), now=at(0))
    first = await claimed(store, now=at(100))
    await finish(store, first, OutcomeKind.RELEASED, delay=-200 * SECOND, now=at(100))

    assert (await claimed(store, now=at(1))).token == at(100) + 1


async def test_tokens_grow_over_all_runs_of_a_schedule(store: ReadableStore) -> None:
    """What writes per schedule can be fenced per schedule: a take-over of the older run cannot look newer."""
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1), at(2))
    await enqueue(store, schedule="report", tick=at(0), backfill="b1", now=at(2))

    tokens = [run.token for run in (await claim(store, now=at(9))).runs]

    assert sorted(tokens) == [at(9), at(9) + 1, at(9) + 2]
    assert (await seen(store)).last_token == at(9) + 2


async def test_a_lease_on_the_spot_has_a_token_by_the_same_rule(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1))
    first = await claimed(store, now=at(50))

    [second] = (await fired(store, at(2), now=at(2), claim=spec())).leases

    assert second.token == first.token + 1 == at(50) + 1
    assert (await seen(store)).last_token == second.token


async def test_a_stale_token_changes_nothing(store: ReadableStore) -> None:
    """G5: the old holder wakes up after its run was taken over."""
    await enqueued(store, now=at(0), retry_delay=0)
    old = await claimed(store, "w1", now=at(1))
    await store.reap(now=at(60))
    new = await claimed(store, "w2", now=at(60))
    before = await picture(store)

    for kind in OutcomeKind:
        answer = await finish(store, old, kind, result='"old"', now=at(61))
        assert (answer.status, answer.state) == (FinishStatus.LEASE_LOST, RunState.RUNNING)

    assert await picture(store) == before
    assert (await finish(store, new, now=at(62))).status is FinishStatus.RECORDED


async def test_a_reaped_token_is_void_before_anybody_claims_the_run_again(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    old = await claimed(store, now=at(1))
    await store.reap(now=at(60))
    before = await picture(store)

    answer = await finish(store, old, now=at(61))

    assert (answer.status, answer.state) == (FinishStatus.LEASE_LOST, RunState.PENDING)
    assert await picture(store) == before


async def test_a_token_of_the_future_is_as_void_as_one_of_the_past(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))

    [answer] = await store.finish([_with_token(run, run.token + 1)], now=at(2))

    assert answer.status is FinishStatus.LEASE_LOST
    assert (await run_now(store, run.id)).state is RunState.RUNNING


async def test_a_run_that_was_never_claimed_cannot_be_finished_by_token_0(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))

    [answer] = await store.finish([_with_token(run, 0)], now=at(2))

    assert (answer.status, answer.state) == (FinishStatus.LEASE_LOST, RunState.PENDING)
    assert await run_now(store, run.id) == run


async def test_a_claim_of_a_schedule_that_changed_status_still_moves_its_last_token(store: ReadableStore) -> None:
    await declared(store)
    await fired(store, at(1))
    await changed(store, await seen(store), now=at(1), status=Status.REMOVED)

    run = await claimed(store, now=at(2))

    row = await seen(store)
    assert (row.last_token, row.status) == (run.token, Status.REMOVED)


def _with_token(run: RunRecord, token: int) -> Outcome:
    return replace(outcome(run), token=token)
