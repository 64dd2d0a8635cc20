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
    claimed,
    declared,
    enqueue,
    finish,
    fired,
    picture,
    run_now,
    run_of,
    seen,
    spec,
)

SERIAL = [Overlap.SKIP, Overlap.WAIT, Overlap.QUEUE, Overlap.CANCEL]


async def fire(store: ReadableStore, *ticks: int) -> FireResult:
    return (await fired(store, *ticks)).results[0]


async def claimable(store: ReadableStore, *, now: int) -> list[int | None]:
    """The ticks whose runs a claim would take, found out by taking and giving back."""
    runs = (await claim(store, "prober", now=now)).runs
    for run in runs:
        await finish(store, run, OutcomeKind.RELEASED, now=now)
    return [run.tick for run in runs]


# --- skip -----------------------------------------------------------------------------------


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


# --- wait -----------------------------------------------------------------------------------


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


# --- cancel ---------------------------------------------------------------------------------


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


# --- queue ----------------------------------------------------------------------------------


async def test_queue_runs_one_at_a_time_in_tick_order(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    for second in (1, 2, 3):
        assert (await fire(store, at(second))).created == 1

    for second in (1, 2, 3):
        run = await claimed(store, now=at(9))
        assert run.tick == at(second)
        await finish(store, run, now=at(9))


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


# --- allow ----------------------------------------------------------------------------------


async def test_allow_lets_all_run_side_by_side(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1), at(2))
    await fired(store, at(3))

    runs = (await claim(store, now=at(3))).runs

    assert [run.tick for run in runs] == [at(1), at(2), at(3)]
    assert not any(run.serial or run.parked for run in runs)


# --- several ticks in one plan --------------------------------------------------------------


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


# --- what frees the place -------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending", [OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.SKIPPED, OutcomeKind.LOST, OutcomeKind.CANCELLED]
)
async def test_every_ending_frees_the_place_in_the_same_step_and_says_so(
    store: ReadableStore, ending: OutcomeKind
) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1), at(2))
    first = await claimed(store, now=at(2))

    answer = await finish(store, first, ending, now=at(3))

    assert answer.freed
    assert not (await run_of(store, at(2))).parked


async def test_nothing_is_said_to_be_freed_for_a_run_that_is_due_later(store: ReadableStore) -> None:
    row = await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1))
    first = await claimed(store, now=at(1))
    await enqueue(store, schedule=row.name, delay=60_000_000, now=at(2))

    answer = await finish(store, first, now=at(3))

    assert not answer.freed
    assert (await claim(store, now=at(3))).next_due_at == at(62)


async def test_nothing_is_said_to_be_freed_when_nobody_waits(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1))

    assert not (await finish(store, await claimed(store, now=at(1)), now=at(2))).freed


async def test_cancelling_the_pending_head_frees_its_place(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1), at(2))

    await store.cancel((await run_of(store, at(1))).id, now=at(2))

    assert await claimable(store, now=at(2)) == [at(2)]


async def test_cancelling_one_that_waits_leaves_the_head_alone(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1), at(2), at(3))

    await store.cancel((await run_of(store, at(2))).id, now=at(3))
    head = await claimed(store, now=at(3))
    assert head.tick == at(1)
    await finish(store, head, now=at(3))

    assert await claimable(store, now=at(3)) == [at(3)]


async def test_reaping_the_head_for_good_frees_its_place(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE, retries=0)
    await fired(store, at(1), at(2))
    await claimed(store, now=at(2))

    [lost] = (await store.reap(now=at(60))).runs

    assert lost.state is RunState.LOST
    assert await claimable(store, now=at(60)) == [at(2)]


async def test_a_reaped_head_with_an_attempt_left_stays_the_head(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE, retry_delay=5_000_000)
    await fired(store, at(1), at(2))
    await claimed(store, now=at(2))

    await store.reap(now=at(60))

    assert await claimable(store, now=at(61)) == []
    assert await claimable(store, now=at(65)) == [at(1)]


async def test_the_place_of_one_schedule_is_nothing_to_another(store: ReadableStore) -> None:
    await declared(store, "a")
    await declared(store, "b")
    await fired(store, at(1), name="a")

    await fired(store, at(1), name="b")

    assert len((await claim(store, now=at(1))).runs) == 2


# --- run now --------------------------------------------------------------------------------


async def test_run_now_takes_the_place_of_its_schedule(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)

    answer = await enqueue(store, schedule="report", now=at(0.5))

    assert answer.is_new
    assert (answer.run.schedule, answer.run.tick, answer.run.serial, answer.run.parked) == ("report", None, True, False)
    assert (await fire(store, at(1))).reason is GapReason.OVERLAP
    assert (await seen(store)).created_count == 0, "a limit counts scheduled runs"


