"""What a store that is not PostgreSQL says when a schedule wants PostgreSQL's lock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from oncron.errors import NotSupported

_SLOTS = ("redis", "rediss", "valkey", "valkeys")


class NoGuards(Protocol):
    """`Guards` of a store that has no advisory locks."""

    url: str

    async def refuse_guard(self, guard: str) -> None:
        if guard.startswith("slot:") and self.url.partition("://")[0] in _SLOTS:
            return
        raise self._no_guard(guard)

    @asynccontextmanager
    async def guarded(self, name: str, lost: Callable[[str], None]) -> AsyncGenerator[bool]:  # noqa: ARG002
        raise self._no_guard("advisory")
        yield False

    def _no_guard(self, guard: str) -> NotSupported:
        if guard.startswith("slot:"):
            return NotSupported(
                f"guard={guard!r} is a key in Redis, and the store is {self.url}; leave the guard out, or meet in "
                "redis://host"
            )
        return NotSupported(
            f"guard={guard!r} is an advisory lock of PostgreSQL's, and the store is {self.url}: nobody outside of it "
            "would be kept out; leave the guard out, or meet in postgresql://user@host/database"
        )
