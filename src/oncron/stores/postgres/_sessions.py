"""A session for one holder alone, from whatever leads to a PostgreSQL: a URL, a connection, a pool, an engine.

psycopg_pool and SQLAlchemy are not imported: their objects are known by their classes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import tuple_row

from oncron._unbroken import to_the_end
from oncron.errors import DefinitionError, InvalidOption, NotSupported, StoreError, StoreUnavailable
from oncron.stores import _caller
from oncron.stores.postgres import _errors
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._apart import DEADLINE_S
from oncron.stores.postgres._connection import Line

T = TypeVar("T")
AnyLine = Connection[Any] | AsyncConnection[Any]
Row = tuple[Any, ...]


class Session:
    """A connection that nobody else uses meanwhile, in autocommit. One statement at a time, each within the call
    deadline; a session that did not answer is not fit for another."""

    def __init__(self, line: AnyLine, where: str) -> None:
        self.line, self.where = line, where
        self.fit = True
        self._one_at_a_time = asyncio.Lock()

    @property
    def greeted_by(self) -> int:
        """The backend that the server named at first: nobody's behind a pooler."""
        return self.line.pgconn.backend_pid

    async def ask(self, statement: str) -> Row:
        """The first row of the last statement that has rows. Raises StoreError."""
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    return await self._asked(statement)
            except psycopg.Error as error:
                self.fit = False
                raise _errors.translated(error, self.where) from error
            except TimeoutError:
                self.fit = False
                raise _errors.timed_out(self.where, DEADLINE_S) from None
            except BaseException:
                self.fit = False
                raise

    async def _asked(self, statement: str) -> Row:
        line = self.line
        if isinstance(line, Connection):
            return await _unblocked(lambda: _run(line, statement), instead=lambda: _cut(line))
        cursor = AsyncCursor(line, row_factory=tuple_row)
        await cursor.execute(statement.encode(), prepare=False)
        while cursor.nextset():
            pass
        return (await cursor.fetchone() if cursor.description else None) or ()

    def readable(self) -> int:
        """A file descriptor that can be read when the server has said something unasked, its farewell for instance.
        The caller closes it."""
        return os.dup(self.line.pgconn.socket)


def _run(line: Connection[Any], statement: str) -> Row:
    cursor = Cursor(line, row_factory=tuple_row)
    cursor.execute(statement.encode(), prepare=False)
    while cursor.nextset():
        pass
    return (cursor.fetchone() if cursor.description else None) or ()


def session_of(db: Any) -> Callable[[], contextlib.AbstractAsyncContextManager[Session]]:
    """How to get a session. Nothing is asked of the server yet. Raises NotSupported, InvalidOption, DefinitionError."""
    if isinstance(db, str):
        address = _address(db)
        return lambda: connected(address.parameters, address.shown)
    if isinstance(db, Connection | AsyncConnection):
        parameters, where = parameters_of(cast("AnyLine", db))
        return lambda: connected(parameters, where)
    if _caller.is_of(db, "psycopg_pool", ("ConnectionPool", "NullConnectionPool")):
        return lambda: _of_pool(db)
    if _caller.is_of(db, "psycopg_pool", ("AsyncConnectionPool", "AsyncNullConnectionPool")):
        return lambda: _of_async_pool(db)
    if _caller.is_of(db, "sqlalchemy", ("Engine", "AsyncEngine")):
        _refuse_other_driver(db)
        return (lambda: _of_async_engine(db)) if needs_loop(db) else (lambda: _of_engine(db))
    raise NotSupported(
        f"{_caller.kind_of(db)} leads to no PostgreSQL session: give a URL, a psycopg 3 connection or pool, or an "
        "SQLAlchemy engine on psycopg (postgresql+psycopg://)"
    )


def needs_loop(db: Any) -> bool:
    """Whether its connections belong to the loop that it was made on."""
    return _caller.is_of(db, "psycopg_pool", ("AsyncConnectionPool", "AsyncNullConnectionPool")) or _caller.is_of(
        db, "sqlalchemy", ("AsyncEngine",)
    )


def parameters_of(line: AnyLine) -> tuple[Mapping[str, Any], str]:
    """What makes another session like this one, and how to call it."""
    try:
        info = line.info
        parameters: dict[str, Any] = {**info.get_parameters(), "host": info.host, "port": info.port}
        parameters.pop("hostaddr", None)
        if info.password:
            parameters["password"] = info.password
        where = f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"
    except psycopg.OperationalError:
        raise DefinitionError("the given connection is closed; give an open one, or its pool or URL") from None
    return {"connect_timeout": int(DEADLINE_S), **parameters}, where


