"""What has a name and no row of its own until it is used: queues, locks and limiters."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from oncron._groups import Acquired, QueueRecord, Take, Taken
from oncron.stores.postgres._wire import encode

_queue = msgspec.json.Decoder(QueueRecord).decode
_acquired = msgspec.json.Decoder(Acquired).decode
_taken = msgspec.json.Decoder(Taken).decode


class Names(Protocol):
    """The steps on queues, locks and limiters."""

    async def set_queue(self, name: str, *, paused: bool, note: str = "", now: int | None = None) -> QueueRecord:
        return _queue(await self._step("set_queue", name, paused, note, now))

    async def acquire(
        self, name: str, *, owner: str, lease_for: int, slots: int = 1, now: int | None = None
    ) -> Acquired:
        return _acquired(await self._step("acquire", name, owner, lease_for, slots, now))

    async def extend(self, name: str, token: int, *, lease_for: int, now: int | None = None) -> int | None:
        return await self._step("extend", name, token, lease_for, now)

    async def release(
        self,
        name: str,
        token: int,
        *,
        now: int | None = None,  # noqa: ARG002 - it is held or not, whatever the time
    ) -> bool:
        return await self._step("release", name, token)

    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        return _taken(await self._step("take", encode(take), now))

    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> Taken | None:
        said = await self._step("settle", limiter, nonce, cost, now)
        return None if said is None else _taken(said)

    async def _step(self, function: str, *arguments: str | bytes | int | None) -> Any:
        """Call a function of the schema; its answer as JSON, or as the number or truth that it is."""
        ...
