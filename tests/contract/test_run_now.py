"""Run now: a run that was asked for by hand takes the place of its schedule as a tick would (G10)."""

from __future__ import annotations

from oncron._model import GapReason, Overlap, RunState
from oncron._store import ReadableStore
from tests.contract.given import (
    at,
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
)


async def test_run_now_takes_the_place_of_its_schedule(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)

    answer = await enqueue(store, schedule="report", now=at(0.5))

    assert answer.is_new
    assert (answer.run.schedule, answer.run.tick, answer.run.serial, answer.run.parked) == ("report", None, True, False)
    assert (await fired(store, at(1))).results[0].reason is GapReason.OVERLAP
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
