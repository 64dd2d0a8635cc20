"""What gocron (G) and Senna (S) do, and ours where no other test shows it. `docs/reference/parity.md` has every row."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime

from oncron import Event, Oncron, RunContext, every

Replica = Callable[[], Oncron]
Heard = Callable[[str], Awaitable[Event]]
FAST = every(seconds=0.2)


async def test_G03_a_stopped_app_starts_again_and_makes_up_for_what_it_missed(replica: Replica) -> None:
    """gocron replays nothing; here `missed` rules: the newest tick runs once and stands for the others."""
    app, other = replica(), replica()
    ran: asyncio.Queue[RunContext] = asyncio.Queue()
    a_while_later = asyncio.Event()

    @app.schedule(FAST)
    async def job(ctx: RunContext) -> None:
        ran.put_nowait(ctx)

    @other.task
    async def clock() -> None:
        a_while_later.set()

    async with app:
        await asyncio.wait_for(ran.get(), 15)
    while not ran.empty():
        ran.get_nowait()
    await clock.options(delay=0.7).enqueue()
    await other.start(scheduler=False)
    await asyncio.wait_for(a_while_later.wait(), 15)
    await other.stop()
    async with app:
        first = await asyncio.wait_for(ran.get(), 15)
    assert first.missed_count >= 1


async def test_G32_a_limit_holds_for_all_replicas_together(replica: Replica) -> None:
    replicas = [replica() for _ in range(3)]
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in replicas:

        @one.schedule(FAST, limit=3, overlap="allow", name="thrice")
        async def thrice() -> None: ...

        @one.on("run.succeeded")
        def count(_: Event) -> None:
            seen.append(1)
            if len(seen) == 3:
                loop.call_soon_threadsafe(done.set)

    seen: list[int] = []
    for one in replicas:
        await one.start()
    await asyncio.wait_for(done.wait(), 15)
    schedule = await replicas[0].get_schedule("thrice")
    for one in replicas:
        await one.stop()
    assert schedule.next_at is None
    assert len(await replicas[0].runs(schedule="thrice")) == 3


async def test_G42_an_error_is_told_to_listeners(app: Oncron, heard: Heard) -> None:
    @app.task(retries=0)
    async def broken() -> None:
        raise ValueError("no such shop")

    async with app:
        run = await broken.enqueue()
        event = await heard("run.failed")
    assert (event.run, event.reason) == (run.id, "ValueError: no such shop")


async def test_G44_singleton_reschedule_skips_ticks_across_replicas(replica: Replica) -> None:
    """`overlap="skip"`: in gocron each process has its own singleton."""
    going, go, skipped = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    replicas = [replica(), replica()]
    started: list[str] = []
    for one in replicas:

        @one.schedule(FAST, overlap="skip", name="job")
        async def job(ctx: RunContext) -> None:
            started.append(ctx.run_id)
            going.set()
            await go.wait()

        @one.on("tick.skipped")
        def skip(event: Event) -> None:
            if event.reason == "overlap":
                loop.call_soon_threadsafe(skipped.set)

    for one in replicas:
        await one.start()
    await asyncio.wait_for(going.wait(), 15)
    await asyncio.wait_for(skipped.wait(), 15)
    assert len(started) == 1
    assert len(await replicas[0].runs(schedule="job")) == 1
    go.set()
    for one in replicas:
        await one.stop()


async def test_G44_singleton_wait_queues_ticks_in_the_store(replica: Replica) -> None:
    """`overlap="queue"`: in gocron they wait in the memory of one process."""
    going, go, queued = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    replicas = [replica(), replica()]
    at_once: list[int] = [0]
    ticks: list[datetime | None] = []
    for one in replicas:

        @one.schedule(FAST, overlap="queue", limit=3, name="job")
        async def job(ctx: RunContext) -> None:
            at_once[0] += 1
            assert at_once[0] == 1
            ticks.append(ctx.tick)
            going.set()
            await go.wait()
            at_once[0] -= 1

        @one.on("tick.fired")
        def fired(_: Event) -> None:
            count.append(1)
            if len(count) == 3:
                loop.call_soon_threadsafe(queued.set)

    count: list[int] = []
    for one in replicas:
        await one.start()
    await asyncio.wait_for(going.wait(), 15)
    await asyncio.wait_for(queued.wait(), 15)
    runs = await replicas[0].runs(schedule="job")
    assert sorted(run.state for run in runs) == ["pending", "pending", "running"]
    go.set()
    for run in runs:
        await run.wait(15)
    for one in replicas:
        await one.stop()
    assert ticks == sorted(ticks)
    assert len(ticks) == 3


async def test_G60_an_event_has_many_listeners_and_a_slow_one_swallows_no_tick(app: Oncron) -> None:
    ticks: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    stuck = threading.Event()

    @app.schedule(FAST)
    async def job() -> None: ...

    @app.on("tick.fired")
    def slow(_: Event) -> None:
        stuck.wait(20)

    @app.on("tick.fired")
    def quick(_: Event) -> None:
        loop.call_soon_threadsafe(ticks.put_nowait, None)

    async with app:
        for _ in range(4):
            await asyncio.wait_for(ticks.get(), 15)
        stuck.set()


async def test_S10_a_worker_runs_ten_at_once(app: Oncron) -> None:
    ten, go = asyncio.Event(), asyncio.Event()
    at_once: set[str] = set()

    @app.task
    async def job(ctx: RunContext) -> None:
        at_once.add(ctx.run_id)
        if len(at_once) == 10:
            ten.set()
        await go.wait()

    await job.enqueue_many([{}] * 12)
    async with app:
        await asyncio.wait_for(ten.wait(), 15)
        states = [run.state for run in await app.runs(task="job")]
        assert (states.count("running"), states.count("pending")) == (10, 2)
        go.set()


async def test_S11_queues_in_strict_order(replica: Replica) -> None:
    order = await _order(replica, ["critical", "default"], {"default": 3, "critical": 3})
    assert order == ["critical"] * 3 + ["default"] * 3


async def test_S11_queues_by_weight(replica: Replica) -> None:
    order = await _order(replica, {"critical": 50, "default": 1}, {"default": 20, "critical": 20})
    assert sorted(order) == ["critical"] * 20 + ["default"] * 20
    assert order[:20].count("critical") > 10, "the heavy queue comes first mostly"


async def _order(replica: Replica, queues: object, amounts: dict[str, int]) -> list[str]:
    """In which order one worker with one slot takes runs from the queues."""
    app = replica()
    other = Oncron("memory://", queues=queues, concurrency=1, lease_for=3)  # type: ignore[arg-type]
    other._open = app._open
    order: list[str] = []
    done = asyncio.Event()

    @other.task
    async def job(queue: str) -> None:
        order.append(queue)
        if len(order) == sum(amounts.values()):
            done.set()

    for queue, amount in amounts.items():
        await job.options(queue=queue).enqueue_many([{"queue": queue}] * amount)
    async with other:
        await asyncio.wait_for(done.wait(), 20)
    return order


async def test_S15_a_delayed_run_starts_at_its_time_and_not_at_the_next_poll(app: Oncron) -> None:
    @app.task
    async def job(ctx: RunContext) -> float:
        return ctx.late_by.total_seconds()

    async with app:
        run = await job.options(delay=0.4).enqueue()
        assert 0 <= await run.wait(15) < 2.5, "Senna looks every five seconds"


async def test_S20_a_worker_is_named_by_host_process_and_start(replica: Replica) -> None:
    one, two = replica(), replica()
    async with one, two:
        workers = (await one.stats()).workers
    names = [worker.id for worker in workers]
    assert len(set(names)) == 2
    for name in names:
        assert re.fullmatch(rf"{re.escape(socket.gethostname())}:{os.getpid()}:[0-9a-f]{{8}}", name)


async def test_S74_a_schedule_gives_its_runs_arguments_queue_and_retries(app: Oncron) -> None:
    got: asyncio.Queue[str] = asyncio.Queue()

    @app.task
    async def send(to: str) -> None:
        got.put_nowait(to)

    app.add_schedule("letters", FAST, send, args={"to": "ada"}, queue="mail", retries=7, priority=2, limit=1)
    async with app:
        assert await asyncio.wait_for(got.get(), 15) == "ada"
    (run,) = await app.runs(schedule="letters")
    assert (run.args, run.queue, run.priority, run.record.retries) == ({"to": "ada"}, "mail", 2, 7)


async def test_S79_the_history_of_a_schedule_outlives_its_replicas(replica: Replica) -> None:
    before, after = replica(), replica()
    ran = asyncio.Event()

    @before.schedule(FAST, limit=1)
    async def job() -> str:
        ran.set()
        return "done"

    async with before:
        await asyncio.wait_for(ran.wait(), 15)
    (run,) = await after.runs(schedule="job")
    assert (run.state, run.result, run.attempt) == ("succeeded", "done", 1)
    assert run.tick is not None
    assert run.ended_at is not None
    assert run.ended_at > run.tick


async def test_S80_scheduled_and_enqueued_runs_share_one_task(app: Oncron) -> None:
    ran: asyncio.Queue[str | None] = asyncio.Queue()

    @app.schedule(FAST, limit=1)
    async def job(ctx: RunContext) -> None:
        ran.put_nowait(ctx.schedule)

    async with app:
        await job.enqueue()
        assert {await asyncio.wait_for(ran.get(), 15), await asyncio.wait_for(ran.get(), 15)} == {"job", None}
