"""Overlap (G10): who may have the one place of a schedule, who waits, who is refused.

The *head* has the place, whether it runs, waits for a worker or waits for a retry. The others
are *parked*: no claim takes them until the head has ended.
"""

from __future__ import annotations

import pytest

from oncron._model import FireResult, GapReason, OutcomeKind, Overlap, RunState
from oncron._store import ReadableStore
from tests.contract.given import (
    at,
    beat,
    changed,
    claim,
    claimable,
    claimed,
    declared,
    enqueue,
    finish,
    fired,
    run_now,
    run_of,
    seen,
)

SERIAL = [Overlap.SKIP, Overlap.WAIT, Overlap.QUEUE, Overlap.CANCEL]


async def fire(store: ReadableStore, *ticks: int) -> FireResult:
    return (await fired(store, *ticks)).results[0]


# --- skip -------------------------------------------------------------------------------------


async def test_skip_has_at_most_one_open_run(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    assert (await fire(store, at(1))).created == 1

    assert (await fire(store, at(2))).reason is GapReason.OVERLAP, "while it is pending"
    run = await claimed(store, now=at(2))
    assert (await fire(store, at(3))).reason is GapReason.OVERLAP, "while it runs"
    await finish(store, run, OutcomeKind.RETRY, delay=10, now=at(3))
    assert (await fire(store, at(4))).reason is GapReason.OVERLAP, "while it waits for a retry"
    await finish(store, await claimed(store, now=at(5)), now=at(5))

    assert (await fire(store, at(6))).created == 1, "and none after it ended"


async def test_skip_counts_an_expired_lease_as_open(store: ReadableStore) -> None:
    """The holder may still be at work: only finish, cancel and reap free a place."""
    await declared(store, overlap=Overlap.SKIP, retries=0)
    await fired(store, at(1))
    await claimed(store, now=at(1))

    assert (await fire(store, at(100))).reason is GapReason.OVERLAP
    await store.reap(now=at(101))
    assert (await fire(store, at(102))).created == 1


# --- wait -------------------------------------------------------------------------------------


async def test_wait_lets_one_wait_behind_the_one_that_runs(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.WAIT)
    await fired(store, at(1))
    first = await claimed(store, now=at(1))

    assert (await fire(store, at(2))).created == 1

    second = await run_of(store, at(2))
    assert (second.state, second.parked, second.serial) == (RunState.PENDING, True, True)
    assert await claimable(store, now=at(2)) == []
    await finish(store, first, now=at(3))
    assert await claimable(store, now=at(3)) == [at(2)]


async def test_wait_lets_a_newer_tick_supersede_the_one_that_waits(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.WAIT)
    await fired(store, at(1))
    await claimed(store, now=at(1))
    await fired(store, at(2))

    result = await fire(store, at(3))

    older = await run_of(store, at(2))
    assert result.superseded == (older.id,)
    assert (older.state, older.reason, older.ended_at) == (RunState.SKIPPED, "superseded", at(3))
    assert (await run_of(store, at(3))).parked
    assert result.cancelled == ()


async def test_a_superseded_run_does_not_count_for_the_limit(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.WAIT, limit=3)
    for second in (1, 2, 3, 4):
        await fired(store, at(second))

    assert (await seen(store)).created_count == 2
    assert (await seen(store)).next_at == at(5)


async def test_the_head_is_never_superseded_although_it_was_never_claimed(store: ReadableStore) -> None:
    """Else the ticks of a fast schedule on a busy fleet would throw each other out, and none ever ran."""
    await declared(store, overlap=Overlap.WAIT)
    for second in (1, 2, 3, 4):
        await fired(store, at(second))

    assert await claimable(store, now=at(4)) == [at(1)]
    states = [(await run_of(store, at(second))).state for second in (1, 2, 3, 4)]
    assert states == [RunState.PENDING, RunState.SKIPPED, RunState.SKIPPED, RunState.PENDING]


async def test_a_tick_that_the_unique_key_refuses_supersedes_nothing(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.WAIT)
    await fired(store, at(1))
    await fired(store, at(2))
    await enqueue(store, unique="taken", now=at(2))
    await changed(store, await seen(store), now=at(2), unique="taken")

    result = await fire(store, at(3))

    assert (result.reason, result.superseded) == (GapReason.UNIQUE, ())
    assert (await run_of(store, at(2))).state is RunState.PENDING


# --- cancel -----------------------------------------------------------------------------------


async def test_cancel_asks_the_running_one_to_stop_and_lets_the_new_one_wait_for_its_end(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.CANCEL)
    await fired(store, at(1))
    first = await claimed(store, now=at(1))

    result = await fire(store, at(2))

    assert result.cancelled == (first.id,)
    stopping = await run_now(store, first.id)
    assert (stopping.state, stopping.cancel_requested) == (RunState.RUNNING, True)
    assert (await beat(store, held=[first], now=at(2))).cancel == (first.id,)
    assert await claimable(store, now=at(2)) == []
    await finish(store, first, OutcomeKind.CANCELLED, now=at(3))
    assert await claimable(store, now=at(3)) == [at(2)]


async def test_cancel_supersedes_the_one_that_waits(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.CANCEL)
    await fired(store, at(1))
    await claimed(store, now=at(1))
    await fired(store, at(2))

    result = await fire(store, at(3))

    assert [run_id == (await run_of(store, at(2))).id for run_id in result.superseded] == [True]
    assert (await run_of(store, at(2))).state is RunState.SKIPPED


async def test_cancel_leaves_a_head_that_does_not_run_its_place(store: ReadableStore) -> None:
    """Only finish, cancel and reap free a place; a pending run that was asked to stop would hold it for ever."""
    await declared(store, overlap=Overlap.CANCEL)
    await fired(store, at(1))

    result = await fire(store, at(2))

    assert (result.created, result.cancelled) == (1, ())
    assert await claimable(store, now=at(2)) == [at(1)]


# --- queue ------------------------------------------------------------------------------------


async def test_queue_runs_one_at_a_time_in_tick_order(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    for second in (1, 2, 3):
        assert (await fire(store, at(second))).created == 1

    for second in (1, 2, 3):
        run = await claimed(store, now=at(9))
        assert run.tick == at(second)
        await finish(store, run, now=at(9))


async def test_g11_more_than_a_thousand_ticks_wait_for_their_place_and_none_is_dropped(
    store: ReadableStore, other: ReadableStore
) -> None:
    """Whoever comes later finds them all, in their order."""
    await declared(store, overlap=Overlap.QUEUE)
    for block in range(6):
        assert (await fire(store, *(at(block * 250 + n) for n in range(1, 251)))).created == 250

    assert (await other.stats()).runs == {RunState.PENDING: 1500}
    for second in (1, 2, 3):
        run = await claimed(other, now=at(1500))
        assert run.tick == at(second)
        await finish(other, run, now=at(1500))


async def test_a_retry_keeps_its_place_at_the_head(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1))
    await fired(store, at(2))
    first = await claimed(store, now=at(2))

    await finish(store, first, OutcomeKind.RETRY, delay=60_000_000, now=at(2))

    assert await claimable(store, now=at(30)) == [], "the second waits as long as the first is open"
    assert await claimable(store, now=at(70)) == [at(1)]


@pytest.mark.parametrize("overlap", SERIAL)
async def test_a_released_head_stays_the_head(store: ReadableStore, overlap: Overlap) -> None:
    await declared(store, overlap=overlap)
    await fired(store, at(1), at(2))
    first = await claimed(store, now=at(2))

    await finish(store, first, OutcomeKind.RELEASED, now=at(2))

    assert await claimable(store, now=at(3)) == [at(1)]


# --- allow ------------------------------------------------------------------------------------


async def test_allow_lets_all_run_side_by_side(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1), at(2))
    await fired(store, at(3))

    runs = (await claim(store, now=at(3))).runs

    assert [run.tick for run in runs] == [at(1), at(2), at(3)]
    assert not any(run.serial or run.parked for run in runs)


