"""Batches: runs that belong together, and what is enqueued when all of them have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oncron import GiveUp, Oncron, RunContext, current_run
from oncron.errors import DefinitionError, InvalidArguments, InvalidOption, NotFound


async def until(seen: Sequence[object], count: int) -> None:
    async with asyncio.timeout(15):
        while len(seen) < count:  # noqa: ASYNC110 - threads append
            await asyncio.sleep(0)


async def test_s50_callbacks_come_when_all_runs_have_ended(app: Oncron) -> None:
    seen: list[str] = []

    @app.task
    def load(n: int) -> None:
        seen.append(f"load {n}")

    @app.task
    def complete(batch_id: str) -> None:
        seen.append(f"complete {batch_id}")

    @app.task
    def success(what: str) -> None:
        seen.append(f"success {what}")

    async with app:
        async with app.batch(on_complete=complete, on_success=(success, {"what": "files"}), data={"day": 1}) as batch:
            for n in range(3):
                batch.add(load, n)
        await until(seen, 5)
        done = await batch.wait(10)
    assert sorted(seen[:3]) == ["load 0", "load 1", "load 2"]
    assert sorted(seen[3:]) == [f"complete {batch.id}", "success files"]
    assert (done.total, done.pending, done.succeeded, done.failed, done.data) == (3, 0, 3, 0, {"day": 1})
    assert done.succeeded_at is not None
    assert done.died_at is None


async def test_s50_the_first_death_is_told_once_and_a_retried_run_brings_success(app: Oncron) -> None:
    seen: list[str] = []
    broken = True

    @app.task(retries=0)
    def load(n: int) -> None:
        if broken and n:
            raise GiveUp("no such file")

    def note(word: str) -> None:
        seen.append(word)

    for word in ("complete", "success", "death"):
        app.task(lambda_of(note, word), name=word)
    tasks = {word: app._registry.tasks[word] for word in ("complete", "success", "death")}
    async with app:
        async with app.batch(
            on_complete=tasks["complete"], on_success=tasks["success"], on_death=tasks["death"]
        ) as batch:
            for n in range(3):
                batch.add(load, n)
        await until(seen, 2)
        assert sorted(seen) == ["complete", "death"]
        dead = await app.runs(batch=batch.id, state="failed")
        assert len(dead) == 2
        assert [each.id for each in await app.batches(dead=True)] == [batch.id]
        broken = False
        for run in dead:
            await app.retry(run.id)
        await until(seen, 3)
        assert seen[-1] == "success"
    assert (await batch.refresh()).failed == 0


def lambda_of(fn: Callable[[str], None], word: str) -> Callable[[], None]:
    def call() -> None:
        fn(word)

    return call


async def test_s51_a_parent_is_complete_after_its_children(app: Oncron) -> None:
    seen: list[str] = []
    may_end = asyncio.Event()

    @app.task
    async def slow() -> None:
        await may_end.wait()
        seen.append("child's run")

    @app.task
    def outer() -> None:
        seen.append("parent")

    async with app:
        async with app.batch(on_complete=outer) as parent:
            pass_on = app.batch(parent=parent)
            await parent.flush()
            async with pass_on as child:
                child.add(slow)
        assert (await parent.refresh()).completed_at is None
        may_end.set()
        await until(seen, 2)
    assert seen == ["child's run", "parent"]


async def test_s52_an_empty_batch_is_complete_and_a_success_at_once(app: Oncron) -> None:
    seen: list[str] = []
    done = app.task(lambda_of(seen.append, "done"), name="done")
    async with app:
        async with app.batch(on_success=done) as batch:
            pass
        await until(seen, 1)
        assert (await batch.refresh()).succeeded_at is not None


async def test_s53_a_run_adds_to_its_own_batch(app: Oncron) -> None:
    seen: list[str] = []

    @app.task
    def walk(ctx: RunContext, depth: int) -> None:
        assert ctx.batch is not None
        seen.append(str(depth))
        if depth < 3:
            ctx.batch.add(walk, depth + 1)

    @app.task
    def done() -> None:
        seen.append("done")

    async with app:
        async with app.batch(on_complete=done) as batch:
            batch.add(walk, 0)
        await until(seen, 5)
        assert (await batch.refresh()).total == 4
    assert seen == ["0", "1", "2", "3", "done"]


async def test_s53_runs_ask_whether_their_batch_is_still_wanted(app: Oncron) -> None:
    seen: list[bool] = []
    told = asyncio.Event()

    @app.task
    async def work() -> None:
        ctx = current_run()
        assert ctx.batch is not None
        seen.append(await ctx.batch.is_valid())
        await told.wait()
        seen.append(await ctx.batch.is_valid())

    async with app:
        async with app.batch() as batch:
            batch.add(work)
        await until(seen, 1)
        await batch.invalidate()
        told.set()
        await batch.wait(10)
    assert seen == [True, False]
    assert not batch.is_valid


async def test_s54_a_large_batch_is_written_in_parts(app: Oncron) -> None:
    @app.task
    def load(n: int) -> None: ...

    async with app:
        async with app.batch() as batch:
            for n in range(50):
                batch.add(load, n)
                if n % 20 == 19:
                    await batch.flush()
        assert (await batch.wait(15)).succeeded == 50


async def test_s55_a_run_with_a_unique_key_is_in_no_batch(app: Oncron) -> None:
    @app.task(unique=True)
    def load(n: int) -> None: ...

    batch = app.batch()
    with pytest.raises(InvalidOption, match="unique key"):
        async with batch:
            batch.add(load, 1)
    with pytest.raises(NotFound):
        await app.get_batch(batch.id)


async def test_a_block_that_raises_writes_nothing(app: Oncron) -> None:
    @app.task
    def load(n: int) -> None: ...

    batch = app.batch()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what raises
        async with batch:
            batch.add(load, 1)
            raise ZeroDivisionError
    assert await app.runs() == []
    assert await app.batches() == []
    with pytest.raises(DefinitionError, match="within its block"):
        batch.add(load, 1)


async def test_a_cancelled_run_completes_its_batch_without_success(app: Oncron) -> None:
    seen: list[str] = []
    complete = app.task(lambda_of(seen.append, "complete"), name="complete")
    success = app.task(lambda_of(seen.append, "success"), name="success")

    @app.task
    def later() -> None: ...

    async with app:
        async with app.batch(on_complete=complete, on_success=success) as batch:
            batch.add(later.options(delay=3600))
        [run] = await app.runs(batch=batch.id)
        await app.cancel(run.id)
        await until(seen, 1)
        assert (await batch.refresh()).succeeded_at is None
    assert seen == ["complete"]


def test_sync_code_makes_batches_too(replica: Callable[[], Oncron]) -> None:
    app = replica()
    seen: list[int] = []

    @app.task
    def load(n: int) -> None:
        seen.append(n)

    with app:
        with app.batch() as batch:
            batch.add(load, 1)
            batch.add(load, 2)
        app.sync(batch.wait(10))
    assert sorted(seen) == [1, 2]


async def test_callbacks_and_arguments_are_checked_where_they_are_given(app: Oncron) -> None:
    @app.task
    def load(n: int) -> None: ...

    with pytest.raises(InvalidArguments):
        app.batch(on_complete=load)
    with pytest.raises(InvalidOption, match="give a task of this app"):
        app.batch(on_complete="load")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        async with app.batch() as batch:
            batch.add(load, "one")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="does not exist or is complete"):
        async with app.batch(parent="0198c0de-0000-7000-8000-000000000000"):
            pass


@pytest.mark.parametrize("callback", [(), (1,), (1, 2, 3), 7, "task"], ids=repr)
async def test_a_callback_that_is_no_task_is_refused_where_it_is_given(app: Oncron, callback: Any) -> None:
    with pytest.raises(InvalidOption, match="give a task of this app, or a task and its arguments"):
        app.batch(on_complete=callback)
