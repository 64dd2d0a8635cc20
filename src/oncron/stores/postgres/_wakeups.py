"""Hints (G9): LISTEN on a connection of its own, NOTIFY in a commit of its own, without a payload."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import psycopg

from oncron._defaults import CALL_DEADLINE
from oncron.stores.postgres import _errors
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._connection import Connection
from oncron.stores.postgres._pool import connected

log = logging.getLogger("oncron.stores.postgres")

ASK_EVERY_S = 45.0
"""A silent connection is asked this often whether it is still there: it may be dead unnoticed."""
_DEADLINE_S = CALL_DEADLINE / 1_000_000


class Listener:
    """LISTEN for one store."""

    def __init__(self, address: Address, queries: dict[str, str], quoted: str) -> None:
        self._address = address
        self._queries = queries
        self._channel = quoted
        self._is_pooled = False

    async def wakeups(self) -> AsyncIterator[None]:
        """Yields at each notification. Raises StoreUnavailable when the connection is lost; ends behind
        a pooler, which lets no notification through."""
        if self._is_pooled:
            return
        loop = asyncio.get_running_loop()
        connection = await connected(self._address, loop.time() + _DEADLINE_S)
        readable = asyncio.Event()
        try:
            if await self._meets_pooler(connection):
                return
            await _ask(connection, self._queries["listen"].format(schema=self._channel))
            loop.add_reader(connection.socket, readable.set)
            while True:
                if not await _waited(readable):
                    await _ask(connection, self._queries["alive"])  # takes the reader for itself
                    loop.add_reader(connection.socket, readable.set)
                if connection.notified():
                    yield
        except psycopg.Error as error:
            raise _errors.translated(error, self._address.shown) from error
        except TimeoutError:
            raise _errors.timed_out(self._address.shown, _DEADLINE_S) from None
        finally:
            loop.remove_reader(connection.socket)
            await connection.discard()

    async def _meets_pooler(self, connection: Connection) -> bool:
        """Whether another backend answers than the one that greeted."""
        row = (await _ask(connection, self._queries["probe"]))[0]
        self._is_pooled = row[-1] != connection.backend_pid
        if self._is_pooled:
            log.info(
                "hints.off: %s is a pooler, no notification comes through it: changes are seen by the poll, within "
                "5 s; give listen_url= a direct connection to have them at once", self._address.shown,
            )  # fmt: skip
        return self._is_pooled


async def _waited(readable: asyncio.Event) -> bool:
    """Whether there is something to read before the connection has to be asked."""
    try:
        async with asyncio.timeout(ASK_EVERY_S):
            await readable.wait()
    except TimeoutError:
        return False
    readable.clear()
    return True


async def _ask(connection: Connection, statement: str) -> list[tuple[object, ...]]:
    return await connection.send(statement.encode(), until=asyncio.get_running_loop().time() + _DEADLINE_S)