# --- several ticks in one plan ----------------------------------------------------------------


@pytest.mark.parametrize("overlap", SERIAL)
async def test_a_catch_up_runs_one_after_the_other_whatever_the_policy(store: ReadableStore, overlap: Overlap) -> None:
    await declared(store, overlap=overlap)

    result = await fire(store, at(1), at(2), at(3))

    assert (result.created, result.skipped) == (3, 0)
    for second in (1, 2, 3):
        run = await claimed(store, now=at(9))
        assert run.tick == at(second)
        await finish(store, run, now=at(9))


@pytest.mark.parametrize("overlap", SERIAL)
async def test_a_catch_up_waits_behind_an_open_run(store: ReadableStore, overlap: Overlap) -> None:
    await declared(store, overlap=overlap)
    await fired(store, at(1))
    running = await claimed(store, now=at(1))

    result = await fire(store, at(2), at(3))

    assert (result.created, result.superseded, result.cancelled) == (2, (), ())
    assert not (await run_now(store, running.id)).cancel_requested
    assert await claimable(store, now=at(9)) == []


@pytest.mark.parametrize("overlap", [Overlap.WAIT, Overlap.CANCEL])
async def test_a_later_tick_does_not_supersede_a_catch_up(store: ReadableStore, overlap: Overlap) -> None:
    await declared(store, overlap=overlap)
    await fired(store, at(1), at(2), at(3))

    result = await fire(store, at(4))

    assert (result.created, result.reason, result.superseded) == (0, GapReason.OVERLAP, ())
    assert [(await run_of(store, at(second))).state for second in (1, 2, 3)] == [RunState.PENDING] * 3