@asynccontextmanager
async def connected(parameters: Mapping[str, Any], where: str) -> AsyncGenerator[Session]:
    """A new session, closed afterwards. Raises StoreUnavailable."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            line = await Line.connect(**parameters, autocommit=True, prepare_threshold=None)
    except TimeoutError:
        raise _errors.not_reached(TimeoutError("no answer"), where) from None
    except (psycopg.Error, OSError) as error:
        raise _errors.not_reached(error, where) from error
    try:
        yield Session(line, where)
    finally:
        with contextlib.suppress(psycopg.Error, OSError):
            await to_the_end(line.close())


# --- from pools and engines -------------------------------------------------------------------


@asynccontextmanager
async def _of_pool(pool: Any) -> AsyncGenerator[Session]:
    line: Connection[Any] = await _taken(pool.getconn, pool.putconn)
    async with _lent(line, lambda _: _unblocked(lambda: pool.putconn(line))) as session:
        yield session


@asynccontextmanager
async def _of_async_pool(pool: Any) -> AsyncGenerator[Session]:
    with _translated("the given pool"):
        line: AsyncConnection[Any] = await pool.getconn()
    async with _lent(line, lambda _: pool.putconn(line)) as session:
        yield session


@asynccontextmanager
async def _of_engine(engine: Any) -> AsyncGenerator[Session]:
    wrapper = await _taken(engine.connect, lambda unused: unused.close())

    def give_back(fit: bool) -> None:
        if not fit:
            wrapper.invalidate()
        wrapper.close()

    async with _lent(wrapper.connection.driver_connection, lambda fit: _unblocked(lambda: give_back(fit))) as session:
        yield session


@asynccontextmanager
async def _of_async_engine(engine: Any) -> AsyncGenerator[Session]:
    with _translated("the given engine"):
        wrapper = await engine.connect()

    async def give_back(fit: bool) -> None:
        if not fit:
            await wrapper.invalidate()
        await wrapper.close()

    try:
        line = (await wrapper.get_raw_connection()).driver_connection
    except BaseException:
        await to_the_end(give_back(False))
        raise
    async with _lent(line, give_back) as session:
        yield session


@asynccontextmanager
async def _lent(line: AnyLine, give_back: Callable[[bool], Awaitable[None]]) -> AsyncGenerator[Session]:
    """A connection of somebody's pool. It goes back as it came, or closed."""
    session: Session | None = None
    before = line.autocommit
    try:
        session = Session(line, parameters_of(line)[1])
        await _set_autocommit(line, True)
        yield session
    finally:
        await to_the_end(_returned(session, line, before, give_back))


async def _returned(
    session: Session | None, line: AnyLine, before: bool, give_back: Callable[[bool], Awaitable[None]]
) -> None:
    fit = session is not None and session.fit
    if fit:
        try:
            await _set_autocommit(line, before)
        except psycopg.Error:
            fit = False
    if not fit:
        line.pgconn.finish()
    with contextlib.suppress(Exception):  # what a pool says of a connection that is gone helps nobody
        await give_back(fit)


async def _set_autocommit(line: AnyLine, value: bool) -> None:
    with _translated("the given pool"):
        if isinstance(line, AsyncConnection):
            await line.set_autocommit(value)
        else:
            line.autocommit = value


async def _taken(take: Callable[[], T], put_back: Callable[[T], object]) -> T:
    """`take()` in a thread. What comes after its caller was cancelled goes back. Raises StoreError."""
    taking = asyncio.ensure_future(asyncio.to_thread(take))

    def unwanted(done: asyncio.Future[T]) -> None:
        if not done.cancelled() and done.exception() is None:
            asyncio.get_running_loop().run_in_executor(None, put_back, done.result())

    with _translated("the given pool"):
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(unwanted)
            raise


@contextlib.contextmanager
def _translated(where: str) -> Any:
    try:
        yield
    except psycopg.Error as error:  # a pool's timeout is one of psycopg's, too
        raise _errors.translated(error, where) from error
    except (StoreError, DefinitionError, AssertionError):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "sqlalchemy":
            raise
        raise StoreUnavailable(f"{where} gave no connection: {error}") from error


# --- waiting ----------------------------------------------------------------------------------


async def _unblocked(work: Callable[[], T], instead: Callable[[], None] | None = None) -> T:
    """`work()` in a thread; `instead` makes it end when nobody waits for it any more."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        if instead is not None and not doing.done():
            instead()
        with contextlib.suppress(Exception):
            await asyncio.wait({doing})
            doing.exception()
        raise


def _cut(line: Connection[Any]) -> None:
    """Whoever waits for its answer is told that none will come."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(line.pgconn.socket)) as twin:
        twin.shutdown(socket.SHUT_RDWR)


# --- what was given ---------------------------------------------------------------------------


def _address(url: str) -> Address:
    scheme = url.partition("://")[0].partition("+")[0].lower()
    if "://" in url and scheme not in ("postgresql", "postgres"):
        raise NotSupported(f"advisory locks are PostgreSQL's, not {scheme}'s; give postgresql://user@host/database")
    if "://" not in url:
        raise InvalidOption("the database is given as text, which is no URL; write postgresql://user@host/database")
    return Address(re.sub(r"^[\w+]+://", "postgresql://", url))


def _refuse_other_driver(engine: Any) -> None:
    if engine.dialect.name != "postgresql":
        raise NotSupported(f"advisory locks are PostgreSQL's, and this engine leads to {engine.dialect.name}")
    if engine.dialect.driver not in ("psycopg", "psycopg_async"):
        raise NotSupported(
            f"this engine is on the driver {engine.dialect.driver}: make it with postgresql+psycopg://, or give the "
            "database's URL as text"
        )
