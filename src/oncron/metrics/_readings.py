"""What the gauges tell: read from the store, once for all of them, without counting anything that grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from oncron import _defaults as limits
from oncron._groups import QueueRecord
from oncron._model import ScheduleRecord, Status, WorkerRecord
from oncron._store import ReadableStore
from oncron.errors import NotSupported
from oncron.metrics._successes import Successes

_PAGES = 10
"""Of schedules, most of which may be removed ones."""
_MANY = 1000
_COUNT_EVERY = 600 * limits.SECOND
"""How often many schedules are counted, which takes a look at each."""


@dataclass(frozen=True, kw_only=True)
class OfSchedule:
    row: ScheduleRecord
    last_success: int
    interval: int | None
    """None unless it ticks."""

    @property
    def expected_since(self) -> int:
        """From when on it is to succeed: it was declared, changed or resumed then, or begins then."""
        return max(self.row.changed_at, self.row.created_at, self.row.definition.start_at or 0)


@dataclass(frozen=True, kw_only=True)
class Readings:
    now: int
    statuses: Mapping[str, int]
    overdue: int
    workers: list[WorkerRecord]
    schedules: list[OfSchedule] = field(default_factory=list[OfSchedule])
    queues: list[QueueRecord] = field(default_factory=list[QueueRecord])

    def replicas(self, role: str) -> int:
        """Workers with that role that are heard of."""
        return sum(role in worker.roles and worker.is_counted_on(self.now) for worker in self.workers)

    @property
    def not_shown(self) -> int:
        """Schedules without series of their own."""
        there = sum(count for status, count in self.statuses.items() if status != Status.REMOVED)
        return max(0, there - len(self.schedules))


class Gauges:
    """Reads the store; remembers what need not be read each time."""

    def __init__(self, successes: Successes, max_schedules: int) -> None:
        self._successes, self._max = successes, max_schedules
        self._counted: Mapping[str, int] = {}
        self._counted_at: int | None = None

    async def read(self, store: ReadableStore) -> Readings:
        """Raises StoreError."""
        now = await store.now()
        rows, all_of_them = await self._rows(store)
        shown = [row for row in rows if row.status is not Status.REMOVED][: self._max]
        await self._successes.update(store, shown, now)
        return Readings(
            now=now,
            statuses=Counter(row.status.value for row in rows) if all_of_them else await self._count(store, now),
            overdue=len(await store.due(now - limits.OVERDUE_AFTER - 1, limit=_MANY)),
            workers=await store.workers(),
            schedules=[self._of(row) for row in shown],
            queues=await _queues(store),
        )

    def _of(self, row: ScheduleRecord) -> OfSchedule:
        interval = self._successes.interval(row) if row.status is Status.ACTIVE else None
        return OfSchedule(row=row, last_success=self._successes.of(row.name), interval=interval)

    async def _rows(self, store: ReadableStore) -> tuple[list[ScheduleRecord], bool]:
        """Enough for those that are shown, and whether these are all there are."""
        rows: list[ScheduleRecord] = []
        size = max(self._max, 1) + 1
        for _ in range(_PAGES):
            page = await store.schedules(after=rows[-1].name if rows else None, limit=size)
            rows += page
            if len(page) < size:
                return rows, True
            if sum(row.status is not Status.REMOVED for row in rows) > self._max:
                break
        return rows, False

    async def _count(self, store: ReadableStore, now: int) -> Mapping[str, int]:
        if self._counted_at is None or now - self._counted_at > _COUNT_EVERY:
            self._counted, self._counted_at = (await store.stats()).schedules, now
        return self._counted


async def _queues(store: ReadableStore) -> list[QueueRecord]:
    try:
        return await store.queues()
    except NotSupported:
        return []
