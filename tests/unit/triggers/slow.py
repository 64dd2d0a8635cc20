"""A slow, independent reading of the rules: it looks at every local date or every instant.

It shares nothing with the evaluator: fields are sets, zones are `zoneinfo`'s, and a local
time becomes an instant by PEP 495's folds. What it says is what the triggers must say.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LIMIT = timedelta(hours=3)


@cache
def zone(name: str) -> ZoneInfo:
    """The zone from the tzdata package, whatever zone files the host has."""
    with importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@dataclass(frozen=True)
class SlowRule:
    """Days and times of day as predicates over plain values."""

    on_day: Callable[[date], bool]
    hours: frozenset[int]
    minutes: frozenset[int]
    seconds: frozenset[int] = frozenset({0})
    follows_clock: bool = False
    gap: str = "next"
    fold: str = "first"

    def ticks(self, name: str, start: datetime, end: datetime) -> list[datetime]:
        """The ticks with start < tick <= end, in UTC."""
        found = self._clocked(zone(name), start, end) if self.follows_clock else self._fixed(zone(name), start, end)
        return sorted({tick for tick in found if start < tick <= end})

    def _clocked(self, tz: ZoneInfo, start: datetime, end: datetime) -> Iterable[datetime]:
        at = start.replace(microsecond=0)
        whole = self.seconds == {0} and _whole_minutes(tz, start, end)
        if whole:
            at = at.replace(second=0)
        while at <= end:
            local = at.astimezone(tz)
            if (
                local.hour in self.hours
                and local.minute in self.minutes
                and local.second in self.seconds
                and self.on_day(local.date())
            ):
                yield at
            at += timedelta(minutes=1) if whole else SECOND

    def _fixed(self, tz: ZoneInfo, start: datetime, end: datetime) -> Iterable[datetime]:
        day = start.astimezone(tz).date() - 2 * DAY
        last = end.astimezone(tz).date() + 2 * DAY
        while day <= last:
            if self.on_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        for second in self.seconds:
                            local = datetime.combine(day, time(hour, minute, second))
                            yield from instants(local, tz, self.gap, self.fold)
            day += DAY


def instants(local: datetime, tz: ZoneInfo, gap: str, fold: str) -> list[datetime]:
    """The instants of a fixed local time."""
    earlier = local.replace(tzinfo=tz, fold=0).astimezone(UTC)
    later = local.replace(tzinfo=tz, fold=1).astimezone(UTC)
    there = [at for at in (earlier, later) if at.astimezone(tz).replace(tzinfo=None, fold=0) == local]
    if there:
        if earlier == later or later - earlier > LIMIT:
            return there
        return {"first": [earlier], "second": [later], "both": [earlier, later]}[fold]
    size = earlier - later
    if size >= LIMIT or gap == "skip":
        return []
    return [earlier] if gap == "shift" else [_jump(tz, later, earlier)]


def _jump(tz: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first second of the new offset, which begins between the two."""
    new = after.astimezone(tz).utcoffset()
    while after - before > SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if middle.astimezone(tz).utcoffset() == new:
            after = middle
        else:
            before = middle
    return after


def _whole_minutes(tz: ZoneInfo, start: datetime, end: datetime) -> bool:
    at = start
    while at <= end + timedelta(hours=1):
        if (at.astimezone(tz).utcoffset() or timedelta()) % timedelta(minutes=1):
            return False
        at += timedelta(hours=1)
    return True
