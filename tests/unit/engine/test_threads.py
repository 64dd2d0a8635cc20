"""Real threads and a real clock: functions that are not async, and a loop that its user blocks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from oncron._engine.blocking import Threads
from oncron._engine.engine import Engine
from oncron._engine.spec import Execution, Settings, TaskSpec
from oncron._events import Event
from oncron._lifecycle import GiveUp, RetryIn, Skip
from oncron._model import NewRun, Pulse, RunRecord, RunState, new_run_id
from oncron.stores.memory import MemoryStore

SECOND = 1_000_000


class Heard(MemoryStore):
    """Tells of each heartbeat."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__()
        self._beat = beat

    async def heartbeat(self, *args: Any, **options: Any) -> Pulse:
        pulse = await super().heartbeat(*args, **options)
        self._beat()
        return pulse


class Real:
    """A running engine, and what it told."""

    engine: Engine

    def __init__(self) -> None:
        self.store = Heard(lambda: self.emit(Event(name="heartbeat", at=datetime.now(UTC))))
        self.events: list[Event] = []
        self.loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def emit(self, event: Event) -> None:
        self.loop.call_soon_threadsafe(self._hear, event)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def heard(self, name: str, run: str | None = None) -> Event:
        async with asyncio.timeout(10):
            while True:
                for event in self.events:
                    if event.name == name and run in (None, event.run):
                        return event
                self._news.clear()
                await self._news.wait()

    async def enqueue(self, task: str = "send", **options: Any) -> str:
        run = NewRun(**({"id": new_run_id(), "task": task, "retry_delay": 0} | options))
        await self.store.enqueue([run])
        self.engine.hint()
        return run.id

    async def run_of(self, run_id: str) -> RunRecord:
        run = await self.store.get_run(run_id)
        assert run is not None
        return run


def spec(name: str, call: Callable[[Execution], Any], *, is_async: bool = False, **options: Any) -> TaskSpec:
    fields = {"prepare": lambda execution: lambda: call(execution), "encode": repr, "backoff": lambda *_: 10_000}
    return TaskSpec(name=name, is_async=is_async, **(fields | options))


