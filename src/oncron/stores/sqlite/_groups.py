"""Queues, locks, limiters and batches: the contract's methods on them, each one step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from oncron import _groups as g
from oncron.stores.sqlite import _batches, _limiters, _locks, _queues
from oncron.stores.sqlite._step import Step

T = TypeVar("T")


class Groups(Protocol):
    """The part of SQLiteStore on what has no schedule."""

    def _write(self, work: Callable[[Step], T], now: int | None = None) -> Awaitable[T]: ...

    def _read(self, work: Callable[[Step], T], now: int | None = None) -> Awaitable[T]: ...

    # --- queues -----------------------------------------------------------------------

    async def set_queue(self, name: str, *, paused: bool, note: str = "", now: int | None = None) -> g.QueueRecord:
        at = await self._write(lambda step: _queues.set_queue(step, name, paused=paused, note=note), now)
        # Counting is for the answer alone: it need not keep others from writing.
        [record] = await self._read(lambda step: _queues.queues(step, name), at)
        return record

    async def queues(self, *, now: int | None = None) -> list[g.QueueRecord]:
        return await self._read(_queues.queues, now)

    # --- locks ------------------------------------------------------------------------

    async def acquire(
        self, name: str, *, owner: str, lease_for: int, slots: int = 1, now: int | None = None
    ) -> g.Acquired:
        return await self._write(lambda step: _locks.acquire(step, name, owner, lease_for, slots), now)

    async def extend(self, name: str, token: int, *, lease_for: int, now: int | None = None) -> int | None:
        return await self._write(lambda step: _locks.extend(step, name, token, lease_for), now)

    async def release(self, name: str, token: int, *, now: int | None = None) -> bool:
        return await self._write(lambda step: _locks.release(step, name, token), now)

    async def locks(self, *, now: int | None = None) -> list[g.LockRecord]:
        return await self._read(_locks.locks, now)

    # --- limiters ---------------------------------------------------------------------

    async def take(self, take: g.Take, *, now: int | None = None) -> g.Taken:
        return await self._write(lambda step: _limiters.take(step, take), now)

    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> g.Taken | None:
        return await self._write(lambda step: _limiters.settle(step, limiter, nonce, cost), now)

    async def taken(self, limiter: str, rule: g.LimitRule, *, now: int | None = None) -> g.Taken:
        return await self._read(lambda step: _limiters.taken(step, limiter, rule), now)

    # --- batches ----------------------------------------------------------------------

    async def open_batch(self, batch: g.NewBatch, *, now: int | None = None) -> g.BatchRecord:
        return await self._write(lambda step: _batches.open_batch(step, batch), now)

    async def close_batch(self, batch_id: str, *, now: int | None = None) -> g.BatchRecord:
        return await self._write(lambda step: _batches.close(step, batch_id), now)

    async def invalidate_batch(self, batch_id: str, *, now: int | None = None) -> g.BatchRecord:
        return await self._write(lambda step: _batches.invalidate(step, batch_id), now)

    async def delete_batch(self, batch_id: str, *, now: int | None = None) -> bool:
        return await self._write(lambda step: _batches.delete(step, batch_id), now)

    async def settle_batches(
        self, ids: Sequence[str] | None = None, *, after: str = "", limit: int = 100, now: int | None = None
    ) -> list[g.BatchRecord]:
        # Most calls find nothing new: those need not wait for the write lock, nor keep others waiting.
        known = await self._read(lambda step: _batches.settled(step, ids, after, limit), now)
        if known is not None:
            return known
        return await self._write(lambda step: _batches.settle(step, ids, after, limit), now)

    async def get_batch(self, batch_id: str) -> g.BatchRecord | None:
        return await self._read(lambda step: _batches.get(step, batch_id))

    async def batches(self, *, dead: bool = False, before: str | None = None, limit: int = 100) -> list[g.BatchRecord]:
        return await self._read(lambda step: _batches.batches(step, dead=dead, before=before, limit=limit))
