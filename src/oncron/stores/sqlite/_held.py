"""The connection that a task writes through: in a transaction that others begin, end and time.

While it is open nobody else on the machine can write to the file, so it is rolled back when its time is up, even
if its task sleeps meanwhile. After that no statement gets through: it would commit by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from oncron._clock import SECOND
from oncron.errors import DefinitionError, StoreUnavailable
from oncron.stores.sqlite._errors import is_busy
from oncron.stores.sqlite._lane import TURN, Deadline, connect, prepare

log = logging.getLogger("oncron.stores.sqlite")
T = TypeVar("T")

_ENDS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(begin|commit|end|rollback(?!\s+(?:transaction\s+)?to\b))\b",
    re.IGNORECASE | re.DOTALL,
)


class Held(sqlite3.Connection):
    """A sqlite3 connection whose transaction is not its user's to end. A row is a tuple unless its user sets
    `row_factory`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._statement = threading.RLock()
        self._deciding = threading.Lock()
        self._ours = True
        self._over: str | None = None
        self._timer: threading.Timer | None = None
        self._cursors: weakref.WeakSet[HeldCursor] = weakref.WeakSet()

    # --- begun and ended by the store -------------------------------------------------

    def begin(self, where: str, *, wait: int, within: int) -> None:
        """Take the write lock, waiting `wait` for it, and keep it for `within` at most (microseconds).
        Raises sqlite3.Error."""
        deadline = Deadline(wait)
        _until_free(lambda: self.execute("begin immediate"), deadline)
        self._ours = False
        self._timer = threading.Timer(within / SECOND, self._time_is_up, [where, within])
        self._timer.daemon = True
        self._timer.start()

    def end(self, *, wait: int) -> None:
        """Commit. Raises StoreUnavailable if it was rolled back before, sqlite3.Error."""
        with self._statement:
            with self._deciding:
                if self._over is not None:
                    raise StoreUnavailable(self._over)
                self._over, self._ours = "this transaction has been committed", True
            deadline = Deadline(wait)
            _until_free(lambda: self.execute("commit"), deadline)

    def let_go(self) -> None:
        """Whatever was not committed is gone, and so is the connection."""
        if self._timer is not None:
            self._timer.cancel()
        with self._statement, contextlib.suppress(sqlite3.Error):
            self._shut("this transaction has been rolled back")
            self._ours = True
            super().close()

    @property
    def over(self) -> str | None:
        """Why no statement gets through any more."""
        return self._over

    def _time_is_up(self, where: str, within: int) -> None:
        why = (
            f"{where}: a transaction was open for more than {within / SECOND:g} s and was rolled back, because nobody "
            "else could write meanwhile. Compute, fetch and wait before it begins; enqueue by ctx.enqueue(), not by "
            "a call that waits for the lock which this transaction holds"
        )
        if not self._shut(why):
            return
        log.warning("%s", why, extra={"event": "transaction.overdue"})
        self.interrupt()
        with self._statement, contextlib.suppress(sqlite3.Error):
            for cursor in list(self._cursors):
                cursor.close()  # while one is half read, the interruption would break off the rollback too
            super().rollback()

    def _shut(self, why: str) -> bool:
        """Whether it was open until now."""
        with self._deciding:
            was_open, self._over = self._over is None, self._over or why
            return was_open

    # --- what its user may do ---------------------------------------------------------

    @contextlib.contextmanager
    def statement(self, sql: str = "") -> Generator[None]:
        """One at a time, and only while the transaction is open."""
        with self._statement:
            if self._ours:
                yield
                return
            if self._over is not None:
                raise StoreUnavailable(self._over)
            if _ENDS.match(sql):
                _refuse(f"{sql.strip()[:40]!r}")
            try:
                yield
            finally:
                if not self.in_transaction:
                    self._shut("a statement of yours rolled the transaction back (`on conflict rollback`, a full disk)")

    def cursor(self, factory: Any = None) -> Any:  # noqa: ARG002  # pyright: ignore[reportIncompatibleMethodOverride] - every cursor is one of these
        cursor = super().cursor(HeldCursor)
        self._cursors.add(cursor)
        return cursor

    def execute(self, sql: str, parameters: Any = (), /) -> HeldCursor:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> HeldCursor:
        return self.cursor().executemany(sql, parameters)

    def commit(self) -> NoReturn:
        _refuse("commit()")

    def rollback(self) -> NoReturn:
        _refuse("rollback()")

    def executescript(self, sql_script: str, /) -> NoReturn:  # noqa: ARG002 - refused
        _refuse("executescript(), which commits first,")

    def __enter__(self) -> NoReturn:
        _refuse("`with connection:`, which commits,")

    def close(self) -> NoReturn:
        _refuse("close()")


