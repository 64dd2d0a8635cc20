"""`locked_run`: the advisory lock of Go's recipe, and what that recipe cannot see."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio

from oncron import HeldLock, _lock_key, job_lock_key, locked_run
from oncron.errors import (
    DefinitionError,
    DuplicateName,
    InvalidOption,
    LeaseLost,
    NotSupported,
    StoreUnavailable,
    StoreUnsafe,
)
from tests.servers import PostgresServer
from tests.unit.stores.pooler import Pooler

NAME = "nightly-reindex"
KILL = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'"


def holders(url: str, name: str = NAME) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        key = job_lock_key(name) & 0xFFFFFFFFFFFFFFFF
        row = connection.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and granted and objsubid = 1"
            " and database = (select oid from pg_database where datname = current_database())"
            " and classid::bigint = %s and objid::bigint = %s",
            (key >> 32, key & 0xFFFFFFFF),
        ).fetchone()
    assert row is not None
    return row[0]


def kill_holders(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(KILL)


@contextlib.contextmanager
def taken_elsewhere(url: str, name: str = NAME) -> Iterator[None]:
    """As Go's replica would hold it."""
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("select pg_try_advisory_lock(%s)", (job_lock_key(name),)).fetchone() == (True,)
        yield


# --- the key --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("", -3750763034362895579),
        ("a", -5808556873153909620),
        ("b", -5808553574619024987),
        ("nightly-reindex", 2151323058446577676),
    ],
)
def test_G70_the_key_of_a_name_is_gos_number(name: str, key: int) -> None:
    assert job_lock_key(name) == key


def test_names_are_hashed_as_utf8_and_not_normalised() -> None:
    assert job_lock_key("\u00e9") != job_lock_key("e\u0301")
    assert -(2**63) <= job_lock_key("ж" * 100) < 2**63


@pytest.mark.parametrize("name", [None, 7, b"a", "\ud800"])
def test_what_is_no_text_has_no_key(name: Any) -> None:
    with pytest.raises(InvalidOption, match="job_lock_key"):
        job_lock_key(name)


def test_two_names_with_one_key_are_refused_in_a_process(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lock_key, "_names", {})  # what this process locks by: other tests have names of the same key
    one, other = "8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"
    assert job_lock_key(one) == job_lock_key(other)
    assert locked_run(postgres_url, one, lambda: None)
    with pytest.raises(DuplicateName, match=f"{one}.*{other}.*rename"):
        locked_run(postgres_url, other, lambda: None)


# --- the recipe -----------------------------------------------------------------------------


async def test_G67_five_callers_race_and_one_runs(postgres_url: str) -> None:
    began, others_gave_up, calls = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        calls.append(1)
        began.set()
        await others_gave_up.wait()

    callers = [asyncio.ensure_future(locked_run(postgres_url, NAME, work)) for _ in range(5)]
    await began.wait()
    for ended, caller in enumerate(asyncio.as_completed(callers), start=1):
        assert await caller is (ended == 5)
        if ended == 4:
            others_gave_up.set()
    assert calls == [1]


def test_G67_five_threads_race_and_one_runs(postgres_url: str) -> None:
    started = threading.Event()
    answers: list[bool] = []

    def work() -> None:
        started.set()
        rest = [locked_run(postgres_url, NAME, lambda: pytest.fail("ran twice")) for _ in range(4)]
        answers.extend(rest)

    answers.append(locked_run(postgres_url, NAME, work))
    assert answers == [False] * 4 + [True]


def test_G67_one_after_the_other_each_runs_which_is_why_a_lock_is_not_once_a_tick(postgres_url: str) -> None:
    calls: list[int] = []
    assert [locked_run(postgres_url, NAME, lambda: calls.append(1)) for _ in range(5)] == [True] * 5
    assert len(calls) == 5


def test_G68_the_lock_is_free_afterwards(postgres_url: str) -> None:
    def work() -> None:
        assert holders(postgres_url) == 1

    assert locked_run(postgres_url, NAME, work)
    assert holders(postgres_url) == 0
    assert locked_run(postgres_url, NAME, work)


def test_G66_a_lost_race_is_false_at_once_and_logged_at_debug(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "oncron.lock")
    with taken_elsewhere(postgres_url):
        assert locked_run(postgres_url, NAME, lambda: pytest.fail("ran")) is False
    assert [(record.levelno, NAME in record.getMessage()) for record in caplog.records] == [(logging.DEBUG, True)]


