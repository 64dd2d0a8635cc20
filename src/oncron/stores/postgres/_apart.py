"""Connections for transactions of tasks, apart from the engine's: sync ones, and async ones per event loop."""

from __future__ import annotations

import asyncio
import select
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from oncron._defaults import CALL_DEADLINE
from oncron.errors import StoreUnavailable
from oncron.stores.postgres import _errors
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._connection import Line

DEADLINE_S = CALL_DEADLINE / 1_000_000
SIZE = 10
"""Transactions at once, of sync tasks together and of the async ones of each loop; further ones wait."""


class SyncLine(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection that may be forgotten: it is closed with its last reference."""

    def __del__(self, *_: Any) -> None: ...


class AsyncLine(Line):
    """The same for async tasks; lets go at once when its caller is cancelled."""

    def __del__(self, *_: Any) -> None: ...


L = TypeVar("L", SyncLine, AsyncLine)


class Apart:
    """The lines of one store. Any thread and loop may ask for one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._free = threading.Semaphore(SIZE)
        self._idle: list[SyncLine] = []
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = weakref.WeakKeyDictionary()
        self._choosing = threading.Lock()

    @contextmanager
    def line(self, begin: Callable[[SyncLine], None]) -> Generator[SyncLine]:
        """A sync connection on which `begin` has worked. Raises StoreUnavailable, psycopg.Error."""
        if not self._free.acquire(timeout=DEADLINE_S):
            raise self._none_free()
        try:
            line = self._begun(begin)
            try:
                yield line
            finally:
                _put_back(line, self._idle)
        finally:
            self._free.release()

    @asynccontextmanager
    async def line_async(self, begin: Callable[[AsyncLine], Awaitable[None]]) -> AsyncGenerator[AsyncLine]:
        """An async connection of the running loop on which `begin` has worked. Raises as `line`."""
        own = self._of_loop()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await own.free.acquire()
        except TimeoutError:
            raise self._none_free() from None
        try:
            line = await self._begun_async(own.idle, begin)
            try:
                yield line
            finally:
                _put_back(line, own.idle)
        finally:
            own.free.release()

    def close(self) -> None:
        """Idle connections are closed; those in use, when they are given back."""
        with self._choosing:
            of_loops = list(self._of_loops.values())
        for idle in [self._idle, *(own.idle for own in of_loops)]:
            while idle:
                idle.pop().pgconn.finish()

    def _begun(self, begin: Callable[[SyncLine], None]) -> SyncLine:
        while (line := _usable(self._idle)) is not None:
            try:
                begin(line)
            except psycopg.OperationalError:
                line.pgconn.finish()  # it was lost while it stood idle: nothing was done yet
            else:
                return line
        line = self._connected()
        try:
            begin(line)
        except BaseException:
            line.pgconn.finish()
            raise
        return line

    async def _begun_async(self, idle: list[AsyncLine], begin: Callable[[AsyncLine], Awaitable[None]]) -> AsyncLine:
        while (line := _usable(idle)) is not None:
            try:
                await begin(line)
            except psycopg.OperationalError:
                line.pgconn.finish()  # as above
            else:
                return line
        line = await self._connected_async()
        try:
            await begin(line)
        except BaseException:
            line.pgconn.finish()
            raise
        return line

    def _of_loop(self) -> _OfLoop:
        loop = asyncio.get_running_loop()
        with self._choosing:
            return self._of_loops.setdefault(loop, _OfLoop())

    def _connected(self) -> SyncLine:
        try:
            line = SyncLine.connect(**self._address.parameters, autocommit=True, prepare_threshold=None)
        except (psycopg.Error, OSError) as error:
            raise _errors.not_reached(error, self._address.shown) from error
        line.isolation_level = IsolationLevel.READ_COMMITTED
        return line

    async def _connected_async(self) -> AsyncLine:
        try:
            async with asyncio.timeout(DEADLINE_S):
                line = await AsyncLine.connect(**self._address.parameters, autocommit=True, prepare_threshold=None)
        except TimeoutError:
            raise _errors.not_reached(TimeoutError("no answer"), self._address.shown) from None
        except (psycopg.Error, OSError) as error:
            raise _errors.not_reached(error, self._address.shown) from error
        await line.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return line

    def _none_free(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._address.shown}: {SIZE} transactions of tasks were open here for {DEADLINE_S:g} s and none ended; "
            "keep them short"
        )


class _OfLoop:
    def __init__(self) -> None:
        self.free = asyncio.Semaphore(SIZE)
        self.idle: list[AsyncLine] = []


def _usable(idle: list[L]) -> L | None:
    """The last used one that the server has not closed meanwhile (it would have something to read)."""
    while idle:
        line = idle.pop()
        poll = select.poll()
        poll.register(line.pgconn.socket, select.POLLIN | select.POLLHUP)
        if not poll.poll(0):
            return line
        line.pgconn.finish()
    return None


def _put_back(line: L, idle: list[L]) -> None:
    if line.closed or line.pgconn.transaction_status != TransactionStatus.IDLE:
        line.pgconn.finish()
        return
    line.row_factory, line.prepare_threshold = tuple_row, None
    idle.append(line)
