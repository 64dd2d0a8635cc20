"""Faults that others had and that are about a whole replica, each by its entry (`docs/reference/faults.md`)."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from oncron import Event, Oncron, RunContext, every
from oncron._engine import registrar
from oncron._store import ReadableStore

Replica = Callable[[], Oncron]
Heard = Callable[[str], Awaitable[Event]]
FAST = every(seconds=0.2)


async def test_B071_any_replica_fires_any_schedule_and_runs_only_its_own_tasks(replica: Replica) -> None:
    mine, clock = replica(), replica()
    ran: asyncio.Queue[str | None] = asyncio.Queue()

    @mine.schedule(FAST)
    async def job(ctx: RunContext) -> None:
        ran.put_nowait(ctx.schedule)

    async with mine:
        await asyncio.wait_for(ran.get(), 15)
    await mine.start(scheduler=False)
    await clock.start()  # it does not know the schedule, and has no task at all
    for _ in range(3):
        await asyncio.wait_for(ran.get(), 15)
    await clock.stop()
    await mine.stop()


METHODS = ["due", "fire", "claim", "finish", "poll", "heartbeat"]


class Shaky:
    """A store each of whose methods raises once, whatever it may be, at its next call."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store
        self.left: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in self.left:
            self.left.discard(name)
            raise KeyError(f"{name} has a bug")
        return getattr(self._store, name)


async def test_B081_B087_no_error_anywhere_ends_a_loop() -> None:
    app = Oncron("memory://", lease_for=3)
    shaky = Shaky(app._open())
    app._open = dataclasses.replace(app._open, make=lambda: cast("ReadableStore", shaky))
    ticks: asyncio.Queue[None] = asyncio.Queue()

    @app.schedule(FAST)
    async def job() -> None:
        ticks.put_nowait(None)

    @app.task
    async def work() -> None: ...

    async with app:
        for method in METHODS:
            await app.pause("job")
            await app.resume("job")  # so that the schedule is looked for again
            shaky.left.add(method)
            run = await work.enqueue()
            await run.wait(20)
            for _ in range(2):
                await asyncio.wait_for(ticks.get(), 20)
    assert shaky.left <= {"heartbeat"}, "an idle worker's next one comes after twenty seconds"
    app._life.at_exit()


async def test_B099_a_task_that_blocks_the_loop_for_three_leases_runs_once() -> None:
    app = Oncron("memory://", lease_for=1)
    other = Oncron("memory://", lease_for=1)
    other._open = app._open
    attempts: list[int] = []

    for one in (app, other):

        @one.task(name="block")
        async def block(ctx: RunContext) -> None:
            attempts.append(ctx.attempt)
            threading.Event().wait(3.2)  # as a computation would: the loop stands still

    async with app, other:
        run = await app.enqueue("block")
        await run.wait(15)
    assert attempts == [1]
    for one in (app, other):
        one._life.at_exit()


async def test_B137_B135_what_this_release_cannot_read_or_does_not_know_is_left_alone(
    app: Oncron, heard: Heard
) -> None:
    """Rows of a newer release, and schedules of a newer version of the code."""

    @app.schedule(FAST)
    async def job() -> None: ...

    async with app:
        pass
    definition = (await app.get_schedule("job")).record.definition
    newer = replace(definition, name="newer", trigger="quantum(5)", task="unknown")
    unknown = replace(definition, name="unknown", task="unknown")

    async def of_the_newer(store: ReadableStore) -> None:
        await registrar.declare(store, [unknown])
        change = registrar.first_plan(unknown, registrar.trigger_of((await store.schedules(["unknown"]))[0]), 0)
        await store.declare([replace(change, name="newer", definition=newer)])

    await app._desk.ask(of_the_newer)
    async with app:
        for _ in range(3):
            await heard("tick.fired")
        assert {schedule.name: schedule.status for schedule in await app.schedules()} == dict.fromkeys(
            ("job", "newer", "unknown"), "active"
        )
        assert (await app.get_schedule("newer")).describe() == "quantum(5)"
        assert {run.state for run in await app.runs(task="unknown")} == {"pending"}


async def test_B139_code_and_run_time_do_not_overwrite_each_others_schedules(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    app, later = replica(), replica()

    @app.task
    async def job(tenant: int = 0) -> None: ...

    await app.put_schedule("tenant-7", every(hours=1), job, args={"tenant": 7})
    later.add_schedule("tenant-7", every(hours=2), "job")
    async with later:
        assert (await later.get_schedule("tenant-7")).trigger == "every(hours=1)"
    assert "the stored one stands" in caplog.text


async def test_B189_B143_full_slots_hold_up_no_tick_and_no_backlog_grows() -> None:
    app = Oncron("memory://", concurrency=1, lease_for=3)
    go, busy = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    skipped: asyncio.Queue[None] = asyncio.Queue()

    @app.task
    async def slow() -> None:
        busy.set()
        await go.wait()

    @app.schedule(FAST)
    async def job() -> None: ...

    @app.on("tick.skipped")
    def skip(_: Event) -> None:
        loop.call_soon_threadsafe(skipped.put_nowait, None)

    await slow.enqueue()
    async with app:
        await asyncio.wait_for(busy.wait(), 15)
        for _ in range(4):
            await asyncio.wait_for(skipped.get(), 15)
        assert len([run for run in await app.runs(schedule="job") if run.state == "pending"]) <= 1
        go.set()
    app._life.at_exit()
