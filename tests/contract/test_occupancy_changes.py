"""Overlap (G10): what frees the place of a schedule, and what a changed policy does to those in it."""

from __future__ import annotations

import pytest

from oncron._model import GapReason, OutcomeKind, Overlap, RunState
from oncron._store import ReadableStore
from tests.contract.given import (
    at,
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
    spec,
)

# --- what frees the place ---------------------------------------------------------------------


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


# --- a changed policy -------------------------------------------------------------------------


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
    assert (await fired(store, at(4))).results[0].reason is GapReason.OVERLAP


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


async def test_changed_from_allow_one_that_had_started_comes_before_earlier_ones_that_had_not(
    store: ReadableStore,
) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1))
    [started] = (await fired(store, at(2), claim=spec())).leases
    await finish(store, started, OutcomeKind.RELEASED, now=at(2))

    await changed(store, await seen(store), now=at(2), overlap=Overlap.QUEUE)

    assert await claimable(store, now=at(3)) == [at(2)]


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
