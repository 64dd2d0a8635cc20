"""Middleware: what is around every task, or around one."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from oncron import Event, GiveUp, Oncron, RetryIn, RunContext, Skip, current_run, middleware
from oncron.backoff import exponential, fixed
from oncron.errors import RunFailed
from tests.fundamentals import heavy

CallNext = Callable[[], Awaitable[Any]]
Context = RunContext[Any]


async def test_S35_middleware_goes_outer_to_inner_in_order_of_declaration_the_apps_before_the_tasks(
    app: Oncron,
) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def m(ctx: Context, call_next: CallNext) -> Any:
            order.append(name)
            result = await call_next()
            order.append(f"{name} ends")
            return result

        return m

    app.use(named("first"))

    @app.task(middleware=[named("third"), named("fourth")])
    async def job() -> str:
        order.append("job")
        return "done"

    app.use(named("second"))
    async with app:
        assert await (await job.enqueue()).wait(10) == "done"
    assert order == [
        "first", "second", "third", "fourth", "job", "fourth ends", "third ends", "second ends", "first ends",
    ]  # fmt: skip


async def test_S35_a_context_manager_is_entered_in_the_tasks_own_thread(app: Oncron) -> None:
    threads: list[tuple[str, str]] = []

    @app.use
    @contextmanager
    def here(ctx: Context) -> Iterator[None]:
        threads.append(("manager", threading.current_thread().name))
        yield

    @app.use
    @asynccontextmanager
    async def on_the_loop(ctx: Context) -> AsyncIterator[None]:
        threads.append(("async manager", threading.current_thread().name))
        yield

    @app.task
    def job() -> None:
        threads.append(("job", threading.current_thread().name))

    async with app:
        await (await job.enqueue()).wait(10)
    where = dict(threads)
    assert where["manager"] == where["job"] != where["async manager"]
    assert where["async manager"] == threading.current_thread().name


async def test_S35_recovery_is_not_optional_broken_middleware_fails_the_run_and_never_the_worker(app: Oncron) -> None:
    async def broken(ctx: Context, call_next: CallNext) -> Any:
        raise SystemExit("out of order")

    @app.task(middleware=[broken], retries=0)
    def job() -> None: ...

    @app.task
    def other() -> str:
        return "still here"

    async with app:
        with pytest.raises(RunFailed, match="SystemExit: out of order"):
            await (await job.enqueue()).wait(10)
        assert await (await other.enqueue()).wait(10) == "still here"


async def test_middleware_changes_results_and_may_veto_retry_or_give_up(app: Oncron) -> None:
    async def twice(ctx: Context, call_next: CallNext) -> Any:
        return 2 * await call_next()

    async def judge(ctx: Context, call_next: CallNext) -> Any:
        match ctx.args["verdict"]:
            case "skip":
                raise Skip("not today")
            case "give up":
                raise GiveUp("never")
            case "later" if ctx.attempt == 1:
                raise RetryIn(0)
        return await call_next()

    @app.task(middleware=[judge, twice])
    def answer(verdict: str) -> int:
        return 21

    async with app:
        assert await (await answer.enqueue("go")).wait(10) == 42
        later = await answer.enqueue("later")
        assert await later.wait(10) == 42
        assert later.attempt == 2
        for verdict, state, reason in [("skip", "skipped", "not today"), ("give up", "failed", "never")]:
            run = await answer.enqueue(verdict)
            with pytest.raises(RunFailed, match=reason):
                await run.wait(10)
            assert run.state == state


async def test_middleware_is_around_tasks_in_processes_too(app: Oncron) -> None:
    seen: list[Any] = []

    @app.use
    async def look(ctx: Context, call_next: CallNext) -> Any:
        seen.append(current_run().task)
        try:
            seen.append(await call_next())
        except ValueError as error:
            seen.append(str(error))
            raise
        return seen[-1] + 1

    count = app.task(heavy.count_primes, executor="process")
    refuse = app.task(heavy.refuse, executor="process", retries=0)
    async with app:
        assert await (await count.enqueue(100)).wait(60) == 26
        with pytest.raises(RunFailed, match="ValueError: no"):
            await (await refuse.enqueue()).wait(60)
    assert seen == ["count_primes", 25, "refuse", "no"]


async def test_the_thread_of_a_task_is_waited_for_when_middleware_gives_up(app: Oncron) -> None:
    """Nothing runs twice at once: the next attempt begins when the thread has returned."""
    inside: list[int] = []
    most: list[int] = []

    async def impatient(ctx: Context, call_next: CallNext) -> Any:
        async with asyncio.timeout(0.05):
            return await call_next()

    @app.task(middleware=[impatient], retries=1, backoff=fixed(0))
    def slow(ctx: Context) -> None:
        inside.append(1)
        most.append(len(inside))
        while not ctx.stopping:
            threading.Event().wait(0.01)
        inside.pop()

    async with app:
        run = await slow.enqueue()
        with pytest.raises(RunFailed, match="TimeoutError"):
            await run.wait(10)
    assert (most, run.attempt) == ([1, 1], 2)


async def test_S36_logging_tells_the_start_and_the_end_of_each_attempt(
    app: Oncron, caplog: pytest.LogCaptureFixture
) -> None:
    app.use(middleware.log())

    @app.task(retries=0)
    def job(broken: bool) -> None:
        if broken:
            raise ValueError("no such shop")

    with caplog.at_level(logging.INFO, "oncron.task"):
        async with app:
            await (await job.enqueue(broken=False)).wait(10)
            with pytest.raises(RunFailed):
                await (await job.enqueue(broken=True)).wait(10)
    said = [(r.levelname, r.getMessage().split(" after ")[0], r.run) for r in caplog.records if r.name == "oncron.task"]
    runs = {run.args["broken"]: run.id for run in await app.runs()}
    assert said == [
        ("INFO", "job: attempt 1 began", runs[False]),
        ("INFO", "job: done", runs[False]),
        ("INFO", "job: attempt 1 began", runs[True]),
        ("WARNING", "job: ValueError", runs[True]),
    ]


async def test_S36_a_timeout_holds_for_tasks_that_name_none(app: Oncron) -> None:
    app.use(middleware.timeout(0.1))

    @app.task(retries=0)
    async def endless() -> None:
        await asyncio.Event().wait()

    @app.task(retries=0)
    def until_told(ctx: Context) -> None:
        while not ctx.stopping:
            threading.Event().wait(0.01)

    for_ever = app.task(heavy.match_for_ever, executor="process", retries=0)
    async with app:
        for task in (endless, until_told, for_ever):
            with pytest.raises(RunFailed, match=r"took longer than its timeout of 0.1 s"):
                await (await task.enqueue()).wait(60)


async def test_S31_S36_retry_calls_again_here_and_now_within_one_attempt(app: Oncron) -> None:
    calls: list[int] = []

    @app.task(middleware=[middleware.retry(3, on=OSError, backoff=fixed(0.01))])
    def flaky(ctx: Context) -> int:
        calls.append(1)
        if len(calls) < 3:
            ctx.enqueue(flaky)
            raise OSError("not yet")
        return ctx.attempt

    async with app:
        assert await (await flaky.enqueue()).wait(10) == 1
        assert len(await app.runs(task="flaky")) == 1, "what a failed call wanted to enqueue is forgotten"
    assert len(calls) == 3


async def test_S31_the_wait_between_attempts_is_the_tasks_own_rule(app: Oncron) -> None:
    began: list[float] = []

    @app.task(retries=2, backoff=exponential(0.2, 0.3))
    def broken() -> None:
        began.append(time.monotonic())
        raise ValueError

    async with app:
        with pytest.raises(RunFailed):
            await (await broken.enqueue()).wait(10)
    first, second = began[1] - began[0], began[2] - began[1]
    assert first >= 0.1
    assert second >= 0.15


async def test_S32_the_task_chooses_the_exact_delay(app: Oncron) -> None:
    @app.task(retries=1)
    def job(ctx: Context) -> float:
        if ctx.attempt == 1:
            raise RetryIn(0.3)
        return ctx.due_at.timestamp()

    async with app:
        run = await job.enqueue()
        assert await run.wait(10) >= run.created_at.timestamp() + 0.3


async def test_S33_an_attempt_after_the_last_there_is_none(
    app: Oncron, heard: Callable[[str], Awaitable[Event]]
) -> None:
    @app.task(retries=1, backoff=fixed(0))
    def broken() -> None:
        raise ValueError("no")

    async with app:
        run = await broken.enqueue()
        assert (await heard("run.failed")).run == run.id
    (dead,) = await app.runs(state="failed")
    assert (dead.id, dead.attempt) == (run.id, 2)


@pytest.mark.parametrize("every_attempt", [False, True])
async def test_S36_errors_are_reported_to_a_hook_whose_own_errors_stay_with_it(
    app: Oncron, every_attempt: bool
) -> None:
    told: list[tuple[str, int]] = []

    def hook(error: BaseException, ctx: Context) -> None:
        told.append((str(error), ctx.attempt))
        raise RuntimeError("the hook is broken, too")

    app.use(middleware.report(hook, every_attempt=every_attempt))

    @app.task(retries=1, backoff=fixed(0))
    def broken() -> None:
        raise ValueError("no such shop")

    async with app:
        with pytest.raises(RunFailed, match="ValueError: no such shop"):
            await (await broken.enqueue()).wait(10)
    assert told == ([("no such shop", 1)] if every_attempt else []) + [("no such shop", 2)]
