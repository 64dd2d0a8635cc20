"""An advisory lock on a session of its own, watched while it is held."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from oncron._unbroken import to_the_end
from oncron.errors import StoreError, StoreUnavailable, StoreUnsafe
from oncron.stores import _sql
from oncron.stores.postgres._schema import PACKAGE
from oncron.stores.postgres._sessions import Session, connected, parameters_of

ASK_EVERY_S = 5.0
"""How often a silent session is asked whether it still has the lock."""
_PROBE_WITHIN_S = 2.0
"""How long a second connection may wait for a backend: where each client has its own, there may be none left."""

_STATEMENTS = _sql.statements(PACKAGE, "advisory.sql")


class Advisory:
    """A lock that is held. It is told once, and soon, when it no longer is."""

    def __init__(self, session: Session, key: int) -> None:
        self._session, self._key = session, key
        self._over = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._tell: Callable[[str], None] | None = None
        self.lost: str | None = None
        """How it was lost."""

    def when_lost(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the reason, on this loop, when the session no longer has the lock."""
        self._tell = tell
        self._watching = asyncio.ensure_future(self._watch())

    def stop_telling(self) -> None:
        """Whoever used the lock has come to an end."""
        self._tell = None
        self._over.set()

    async def release(self) -> None:
        """Let go, on the session that has it. One that does not answer is closed, and its lock goes with it."""
        self.stop_telling()
        if self._watching is not None:
            await self._watching
        if self.lost is not None:
            self._session.fit = False
            return
        try:
            [had_it] = await self._session.ask(_STATEMENTS["let_go"].format(key=self._key))
        except StoreError as error:
            self.lost = str(error)
            return
        if not had_it:
            self._session.fit = False
            self.lost = f"{self._session.where}: the session no longer had it at the end"

    async def _watch(self) -> None:
        readable, loop = asyncio.Event(), asyncio.get_running_loop()
        descriptor = self._session.readable()
        loop.add_reader(descriptor, readable.set)
        try:
            while not self._over.is_set():
                await _first_of(self._over, readable, within=ASK_EVERY_S)
                if self._over.is_set():
                    return
                readable.clear()
                if (lost := await self._look()) is not None:
                    self.lost = lost
                    if self._tell is not None:
                        self._tell(lost)
                    return
                readable.clear()  # by the answer
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    async def _look(self) -> str | None:
        """How it was lost; None if it was not."""
        high, low = self._key >> 32 & 0xFFFFFFFF, self._key & 0xFFFFFFFF
        try:
            [held] = await self._session.ask(_STATEMENTS["held"].format(high=high, low=low))
        except StoreError as error:
            return str(error)
        return None if held else f"{self._session.where}: the session no longer has it"


@asynccontextmanager
async def locked(
    session: Callable[[], AbstractAsyncContextManager[Session]], key: int
) -> AsyncGenerator[Advisory | None]:
    """The lock, on a session for it alone; None if somebody else has it. Let go at the end, whatever happens.

    Raises StoreUnavailable; StoreUnsafe where the lock would exclude nobody."""
    async with session() as own:
        await refuse_unsafe(own)
        [granted] = await own.ask(_STATEMENTS["take"].format(key=key))
        if not granted:
            yield None
            return
        lock = Advisory(own, key)
        try:
            yield lock
        finally:
            await to_the_end(lock.release())


async def refuse_unsafe(session: Session) -> None:
    """Raises StoreUnsafe for a standby, and for a pooler that gives each transaction another backend. One that gives
    each client a backend of its own is welcome."""
    backend, is_standby = await session.ask(_STATEMENTS["who"])
    if is_standby:
        raise StoreUnsafe(
            f"{session.where} is a standby: advisory locks that are taken there exclude nobody on the primary; name "
            "the primary, or several hosts with target_session_attrs=read-write"
        )
    if backend != session.greeted_by and await _changes_backends(session, backend):
        session.fit = False
        raise StoreUnsafe(
            f"{session.where} is a pooler in transaction mode: an advisory lock belongs to a session, and this one "
            "would be left on a connection that others use; give a direct connection to the server, or a pooler in "
            "session mode"
        )


async def _changes_backends(session: Session, backend: int) -> bool:
    """Whether another backend answers now, or ours answers somebody else while our connection is open."""
    if (await session.ask(_STATEMENTS["who"]))[0] != backend:
        return True
    try:
        async with asyncio.timeout(_PROBE_WITHIN_S) as limit, connected(*parameters_of(session.line)) as other:
            theirs = (await other.ask(_STATEMENTS["begin"]))[0]
            limit.reschedule(None)
            # Its transaction stays open: what it holds is not free for us.
            return theirs == backend or (await session.ask(_STATEMENTS["who"]))[0] != backend
    except (TimeoutError, StoreUnavailable):
        return False  # no backend was left for a second client: the first has one for itself


async def _first_of(*events: asyncio.Event, within: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
