"""Instants on the clocks of a zone: what a picture writes on its axes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from oncron._clock import SECOND, from_us
from oncron.triggers.zones import load_zone

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_STEPS = tuple(
    [n * SECOND for n in (1, 5, 15, 30)]
    + [n * MINUTE for n in (1, 5, 10, 15, 30)]
    + [n * HOUR for n in (1, 2, 3, 6, 12)]
    + [n * DAY for n in (1, 2, 7, 14, 28, 91, 364)]
)


class Clocks:
    """What the clocks of one zone show."""

    def __init__(self, zone: str) -> None:
        """Raises InvalidTrigger for a zone that there is not."""
        self.zone = zone
        self._zone = load_zone(zone)

    def offset(self, instant: int) -> int:
        """Microseconds east of UTC."""
        return self._zone.offset_at(instant // SECOND) * SECOND

    def shown(self, instant: int) -> datetime:
        """The local time, without a zone."""
        return from_us(instant + self.offset(instant)).replace(tzinfo=None)

    def day(self, instant: int) -> date:
        return self.shown(instant).date()

    def start_of(self, day: date) -> int:
        """The first instant of a local day, which is not midnight where the clocks skip that."""
        local = (day.toordinal() - 719_163) * 86_400
        before, after = self._zone.offset_at(local - 86_400), self._zone.offset_at(local + 86_400)
        for offset in (before, after):
            if self._zone.offset_at(local - offset) == offset:
                return (local - offset) * SECOND
        return self._zone.jumps[bisect_right(self._zone.jumps, local - max(before, after))] * SECOND

    def hours_of(self, day: date) -> float:
        """24 but for days on which the clocks change."""
        return (self.start_of(day + timedelta(days=1)) - self.start_of(day)) / HOUR

    def jumps(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Clock changes in [start, end): the instant, and the offsets before and after it, all in microseconds."""
        found = self._zone.jumps_in(from_us(start).year, from_us(end).year)
        return [
            (at * SECOND, before * SECOND, after * SECOND) for at, before, after in found if start <= at * SECOND < end
        ]

    def stamp(self, instant: int) -> str:
        """`Sun 25 Oct 2026 02:30`, with seconds if it has any."""
        shown = self.shown(instant)
        return f"{shown:%a} {shown.day} {shown:%b %Y %H:%M}{f':{shown:%S}' if shown.second else ''}"

    def grid(self, start: int, end: int, most: int) -> Iterator[tuple[int, str]]:
        """Round local times in [start, end), at most about `most`, with what is written at them."""
        step = next((s for s in _STEPS if (end - start) // s <= most), _STEPS[-1])
        if step >= DAY:
            day, last = self.day(start), self.day(end)
            while day <= last:
                at = self.start_of(day)
                if start <= at < end:
                    yield at, _dated(day)
                day += timedelta(days=step // DAY)
            return
        at = start
        while True:
            at += -(at + self.offset(at)) % step
            if at >= end:
                return
            shown = self.shown(at)
            midnight = shown.hour == shown.minute == shown.second == 0
            yield at, _dated(shown.date()) if midnight else f"{shown:%H:%M:%S}" if step < MINUTE else f"{shown:%H:%M}"
            at += step


def _dated(day: date) -> str:
    return f"{day.day} {day:%b}"


def shift(before: int, after: int) -> str:
    """`clocks +1 h`: what a jump between two offsets does."""
    minutes = (after - before) // MINUTE
    sign, size = "+" if minutes > 0 else "−", abs(minutes)
    return f"clocks {sign}{f'{size // 60} h' if size % 60 == 0 else f'{size} min'}"


def short(value: int) -> str:
    """A duration on an axis: `1.5 s`, `20 min`."""
    if value == 0:
        return "0"
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1000)} ms"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2g}"