async def test_run_now_is_refused_where_a_tick_would_be(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    before = await picture(store)

    answer = await enqueue(store, schedule="report", now=at(1.5))

    assert (answer.is_new, answer.occupied) == (False, True)
    assert answer.run == await run_of(store, at(1))
    assert await picture(store) == before


async def test_run_now_supersedes_and_asks_to_stop_as_a_tick_would(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.CANCEL)
    await fired(store, at(1))
    running = await claimed(store, now=at(1))
    await fired(store, at(2))

    answer = await enqueue(store, schedule="report", now=at(3))

    assert answer.run.parked
    assert (await run_of(store, at(2))).state is RunState.SKIPPED
    assert (await seen(store)).created_count == 1
    assert (await run_now(store, running.id)).cancel_requested


async def test_run_now_queues_by_the_time_it_was_asked_for(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1))
    asked = (await enqueue(store, schedule="report", now=at(1.5))).run
    await fired(store, at(2))

    order = []
    for _ in range(3):
        run = await claimed(store, now=at(9))
        order.append(run.id)
        await finish(store, run, now=at(9))

    assert order == [(await run_of(store, at(1))).id, asked.id, (await run_of(store, at(2))).id]


async def test_a_backfill_neither_takes_the_place_nor_waits_for_it(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(5))

    answer = await enqueue(store, schedule="report", tick=at(1), backfill="b1", now=at(5))

    assert answer.is_new
    assert (answer.run.serial, answer.run.parked, answer.run.backfill) == (False, False, "b1")
    assert len((await claim(store, now=at(5))).runs) == 2


# --- a changed policy -----------------------------------------------------------------------


async def test_changed_to_allow_nothing_waits_any_more(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1), at(2), at(3))

    await changed(store, await seen(store), now=at(3), overlap=Overlap.ALLOW)

    runs = (await claim(store, now=at(3))).runs
    assert [run.tick for run in runs] == [at(1), at(2), at(3)]
    assert not any(run.serial for run in runs)


async def test_changed_from_allow_one_has_the_place_and_the_others_wait(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1), at(2), at(3))

    await changed(store, await seen(store), now=at(3), overlap=Overlap.SKIP)

    assert await claimable(store, now=at(3)) == [at(1)]
    assert (await fire(store, at(4))).reason is GapReason.OVERLAP


async def test_changed_from_allow_the_place_goes_to_one_that_has_started(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1), at(2))
    await declared(store, "elsewhere")
    second = (await run_of(store, at(2))).id
    [first_run, second_run] = (await claim(store, now=at(2))).runs
    await finish(store, first_run, OutcomeKind.RELEASED, now=at(2))
    assert second_run.id == second

    await changed(store, await seen(store), now=at(2), overlap=Overlap.SKIP)

    assert await claimable(store, now=at(3)) == []
    await finish(store, second_run, now=at(3))
    assert await claimable(store, now=at(3)) == [at(1)]


async def test_changed_from_allow_while_several_run_none_starts_before_the_last_has_ended(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1), at(2))
    running = (await claim(store, now=at(2))).runs
    await fired(store, at(3))

    await changed(store, await seen(store), now=at(3), overlap=Overlap.QUEUE)

    for run in running:
        assert await claimable(store, now=at(4)) == []
        await finish(store, run, now=at(4))
    assert await claimable(store, now=at(4)) == [at(3)]


async def test_a_backfill_is_not_parked_by_a_changed_policy(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(5))
    backfill = (await enqueue(store, schedule="report", tick=at(1), backfill="b1", now=at(5))).run

    await changed(store, await seen(store), now=at(5), overlap=Overlap.SKIP)

    assert not (await run_now(store, backfill.id)).serial
    assert len((await claim(store, now=at(5))).runs) == 2


# --- max_running ----------------------------------------------------------------------------


async def test_max_running_counts_the_claims_held_of_the_whole_fleet(
    store: ReadableStore, other: ReadableStore
) -> None:
    for _ in range(4):
        await enqueue(store, "scarce", now=at(0))
    wants = {"tasks": ("scarce",), "max_running": (("scarce", 2),)}

    first = (await claim(store, "w1", now=at(1), limit=1, **wants)).runs
    second = (await claim(other, "w2", now=at(1), **wants)).runs
    third = (await claim(store, "w3", now=at(1), **wants)).runs

    assert [len(runs) for runs in (first, second, third)] == [1, 1, 0]
    await finish(store, first[0], now=at(2))
    assert len((await claim(other, "w3", now=at(2), **wants)).runs) == 1


async def test_a_full_task_is_not_freed_by_an_expired_lease_before_it_is_reaped(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueue(store, "scarce", now=at(0), retries=0)
    wants = {"tasks": ("scarce",), "max_running": (("scarce", 1),)}
    await claim(store, "w1", now=at(1), **wants)

    assert (await claim(store, "w2", now=at(100), **wants)).runs == ()
    await store.reap(now=at(100))
    assert len((await claim(store, "w2", now=at(100), **wants)).runs) == 1


async def test_a_full_task_does_not_hold_up_the_runs_of_others(store: ReadableStore) -> None:
    for _ in range(3):
        await enqueue(store, "scarce", now=at(0))
    await enqueue(store, "send", now=at(0.5))

    runs = (await store.claim(spec(tasks=("scarce", "send"), limit=2, max_running=(("scarce", 1),)), now=at(1))).runs

    assert [run.task for run in runs] == ["scarce", "send"]
