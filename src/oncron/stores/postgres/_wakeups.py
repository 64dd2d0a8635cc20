"""Hints (G9): LISTEN on a connection of its own, NOTIFY in a commit of its own, without a payload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg

from oncron._defaults import CALL_DEADLINE
from oncron.errors import NotSupported
from oncron.stores.postgres import _errors
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._connection import Connection
from oncron.stores.postgres._pool import connected

ASK_EVERY_S = 45.0
"""A silent connection is asked this often whether it is still there: it may be dead unnoticed."""
_DEADLINE_S = CALL_DEADLINE / 1_000_000


async def wakeups(address: Address, queries: dict[str, str], quoted: str) -> AsyncIterator[None]:
    """Yields at each notification. Raises StoreUnavailable when the connection is
    lost, NotSupported behind a pooler, which lets no notification through."""
    loop = asyncio.get_running_loop()
    connection = await connected(address, loop.time() + _DEADLINE_S)
    readable = asyncio.Event()
    try:
        await _refuse_pooler(connection, queries, address)
        await _ask(connection, queries["listen"].format(schema=quoted))
        loop.add_reader(connection.socket, readable.set)
        while True:
            if await _waited(readable):
                if connection.notified():
                    yield
            else:
                await _ask(connection, queries["alive"])  # takes the reader for itself
                loop.add_reader(connection.socket, readable.set)
                if connection.notified():
                    yield
    except psycopg.Error as error:
        raise _errors.translated(error, address.shown) from error
    except TimeoutError:
        raise _errors.timed_out(address.shown, _DEADLINE_S) from None
    finally:
        loop.remove_reader(connection.socket)
        await connection.discard()


async def _waited(readable: asyncio.Event) -> bool:
    """Whether there is something to read before the connection has to be asked."""
    try:
        async with asyncio.timeout(ASK_EVERY_S):
            await readable.wait()
    except TimeoutError:
        return False
    readable.clear()
    return True


async def _refuse_pooler(connection: Connection, queries: dict[str, str], address: Address) -> None:
    row = (await _ask(connection, queries["probe"]))[0]
    if row[-1] != connection.backend_pid:
        raise NotSupported(
            f"{address.shown} is a pooler: notifications do not come through it, so changes are seen by the poll "
            "within 5 s; give listen_url= a direct connection to have them at once"
        )


async def _ask(connection: Connection, statement: str) -> list[tuple[object, ...]]:
    return await connection.send(statement.encode(), until=asyncio.get_running_loop().time() + _DEADLINE_S)