class HeldCursor(sqlite3.Cursor):
    connection: Held  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]

    def execute(self, sql: str, parameters: Any = (), /) -> HeldCursor:
        with self.connection.statement(sql):
            super().execute(sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> HeldCursor:
        with self.connection.statement(sql):
            super().executemany(sql, parameters)
        return self

    def executescript(self, sql_script: str, /) -> NoReturn:  # noqa: ARG002 - refused
        _refuse("executescript(), which commits first,")

    def fetchone(self) -> Any:
        with self.connection.statement():
            return super().fetchone()

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        with self.connection.statement():
            return super().fetchmany(size)

    def fetchall(self) -> list[Any]:
        with self.connection.statement():
            return super().fetchall()

    def __next__(self) -> Any:
        with self.connection.statement():
            return super().__next__()


class AsyncHeld:
    """The same for async code: each statement is awaited and runs in a thread."""

    def __init__(self, connection: Held) -> None:
        self.connection = connection
        """The sync one. Its methods block."""

    async def execute(self, sql: str, parameters: Any = (), /) -> AsyncCursor:
        return AsyncCursor(await in_thread(lambda: self.connection.execute(sql, parameters)))

    async def executemany(self, sql: str, parameters: Iterable[Any], /) -> AsyncCursor:
        return AsyncCursor(await in_thread(lambda: self.connection.executemany(sql, parameters)))


class AsyncCursor:
    """What an awaited statement answers."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor
        """The sync one."""

    @property
    def rowcount(self) -> int:
        return self.cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self.cursor.lastrowid

    @property
    def description(self) -> Any:
        return self.cursor.description

    async def fetchone(self) -> Any:
        return await in_thread(self.cursor.fetchone)

    async def fetchmany(self, size: int = 1) -> list[Any]:
        return await in_thread(lambda: self.cursor.fetchmany(size))

    async def fetchall(self) -> list[Any]:
        return await in_thread(self.cursor.fetchall)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while rows := await self.fetchmany(100):
            for row in rows:
                yield row


def opened(path: Path, *, wait: int) -> Held:
    """Raises sqlite3.Error, StoreUnsafe."""
    held = connect(path, Held)
    deadline = Deadline(wait)
    try:
        _until_free(lambda: prepare(held, path), deadline)
    except BaseException:
        held.let_go()
        raise
    return held


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns. A cancellation waits for it, so that nobody else uses the connection meanwhile."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        if not working.cancelled():
            working.exception()  # looked at: the cancellation is what is told
        raise


def _until_free(act: Callable[[], object], deadline: Deadline) -> None:
    """As a lane does: SQLite's own handler is unfair, so tries come at random turns."""
    wait = threading.Event()
    while True:
        try:
            act()
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or deadline.is_past():
                raise
        wait.wait(random.randint(*TURN) / SECOND)


def _refuse(what: str) -> NoReturn:
    raise DefinitionError(
        f"{what} inside ctx.transaction(): leaving the block commits, an exception rolls back. For a part that may "
        "fail on its own use a savepoint"
    )
