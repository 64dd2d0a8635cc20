"""What gocron tells of its schedulers and jobs, and ours, from the store and for the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from oncron import Event, Oncron, RunContext, daily, every, monthly, once
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


async def test_g08_a_changed_schedule_keeps_its_cursor_and_its_history(replica: Replica) -> None:
    """gocron's Update forgets what ran. `put_schedule` replaces the definition and nothing else."""
    app, onlooker = replica(), replica()
    yearly = monthly(29, "03:00", months=12, anchor=date(2028, 2, 1))

    @app.task
    def job() -> None: ...

    async with app:
        before = await app.put_schedule("job", yearly, job)
        run = await app.fire("job")
        await run.wait(15)
        await app.put_schedule("job", yearly, job, queue="mail", retries=9)
        other_options = await onlooker.get_schedule("job")
        await app.put_schedule("job", daily("03:00"), job)
        other_ticks = await onlooker.get_schedule("job")
    assert (other_options.queue, other_options.retries, other_options.cursor) == ("mail", 9, before.cursor)
    assert before.revision < other_options.revision < other_ticks.revision
    assert other_ticks.cursor >= before.cursor
    assert [each.id for each in await onlooker.runs(schedule="job")] == [run.id]


async def test_g18_what_one_process_changes_at_run_time_the_replicas_at_work_follow(replica: Replica) -> None:
    at_work, elsewhere = replica(), replica()
    got: asyncio.Queue[str] = asyncio.Queue()

    @at_work.task
    async def greet(whom: str) -> None:
        got.put_nowait(whom)

    async def until(whom: str) -> None:
        async with asyncio.timeout(15):
            while await got.get() != whom:
                pass

    async with at_work:
        for whom in ("ada", "bob"):
            await elsewhere.put_schedule("greeting", every(seconds=0.1), "greet", args={"whom": whom}, tags=["hello"])
            await until(whom)
        assert await elsewhere.remove_tagged("hello") == ["greeting"]
        assert await at_work.schedules() == []


async def test_g41_a_run_outlives_its_schedule_and_is_cancelled_when_its_replica_stops(app: Oncron) -> None:
    """gocron cancels what runs when its job is removed. Here a schedule is not its runs: `app.cancel` stops one."""
    worker = Oncron("memory://", stop_within=0, lease_for=3)
    worker._open = app._open
    contexts: asyncio.Queue[RunContext] = asyncio.Queue()
    go, cancelled = asyncio.Event(), asyncio.Event()

    @worker.task
    async def job(ctx: RunContext) -> None:
        contexts.put_nowait(ctx)
        try:
            await go.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with worker:
        await app.put_schedule("job", every(seconds=0.2), "job", limit=1)
        ctx = await asyncio.wait_for(contexts.get(), 15)
        assert not ctx.stopping
        await app.remove_schedule("job")
        go.set()
        await (await app.get_run(ctx.run_id)).wait(15)
        go.clear()
        await app.enqueue("job")
        last = await asyncio.wait_for(contexts.get(), 15)
    assert (cancelled.is_set(), last.stopping, ctx.tick is not None) == (True, True, True)


async def test_g26_once_runs_once_in_the_fleet_and_not_again_after_a_restart(replica: Replica) -> None:
    at = datetime.now(UTC) + timedelta(seconds=0.4)
    ran: asyncio.Queue[datetime | None] = asyncio.Queue()
    replicas = [replica() for _ in range(3)]
    for one in replicas:

        @one.schedule(once(at), name="launch")
        async def launch(ctx: RunContext) -> None:
            ran.put_nowait(ctx.tick)

    for one in replicas:
        await one.start()
    assert await asyncio.wait_for(ran.get(), 15) == at
    for one in replicas:
        await one.stop()
    async with replicas[0]:
        assert (await replicas[0].get_schedule("launch")).next_at is None
    assert (len(await replicas[0].runs(schedule="launch")), ran.empty()) == (1, True)
