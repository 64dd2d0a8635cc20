"""Tasks: functions that can be run later, by any replica."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from oncron import GiveUp, Oncron, RetryIn, RunContext, Skip, current_run
from oncron.backoff import fixed
from oncron.errors import InvalidArguments, RunFailed


async def test_a_task_is_enqueued_and_its_result_awaited(app: Oncron) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    async with app:
        run = await add.enqueue(2, b=3)
        assert await run.wait(within=10) == 5


async def test_arguments_and_results_may_be_dataclasses(app: Oncron) -> None:
    @dataclass
    class Order:
        id: int
        at: datetime

    @app.task
    async def next_order(order: Order) -> Order:
        return Order(order.id + 1, order.at + timedelta(days=1))

    async with app:
        run = await next_order.enqueue(Order(1, datetime(2026, 1, 1, tzinfo=UTC)))
        assert await run.wait(10) == Order(2, datetime(2026, 1, 2, tzinfo=UTC))


async def test_wrong_arguments_are_refused_where_they_are_given(app: Oncron) -> None:
    @app.task
    def greet(name: str) -> None: ...

    with pytest.raises(InvalidArguments, match=r"\$.name: expected `str`, got `int`"):
        await greet.enqueue(5)  # type: ignore[arg-type]
    assert await app.runs() == []


async def test_a_run_may_wait_for_its_time(app: Oncron) -> None:
    @app.task
    def remind() -> None: ...

    async with app:
        later = await remind.options(delay=timedelta(hours=1)).enqueue()
        now = await remind.enqueue()
        await now.wait(10)
        assert (await app.get_run(later.id)).state == "pending"


async def test_a_unique_run_is_enqueued_once_while_it_is_open(app: Oncron) -> None:
    @app.task
    def welcome(user: int) -> None: ...

    first = await welcome.options(unique="welcome:7").enqueue(7)
    second = await welcome.options(unique="welcome:7").enqueue(7)
    assert (first.is_new, second.is_new) == (True, False)
    assert second.id == first.id
    async with app:
        await first.wait(10)
        third = await welcome.options(unique="welcome:7").enqueue(7)
        assert third.is_new


async def test_many_runs_are_enqueued_at_once(app: Oncron) -> None:
    done: list[int] = []

    @app.task
    async def square(n: int) -> int:
        done.append(n)
        return n * n

    async with app:
        runs = await square.enqueue_many({"n": n} for n in range(50))
        assert [await run.wait(15) for run in runs] == [n * n for n in range(50)]
    assert sorted(done) == list(range(50))


# --- errors and retries --------------------------------------------------------------------------


async def test_an_error_is_tried_again_until_no_attempt_is_left(app: Oncron) -> None:
    attempts: list[int] = []

    @app.task(retries=2, backoff=fixed(0.05))
    def flaky(ctx: RunContext) -> None:
        attempts.append(ctx.attempt)
        assert ctx.is_last_attempt == (ctx.attempt == 3)
        raise ConnectionError("no route")

    async with app:
        run = await flaky.enqueue()
        with pytest.raises(RunFailed, match="ConnectionError: no route"):
            await run.wait(15)
    assert attempts == [1, 2, 3]
    assert run.error is not None
    assert 'raise ConnectionError("no route")' in run.error


async def test_a_second_attempt_may_succeed(app: Oncron) -> None:
    @app.task(backoff=fixed(0))
    def flaky(ctx: RunContext) -> str:
        if ctx.attempt == 1:
            raise ConnectionError
        return "ok"

    async with app:
        run = await flaky.enqueue()
        assert await run.wait(15) == "ok"
    assert run.attempt == 2


async def test_an_error_outside_retry_on_is_not_repeated(app: Oncron) -> None:
    @app.task(retries=5, retry_on=ConnectionError)
    def buggy() -> None:
        raise ZeroDivisionError

    async with app:
        run = await buggy.enqueue()
        with pytest.raises(RunFailed, match="not repeated"):
            await run.wait(10)
    assert run.attempt == 1


async def test_a_task_says_when_it_wants_to_be_tried_again(app: Oncron) -> None:
    @app.task(retries=0)
    def poll(ctx: RunContext) -> int:
        if ctx.attempt < 4:
            raise RetryIn(0.05, spend_attempt=False)
        return ctx.attempt

    async with app:
        assert await (await poll.enqueue()).wait(15) == 4


@pytest.mark.parametrize(("error", "state"), [(GiveUp("no stock"), "failed"), (Skip("nothing to do"), "skipped")])
async def test_a_task_may_give_up_or_skip(app: Oncron, error: Exception, state: str) -> None:
    @app.task(retries=5)
    def job() -> None:
        raise error

    async with app:
        run = await job.enqueue()
        with pytest.raises(RunFailed, match=str(error)):
            await run.wait(10)
    assert (run.state, run.reason, run.attempt) == (state, str(error), 1)


async def test_a_failed_run_is_retried_by_hand(app: Oncron) -> None:
    broken = True

    @app.task(retries=0)
    def job() -> str:
        if broken:
            raise OSError("down")
        return "up"

    async with app:
        run = await job.enqueue()
        with pytest.raises(RunFailed):
            await run.wait(10)
        broken = False
        again = await app.retry(run.id)
        assert await again.wait(10) == "up"


async def test_a_task_that_takes_too_long_is_cancelled(app: Oncron) -> None:
    cleaned_up = asyncio.Event()

    @app.task(timeout=0.2, retries=0)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.set()

    async with app:
        run = await slow.enqueue()
        with pytest.raises(RunFailed, match=r"longer than its timeout of 0\.2 s"):
            await run.wait(10)
    assert cleaned_up.is_set()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), MemoryError()])
async def test_whatever_a_task_raises_the_worker_lives_on_b151(app: Oncron, error: BaseException) -> None:
    @app.task(retries=0)
    async def job() -> None:
        raise error

    @app.task
    def fine() -> int:
        return 1

    async with app:
        run = await job.enqueue()
        with pytest.raises(RunFailed, match=type(error).__name__):
            await run.wait(10)
        assert await (await fine.enqueue()).wait(10) == 1


# --- results -------------------------------------------------------------------------------------


async def test_a_result_that_is_not_json_is_kept_as_its_repr_and_the_run_has_succeeded(
    app: Oncron, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def job() -> object:
        return {"socket": object}

    async with app:
        run = await job.enqueue()
        assert await run.wait(10) == "{'socket': <class 'object'>}"
    assert run.state == "succeeded"
    assert "result of task 'job'" in caplog.text


async def test_a_result_that_is_too_large_is_shortened(app: Oncron) -> None:
    @app.task
    def job() -> str:
        return "x" * 100_000

    async with app:
        result = await (await job.enqueue()).wait(10)
    assert len(result) < 2100
    assert "... cut ..." in result


# --- the context ---------------------------------------------------------------------------------


async def test_the_context_tells_about_the_run(app: Oncron) -> None:
    @app.task(timeout=60)
    def job(ctx: RunContext, n: int) -> dict[str, object]:
        assert current_run() is ctx
        ctx.log.info("working")
        return {
            "id": ctx.run_id, "task": ctx.task, "schedule": ctx.schedule, "tick": ctx.tick, "attempt": ctx.attempt,
            "args": ctx.args, "late": ctx.late_by < timedelta(seconds=5), "stopping": ctx.stopping,
            "has_deadline": ctx.deadline is not None, "catchup": ctx.is_catchup, "missed": ctx.missed_count,
        }  # fmt: skip

    async with app:
        run = await job.enqueue(3)
        told = await run.wait(10)
    assert told == {
        "id": run.id, "task": "job", "schedule": None, "tick": None, "attempt": 1, "args": {"n": 3}, "late": True,
        "stopping": False, "has_deadline": True, "catchup": False, "missed": 0,
    }  # fmt: skip


async def test_tokens_grow_from_claim_to_claim(app: Oncron) -> None:
    tokens: list[int] = []

    @app.task(backoff=fixed(0), retries=2)
    def job(ctx: RunContext) -> None:
        tokens.append(ctx.token)
        raise OSError

    async with app:
        with pytest.raises(RunFailed):
            await (await job.enqueue()).wait(15)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


async def test_a_checkpoint_lets_the_next_attempt_go_on_where_the_last_one_ended(app: Oncron) -> None:
    @app.task(backoff=fixed(0))
    def copy(ctx: RunContext) -> list[int]:
        page = (ctx.last_checkpoint or {"page": 0})["page"] + 1
        ctx.checkpoint({"page": page})
        if page < 3:
            raise ConnectionError
        return [page, ctx.attempt]

    async with app:
        assert await (await copy.enqueue()).wait(15) == [3, 3]


async def test_progress_is_shown_with_the_run(app: Oncron) -> None:
    @app.task
    def job(ctx: RunContext) -> None:
        ctx.progress(3, 10, "three of ten")

    async with app:
        run = await job.enqueue()
        await run.wait(10)
    assert run.progress == {"done": 3, "total": 10, "note": "three of ten"}


async def test_what_a_run_enqueues_exists_if_and_only_if_it_succeeds(app: Oncron) -> None:
    @app.task
    def page(n: int) -> None: ...

    @app.task(retries=0)
    def crawl(ctx: RunContext, fail: bool) -> None:
        ctx.enqueue(page, 1)
        ctx.enqueue(page.options(delay=60), n=2)
        if fail:
            raise OSError

    async with app:
        with contextlib.suppress(RunFailed):
            await (await crawl.enqueue(True)).wait(10)
        assert await app.runs(task="page") == []
        await (await crawl.enqueue(False)).wait(10)
        assert sorted(run.args["n"] for run in await app.runs(task="page")) == [1, 2]


# --- cancelling ----------------------------------------------------------------------------------


async def test_a_running_task_is_cancelled(app: Oncron, heard: Callable) -> None:
    @app.task
    async def forever() -> None:
        await asyncio.Event().wait()

    async with app:
        run = await forever.enqueue()
        await heard("run.started")
        await app.cancel(run.id)
        with pytest.raises(RunFailed, match="cancelled"):
            await run.wait(15)
    assert run.state == "cancelled"


async def test_a_thread_looks_whether_it_should_stop(app: Oncron, heard: Callable) -> None:
    @app.task
    def loop(ctx: RunContext) -> None:
        while not ctx.stopping:
            pass

    async with app:
        run = await loop.enqueue()
        await heard("run.started")
        await app.cancel(run.id)
        await asyncio.wait({asyncio.ensure_future(run.wait(15))})
    assert run.state in ("cancelled", "succeeded")


# --- sharing work --------------------------------------------------------------------------------


async def test_a_task_may_limit_how_many_of_it_run_at_once(app: Oncron) -> None:
    running, most = 0, 0

    @app.task(max_running=2)
    async def careful() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        running -= 1

    async with app:
        for run in await careful.enqueue_many([{}] * 12):
            await run.wait(20)
    assert most <= 2


async def test_a_replica_leaves_tasks_that_it_does_not_have(app: Oncron) -> None:
    @app.task
    def mine() -> int:
        return 1

    async with app:
        theirs = await app.enqueue("theirs")
        assert await (await mine.enqueue()).wait(10) == 1
        assert (await app.get_run(theirs.id)).state == "pending"
