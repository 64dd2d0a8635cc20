"""The times of day of a rule, as seconds since local midnight."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Protocol


class TimesOfDay(Protocol):
    """A set of seconds of the day, never empty."""

    @property
    def first(self) -> int:
        """The earliest."""
        ...

    @property
    def last(self) -> int:
        """The latest."""
        ...

    def after(self, second: int) -> int:
        """The earliest that is greater than `second` (which may be -1); there must be one."""
        ...


class ListedTimes:
    """Few enough times to be listed."""

    __slots__ = ("first", "last", "listed")

    def __init__(self, listed: tuple[int, ...]) -> None:
        self.listed = listed
        self.first, self.last = listed[0], listed[-1]

    def after(self, second: int) -> int:
        return self.listed[bisect_right(self.listed, second)]


class EvenTimes:
    """One every `step` seconds the whole day through."""

    __slots__ = ("_step", "first", "last")

    def __init__(self, first: int, step: int) -> None:
        self.first, self._step = first, step
        self.last = 86_400 - step + first

    def after(self, second: int) -> int:
        return second + self._step - (second - self.first) % self._step


class FieldTimes:
    """Every combination of hours, minutes and seconds, as three tables of the next value."""

    __slots__ = ("_hours", "_in_minute", "_minutes", "_opening", "_seconds", "first", "last")

    def __init__(self, hours: int, minutes: int, seconds: int) -> None:
        self._hours = _next_table(hours, 24)
        self._minutes = _next_table(minutes, 60)
        self._seconds = _next_table(seconds, 60)
        self._in_minute = self._seconds[0]
        self._opening = self._minutes[0] * 60 + self._in_minute
        self.first = self._hours[0] * 3600 + self._opening
        self.last = (hours.bit_length() - 1) * 3600 + (minutes.bit_length() - 1) * 60 + seconds.bit_length() - 1

    def after(self, second: int) -> int:
        if second < 0:
            return self.first
        hour = second // 3600
        if self._hours[hour] == hour:
            minute = second // 60 % 60
            if self._minutes[minute] == minute:
                inside = self._seconds[second % 60 + 1]
                if inside < 60:
                    return second - second % 60 + inside
            minute = self._minutes[minute + 1]
            if minute < 60:
                return hour * 3600 + minute * 60 + self._in_minute
        return self._hours[hour + 1] * 3600 + self._opening


def _next_table(mask: int, size: int) -> bytes:
    """Entry v is the least member of the mask that is >= v, or 255."""
    table = bytearray(b"\xff" * (size + 1))
    following = 255
    for value in range(size - 1, -1, -1):
        if mask >> value & 1:
            following = value
        table[value] = following
    return bytes(table)


_FEW = 96


def times_of_fields(hours: int, minutes: int, seconds: int) -> TimesOfDay:
    """The times of day that three masks describe."""
    even = _even_times(hours, minutes, seconds)
    if even is not None:
        return even
    if hours.bit_count() * minutes.bit_count() * seconds.bit_count() > _FEW:
        return FieldTimes(hours, minutes, seconds)
    return ListedTimes(
        tuple(
            hour * 3600 + minute * 60 + second
            for hour in _members(hours)
            for minute in _members(minutes)
            for second in _members(seconds)
        )
    )


def _even_times(hours: int, minutes: int, seconds: int) -> EvenTimes | None:
    """The same as even steps, where they are: `*`, `*/5` and `30 * * * *` for instance."""
    in_hour, in_minute = _even_step(minutes), _even_step(seconds)
    if hours != (1 << 24) - 1 or in_hour is None or in_minute is None:
        return None
    (minute, minute_step), (second, second_step) = in_hour, in_minute
    if second_step == 60:
        return EvenTimes(minute * 60 + second, minute_step * 60)
    return EvenTimes(second, second_step) if minute_step == 1 else None


def _even_step(mask: int) -> tuple[int, int] | None:
    """The first and the step of a mask of 60 that goes on evenly into the next 60."""
    members = _members(mask)
    step = 60 // len(members)
    return (members[0], step) if members == tuple(range(members[0], 60, step)) and 60 % len(members) == 0 else None


@lru_cache(maxsize=1024)
def _members(mask: int) -> tuple[int, ...]:
    return tuple(value for value in range(mask.bit_length()) if mask >> value & 1)