async def test_G66_a_database_that_cannot_be_reached_is_an_error_and_nothing_runs() -> None:
    nowhere = "postgresql://oncron@127.0.0.1:1/none"

    async def work() -> None:
        pytest.fail("ran")

    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await locked_run(nowhere, NAME, work)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await asyncio.to_thread(locked_run, nowhere, NAME, lambda: pytest.fail("ran"))


async def test_G69_the_lock_is_free_when_a_cancelled_call_returns(postgres_url: str) -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    call = asyncio.ensure_future(locked_run(postgres_url, NAME, work))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert holders(postgres_url) == 0


async def test_G69_a_second_cancellation_does_not_break_off_the_unlock(postgres_url: str) -> None:
    began, cleaning = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()

    call = asyncio.ensure_future(locked_run(postgres_url, NAME, work))
    await began.wait()
    call.cancel()
    await cleaning.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert holders(postgres_url) == 0


async def test_G69_the_lock_is_free_when_a_deadline_passed(postgres_url: str) -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await locked_run(postgres_url, NAME, work)
    assert holders(postgres_url) == 0
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_G71_what_the_function_raises_is_raised_and_the_lock_is_free(postgres_url: str) -> None:
    async def work() -> None:
        raise RuntimeError("no disk")

    def plainly() -> None:
        raise RuntimeError("no disk")

    with pytest.raises(RuntimeError, match="no disk"):
        await locked_run(postgres_url, NAME, work)
    assert holders(postgres_url) == 0
    with pytest.raises(RuntimeError, match="no disk"):
        await asyncio.to_thread(locked_run, postgres_url, NAME, plainly)
    assert holders(postgres_url) == 0


def test_G72_even_an_exit_lets_the_lock_go(postgres_url: str) -> None:
    def work() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        locked_run(postgres_url, NAME, work)
    assert holders(postgres_url) == 0


# --- what the recipe cannot see -------------------------------------------------------------


async def test_G73_an_async_function_is_cancelled_when_the_session_dies(postgres_url: str) -> None:
    async def work(lock: HeldLock) -> None:
        await asyncio.to_thread(kill_holders, postgres_url)
        try:
            await asyncio.Event().wait()
        finally:
            assert lock.lost

    with pytest.raises(LeaseLost, match="another replica may have started"):
        await locked_run(postgres_url, NAME, work)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_function_that_goes_on_after_its_cancellation_has_lost_the_lock_all_the_same(
    postgres_url: str,
) -> None:
    async def work() -> None:
        await asyncio.to_thread(kill_holders, postgres_url)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        await locked_run(postgres_url, NAME, work)
    await asyncio.sleep(0)


def test_G73_a_plain_function_finds_it_in_its_parameter_and_lease_lost_is_raised_afterwards(postgres_url: str) -> None:
    seen: list[bool] = []

    def work(lock: HeldLock) -> None:
        seen.append(lock.lost)
        lock.check()
        kill_holders(postgres_url)
        while not lock.lost:
            threading.Event().wait(0.01)
        seen.append(lock.lost)

    with pytest.raises(LeaseLost, match=NAME):
        locked_run(postgres_url, NAME, work)
    assert seen == [False, True]


def test_G73_a_session_that_died_unseen_is_found_at_the_end(postgres_url: str) -> None:
    with pytest.raises(LeaseLost):
        locked_run(postgres_url, NAME, lambda: kill_holders(postgres_url))


def test_what_a_function_raises_after_the_loss_is_raised(postgres_url: str) -> None:
    def work() -> None:
        kill_holders(postgres_url)
        raise RuntimeError("half done")

    with pytest.raises(RuntimeError, match="half done"):
        locked_run(postgres_url, NAME, work)


class LastUsedFirst(Pooler):
    """As PgBouncer hands out its connections."""

    async def __aenter__(self) -> Any:
        self._free = asyncio.LifoQueue()
        return await super().__aenter__()


