"""Queues, locks, limiters and batches: the steps beside schedules and runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from oncron._groups import Acquired, BatchRecord, NewBatch, QueueRecord, Take, Taken
from oncron.stores import _missing
from oncron.stores.redis._reads import batch as batch_record, taken
from oncron.stores.redis._wire import decoder


class _Acquired(msgspec.Struct):
    now: int
    lease_until: int
    holders: int
    token: int | None = None


_acquired = decoder(_Acquired)
_queue = decoder(QueueRecord)


class QueueSteps(Protocol):
    async def set_queue(self, name: str, *, paused: bool, note: str = "", now: int | None = None) -> QueueRecord:
        [raw] = await self._write("set_queue", {"name": name, "paused": paused, "note": note}, now)
        return _queue(raw)

    # --- locks ----------------------------------------------------------------------------

    async def acquire(
        self, name: str, *, owner: str, lease_for: int, slots: int = 1, now: int | None = None
    ) -> Acquired:
        asked = {"name": name, "owner": owner, "lease_for": lease_for, "slots": slots}
        [raw] = await self._write("acquire", asked, now)
        return Acquired(**msgspec.structs.asdict(_acquired(raw)))

    async def extend(self, name: str, token: int, *, lease_for: int, now: int | None = None) -> int | None:
        found = await self._write("extend", {"name": name, "token": str(token), "lease_for": lease_for}, now)
        return int(found[0]) if found else None

    async def release(self, name: str, token: int, *, now: int | None = None) -> bool:
        return await self._write("release", {"name": name, "token": str(token)}, now) == 1

    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        [raw] = await self._write("take", take, now)
        return taken(raw)

    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> Taken | None:
        found = await self._write("settle", {"limiter": limiter, "nonce": nonce, "cost": cost}, now)
        return taken(found[0]) if found else None

    # --- batches --------------------------------------------------------------------------

    async def open_batch(self, batch: NewBatch, *, now: int | None = None) -> BatchRecord:
        found = await self._write("open_batch", batch, now)
        if not found:
            raise _missing.takes_no_more(batch.parent or "")
        return batch_record(found[0])

    async def close_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        return await self._mark_batch({"id": batch_id, "closed": True}, now)

    async def invalidate_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        return await self._mark_batch({"id": batch_id, "invalid": True}, now)

    async def delete_batch(self, batch_id: str, *, now: int | None = None) -> bool:
        return await self._write("delete_batch", {"id": batch_id}, now) == 1

    async def _mark_batch(self, asked: dict[str, Any], now: int | None) -> BatchRecord:
        found = await self._write("mark_batch", asked, now)
        if not found:
            raise _missing.no_batch(asked["id"])
        return batch_record(found[0])

    async def settle_batches(
        self, ids: Sequence[str] | None = None, *, after: str = "", limit: int = 100, now: int | None = None
    ) -> list[BatchRecord]:
        found = await self._write("settle_batches", {"ids": ids, "after": after, "limit": limit}, now)
        return [batch_record(raw) for raw in found]

    async def _write(self, name: str, payload: Any, now: int | None = None) -> Any:
        """The answer of a script that writes."""
        ...
