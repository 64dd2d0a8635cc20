"""What the gauges tell: read from the store, once for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncron import _defaults as limits
from oncron._model import QueueRecord, ScheduleRecord, Stats, Status
from oncron._store import ReadableStore
from oncron.errors import NotSupported
from oncron.metrics._successes import Successes


@dataclass(frozen=True, kw_only=True)
class OfSchedule:
    row: ScheduleRecord
    last_success: int
    interval: int | None
    """None unless it ticks."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    stats: Stats
    schedules: list[OfSchedule] = field(default_factory=list[OfSchedule])
    not_shown: int = 0
    """Schedules without series of their own."""
    queues: list[QueueRecord] = field(default_factory=list[QueueRecord])

    def replicas(self, role: str) -> int:
        """Workers with that role that are heard of: an idle one's lease may end between two heartbeats."""
        before = self.stats.now - limits.IDLE_HEARTBEAT
        return sum(role in worker.roles and worker.lease_until > before for worker in self.stats.workers)


async def read(store: ReadableStore, successes: Successes, max_schedules: int) -> Readings:
    """Raises StoreError."""
    stats = await store.stats()
    many = sum(stats.schedules.values()) > max_schedules
    rows = await (store.schedules(limit=max_schedules) if many else store.schedules())
    rows = [row for row in rows if row.status is not Status.REMOVED]
    await successes.update(store, rows, stats.now)
    shown = [
        OfSchedule(
            row=row,
            last_success=successes.of(row.name),
            interval=successes.interval(row) if row.status is Status.ACTIVE else None,
        )
        for row in rows
    ]
    there = sum(count for status, count in stats.schedules.items() if status != Status.REMOVED)
    return Readings(stats=stats, schedules=shown, not_shown=max(0, there - len(shown)), queues=await _queues(store))


async def _queues(store: ReadableStore) -> list[QueueRecord]:
    try:
        return await store.queues()
    except (NotSupported, AttributeError):
        return []
