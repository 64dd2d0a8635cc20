"""What is middleware, and what is told to those who give something else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from oncron import Oncron, RunContext, middleware
from oncron._chain import Kind, layer_of
from oncron.errors import DefinitionError, InvalidOption, RunFailed, Stopped
from tests.unit.face import tenants

CallNext = Callable[[], Awaitable[Any]]
Context = RunContext[Any]


async def function(ctx: Context, call_next: CallNext) -> Any: ...


class AsyncObject:
    async def __call__(self, ctx: Context, call_next: CallNext) -> Any: ...


@contextmanager
def manager(ctx: Context) -> Any:
    yield


@asynccontextmanager
async def async_manager(ctx: Context) -> Any:
    yield


class Manager(contextlib.AbstractContextManager[None]):
    def __init__(self, ctx: Context) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class AsyncManager(contextlib.AbstractAsyncContextManager[None]):
    def __init__(self, ctx: Context) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (function, Kind.FUNCTION),
        (functools.partial(function), Kind.FUNCTION),
        (AsyncObject(), Kind.FUNCTION),
        (manager, Kind.CONTEXT),
        (Manager, Kind.CONTEXT),
        (lambda ctx: contextlib.nullcontext(), Kind.CONTEXT),
        (async_manager, Kind.ASYNC_CONTEXT),
        (AsyncManager, Kind.ASYNC_CONTEXT),
        (functools.partial(async_manager), Kind.ASYNC_CONTEXT),
        (middleware.log(), Kind.FUNCTION),
    ],
)
def test_middleware_is_an_async_function_or_makes_a_context_manager(given: Any, kind: Kind) -> None:
    assert layer_of(given).kind is kind


def plain(ctx: Context, call_next: CallNext) -> Any: ...


def generator(ctx: Context) -> Any:
    yield


async def async_generator(ctx: Context) -> Any:
    yield


async def of_one(ctx: Context) -> Any: ...


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("logging", r"'logging' is no middleware: write `async def m\(ctx, call_next\)`"),
        (None, "None is no middleware"),
        (plain, r"'plain' cannot be called with \(ctx\)"),
        (of_one, r"'of_one' cannot be called with \(ctx, call_next\)"),
        (generator, "'generator' is a generator; put @contextmanager"),
        (async_generator, "'async_generator' is a generator; put @asynccontextmanager"),
    ],
)
def test_what_is_no_middleware_is_refused_with_the_mend(app: Oncron, wrong: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        app.use(wrong)
    assert app._registry.middleware == []


def test_a_tasks_middleware_is_a_list(app: Oncron) -> None:
    with pytest.raises(InvalidOption, match=r"middleware=.*: give a list of middleware, outermost first"):
        app.task(function, name="job", middleware=function)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: middleware.timeout(0), "timeout=0 must be at least"),
        (lambda: middleware.timeout("5"), "timeout='5': a duration is"),  # type: ignore[arg-type]
        (lambda: middleware.retry(0), "times=0: give a number from 1"),
        (lambda: middleware.retry(on="ValueError"), "retry_on='ValueError'|on='ValueError'"),  # type: ignore[arg-type]
        (lambda: middleware.retry(backoff=3), "backoff=3: give exponential"),  # type: ignore[arg-type]
        (lambda: middleware.report("hook"), "give a function of"),  # type: ignore[arg-type]
        (lambda: middleware.log(level="INFO"), "level='INFO': give a whole number"),  # type: ignore[arg-type]
    ],
)
def test_built_in_middleware_refuses_options_it_cannot_have(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        make()


async def test_middleware_is_refused_after_stop(app: Oncron) -> None:
    async with app:
        app.use(function)
    with pytest.raises(Stopped):
        app.use(function)


async def returns_the_coroutine(ctx: Context, call_next: CallNext) -> Any:
    return call_next()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (returns_the_coroutine, "returned a coroutine; write `return await call_next"),
        (lambda ctx: 5, "made a int, which is no context manager"),
        (lambda ctx: contextlib.AsyncExitStack(), "put @asynccontextmanager above it"),
    ],
)
async def test_what_shows_only_when_it_is_called_fails_the_run_with_the_mend(
    app: Oncron, wrong: Any, says: str
) -> None:
    @app.task(middleware=[wrong], retries=0)
    def job() -> None: ...

    async with app:
        with pytest.raises(RunFailed, match=says):
            await (await job.enqueue()).wait(10)


async def test_a_call_that_middleware_leaves_behind_ends_with_it(app: Oncron) -> None:
    going, ended = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def leaves(ctx: Context, call_next: CallNext) -> Any:
        tasks.append(asyncio.create_task(call_next()))  # type: ignore[arg-type]
        await going.wait()
        return "early"

    @app.task(middleware=[leaves])
    async def job() -> None:
        going.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with app:
        assert await (await job.enqueue()).wait(10) == "early"
        assert ended.is_set()


async def test_a_gate_holds_a_run_back_without_starting_it(app: Oncron) -> None:
    """A stop while it waits gives the run back whole, also one that is never repeated."""
    waiting = asyncio.Event()

    async def gate(ctx: Context, call_next: CallNext) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    gate.is_gate = True  # type: ignore[attr-defined]

    @app.task(middleware=[gate], retries=0)
    def job() -> None: ...

    run = await job.enqueue()
    async with app:
        await asyncio.wait_for(waiting.wait(), 10)
        app._life.engine.hurry()
    assert (await app.get_run(run.id)).state == "pending"


async def test_a_context_manager_may_keep_an_error_to_itself(app: Oncron) -> None:
    @app.task(middleware=[lambda ctx: contextlib.suppress(ValueError)], retries=0)
    def job() -> int:
        raise ValueError

    async with app:
        assert await (await job.enqueue()).wait(10) is None


# --- stops, cancels and timeouts --------------------------------------------------------------


async def hangs_afterwards(ctx: Context, call_next: CallNext) -> Any:
    result = await call_next()
    await asyncio.Event().wait()
    return result


async def keeps_its_cancellation(ctx: Context, call_next: CallNext) -> Any:
    try:
        return await call_next()
    except asyncio.CancelledError:
        return "nothing happened"


async def endless() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_that_hangs_after_its_task_ends_with_the_timeout(app: Oncron, is_async: bool) -> None:
    async def quick() -> None: ...

    def plain_and_quick() -> None: ...

    fn: Any = quick if is_async else plain_and_quick
    task = app.task(fn, name="job", middleware=[hangs_afterwards], timeout=0.1, retries=0)
    async with app:
        with pytest.raises(RunFailed, match=r"took longer than its timeout of 0.1 s"):
            await (await task.enqueue()).wait(10)


async def test_middleware_cannot_hide_a_timeout(app: Oncron) -> None:
    task = app.task(endless, middleware=[keeps_its_cancellation], timeout=0.1, retries=0)
    async with app:
        with pytest.raises(RunFailed, match=r"took longer than its timeout of 0.1 s"):
            await (await task.enqueue()).wait(10)


async def test_a_cancel_reaches_a_task_through_its_middleware(make_app: Callable[..., Oncron]) -> None:
    app = make_app(lease_for=1)
    going = asyncio.Event()

    async def passes_on(ctx: Context, call_next: CallNext) -> Any:
        going.set()
        return await call_next()

    task = app.task(endless, middleware=[passes_on])
    async with app:
        run = await task.enqueue()
        await asyncio.wait_for(going.wait(), 10)
        await app.cancel(run.id)
        with pytest.raises(RunFailed, match="cancelled"):
            await run.wait(10)


async def test_a_stop_gives_back_what_hangs_in_middleware(make_app: Callable[..., Oncron]) -> None:
    app = make_app(stop_within=0.1)
    going = asyncio.Event()

    async def going_afterwards(ctx: Context, call_next: CallNext) -> Any:
        await call_next()
        going.set()
        await asyncio.Event().wait()

    @app.task(middleware=[going_afterwards])
    def job() -> None: ...

    async with app:
        run = await job.enqueue()
        await asyncio.wait_for(going.wait(), 10)
    assert (await app.get_run(run.id)).state == "pending"


async def test_a_stop_waits_for_the_thread_inside_of_middleware_whose_success_counts(
    make_app: Callable[..., Oncron],
) -> None:
    app = make_app(stop_within=0.1)
    going, ends = threading.Event(), threading.Event()

    async def changes(ctx: Context, call_next: CallNext) -> Any:
        return f"{await call_next()}, and told so"

    @app.task(middleware=[changes], retries=0)
    def job(ctx: Context) -> str:
        going.set()
        while not ctx.stopping:
            ends.wait(0.01)
        return "came to an end"

    async with app:
        run = await job.enqueue()
        await asyncio.to_thread(going.wait, 10)
    ended = await app.get_run(run.id)
    assert (ended.state, ended.result) == ("succeeded", "came to an end, and told so")


async def test_a_transaction_that_has_ended_the_run_forbids_another_call(
    make_app: Callable[..., Oncron], tmp_path: Any
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    calls: list[str] = []

    async def twice(ctx: Context, call_next: CallNext) -> Any:
        await call_next()
        try:
            await call_next()
        except DefinitionError as error:
            calls.append(str(error))

    @app.task(middleware=[twice])
    def job(ctx: Context) -> None:
        with ctx.transaction():
            calls.append("effect")

    async with app:
        run = await job.enqueue()
        await run.wait(10)
    assert calls == ["effect", "task 'job': the run ended with its ctx.transaction(); middleware cannot call it again"]


async def test_a_context_manager_is_entered_in_the_process_of_its_task() -> None:
    try:
        async with tenants.app:
            for task in (tenants.who, tenants.who_async):
                pid, *connected = await (await task.enqueue("ada")).wait(60)
                assert pid != os.getpid()
                assert connected == ["ada"]
            plain = await tenants.app.enqueue("plain", args={"name": "ada"})
            with pytest.raises(RunFailed, match="around it: 1 in the replica, 0 in its worker process"):
                await plain.wait(60)
        assert tenants.connected == []
    finally:
        tenants.app._life.at_exit()
