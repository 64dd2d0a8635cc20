"""`fire`: what a run remembers of its tick, and what refuses a tick: `limit` and the unique key."""

from __future__ import annotations

import pytest

from oncron._model import (
    Change,
    GapReason,
    Overlap,
    RunFilter,
    Status,
    TickRun,
    new_id,
    tick_run_id,
)
from oncron._store import ReadableStore
from tests.contract.given import (
    DAY,
    at,
    claimed,
    declared,
    definition,
    enqueued,
    finish,
    fired,
    gap,
    plan,
    run_of,
    seen,
    spec,
)

# --- what a run remembers of its tick ---------------------------------------------------------


async def test_jitter_delays_when_the_run_is_due_but_not_the_name_of_its_tick(store: ReadableStore) -> None:
    row = await declared(store)
    jittered = TickRun(run_id=tick_run_id("report", at(1)), tick=at(1), due_at=at(1.7))

    await store.fire([plan(row, new_cursor=at(1), ticks=(jittered,))], fire_id=new_id(), now=at(1))

    run = await run_of(store, at(1))
    assert (run.tick, run.due_at) == (at(1), at(1.7))


async def test_a_run_for_a_missed_tick_says_so_and_how_many_it_stands_for(store: ReadableStore) -> None:
    row = await declared(store)
    late = TickRun(run_id=tick_run_id("report", at(9)), tick=at(9), due_at=at(9), is_catchup=True, missed_count=8)
    passed = gap(at(1), at(8), 8)

    await store.fire([plan(row, new_cursor=at(9), ticks=(late,), gaps=[passed])], fire_id=new_id(), now=at(100))

    run = await run_of(store, at(9))
    assert (run.is_catchup, run.missed_count) == (True, 8)


async def test_the_ticks_of_a_plan_with_several_are_all_a_catch_up(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)

    await fired(store, at(1), at(2))

    assert [(await run_of(store, at(second))).is_catchup for second in (1, 2)] == [True, True]


# --- limit and unique key ---------------------------------------------------------------------


async def test_a_limit_counts_the_runs_created_and_then_the_schedule_is_done(store: ReadableStore) -> None:
    await declared(store, limit=2, overlap=Overlap.ALLOW)
    await fired(store, at(1))
    assert (await seen(store)).next_at == at(2)

    await fired(store, at(2))

    row = await seen(store)
    assert (row.created_count, row.next_at, row.status) == (2, None, Status.ACTIVE)


async def test_ticks_beyond_the_limit_are_refused_newest_last_and_recorded(store: ReadableStore) -> None:
    await declared(store, limit=2, overlap=Overlap.ALLOW)

    answer = await fired(store, at(1), at(2), at(3), at(4))

    assert (answer.results[0].created, answer.results[0].skipped) == (2, 2)
    assert answer.results[0].reason is GapReason.LIMIT
    [refused] = await store.gaps("report")
    assert (refused.first, refused.last, refused.count, refused.reason) == (at(3), at(4), 2, GapReason.LIMIT)
    assert (await seen(store)).cursor == at(4)


async def test_a_tick_that_is_refused_uses_up_nothing_of_the_limit(store: ReadableStore) -> None:
    await declared(store, limit=2, overlap=Overlap.SKIP)
    await fired(store, at(1))
    await fired(store, at(2))
    run = await claimed(store, now=at(2))
    await finish(store, run, now=at(2))

    answer = await fired(store, at(3))

    assert answer.results[0].created == 1
    assert (await seen(store)).created_count == 2


async def test_a_tick_whose_unique_key_is_taken_is_refused_and_recorded(store: ReadableStore) -> None:
    await declared(store, unique="only-one")
    holder = await enqueued(store, unique="only-one", now=at(0))

    answer = await fired(store, at(1))

    assert (answer.results[0].created, answer.results[0].reason) == (0, GapReason.UNIQUE)
    [refused] = await store.gaps("report")
    assert (refused.first, refused.last, refused.count, refused.reason) == (at(1), at(1), 1, GapReason.UNIQUE)
    assert [run.id for run in await store.runs(RunFilter())] == [holder.id]


async def test_a_unique_key_is_free_again_when_its_run_has_ended(store: ReadableStore) -> None:
    await declared(store, unique="only-one")
    await enqueued(store, unique="only-one", now=at(0))
    await finish(store, await claimed(store, now=at(0)), now=at(0))

    answer = await fired(store, at(1))

    assert answer.results[0].created == 1
    assert (await run_of(store, at(1))).unique == "only-one"


async def test_of_several_ticks_in_one_plan_one_gets_the_unique_key(store: ReadableStore) -> None:
    await declared(store, unique="only-one", overlap=Overlap.ALLOW)

    answer = await fired(store, at(1), at(2), at(3))

    assert (answer.results[0].created, answer.results[0].skipped) == (1, 2)
    assert answer.results[0].reason is GapReason.UNIQUE
    assert [run.tick for run in await store.runs(RunFilter())] == [at(1)]


async def test_of_two_schedules_in_one_fire_one_gets_the_unique_key_they_share(store: ReadableStore) -> None:
    plans = [plan(await declared(store, name, unique="shared"), at(1)) for name in ("a", "b")]

    answer = await store.fire(plans, fire_id=new_id(), now=at(1))

    assert sorted(result.created for result in answer.results) == [0, 1]
    assert len(await store.runs(RunFilter())) == 1


# --- large and far ----------------------------------------------------------------------------


async def test_five_thousand_schedules_fire_in_one_call(store: ReadableStore) -> None:
    names = [f"s{n:04}" for n in range(5_000)]
    new = [
        Change(name=name, definition=definition(name), status=Status.ACTIVE, new_cursor=at(0), next_at=at(1))
        for name in names
    ]
    rows = [answer.record for answer in await store.declare(new, now=at(0))]

    answer = await store.fire([plan(row, at(1)) for row in rows if row], spec(limit=7), fire_id=new_id(), now=at(1))

    assert [(result.name, result.created) for result in answer.results] == [(name, 1) for name in names]
    assert len(answer.leases) == 7
    runs = (await store.stats(now=at(1))).runs
    assert (runs["pending"], runs["running"]) == (4_993, 7)


@pytest.mark.parametrize("year_in_seconds", [2_147_483_648 + 1, 253_402_300_799])
async def test_instants_beyond_2038_and_up_to_9999_are_kept_to_the_microsecond(
    store: ReadableStore, year_in_seconds: int
) -> None:
    tick = year_in_seconds * 1_000_000 - 1
    await declared(store, now=tick - DAY)

    await fired(store, tick)

    run = await run_of(store, tick)
    # Lua's numbers are doubles: on Redis instants are exact until the year 2255, then to 32 microseconds.
    tolerance = 32 if "redis" in store.url and tick > 2**53 else 0
    assert all(abs(instant - tick) <= tolerance for instant in (run.tick, run.due_at, run.created_at) if instant)
    assert (await seen(store)).cursor == tick