class OneForEach(Pooler):
    """In session mode: a client keeps its connection."""

    async def _serve(self, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        mine = await self._free.get()
        everybodys, self._free = self._free, asyncio.Queue()
        try:
            own = OneForEach(self._server_port, "", "")
            own._greeting = self._greeting
            own._free.put_nowait(mine)
            self._free = everybodys
            await Pooler._serve(own, client, out)
        finally:
            everybodys.put_nowait(mine)


@contextlib.asynccontextmanager
async def behind(kind: type[Pooler], server: PostgresServer, url: str, size: int) -> AsyncIterator[str]:
    async with kind(server.port, url.rsplit("/", 1)[1], "oncron", size) as pooler:
        yield f"postgresql://oncron@127.0.0.1:{pooler.port}/any"


@pytest.mark.parametrize("kind", [Pooler, LastUsedFirst])
@pytest.mark.parametrize("size", [1, 2, 4])
async def test_a_pooler_in_transaction_mode_is_refused(
    postgres_server: PostgresServer, postgres_url: str, kind: type[Pooler], size: int
) -> None:
    async def work() -> None:
        pytest.fail("ran")

    async with behind(kind, postgres_server, postgres_url, size) as url:
        with pytest.raises(StoreUnsafe, match=r"pooler in transaction mode.*direct connection"):
            await locked_run(url, NAME, work)
    assert holders(postgres_url) == 0


@pytest.mark.parametrize("size", [1, 3])
async def test_a_pooler_in_session_mode_is_welcome(
    postgres_server: PostgresServer, postgres_url: str, size: int
) -> None:
    async def work() -> None:
        assert await asyncio.to_thread(holders, postgres_url) == 1

    async with behind(OneForEach, postgres_server, postgres_url, size) as url:
        assert await locked_run(url, NAME, work)
    assert holders(postgres_url) == 0


class Valve:
    """Passes on what is said to the server and by it, until it is shut: then it swallows everything, as a broken
    network does, and says nothing."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.turn(shut=False)
        self._server.close()

    def turn(self, *, shut: bool) -> None:
        self._open.clear() if shut else self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, to_them = await asyncio.open_connection("127.0.0.1", self._server_port)
        await asyncio.gather(self._pass(reader, to_them), self._pass(theirs, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
        writer.close()


@pytest.mark.long
async def test_G73_a_network_that_swallows_everything_is_noticed_within_seconds(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with Valve(postgres_server.port) as valve:
        url = f"postgresql://oncron@127.0.0.1:{valve.port}/{postgres_url.rsplit('/', 1)[1]}"

        async def work() -> None:
            valve.turn(shut=True)
            await asyncio.Event().wait()

        async with asyncio.timeout(20):
            with pytest.raises(LeaseLost, match="did not answer"):
                await locked_run(url, NAME, work)


# --- what leads to a session ----------------------------------------------------------------


def alchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@contextlib.contextmanager
def a_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextlib.contextmanager
def a_pool(url: str) -> Iterator[Any]:
    with psycopg_pool.ConnectionPool(
        url, min_size=1, max_size=1, kwargs={"row_factory": psycopg.rows.dict_row}
    ) as pool:
        yield pool


@contextlib.contextmanager
def an_engine(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy(url), pool_size=1, max_overflow=0)
    yield engine
    engine.dispose()


SYNC: list[Any] = [contextlib.nullcontext, a_connection, a_pool, an_engine]


@contextlib.asynccontextmanager
async def an_async_connection(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@contextlib.asynccontextmanager
async def an_async_pool(url: str) -> AsyncIterator[Any]:
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
        yield pool


@contextlib.asynccontextmanager
async def an_async_engine(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(alchemy(url), pool_size=1, max_overflow=0)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("make", SYNC)
def test_a_plain_function_runs_under_whatever_leads_to_a_session(
    postgres_url: str, make: Callable[[str], contextlib.AbstractContextManager[Any]]
) -> None:
    def work() -> None:
        assert holders(postgres_url) == 1

    with make(postgres_url) as db:
        for _ in range(2):
            assert locked_run(db, NAME, work)
            assert holders(postgres_url) == 0
        with taken_elsewhere(postgres_url):
            assert not locked_run(db, NAME, work)


@pytest.mark.parametrize("make", [*SYNC, an_async_connection, an_async_pool, an_async_engine])
async def test_an_async_function_runs_under_whatever_leads_to_a_session(
    postgres_url: str, make: Callable[[str], Any]
) -> None:
    async def work() -> None:
        assert await asyncio.to_thread(holders, postgres_url) == 1

    async with contextlib.AsyncExitStack() as stack:
        block = make(postgres_url)
        sync = hasattr(block, "__enter__")
        db = stack.enter_context(block) if sync else await stack.enter_async_context(block)
        for _ in range(2):
            assert await locked_run(db, NAME, work)
            assert holders(postgres_url) == 0
        with taken_elsewhere(postgres_url):
            assert not await locked_run(db, NAME, work)


def test_a_connection_in_the_middle_of_a_transaction_is_left_alone(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table t (n int)")
        assert locked_run(connection, NAME, lambda: connection.execute("insert into t values (1)"))
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        connection.rollback()


def test_a_pools_connection_goes_back_as_it_came_and_a_dead_one_does_not(postgres_url: str) -> None:
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=1) as pool:
        assert locked_run(pool, NAME, lambda: None)
        with pool.connection() as connection:
            assert not connection.autocommit
        with pytest.raises(LeaseLost):
            locked_run(pool, NAME, lambda: kill_holders(postgres_url))
        with pool.connection() as connection:
            assert connection.execute("select 1").fetchone() == (1,)


def test_an_engines_connection_goes_back_as_it_came_and_a_dead_one_does_not(postgres_url: str) -> None:
    with an_engine(postgres_url) as engine:
        assert locked_run(engine, NAME, lambda: None)
        with engine.connect() as connection:
            assert not connection.connection.driver_connection.autocommit
        with pytest.raises(LeaseLost):
            locked_run(engine, NAME, lambda: kill_holders(postgres_url))
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("select 1")).scalar() == 1


def test_a_pool_that_has_no_connection_left_is_an_error(postgres_url: str) -> None:
    with (
        psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=1, timeout=0.1) as pool,
        pool.connection(),
        pytest.raises(StoreUnavailable, match="pool"),
    ):
        locked_run(pool, NAME, lambda: pytest.fail("ran"))


# --- wrong input ----------------------------------------------------------------------------


async def async_work() -> None: ...


@pytest.mark.parametrize(
    ("db", "error", "says"),
    [
        ("sqlite:///jobs.db", NotSupported, "PostgreSQL's, not sqlite's"),
        ("host=localhost", InvalidOption, "no URL"),
        (7, NotSupported, "give a URL"),
        (sqlalchemy.create_engine("sqlite://"), NotSupported, "leads to sqlite"),
    ],
)
def test_what_leads_to_no_session_is_refused_with_what_does(db: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        locked_run(db, NAME, lambda: None)


def test_a_closed_connection_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        pass
    with pytest.raises(DefinitionError, match="closed"):
        locked_run(connection, NAME, lambda: None)


def test_a_function_that_needs_more_than_the_lock_is_refused() -> None:
    def two(one: int, other: int) -> None: ...
    def keyword(*, one: int) -> None: ...

    for fn in (two, keyword):
        with pytest.raises(DefinitionError, match=r"functools\.partial"):
            locked_run("postgresql://x/y", NAME, fn)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(InvalidOption, match="cannot be called"):
        locked_run("postgresql://x/y", NAME, 7)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_function_with_its_arguments_bound_is_called_with_them(postgres_url: str) -> None:
    seen: list[Any] = []

    def work(one: int, *, other: int = 2) -> None:
        seen.append((one, other))

    assert locked_run(postgres_url, NAME, functools.partial(work, 1))
    assert seen == [(1, 2)]


async def test_a_plain_function_would_block_the_loop_and_is_refused_there() -> None:
    with pytest.raises(DefinitionError, match="await locked_run"):
        locked_run("postgresql://x/y", NAME, lambda: None)


def test_an_async_pool_needs_an_async_function(postgres_url: str) -> None:
    engine = sqlalchemy.ext.asyncio.create_async_engine(alchemy(postgres_url))
    with pytest.raises(DefinitionError, match="async function"):
        locked_run(engine, NAME, lambda: None)


def test_a_coroutine_that_nobody_would_run_is_an_error_and_the_lock_is_free(postgres_url: str) -> None:
    with pytest.raises(DefinitionError, match="async def"):
        locked_run(postgres_url, NAME, lambda: async_work())  # noqa: PLW0108 - a lambda is what is refused
    assert holders(postgres_url) == 0
