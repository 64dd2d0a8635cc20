"""What gocron tells of its schedulers and jobs, and ours, from the store and for the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from oncron import Event, Oncron, RunContext, daily, every
from oncron.triggers import parse

Replica = Callable[[], Oncron]


async def test_g05_a_stop_that_is_out_of_time_says_which_runs_did_not_end(app: Oncron) -> None:
    """gocron says that something did not stop; here each run is named, and what becomes of it is on record."""
    worker = Oncron("memory://", stop_within=0, lease_for=3)
    worker._open = app._open
    both = asyncio.Event()
    begun: list[str] = []
    told: dict[str | None, tuple[str, str | None]] = {}

    async def for_ever(ctx: RunContext) -> None:
        begun.append(ctx.run_id)
        if len(begun) == 2:
            both.set()
        await asyncio.Event().wait()

    again = worker.task(for_ever, name="again")
    at_most_once = worker.task(for_ever, name="at-most-once", retries=0)

    @worker.on("run.*")
    def hear(event: Event) -> None:
        told[event.run] = (event.name, event.reason)

    async with worker:
        runs = [await again.enqueue(), await at_most_once.enqueue()]
        await asyncio.wait_for(both.wait(), 15)
    assert told == {runs[0].id: ("run.released", "stopped"), runs[1].id: ("run.lost", "stopped")}
    assert [(await app.get_run(run.id)).state for run in runs] == ["pending", "lost"]
    assert (await app.stats()).workers == ()


async def test_g07_schedules_are_listed_by_name_by_any_replica_and_after_a_stop_too(replica: Replica) -> None:
    one, other = replica(), replica()
    for name in ("weekly report", "invoices", "Zürich"):
        one.add_schedule(name, daily("03:00"), "elsewhere")
    async with one:
        assert [schedule.name for schedule in await other.schedules()] == ["Zürich", "invoices", "weekly report"]
    assert [schedule.name for schedule in await one.schedules()] == ["Zürich", "invoices", "weekly report"]


async def test_g48_what_a_schedule_does_is_told_by_a_process_that_has_no_part_in_it(replica: Replica) -> None:
    """The start of a run is when a worker took it: one that waited behind another did not start when it was sent."""
    worker, onlooker = replica(), replica()
    go, going, two = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop, fired = asyncio.get_running_loop(), list[Event]()

    @worker.schedule(every(seconds=0.2), overlap="queue", limit=2, tags=["night"])
    async def job() -> None:
        going.set()
        await go.wait()

    @worker.on("tick.fired")
    def count(event: Event) -> None:
        fired.append(event)
        if len(fired) == 2:
            loop.call_soon_threadsafe(two.set)

    async with worker:
        await asyncio.wait_for(going.wait(), 15)
        await asyncio.wait_for(two.wait(), 15)
        (schedule,) = await onlooker.schedules(tag="night")
        waiting, running = await onlooker.runs(schedule="job")
        assert (waiting.state, waiting.started_at, running.state) == ("pending", None, "running")
        assert running.worker == (await onlooker.stats()).workers[0].id
        go.set()
        await waiting.wait(15)
    last, first = await onlooker.runs(schedule="job")
    assert first.ended_at is not None
    assert last.started_at is not None
    assert last.started_at >= first.ended_at
    assert last.tick is not None
    assert schedule.describe() == "every 0.2 seconds"
    assert parse(schedule.trigger).between(last.tick, last.tick + timedelta(seconds=0.6)) == [
        last.tick + timedelta(seconds=0.2 * n) for n in (1, 2, 3)
    ]


async def test_g75_what_is_stored_is_all_there_for_a_process_that_starts_after_the_others_have_gone(
    replica: Replica,
) -> None:
    """Definitions, pauses, what waits, and what became of each tick."""
    before, after = replica(), replica()
    ran = asyncio.Event()

    @before.schedule(every(seconds=0.2), limit=1)
    async def job() -> None:
        ran.set()

    async with before:
        await before.put_schedule("tenant", daily("03:00"), "elsewhere", args={"id": 7})
        await before.pause("tenant", note="moving house")
        waits = await before.enqueue("elsewhere", args={"n": 1})
        await asyncio.wait_for(ran.wait(), 15)
    tenant, (run,) = await after.get_schedule("tenant"), await after.runs(schedule="job")
    assert (tenant.args, tenant.paused, tenant.note) == ({"id": 7}, True, "moving house")
    assert (await after.get_run(waits.id)).args == {"n": 1}
    assert run.tick is not None
    assert (await after.why("job", run.tick)).verdict == "run"
