"""What a run says with `ctx.log` is kept with it, and how its attempts went."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from oncron import Oncron, RetryIn, RunContext
from oncron.backoff import fixed
from oncron.errors import RunFailed
from tests.fundamentals import heavy

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "


async def log_of(app: Oncron, run_id: str) -> list[str]:
    """Its lines without their instants."""
    lines = ((await app.get_run(run_id)).log or "").split("\n")
    return [re.sub(f"^{STAMP}", "", line) for line in lines]


async def test_its_lines_are_kept_from_info_on_whatever_the_process_logs(
    app: Oncron, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "oncron.task")

    @app.task
    def copy(ctx: RunContext, pages: int) -> None:
        ctx.log.debug("not this")
        ctx.log.info("%d pages", pages)
        try:
            Path("/no/such/page").read_text()
        except OSError:
            ctx.log.exception("page %s", 3, extra={"page": 3})

    async with app:
        run = await copy.enqueue(9)
        await run.wait(15)
    lines = await log_of(app, run.id)
    assert lines[:2] == ["INFO 9 pages", "ERROR page 3"]
    assert lines[-1].startswith("FileNotFoundError: ")
    assert re.match(STAMP, (await app.get_run(run.id)).log or "")
    (record,) = [each for each in caplog.records if each.name == "oncron.task"]
    assert (record.funcName, record.getMessage(), record.run) == ("copy", "page 3", run.id)  # type: ignore[attr-defined]


async def test_a_run_that_says_nothing_and_succeeds_at_once_has_no_log(app: Oncron) -> None:
    @app.task
    async def job() -> None: ...

    async with app:
        run = await job.enqueue()
        await run.wait(15)
    assert (await app.get_run(run.id)).log is None


async def test_how_each_attempt_went_is_in_the_log(app: Oncron) -> None:
    @app.task(backoff=fixed(0))
    async def job(ctx: RunContext) -> None:
        ctx.log.info("try %d", ctx.attempt)
        if ctx.attempt == 1:
            raise RetryIn(0.1)
        if ctx.attempt == 2:
            raise ConnectionError("no network")
        raise ValueError("wrong") if ctx.attempt == 4 else ConnectionError

    async with app:
        run = await job.enqueue()
        with pytest.raises(RunFailed):
            await run.wait(15)
        (me,) = (await app.stats()).workers
    assert await log_of(app, run.id) == [
        "INFO try 1",
        f"attempt 1 on {me.id} failed: RetryIn: retry in 0.1; again in 0.1 s",
        f"attempt 2 began on {me.id}",
        "INFO try 2",
        f"attempt 2 on {me.id} failed: ConnectionError: no network",
        f"attempt 3 began on {me.id}",
        "INFO try 3",
        f"attempt 3 on {me.id} failed: ConnectionError",
        f"attempt 4 began on {me.id}",
        "INFO try 4",
        f"attempt 4 on {me.id} failed: ValueError: wrong",
    ]


async def test_what_is_said_is_there_while_it_runs(app: Oncron) -> None:
    may_end = asyncio.Event()

    @app.task
    async def job(ctx: RunContext) -> None:
        ctx.log.info("begun")
        await may_end.wait()

    async with app:
        run = await job.enqueue()
        async with asyncio.timeout(20):
            while await log_of(app, run.id) != ["INFO begun"]:
                pass
        may_end.set()
        await run.wait(15)


@pytest.mark.parametrize("replica", ["sqlite", "postgresql"], indirect=True)
async def test_it_ends_with_a_transaction_as_well(app: Oncron) -> None:
    @app.task
    async def job(ctx: RunContext) -> None:
        ctx.log.warning("to be written")
        async with ctx.transaction():
            ctx.log.info("in it")

    async with app:
        run = await job.enqueue()
        await run.wait(15)
    assert await log_of(app, run.id) == ["WARNING to be written", "INFO in it"]


async def test_a_process_says_it_to_its_replica(app: Oncron) -> None:
    talk = app.task(heavy.talk, executor="process", backoff=fixed(0))
    async with app:
        run = await talk.enqueue(of="whales")
        await run.wait(60)
        (me,) = (await app.stats()).workers
    lines = await log_of(app, run.id)
    assert lines[0] == "INFO 1: whales"
    assert lines[1].startswith(f"attempt 1 on {me.id} failed: ")
    assert lines[2:] == [f"attempt 2 began on {me.id}", "INFO 2: whales"]


async def test_the_newest_lines_are_kept_and_long_ones_cut(app: Oncron) -> None:
    @app.task
    def job(ctx: RunContext) -> None:
        ctx.log.info("x" * 10_000)
        for number in range(1000):
            ctx.log.info("line %d of \0 \ud800 é", number)

    async with app:
        run = await job.enqueue()
        await run.wait(15)
    kept = (await app.get_run(run.id)).log or ""
    assert 15_000 < len(kept.encode()) <= 16 * 1024
    lines = await log_of(app, run.id)
    assert lines[0] == "(earlier lines were dropped)"
    assert lines[-1] == "INFO line 999 of \\0 ? é"


@pytest.mark.parametrize("args", [("%d pages", "no number"), ("%s",), ({"a": 1},), (None,)])
async def test_a_line_that_cannot_be_worded_ends_no_task(app: Oncron, args: Any) -> None:
    @app.task
    def job(ctx: RunContext) -> str:
        ctx.log.info(*args)
        return "done"

    async with app:
        run = await job.enqueue()
        assert await run.wait(15) == "done"
    assert (await log_of(app, run.id))[0].startswith("INFO ")
