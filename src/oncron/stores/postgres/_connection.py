"""One connection: a step goes out as one message, its answer comes back within a deadline."""

from __future__ import annotations

import asyncio
import select
from typing import Any

import psycopg
from psycopg import AsyncConnection, waiting
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.pq import Escaping
from psycopg.pq.abc import PGconn

from oncron.stores.postgres._address import Address


class Line(AsyncConnection[tuple[Any, ...]]):
    """A psycopg connection that lets go at once when its caller is cancelled. psycopg would ask the
    server to cancel and wait for the answer, seconds on a dead network; here the connection is closed."""

    async def wait(self, gen: PQGen[Any], interval: float = 0.1, *_: Any, **__: Any) -> Any:
        return await waiting.wait_async(gen, self.pgconn.socket, interval=interval)


class Raw(Loader):
    """JSON as it came: msgspec reads it into records."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


def literal(pgconn: PGconn, value: str | bytes | int | None) -> bytes:
    """The value as an SQL literal."""
    if value is None:
        return b"null"
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % value
    raw = value if isinstance(value, bytes) else value.encode()
    return bytes(Escaping(pgconn).escape_literal(raw))


class Connection:
    """Never used again once something went wrong with it: `discard` it."""

    def __init__(self, line: Line, generation: int) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line.pgconn.socket, select.POLLIN | select.POLLHUP)
        self.generation = generation
        self.socket = line.pgconn.socket
        self.backend_pid = line.pgconn.backend_pid

    @classmethod
    async def open(cls, address: Address, generation: int = 0) -> Connection:
        """Raises psycopg.Error. The caller bounds the time."""
        line = await Line.connect(**address.parameters, autocommit=True, prepare_threshold=None)
        line.adapters.register_loader("json", Raw)
        return cls(line, generation)

    def literal(self, value: str | bytes | int | None) -> bytes:
        """The value as an SQL literal."""
        return literal(self._line.pgconn, value)

    async def send(self, message: bytes, *, until: float) -> list[tuple[Any, ...]]:
        """Run the statements of `message`, in one round trip; the rows of those that have rows.

        Raises psycopg.Error, and TimeoutError at the loop's time `until`."""
        async with asyncio.timeout_at(until):
            cursor = await self._line.execute(message)
        rows: list[tuple[Any, ...]] = []
        more: bool | None = True
        while more:
            if cursor.description is not None:
                rows += await cursor.fetchall()
            more = cursor.nextset()
        return rows

    def is_usable(self) -> bool:
        """False if the server has closed an idle connection (it then has something to read)."""
        return not self._line.closed and not self._poll.poll(0)

    def notified(self) -> bool:
        """Take what has arrived; whether a notification was among it. Raises psycopg.OperationalError."""
        pgconn, found = self._line.pgconn, False
        pgconn.consume_input()
        while pgconn.notifies() is not None:
            found = True
        return found

    async def discard(self) -> None:
        """Close it; never raises."""
        try:
            await self._line.close()
        except (psycopg.Error, OSError):
            pass
