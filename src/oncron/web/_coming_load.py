"""How many ticks each minute of the coming day has: counted once a minute at most, within a bounded time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncron._clock import SECOND, boot_us
from oncron._load import DAY, MINUTE, coming_day
from oncron._model import Definition, ScheduleRecord, Status
from oncron.triggers import parse
from oncron.web._reading import Looks, Reading

_FRESH_FOR = 60 * SECOND
_COUNT_FOR = 3 * SECOND
"""Of a processor. What is not counted by then is told."""
_READ_AT_MOST = 50_000
_PAGE = 1000
_BUSIEST, _NAMED = 10, 5


@dataclass(frozen=True, kw_only=True)
class Busy:
    """A minute with many ticks."""

    at: int
    ticks: int
    names: list[str]
    """Some of the schedules."""


@dataclass(frozen=True, kw_only=True)
class ComingLoad:
    first: int
    """The first whole minute, in microseconds."""
    per_minute: list[int]
    """Of a day."""
    schedules: int
    """Active ones that are counted."""
    left_out: int
    """Active ones for which there was no time; at least so many."""
    busiest: list[Busy]

    @property
    def total(self) -> int:
        return sum(self.per_minute)


class LoadKept:
    """The newest count, for all pages."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._load: ComingLoad | None = None
        self._until = 0
        self._turn = asyncio.Lock()

    async def read(self) -> ComingLoad:
        """A minute old at most. Raises StoreError."""
        async with self._turn:
            if self._load is None or boot_us() > self._until:
                rows, more = await self._reading.ask(_active)
                self._load = await asyncio.to_thread(count_load, rows, self._reading.now_us, more=more)
                self._until = boot_us() + _FRESH_FOR
            return self._load


async def _active(looks: Looks) -> tuple[list[ScheduleRecord], bool]:
    """And whether there are more than are read."""
    found: list[ScheduleRecord] = []
    after: str | None = None
    while len(found) < _READ_AT_MOST:
        page = await looks.schedules(after=after, limit=_PAGE)
        found += [row for row in page if row.status is Status.ACTIVE]
        if len(page) < _PAGE:
            return found, False
        after = page[-1].name
    return found, True


def count_load(rows: Iterable[ScheduleRecord], now: int, *, more: bool = False) -> ComingLoad:
    """Pure but for the time that it takes: schedules of equal rules are counted once for all of them."""
    by_rule: dict[tuple[str, int | None, int | None], list[Definition]] = {}
    for row in rows:
        rule = row.definition
        by_rule.setdefault((rule.trigger, rule.start_at, rule.end_at), []).append(rule)
    first = now // MINUTE + 1
    minutes: Counter[int] = Counter()
    names: dict[int, list[str]] = {}
    always = counted = 0
    until = boot_us() + _COUNT_FOR
    groups = sorted(by_rule.values(), key=len, reverse=True)
    for at, same in enumerate(groups):
        if boot_us() > until:
            return _told(first, minutes, names, always, counted, left_out=sum(map(len, groups[at:])) + more)
        counted += len(same)
        ticks = coming_day(same[0], now)
        if ticks is None:
            count, _ = parse(same[0].trigger).count_between_us(now, now + 10 * MINUTE, 100_000)
            always += max(1, count // 10) * len(same)
            continue
        for tick in ticks:
            minute = tick // MINUTE
            minutes[minute] += len(same)
            there = names.setdefault(minute, [])
            if len(there) < _NAMED:
                there += [each.name for each in same[: _NAMED - len(there)]]
    return _told(first, minutes, names, always, counted, left_out=int(more))


def _told(
    first: int, minutes: Counter[int], names: Mapping[int, list[str]], always: int, counted: int, *, left_out: int
) -> ComingLoad:
    shown = range(first, first + DAY // MINUTE)
    busiest = sorted((at for at in shown if minutes[at]), key=lambda at: (-minutes[at], at))[:_BUSIEST]
    return ComingLoad(
        first=first * MINUTE,
        per_minute=[minutes[at] + always for at in shown],
        schedules=counted,
        left_out=left_out,
        busiest=[Busy(at=at * MINUTE, ticks=minutes[at] + always, names=names[at]) for at in busiest],
    )
