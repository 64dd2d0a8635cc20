"""Start, stop, and the ways to hold an app open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from oncron import Oncron, RunContext, _clock, every
from oncron._clock import SECOND
from oncron.errors import AlreadyRunning, DefinitionError, InvalidOption, Stopped, StoreUnavailable


@pytest.fixture
def where(app: Oncron) -> Any:
    @app.task
    async def where() -> str:
        return threading.current_thread().name

    return where


async def test_async_tasks_run_on_the_loop_that_started_the_app(app: Oncron, where: Any) -> None:
    async with app as entered:
        assert entered is app
        assert await (await where.enqueue()).wait(10) == threading.current_thread().name


def test_with_an_app_async_tasks_run_on_a_loop_of_its_own(app: Oncron, where: Any) -> None:
    with app:
        run = where.enqueue_sync()
        assert app.sync(run.wait(10)) == "oncron-tasks"


async def test_sync_tasks_run_in_threads(app: Oncron) -> None:
    @app.task
    def where() -> str:
        return threading.current_thread().name

    async with app:
        assert (await (await where.enqueue()).wait(10)).startswith("oncron-task-")


async def test_an_async_task_may_ask_for_a_thread(app: Oncron) -> None:
    @app.task(executor="thread")
    async def where() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async with app:
        assert (await (await where.enqueue()).wait(10)).startswith("oncron-task-")


async def test_start_while_running_is_refused_and_start_after_stop_is_not(app: Oncron, where: Any) -> None:
    await app.start()
    with pytest.raises(AlreadyRunning, match="running"):
        await app.start()
    await app.stop()
    await app.stop()
    await app.start()
    assert await (await where.enqueue()).wait(10)
    await app.stop()


async def test_an_app_that_was_never_started_closes_its_connections_and_opens_them_again(
    app: Oncron, where: Any
) -> None:
    def engines() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "oncron-engine"}

    others = engines()
    await where.enqueue()
    (mine,) = engines() - others

    await app.stop()

    mine.join(10)
    assert not mine.is_alive()
    assert [run.state for run in await app.runs()] == ["pending"]
    (again,) = engines() - others
    await app.stop()
    again.join(10)
    assert not again.is_alive()


async def test_a_replica_tells_how_far_its_clock_is_off_and_which_oncron_it_is(
    make_app: Callable[..., Oncron], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clock, "_OFFSET", -90 * SECOND)
    async with make_app(f"sqlite:///{tmp_path}/jobs.db") as app:
        (me,) = (await app.stats()).workers
    assert timedelta(seconds=-91) < me.skew < timedelta(seconds=-89)
    assert me.version == metadata.version("oncron")


async def test_after_stop_nothing_is_declared_or_enqueued_g06(app: Oncron, where: Any) -> None:
    async with app:
        pass
    for declare in (
        lambda: app.task(lambda: None),
        lambda: app.add_schedule("s", every(hours=1), where),
        lambda: app.schedule(every(hours=1))(where.fn),
        lambda: app.on("run.failed")(print),
    ):
        with pytest.raises(Stopped, match="until it is started again"):
            declare()
    for call in (
        where.enqueue(),
        where.enqueue_many([{}]),
        app.enqueue("where"),
        app.fire("where"),
        app.put_schedule("s", every(hours=1), "where"),
    ):
        with pytest.raises(Stopped):
            await call
    assert await app.runs() == []


async def test_a_running_task_may_enqueue_while_the_app_stops(app: Oncron, where: Any) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def job() -> None:
        started.set()
        await go.wait()
        await where.options(delay=60).enqueue()

    await app.start()
    run = await job.enqueue()
    await started.wait()
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert (await app.get_run(run.id)).state == "succeeded"
    assert len(await app.runs(task="where")) == 1


async def test_two_who_stop_both_wait_for_the_end(app: Oncron, where: Any) -> None:
    await app.start()
    await asyncio.gather(app.stop(), app.stop())
    with pytest.raises(Stopped):
        await where.enqueue()


def test_a_call_that_is_under_way_when_the_app_has_stopped_raises_instead_of_waiting_for_ever(app: Oncron) -> None:
    under_way = threading.Event()

    async def for_ever(store: object) -> None:
        under_way.set()
        await asyncio.Event().wait()

    with app:
        call = app._engine().call(for_ever)
        assert under_way.wait(10)
    with pytest.raises(StoreUnavailable, match="stopped during this call"):
        call.result(5)
    assert app.sync(app.runs()) == []


async def test_what_is_declared_while_it_runs_takes_effect_within_a_second(app: Oncron) -> None:
    ran = asyncio.Event()
    async with app:

        @app.schedule(every(seconds=0.2))
        async def late() -> None:
            ran.set()

        await asyncio.wait_for(ran.wait(), 1.5)


async def test_the_lifespan_yields_the_state_that_tasks_see(make_app: Callable[..., Oncron]) -> None:
    seen: list[str] = []
    inside: list[asyncio.Task[Any] | None] = []

    @contextlib.asynccontextmanager
    async def resources(app: Oncron) -> AsyncIterator[str]:
        seen.append("open")
        inside.append(asyncio.current_task())
        yield "the pool"
        inside.append(asyncio.current_task())
        seen.append("closed")

    app = make_app(lifespan=resources)

    @app.task
    def job(ctx: RunContext[str]) -> str:
        seen.append(ctx.state)
        return ctx.state

    async with app:
        assert app.state == "the pool"
        assert await (await job.enqueue()).wait(10) == "the pool"
    assert seen == ["open", "the pool", "closed"]
    assert inside[0] is inside[1]


async def test_state_may_be_set_before_start(app: Oncron) -> None:
    @app.task
    def job(ctx: RunContext) -> str:
        return ctx.state

    app.state = "mine"
    async with app:
        assert await (await job.enqueue()).wait(10) == "mine"


async def test_a_lifespan_that_fails_to_open_leaves_the_app_startable(make_app: Callable[..., Oncron]) -> None:
    broken = True

    @contextlib.asynccontextmanager
    async def resources(app: Oncron) -> AsyncIterator[None]:
        if broken:
            raise OSError("no pool")
        yield

    app = make_app(lifespan=resources)
    with pytest.raises(OSError, match="no pool"):
        await app.start()
    broken = False
    async with app:
        pass


async def test_a_host_holds_the_app_in_its_lifespan(app: Oncron, where: Any) -> None:
    async with app.lifespan(object()):
        assert await (await where.enqueue()).wait(10)
    with pytest.raises(Stopped):
        await where.enqueue()


async def test_serve_returns_when_the_app_is_stopped(app: Oncron) -> None:
    ticked = asyncio.Event()

    @app.schedule(every(seconds=0.1))
    async def beat() -> None:
        ticked.set()

    serving = asyncio.ensure_future(app.serve())
    await asyncio.wait_for(ticked.wait(), 10)
    await app.stop()
    await asyncio.wait_for(serving, 10)


async def test_serve_stops_when_it_is_cancelled(app: Oncron, where: Any) -> None:
    serving = asyncio.ensure_future(app.serve())
    run = await where.enqueue()
    await run.wait(10)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    with pytest.raises(Stopped):
        await where.enqueue()


async def test_a_start_that_is_cancelled_leaves_nothing_running(app: Oncron, where: Any) -> None:
    loop = asyncio.get_running_loop()
    started, stopped = asyncio.Event(), asyncio.Event()
    app.on("worker.started")(lambda event: loop.call_soon_threadsafe(started.set))
    app.on("worker.stopped")(lambda event: loop.call_soon_threadsafe(stopped.set))
    starting = asyncio.ensure_future(app.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not app._engine().running
    if started.is_set():
        await asyncio.wait_for(stopped.wait(), 10)
    async with app:
        assert await (await where.enqueue()).wait(10)


async def test_a_stop_that_is_cancelled_hurries_but_still_stops(make_app: Callable[..., Oncron]) -> None:
    app = make_app(stop_within=60)
    cancelled, running = asyncio.Event(), asyncio.Event()

    @app.task
    async def forever() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await app.start()
    run = await forever.enqueue()
    await running.wait()
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(stopping, 10)
    assert cancelled.is_set()
    assert not app._engine().running
    assert (await app.get_run(run.id)).state == "pending"


async def test_a_stop_that_is_cancelled_again_and_again_still_stops(make_app: Callable[..., Oncron]) -> None:
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def resources(app: Oncron) -> AsyncIterator[None]:
        yield
        seen.append("left")

    app = make_app(lifespan=resources, stop_within=60)
    running, go = threading.Event(), threading.Event()

    @app.task
    def stubborn() -> None:
        running.set()
        go.wait()

    await app.start()
    await stubborn.enqueue()
    assert await asyncio.to_thread(running.wait, 10)
    stopping, other = asyncio.ensure_future(app.stop()), asyncio.ensure_future(app.stop())
    for _ in range(10):
        await asyncio.sleep(0)
        stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(stopping, 20)
    await asyncio.wait_for(other, 10)
    assert seen == ["left"]
    go.set()
    async with app:
        pass
    assert seen == ["left", "left"]


async def test_an_async_task_may_stop_the_app_that_runs_it(make_app: Callable[..., Oncron]) -> None:
    app = make_app(stop_within=0.1)

    @app.task(retries=0)
    async def last() -> None:
        await app.stop()

    serving = asyncio.ensure_future(app.serve())
    run = await last.enqueue()
    await asyncio.wait_for(serving, 20)
    assert (await app.get_run(run.id)).state != "running"
    async with app:
        pass


async def test_a_lifespan_that_was_cancelled_has_been_left(make_app: Callable[..., Oncron]) -> None:
    @contextlib.asynccontextmanager
    async def resources(app: Oncron) -> AsyncIterator[asyncio.Task[Any] | None]:
        yield asyncio.current_task()

    app = make_app(lifespan=resources)
    await app.start()
    app.state.cancel()
    await app.stop()
    async with app:
        pass


async def test_a_replica_may_only_schedule_or_only_work(make_app: Callable[..., Oncron]) -> None:
    ran = asyncio.Event()
    scheduler, worker = make_app(), make_app()
    worker._open = scheduler._open

    @worker.task
    async def job() -> None:
        ran.set()

    scheduler.add_schedule("s", every(seconds=0.2), "job")
    await scheduler.start(worker=False)
    await worker.start(scheduler=False)
    await asyncio.wait_for(ran.wait(), 10)
    roles = sorted(replica.roles for replica in (await worker.stats()).workers)
    assert roles == [("scheduler",), ("worker",)]
    await worker.stop()
    await scheduler.stop()
    with pytest.raises(InvalidOption, match="nothing is left to run"):
        await scheduler.start(scheduler=False, worker=False)


def test_starting_through_sync_is_refused(app: Oncron) -> None:
    with pytest.raises(DefinitionError, match="with app"):
        app.sync(app.start())


async def test_imports_bring_the_tasks_of_other_modules(
    make_app: Callable[..., Oncron], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_jobs_imported.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = make_app(imports=["shop_jobs_imported"])
    async with app:
        assert sys.modules["shop_jobs_imported"].loaded
    missing = make_app(imports=["no_such_module_here"])
    with pytest.raises(InvalidOption, match="no_such_module_here"):
        await missing.start()


# --- forks ---------------------------------------------------------------------------------------


def in_child(work: Callable[[], bytes]) -> bytes:
    """What `work` answers in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, work())
        except BaseException as error:  # noqa: BLE001 - the parent asserts on it
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def test_a_forked_child_has_an_engine_of_its_own(make_app: Callable[..., Oncron], tmp_path: Any) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def job(n: int) -> None: ...

    job.enqueue_sync(1)
    parent = app._engine().worker_id

    def child() -> bytes:
        return f"{job.enqueue_sync(2).args} {app._engine().worker_id != parent}".encode()

    said = in_child(child)
    assert said == b"{'n': 2} True"
    assert sorted(run.args["n"] for run in app.sync(app.runs())) == [1, 2]


def test_an_app_started_before_a_fork_says_so_in_the_child_and_may_be_started_there_b153(
    make_app: Callable[..., Oncron], tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def job() -> int:
        return os.getpid()

    def child() -> bytes:
        warned = any("started before this process was forked" in r.getMessage() for r in caplog.records)
        with app:
            pass
        return str(warned).encode()

    with app:
        assert in_child(child) == b"True"
        assert app.sync(job.enqueue_sync().wait(10)) == os.getpid()
