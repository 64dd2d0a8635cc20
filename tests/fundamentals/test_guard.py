"""`guard="advisory"`: while work moves from another scheduler, both take PostgreSQL's lock of the schedule's name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from oncron import Oncron, RunContext, _lock_key, cron, every, job_lock_key, locked_run
from oncron.errors import DuplicateName, NotSupported, RunFailed, StoreUnsafe
from oncron.testing import ManualClock
from tests.servers import PostgresServer
from tests.unit.stores.pooler import Pooler

NAME = "nightly-reindex"
NEVER = cron("0 0 29 2 *")
KILL = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()"


@contextlib.contextmanager
def another_scheduler(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session that holds the lock as Go's replica does."""
    with psycopg.connect(url, autocommit=True) as session:
        assert session.execute("select pg_try_advisory_lock(%s)", (2151323058446577676,)).fetchone() == (True,)
        yield session


def may_run_elsewhere(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as session:
        row = session.execute("select pg_try_advisory_lock(%s)", (job_lock_key(NAME),)).fetchone()
        return row == (True,)


def kill_holders(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(KILL)


async def test_G64_a_lock_under_gos_number_keeps_the_run_from_executing(postgres_url: str) -> None:
    app = Oncron(postgres_url)

    @app.schedule(NEVER, name=NAME, guard="advisory")
    async def reindex() -> str:
        return "done"

    async with app:
        with another_scheduler(postgres_url):
            run = await app.fire(NAME)
            with pytest.raises(RunFailed):
                await run.wait(20)
        run = await app.get_run(run.id)
        assert (run.state, run.reason) == ("skipped", f"guard: somebody else holds the advisory lock of '{NAME}'")
        assert await (await app.fire(NAME)).wait(20) == "done"


async def test_G64_another_scheduler_is_kept_out_exactly_while_the_task_executes(postgres_url: str) -> None:
    app, seen = Oncron(postgres_url), []

    @app.schedule(NEVER, name=NAME, guard="advisory")
    def reindex() -> None:
        seen.append(may_run_elsewhere(postgres_url))
        seen.append(locked_run(postgres_url, NAME, lambda: None))

    async with app:
        await (await app.fire(NAME)).wait(20)
    assert seen == [False, False]
    assert may_run_elsewhere(postgres_url)


async def test_schedules_without_a_guard_take_no_lock(postgres_url: str) -> None:
    app = Oncron(postgres_url)

    @app.schedule(NEVER, name=NAME)
    def reindex() -> bool:
        return may_run_elsewhere(postgres_url)

    async with app:
        assert await (await app.fire(NAME)).wait(20)


async def test_an_async_task_is_cancelled_when_the_lock_is_lost_and_runs_again(postgres_url: str) -> None:
    app, cancelled = Oncron(postgres_url), []

    @app.schedule(NEVER, name=NAME, guard="advisory")
    async def reindex(ctx: RunContext) -> int:
        if ctx.attempt == 1:
            try:
                await asyncio.to_thread(kill_holders, postgres_url)
                await asyncio.Event().wait()
            finally:
                cancelled.append(ctx.stopping)
        return ctx.attempt

    async with app:
        assert await (await app.fire(NAME)).wait(20) == 2
    assert cancelled == [True]


async def test_a_thread_sees_that_it_should_stop(postgres_url: str) -> None:
    app = Oncron(postgres_url)

    @app.schedule(NEVER, name=NAME, guard="advisory")
    def reindex(ctx: RunContext) -> str:
        kill_holders(postgres_url)
        while not ctx.stopping:
            threading.Event().wait(0.01)
        return "stopped in time"

    async with app:
        assert await (await app.fire(NAME)).wait(20) == "stopped in time"


async def test_a_lost_lock_ends_a_run_without_retries_as_lost(postgres_url: str) -> None:
    app = Oncron(postgres_url)

    @app.schedule(NEVER, name=NAME, guard="advisory", retries=0)
    async def reindex() -> None:
        await asyncio.to_thread(kill_holders, postgres_url)
        await asyncio.Event().wait()

    async with app:
        run = await app.fire(NAME)
        with pytest.raises(RunFailed):
            await run.wait(20)
        run = await app.get_run(run.id)
    assert (run.state, run.reason) == ("lost", "guard lost")


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/jobs.db"])
async def test_a_store_that_is_not_postgresql_refuses_it_at_start_and_when_it_is_put(url: str, tmp_path: Any) -> None:
    app = Oncron(url.format(folder=tmp_path))

    @app.schedule(every(hours=1), guard="advisory")
    async def reindex() -> None: ...

    with pytest.raises(NotSupported, match=r"schedule 'reindex': guard='advisory'.*meet in postgresql://"):
        await app.start()
    with pytest.raises(NotSupported, match="guard='advisory'"):
        await app.put_schedule("other", every(hours=1), "reindex", guard="advisory")
    app._life.at_exit()


async def test_a_slot_is_refused_on_postgresql(postgres_url: str) -> None:
    app = Oncron(postgres_url)
    with pytest.raises(NotSupported, match="here it is guard='advisory'"):
        await app.put_schedule("other", every(hours=1), "reindex", guard="slot:senna")
    app._life.at_exit()


async def test_one_that_is_declared_while_the_app_runs_is_told_and_the_others_go_on(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app, ran = Oncron(f"sqlite:///{tmp_path}/jobs.db"), asyncio.Event()
    caplog.set_level(logging.ERROR, "oncron")
    async with app:

        @app.schedule(every(hours=1), guard="advisory")
        async def reindex() -> None: ...

        @app.schedule(every(seconds=0.2))
        async def other() -> None:
            ran.set()

        async with asyncio.timeout(20):
            await ran.wait()
        assert [schedule.name for schedule in await app.schedules()] == ["other"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("schedule 'reindex' is not declared: guard='advisory'")


@pytest.fixture
async def pooled_url(postgres_server: PostgresServer, postgres_url: str) -> AsyncIterator[str]:
    async with Pooler(postgres_server.port, postgres_url.rsplit("/", 1)[1], "oncron") as pooler:
        yield f"postgresql://oncron@127.0.0.1:{pooler.port}/any"


async def test_behind_a_pooler_it_needs_a_direct_way(postgres_url: str, pooled_url: str) -> None:
    def made(**options: Any) -> Oncron:
        app = Oncron(pooled_url, **options)

        @app.schedule(NEVER, name=NAME, guard="advisory")
        async def reindex() -> str:
            return "done"

        return app

    pooled = made()
    with pytest.raises(StoreUnsafe, match=r"listen_url=.*pooler in transaction mode"):
        await pooled.start()
    pooled._life.at_exit()
    direct = made(listen_url=postgres_url)
    async with direct:
        assert await (await direct.fire(NAME)).wait(20) == "done"


def test_two_schedules_whose_locks_have_one_key_are_refused_at_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lock_key, "_names", {})  # what this process locks by: other tests have names of the same key
    app = Oncron("postgresql://localhost/shop")

    @app.task
    async def work() -> None: ...

    app.add_schedule("GReLUrM4wMqfg9yzV3KQ", every(hours=1), work, guard="advisory")
    with pytest.raises(DuplicateName, match="same key"):
        app.add_schedule("8yn0iYCKYHlIj4-BwPqk", every(hours=1), work, guard="advisory")
    app.add_schedule("8yn0iYCKYHlIj4-BwPqk", every(hours=1), work)


def test_on_a_clock_that_is_moved_by_hand_nobody_else_is_there() -> None:
    app, ran = Oncron("postgresql://localhost/shop"), []

    @app.schedule(every(hours=1), guard="advisory")
    async def reindex() -> None:
        ran.append(1)

    with ManualClock(app, datetime(2026, 1, 1, 0, 30, tzinfo=UTC)) as clock:
        app.sync(clock.advance(3600))
    assert ran == [1]
