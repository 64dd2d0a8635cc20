"""`guard="advisory"`: the lock that another scheduler takes for the same name, held while a run executes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from oncron._lock_key import job_lock_key
from oncron.errors import NotSupported, StoreUnsafe
from oncron.stores.postgres import _advisory
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._sessions import connected


class AdvisoryGuards(Protocol):
    """The part of PostgresStore that keeps other schedulers out. Each lock is on a session of its own, on the direct
    way to the server if there is one."""

    url: str
    _direct: Address

    async def refuse_guard(self, guard: str) -> None:
        if guard != "advisory":
            raise NotSupported(
                f"guard={guard!r} is a key in Redis, and the store is {self.url}: here it is guard='advisory'"
            )
        async with connected(self._direct.parameters, self._direct.shown) as session:
            try:
                await _advisory.refuse_unsafe(session)
            except StoreUnsafe as error:
                raise StoreUnsafe(f"guard='advisory' needs listen_url=, a direct way to the server: {error}") from None

    @asynccontextmanager
    async def guarded(self, name: str, lost: Callable[[str], None]) -> AsyncGenerator[bool]:
        address = self._direct
        async with _advisory.locked(lambda: connected(address.parameters, address.shown), job_lock_key(name)) as lock:
            if lock is None:
                yield False
                return
            lock.when_lost(lost)
            yield True