@asynccontextmanager
async def real(
    *specs: TaskSpec, user_loop: asyncio.AbstractEventLoop | None = None, **settings: Any
) -> AsyncIterator[Real]:
    one = Real()
    engine = one.engine = Engine(
        make_store=lambda: one.store,
        settings=Settings(**({"lease_for": 600_000, "stop_within": SECOND // 2} | settings)),
        tasks={spec.name: spec for spec in specs},
        definitions=list,
        emit=one.emit,
    )
    await engine.start(scheduler=True, worker=True, user_loop=user_loop or one.loop)
    try:
        yield one
    finally:
        await engine.stop()
        engine.close()


# --- threads ----------------------------------------------------------------------------------


async def test_a_plain_function_runs_in_a_thread_of_its_own_and_returns_its_result() -> None:
    where: list[threading.Thread] = []

    def send(_execution: Execution) -> int:
        where.append(threading.current_thread())
        return 7

    async with real(spec("send", send)) as one:
        run_id = await one.enqueue()
        await one.heard("run.succeeded", run_id)

        assert (await one.run_of(run_id)).result == "7"
        assert where[0].name.startswith("oncron-task")
        assert where[0].daemon, "a task that never returns must not keep the process from leaving"


async def test_ten_functions_that_wait_for_each_other_run_at_once() -> None:
    barrier = threading.Barrier(10, timeout=5)

    async with real(spec("send", lambda _execution: barrier.wait() >= 0)) as one:
        runs = [await one.enqueue() for _ in range(10)]
        for run_id in runs:
            await one.heard("run.succeeded", run_id)


async def test_threads_are_used_again() -> None:
    threads: set[str] = set()

    async with real(
        spec("send", lambda _execution: threads.add(threading.current_thread().name)), concurrency=2
    ) as one:
        for _ in range(10):
            await one.heard("run.succeeded", await one.enqueue())

    assert len(threads) <= 2


class Large: ...


def test_an_idle_thread_keeps_no_result_alive() -> None:
    threads, gone = Threads("idle"), threading.Event()

    result = weakref.ref(threads.submit(Large).result(10), lambda _: gone.set())

    assert gone.wait(10), result
    threads.close()


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError("no"), RunState.FAILED),
        (SystemExit(1), RunState.FAILED),
        (KeyboardInterrupt(), RunState.FAILED),
        (asyncio.CancelledError(), RunState.FAILED),
        (ExceptionGroup("both", [ValueError(), OSError()]), RunState.FAILED),
        (GiveUp("enough"), RunState.FAILED),
        (Skip("not today"), RunState.SKIPPED),
        (RetryIn(0), RunState.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_B151_whatever_a_thread_raises_is_recorded_and_the_next_run_finds_a_thread(
    error: BaseException, state: RunState
) -> None:
    def send(_execution: Execution) -> None:
        raise error

    async with real(spec("send", send), spec("well", lambda _execution: None), concurrency=1) as one:
        run_id = await one.enqueue(retries=1)
        await one.heard(f"run.{state}", run_id)
        assert (await one.run_of(run_id)).state is state
        await one.heard("run.succeeded", await one.enqueue("well"))


async def test_a_thread_past_its_timeout_is_told_keeps_its_lease_and_has_timed_out_when_it_returns() -> None:
    told, release = threading.Event(), threading.Event()
    starts: list[int] = []

    def send(execution: Execution) -> str:
        starts.append(execution.run.attempt)
        assert execution.stop.wait(5), "ctx.stopping"
        told.set()
        assert release.wait(5)
        return "late"

    async with real(spec("send", send)) as one:
        run_id = await one.enqueue(timeout=100_000, retries=0)
        overrun = await one.heard("run.overrun", run_id)
        assert overrun.reason == "timeout"
        assert await asyncio.to_thread(told.wait, 5)
        reaped = await one.store.reap()
        assert reaped.runs == ()
        one.events.clear()
        await one.heard("heartbeat")  # its lease is renewed while it overruns
        release.set()
        await one.heard("run.failed", run_id)

        run = await one.run_of(run_id)
        assert (run.state, run.attempt, starts) == (RunState.FAILED, 1, [1])
        assert "timeout of 0.1 s" in (run.reason or "")


async def test_a_cancelled_thread_that_returns_has_succeeded() -> None:
    def send(execution: Execution) -> str:
        assert execution.stop.wait(5)
        return "in time"

    async with real(spec("send", send)) as one:
        run_id = await one.enqueue()
        await one.heard("run.started", run_id)
        await one.store.cancel(run_id)
        await one.heard("run.succeeded", run_id)


async def test_a_cancelled_thread_that_raises_is_cancelled() -> None:
    def send(execution: Execution) -> None:
        assert execution.stop.wait(5)
        raise InterruptedError("told to stop")

    async with real(spec("send", send)) as one:
        run_id = await one.enqueue(retries=5)
        await one.heard("run.started", run_id)
        await one.store.cancel(run_id)
        await one.heard("run.cancelled", run_id)

        assert (await one.run_of(run_id)).attempt == 1


async def test_context_variables_of_one_run_are_not_seen_by_the_next_in_the_same_thread() -> None:
    mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")
    seen: list[str] = []

    def send(_execution: Execution) -> None:
        seen.append(mark.get())
        mark.set("dirty")

    async with real(spec("send", send), concurrency=1) as one:
        for _ in range(3):
            await one.heard("run.succeeded", await one.enqueue())

    assert seen == ["clean"] * 3


# --- stopping ---------------------------------------------------------------------------------


async def test_a_thread_that_does_not_return_is_left_to_its_lease_and_everything_else_is_given_back() -> None:
    release = threading.Event()

    async def polite(_execution: Execution) -> None:
        await asyncio.Event().wait()

    async with real(
        spec("send", lambda _execution: release.wait(10)), spec("polite", polite, is_async=True), stop_within=200_000
    ) as one:
        stuck, other = await one.enqueue(retries=0), await one.enqueue("polite", retries=1)
        await one.heard("run.started", stuck)
        await one.heard("run.started", other)
        began = time.monotonic()
        await one.engine.stop()

        assert time.monotonic() - began < 3
        assert [run.id for run in one.engine.unfinished] == [stuck]
        assert (await one.run_of(stuck)).state is RunState.RUNNING
        run = await one.run_of(other)
        assert (run.state, run.given_back) == (RunState.PENDING, 1)
        release.set()


async def test_started_again_it_takes_what_an_unfinished_thread_holds_for_nobodys_but_that_threads() -> None:
    """The thread of the life before still runs: its run is neither given back nor started a second time."""
    release = threading.Event()
    starts: list[str] = []

    def send(execution: Execution) -> None:
        starts.append(execution.run.id)
        assert release.wait(10)

    async with real(spec("send", send), spec("well", lambda _execution: None), stop_within=0) as one:
        run_id = await one.enqueue(retries=0)
        await one.heard("run.started", run_id)
        await one.engine.stop()
        await one.engine.start(scheduler=True, worker=True, user_loop=one.loop)
        await one.heard("run.succeeded", await one.enqueue("well"))
        await one.heard("run.lost", run_id)

        assert (await one.run_of(run_id)).state is RunState.LOST
        assert starts == [run_id]
        release.set()


# --- the user's loop --------------------------------------------------------------------------


async def test_B099_a_task_that_blocks_the_users_loop_for_three_leases_keeps_its_lease() -> None:
    users = asyncio.new_event_loop()
    thread = threading.Thread(target=users.run_forever)
    thread.start()
    blocked = threading.Event()

    async def send(_execution: Execution) -> str:
        blocked.wait(1.8)  # three leases; the users' loop does nothing else meanwhile
        return "at last"

    try:
        async with real(spec("send", send, is_async=True), user_loop=users) as one:
            run_id = await one.enqueue(retries=0)
            await one.heard("run.succeeded", run_id)

            run = await one.run_of(run_id)
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
            assert [event.name for event in one.events if event.name in ("lease.lost", "run.lost")] == []
    finally:
        users.call_soon_threadsafe(users.stop)
        thread.join(5)
        users.close()


async def test_async_tasks_run_on_the_users_loop_and_the_engine_on_its_own() -> None:
    where: list[tuple[asyncio.AbstractEventLoop, str]] = []

    async def send(_execution: Execution) -> None:
        where.append((asyncio.get_running_loop(), threading.current_thread().name))

    async with real(spec("send", send, is_async=True)) as one:
        await one.heard("run.succeeded", await one.enqueue())

        assert where == [(one.loop, threading.current_thread().name)]
        assert one.engine._home is not None
        assert one.engine._home.loop is not one.loop


async def test_after_close_no_thread_of_the_engine_is_left() -> None:
    others = set(threading.enumerate())
    async with real(spec("send", lambda _execution: None)) as one:
        await one.heard("run.succeeded", await one.enqueue())
        await one.engine.stop()
        mine = [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("oncron")]
    for thread in mine:
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()


class Told(MemoryStore):
    """Counts the hints that came through; each takes a few turns of the loop, as one over a network does."""

    hints = 0

    async def hint(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        self.hints += 1
        await super().hint()


def test_a_process_that_writes_and_closes_at_once_has_told_the_others() -> None:
    for _ in range(20):
        store = Told()
        engine = Engine(make_store=lambda: store, settings=Settings(), tasks={}, definitions=list, emit=lambda _: None)  # noqa: B023 - used within the turn
        engine.call(lambda opened: opened.enqueue([NewRun(id=new_run_id(), task="send")])).result(5)

        engine.hint()
        engine.close()

        assert store.hints == 1
