"""Runs that walk many items: interrupted between two of them, they go on from there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from oncron import Event, GiveUp, Interrupted, Oncron, RunContext
from oncron.backoff import fixed
from oncron.errors import RunFailed
from tests.fundamentals import heavy

Replica = Callable[[], Oncron]
Heard = Callable[[str], Awaitable[Event]]


async def test_S60_a_deploy_interrupts_a_walk_and_the_next_replica_goes_on_in_the_same_run(replica: Replica) -> None:
    """No attempt is spent, not even of a run that has only one; its unique key is kept."""
    seen: list[tuple[str, int]] = []
    halfway = asyncio.Event()
    old, new = replica(), replica()

    def declare(app: Oncron, release: str) -> Any:
        @app.task(retries=0, unique=True)
        async def reindex(ctx: RunContext) -> int:
            async for user in (walk := ctx.walk(range(6))):
                seen.append((release, user))
                if user == 2 and not walk.is_resumed:
                    halfway.set()
                    await asyncio.to_thread(ctx._execution.stop.wait, 10)
            return walk.items

        return reindex

    task, _ = declare(old, "old"), declare(new, "new")
    async with old:
        run = await task.enqueue()
        await asyncio.wait_for(halfway.wait(), 10)
    pending = await new.get_run(run.id)
    new_task = new._registry.tasks["reindex"]
    assert (await new_task.enqueue()).id == run.id, "the unique key is still taken"
    assert (pending.state, pending.reason) == ("pending", "stopped: 3 items are done")
    async with new:
        assert await (await new.get_run(run.id)).wait(10) == 6
    assert seen == [("old", 0), ("old", 1), ("old", 2), ("new", 3), ("new", 4), ("new", 5)]
    ended = await new.get_run(run.id)
    assert (ended.attempt, ended.record.attempts_spent) == (2, 1)


async def test_S60_more_than_ten_interruptions_spend_nothing_while_there_is_progress(app: Oncron) -> None:
    @app.task(retries=0)
    def one_by_one(ctx: RunContext) -> int:
        walk = ctx.walk(range(25), max_items=1)
        for _ in walk:
            pass
        return walk.goes

    async with app:
        run = await one_by_one.enqueue()
        assert await run.wait(30) == 25
    assert run.record.attempts_spent == 1


async def test_interruptions_without_progress_end_at_last(app: Oncron) -> None:
    """A task that is interrupted and never gets further counts as given back: ten times, then it spends attempts."""

    @app.task(retries=0)
    def stuck(ctx: RunContext) -> None:
        raise Interrupted("later")

    async with app:
        run = await stuck.enqueue()
        with pytest.raises(RunFailed):
            await run.wait(30)
    assert (run.state, run.attempt) == ("lost", 11)


async def test_S60_what_a_task_keeps_besides_changes_together_with_the_cursor(app: Oncron) -> None:
    """An error after `checkpoint` and before the item is done: neither is kept, so nothing counts twice."""

    @app.task(backoff=fixed(0))
    async def add_up(ctx: RunContext) -> int:
        total = ctx.last_checkpoint or 0
        async for number in ctx.walk([1, 2, 3, 4]):
            total += number
            ctx.checkpoint(total)
            if number == 3 and ctx.attempt == 1:
                raise OSError("gone for a moment")
        return total

    async with app:
        run = await add_up.enqueue()
        assert await run.wait(10) == 10
    assert run.attempt == 2


async def test_S61_skip_one_stop_early_give_up(app: Oncron) -> None:
    """In Python these are `continue`, `walk.end()` (or `break`), and an exception."""
    done: list[int] = []

    @app.task
    def job(ctx: RunContext, give_up: bool) -> str:
        walk = ctx.walk(range(100))
        for number in walk:
            if number % 2:
                continue
            done.append(number)
            if number == 6:
                if give_up:
                    raise GiveUp("enough")
                walk.end()
        return f"{walk.items} items"

    async with app:
        assert await (await job.enqueue(give_up=False)).wait(10) == "7 items"
        with pytest.raises(RunFailed, match="enough"):
            await (await job.enqueue(give_up=True)).wait(10)
    assert done == [0, 2, 4, 6] * 2


async def test_S61_a_cancelled_walk_ends_between_two_items(app: Oncron) -> None:
    going = threading.Event()
    done: list[int] = []

    @app.task
    def endless(ctx: RunContext) -> None:
        for number in ctx.walk(range(1_000_000_000)):
            done.append(number)
            going.set()
            threading.Event().wait(0.01)

    async with app:
        run = await endless.enqueue()
        await asyncio.to_thread(going.wait, 10)
        await app.cancel(run.id)
        with pytest.raises(RunFailed, match="cancelled"):
            await run.wait(10)
    assert run.record.checkpoint is not None
    assert f'"items":{len(done)}' in run.record.checkpoint


async def test_S62_before_and_after_in_pythons_idiom(app: Oncron) -> None:
    happened: list[str] = []

    @app.task
    async def job(ctx: RunContext) -> None:
        walk = ctx.walk(["a", "c"], max_items=1)
        happened.append("resumed" if walk.is_resumed else "started")
        try:
            async for letter in walk:
                happened.append(letter)  # noqa: PERF401 - as it happens
            happened.append("complete")
        except Interrupted:
            happened.append("stopped")
            raise

    async with app:
        await (await job.enqueue()).wait(10)
    assert happened == ["started", "a", "stopped", "resumed", "c", "complete"]


async def test_S62_a_walk_counts_its_items_goes_and_time_over_all_goes(
    app: Oncron, heard: Callable[[str], Awaitable[Event]]
) -> None:
    @app.task
    def job(ctx: RunContext) -> list[float]:
        walk = ctx.walk(range(4), max_items=2)
        for _ in walk:
            threading.Event().wait(0.01)
        return [walk.items, walk.goes, walk.time_spent.total_seconds()]

    async with app:
        run = await job.enqueue()
        items, goes, spent = await run.wait(10)
        assert (items, goes) == (4, 2)
        assert 0.04 <= spent < 5
        assert (await heard("run.released")).reason == "2 items in one go: 2 items are done"


async def test_S63_a_source_is_a_sequence_or_a_function_of_the_cursor(app: Oncron) -> None:
    def pages(cursor: str | None) -> Iterator[tuple[str, str]]:
        for name in ("ada", "bob", "cyd"):
            if cursor is None or name > cursor:
                yield name, name.upper()

    async def async_pages(cursor: str | None) -> AsyncIterator[tuple[str, str]]:
        for pair in pages(cursor):
            yield pair

    sources: dict[str, Any] = {"range": range(3), "list": [5, 6, 7], "function": pages, "async": async_pages}

    @app.task
    async def job(ctx: RunContext, of: str) -> list[Any]:
        seen: list[Any] = ctx.last_checkpoint or []
        async for item in ctx.walk(sources[of], max_items=2):
            ctx.checkpoint(seen := [*seen, item])
        return seen

    async with app:
        found = {of: await (await job.enqueue(of)).wait(10) for of in sources}
    assert found == {
        "range": [0, 1, 2], "list": [5, 6, 7], "function": ["ADA", "BOB", "CYD"], "async": ["ADA", "BOB", "CYD"],
    }  # fmt: skip


async def test_S63_several_walks_in_one_run_have_names(app: Oncron) -> None:
    seen: list[str] = []

    @app.task
    def job(ctx: RunContext) -> None:
        for user in ctx.walk(["ada", "bob"], name="users", max_items=1):
            seen.append(f"user {user}")  # noqa: PERF401 - as a user writes it
        for order in ctx.walk([1, 2], name="orders", max_items=1):
            seen.append(f"order {order}")  # noqa: PERF401 - see above

    async with app:
        await (await job.enqueue()).wait(10)
    assert seen == ["user ada", "user bob", "order 1", "order 2"]


async def test_a_walk_in_a_process_goes_on_after_a_crash(app: Oncron) -> None:
    walk = app.task(heavy.walk, executor="process", backoff=fixed(0))
    async with app:
        run = await walk.enqueue()
        assert await run.wait(60) == [4, 6]
        assert (await app.get_run(run.id)).record.attempts_spent == 2, "a crash spends one, an interruption none"


async def test_a_run_that_is_opened_again_after_its_end_walks_anew(app: Oncron) -> None:
    @app.task
    def job(ctx: RunContext) -> int:
        walk = ctx.walk(range(3))
        return sum(1 for _ in walk)

    async with app:
        run = await job.enqueue()
        assert await run.wait(10) == 3
        assert await (await app.retry(run.id)).wait(10) == 3
