"""Schedules: once per tick, whatever happens."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from oncron import Oncron, RunContext, every, once
from oncron.errors import Occupied

FAST = every(seconds=0.2)


async def test_a_schedule_runs_its_task_once_per_tick(app: Oncron) -> None:
    ticks: list[datetime | None] = []
    enough = asyncio.Event()

    @app.schedule(FAST, overlap="allow")
    async def beat(ctx: RunContext) -> None:
        ticks.append(ctx.tick)
        if len(ticks) >= 5:
            enough.set()

    async with app:
        await asyncio.wait_for(enough.wait(), 15)
    assert len(set(ticks)) == len(ticks)
    assert all(tick is not None and tick.microsecond % 200_000 == 0 for tick in ticks)


async def test_replicas_share_the_ticks_of_one_schedule(replica: Callable[[], Oncron]) -> None:
    ran: list[datetime | None] = []
    enough = asyncio.Event()
    replicas = [replica(), replica(), replica()]

    for app in replicas:

        @app.schedule(FAST, overlap="allow", missed="all")
        async def beat(ctx: RunContext) -> None:
            ran.append(ctx.tick)
            if len(ran) >= 8:
                enough.set()

    for app in replicas:
        await app.start()
    await asyncio.wait_for(enough.wait(), 20)
    for app in replicas:
        await app.stop()
    ticks = sorted(tick for tick in ran if tick is not None)
    assert len(ticks) == len(set(ticks))
    assert [b - a for a, b in itertools.pairwise(ticks)] == [timedelta(seconds=0.2)] * (len(ticks) - 1)


async def test_two_schedules_of_one_task_have_their_own_arguments(app: Oncron) -> None:
    kinds: set[str] = set()
    both = asyncio.Event()

    @app.schedule(FAST, name="days", args={"kind": "day"})
    @app.schedule(FAST, name="months", args={"kind": "month"})
    @app.task
    async def report(kind: str) -> None:
        kinds.add(kind)
        if len(kinds) == 2:
            both.set()

    async with app:
        await asyncio.wait_for(both.wait(), 15)


async def test_a_schedule_is_listed_with_its_next_tick(app: Oncron) -> None:
    @app.schedule(every(hours=1), tags=["night"], overlap="wait")
    def job() -> None: ...

    async with app:
        (schedule,) = await app.schedules(tag="night")
        assert (schedule.name, schedule.task, schedule.overlap, schedule.status) == ("job", "job", "wait", "active")
        assert schedule.next_at is not None
        assert timedelta(0) < schedule.next_at - datetime.now(UTC) <= timedelta(hours=1)
        assert schedule.describe() == "every hour"


async def test_a_paused_schedule_owes_nothing_when_it_is_resumed(app: Oncron, heard: Callable) -> None:
    @app.schedule(FAST)
    def job() -> None: ...

    async with app:
        await heard("tick.fired")
        await app.pause("job", note="holiday")
        count = len(await app.runs(schedule="job"))
        paused = await app.get_schedule("job")
        assert (paused.paused, paused.note, paused.next_at) == (True, "holiday", None)
        await app.resume("job")
        await heard("schedule.resumed")
        resumed = (await app.get_schedule("job")).next_at
        assert resumed is not None
        runs = await app.runs(schedule="job")
        assert all(run.tick is not None and not run.is_new for run in runs[: len(runs) - count])


async def test_a_schedule_may_be_declared_paused(replica: Callable[[], Oncron]) -> None:
    app, again = replica(), replica()

    @app.schedule(FAST, paused=True)
    def job() -> None: ...

    async with app:
        assert (await app.get_schedule("job")).paused
        await app.resume("job")
        assert not (await app.get_schedule("job")).paused

    @again.schedule(FAST, paused=True, name="job")
    def job_again() -> None: ...

    async with again:
        assert not (await again.get_schedule("job")).paused, "paused= counts at the first declaration only"


async def test_run_now_leaves_the_ticks_alone(app: Oncron) -> None:
    @app.schedule(every(hours=1))
    async def job(ctx: RunContext) -> str | None:
        return ctx.schedule

    async with app:
        before = await app.get_schedule("job")
        run = await app.fire("job", reason="asked for by Ada")
        assert await run.wait(10) == "job"
        after = await app.get_schedule("job")
    assert (run.tick, run.schedule) == (None, "job")
    assert (before.cursor, before.next_at) == (after.cursor, after.next_at)


async def test_a_tick_is_skipped_while_the_last_run_is_open(app: Oncron, heard: Callable) -> None:
    go = asyncio.Event()

    @app.schedule(FAST)
    async def slow() -> None:
        await go.wait()

    async with app:
        await heard("run.started")
        skipped = await heard("tick.skipped")
        assert (skipped.schedule, skipped.reason) == ("slow", "overlap")
        with pytest.raises(Occupied):
            await app.fire("slow")
        assert len(await app.runs(schedule="slow")) == 1
        go.set()


async def test_with_overlap_allow_runs_overlap(app: Oncron) -> None:
    running, two = 0, asyncio.Event()

    @app.schedule(FAST, overlap="allow")
    async def slow() -> None:
        nonlocal running
        running += 1
        if running == 2:
            two.set()
        await two.wait()

    async with app:
        await asyncio.wait_for(two.wait(), 15)


async def test_with_overlap_cancel_a_new_tick_stops_the_old_run(app: Oncron) -> None:
    cancelled = asyncio.Event()

    @app.schedule(every(seconds=0.5), overlap="cancel")
    async def slow(ctx: RunContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with app:
        await asyncio.wait_for(cancelled.wait(), 15)


async def test_once_runs_at_its_instant_and_never_again(app: Oncron) -> None:
    at = datetime.now(UTC) + timedelta(seconds=0.5)

    @app.schedule(once(at))
    async def launch(ctx: RunContext) -> None:
        assert ctx.tick == at
        done.set()

    done = asyncio.Event()
    async with app:
        await asyncio.wait_for(done.wait(), 15)
        assert (await app.get_schedule("launch")).next_at is None
        assert len(await app.runs(schedule="launch")) == 1


async def test_once_that_was_missed_for_less_than_a_day_is_made_up_for(app: Oncron) -> None:
    done = asyncio.Event()

    @app.schedule(once(datetime.now(UTC) - timedelta(hours=1)))
    async def launch(ctx: RunContext) -> None:
        assert ctx.is_catchup
        assert ctx.late_by > timedelta(minutes=59)
        done.set()

    async with app:
        await asyncio.wait_for(done.wait(), 15)


async def test_a_limit_counts_runs(app: Oncron, heard: Callable) -> None:
    @app.schedule(FAST, limit=2, overlap="allow")
    def job() -> None: ...

    async with app:
        await heard("run.succeeded")
        await heard("run.succeeded")
        assert (await app.get_schedule("job")).next_at is None
        assert len(await app.runs(schedule="job")) == 2


async def test_a_tenants_schedule_is_put_at_run_time_and_removed(app: Oncron) -> None:
    seen: list[int] = []
    ran = asyncio.Event()

    @app.task
    async def sync_tenant(tenant_id: int) -> None:
        seen.append(tenant_id)
        ran.set()

    async with app:
        await app.put_schedule("tenant-7", FAST, "sync_tenant", args={"tenant_id": 7})
        await asyncio.wait_for(ran.wait(), 15)
        await app.remove_schedule("tenant-7")
        assert await app.schedules() == []
    assert set(seen) == {7}


async def test_a_changed_trigger_takes_effect_at_once(replica: Callable[[], Oncron]) -> None:
    older, newer, ran = replica(), replica(), asyncio.Event()

    @older.schedule(every(hours=1), name="job")
    async def old() -> None: ...

    async with older:
        pass

    @newer.schedule(FAST, name="job")
    async def new() -> None:
        ran.set()

    async with newer:
        await asyncio.wait_for(ran.wait(), 15)
        assert (await newer.get_schedule("job")).revision > 1


async def test_a_backfill_runs_what_was_never_run_and_may_be_repeated(app: Oncron) -> None:
    """A schedule that is new here, and the hours before it that nobody ran."""
    days: list[datetime | None] = []

    @app.task
    async def tally(ctx: RunContext) -> None:
        days.append(ctx.tick)

    await app.put_schedule("tally", every(hours=1), tally)
    until = datetime.now(UTC)
    done = await app.backfill("tally", until - timedelta(hours=6), until)
    assert (await app.backfill("tally", until - timedelta(hours=6), until)).on_record == done.created == done.ticks == 6
    async with app:
        for run_id in done.runs:
            await (await app.get_run(run_id)).wait(15)
    assert sorted(day for day in days if day is not None) == [done.first + k * timedelta(hours=1) for k in range(6)]


async def test_why_tells_what_became_of_a_tick(app: Oncron) -> None:
    """Asked of any instant: the answer comes from what is on record."""
    ran: asyncio.Queue[datetime | None] = asyncio.Queue()

    @app.schedule(FAST)
    async def beat(ctx: RunContext) -> None:
        ran.put_nowait(ctx.tick)

    async with app:
        tick = await asyncio.wait_for(ran.get(), 15)
        await app.pause("beat", note="moving house")
    assert tick is not None
    assert (await app.why("beat", tick)).verdict == "run"
    assert (await app.why("beat", tick + timedelta(milliseconds=100))).verdict == "not_a_tick"
    later = await app.why("beat", tick + timedelta(hours=1))
    assert (later.verdict, "moving house" in str(later)) == ("paused", True)
