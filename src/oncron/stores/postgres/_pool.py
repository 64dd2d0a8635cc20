"""A few connections, opened when first needed, the last used first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg

from oncron.stores.postgres import _errors
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._connection import Connection


class Pool:
    """At most `size` connections at a time. A connection that failed is never handed out again."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._generation = 0

    @asynccontextmanager
    async def connection(self, until: float) -> AsyncGenerator[Connection]:
        """A connection for one step. Raises StoreUnavailable if there is none before the loop's time `until`."""
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            raise _errors.too_busy(self._address.shown) from None
        try:
            taken = await self._take(until)
            try:
                yield taken
            except BaseException:
                await taken.discard()
                raise
            await self._give(taken)
        finally:
            self._free.release()

    async def renew(self) -> None:
        """No connection that is open now is used for another step."""
        self._generation += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.discard()

    async def _take(self, until: float) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            await connection.discard()
        return await connected(self._address, until, self._generation)

    async def _give(self, connection: Connection) -> None:
        if connection.generation == self._generation:
            self._idle.append(connection)
        else:
            await connection.discard()


async def connected(address: Address, until: float, generation: int = 0) -> Connection:
    """A new connection, before the loop's time `until`. Raises StoreUnavailable."""
    try:
        async with asyncio.timeout_at(until):
            return await Connection.open(address, generation)
    except TimeoutError:
        raise _errors.not_reached(TimeoutError("no answer"), address.shown) from None
    except (psycopg.Error, OSError) as error:
        raise _errors.not_reached(error, address.shown) from error
