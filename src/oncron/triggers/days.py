"""Which local days a rule has, as days since 1970-01-01.

Every rule answers one question, the first of its days at or after a given one, and repeats
after 400 Gregorian years, so a search of that length that finds nothing is the end.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import Protocol

from oncron.triggers.fields import Field, LastDay, LastWeekday, LastWorkday, NearestWorkday, Special

EPOCH_DAY = 719_163
"""The proleptic ordinal of 1970-01-01."""

LAST_DAY = date.max.toordinal() - EPOCH_DAY
FIRST_DAY = 1 - EPOCH_DAY
NO_DAY = 1 << 40
"""The answer of a rule that has no further day: greater than every day."""

CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
CYCLE_MONTHS = 4_800
_EVERY_MONTH = 0x1FFE


class DayRule(Protocol):
    """A set of local days."""

    def next_day(self, day: int) -> int:
        """The first day of the rule at or after `day`, or NO_DAY."""
        ...


class EveryDay:
    """All of them."""

    __slots__ = ()

    def next_day(self, day: int) -> int:
        return day if day <= LAST_DAY else NO_DAY


class OneDay:
    """A single day."""

    __slots__ = ("_day",)

    def __init__(self, day: int) -> None:
        self._day = day

    def next_day(self, day: int) -> int:
        return self._day if day <= self._day else NO_DAY


class Weekdays:
    """Some days of each week, whatever the date. Bit 0 of the mask is Sunday."""

    __slots__ = ("_ahead",)

    def __init__(self, mask: int) -> None:
        # 1970-01-01 was a Thursday: day n falls on weekday (n + 4) % 7.
        self._ahead = tuple(
            next(step for step in range(7) if mask >> (residue + 4 + step) % 7 & 1) for residue in range(7)
        )

    def next_day(self, day: int) -> int:
        found = day + self._ahead[day % 7]
        return found if found <= LAST_DAY else NO_DAY


class CronDays:
    """The day-of-month, month and day-of-week fields of a cron expression together."""

    __slots__ = ("_both", "_days", "_found", "_masks", "_months", "_weekdays")

    def __init__(self, days: Field, months: int, weekdays: Field) -> None:
        self._days, self._weekdays, self._months = days, weekdays, months
        # Debian's rule: a field that begins with a star narrows the other one; two that
        # do not are alternatives.
        self._both = days.starred or weekdays.starred
        self._masks: dict[int, int] = {}
        # The last question and its answer: the same answer holds for every day in between.
        self._found = (0, -1)

    def next_day(self, day: int) -> int:
        asked, found = self._found
        if not asked <= day <= found:
            found = self._search(day)
            self._found = (day, found)
        return found

    def _search(self, day: int) -> int:
        if not FIRST_DAY <= day <= LAST_DAY:
            return NO_DAY if day > LAST_DAY else self._search(FIRST_DAY)
        at = date.fromordinal(day + EPOCH_DAY)
        year, month = at.year, at.month
        first = day - at.day + 1
        months = self._months
        if months >> month & 1:
            left = self._mask(_length(year, month), (first + 4) % 7) >> at.day
            if left:
                return day + (left & -left).bit_length() - 1
        last_year = min(9999, year + CYCLE_YEARS)
        while True:
            later = months >> (month + 1)
            if later:
                month += (later & -later).bit_length()
            else:
                year += 1
                if year > last_year:
                    return NO_DAY
                month = (months & -months).bit_length() - 1
            first = date(year, month, 1).toordinal() - EPOCH_DAY
            mask = self._mask(_length(year, month), (first + 4) % 7)
            if mask:
                return first + (mask & -mask).bit_length() - 2

    def occurs(self) -> bool:
        """Whether any month of the calendar has such a day."""
        # Within 400 years every month begins on every weekday, in each of its lengths.
        return any(
            self._mask(length, weekday)
            for month in range(1, 13)
            if self._months >> month & 1
            for length in ((28, 29) if month == 2 else (_length(2001, month),))
            for weekday in range(7)
        )

    def _mask(self, length: int, weekday: int) -> int:
        """Bit d for each matching day d of a month of that length that begins on that weekday."""
        key = length * 7 + weekday
        mask = self._masks.get(key)
        if mask is None:
            of_days = _special_mask(self._days.specials, length, weekday) | self._days.mask
            of_weekdays = _special_mask(self._weekdays.specials, length, weekday)
            of_weekdays |= weekday_mask(self._weekdays.mask, weekday)
            mask = (of_days & of_weekdays if self._both else of_days | of_weekdays) & month_mask(length)
            self._masks[key] = mask
        return mask


_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def month_mask(length: int) -> int:
    """Bits 1 to length."""
    return (2 << length) - 2


@lru_cache(maxsize=1024)
def weekday_mask(weekdays: int, first: int) -> int:
    """Bit d for each day d (1..31) whose weekday is in the mask, in a month that begins on `first`."""
    return sum(1 << day for day in range(1, 32) if weekdays >> (first + day - 1) % 7 & 1)


def _special_mask(specials: Iterable[Special], length: int, first: int) -> int:
    mask = 0
    for special in specials:
        day = _special_day(special, length, first)
        if 1 <= day <= length:
            mask |= 1 << day
    return mask


def _special_day(special: Special, length: int, first: int) -> int:
    """The day an extension names in a month, which may lie outside of it."""
    if isinstance(special, LastDay):
        return length - special.before
    if isinstance(special, LastWorkday):
        return _workday_near(length, length, first)
    if isinstance(special, NearestWorkday):
        return _workday_near(special.day, length, first) if special.day <= length else 0
    if isinstance(special, LastWeekday):
        return length - (first + length - 1 - special.weekday) % 7
    return 1 + (special.weekday - first) % 7 + 7 * (special.nth - 1)


def _workday_near(day: int, length: int, first: int) -> int:
    """The Monday-to-Friday day nearest to `day`, never across the month's border."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def cron_days(days: Field, months: int, weekdays: Field) -> DayRule | None:
    """The rule of three cron fields; None if no such date exists."""
    plain = not days.specials and not weekdays.specials
    if plain and months == _EVERY_MONTH:
        all_days, all_weekdays = days.mask == month_mask(31), weekdays.mask == 0x7F
        both = days.starred or weekdays.starred
        if (all_days and all_weekdays) or (not both and (all_days or all_weekdays)):
            return EveryDay()
        if both and all_days:
            return Weekdays(weekdays.mask)
    rule = CronDays(days, months, weekdays)
    return rule if rule.occurs() else None


class DayGrid:
    """Every nth day from an anchor, in both directions."""

    __slots__ = ("_anchor", "_days")

    def __init__(self, anchor: int, days: int) -> None:
        self._anchor, self._days = anchor, days

    def next_day(self, day: int) -> int:
        found = day + (self._anchor - day) % self._days
        return found if found <= LAST_DAY else NO_DAY


class WeekGrid:
    """Some days of every nth ISO week from the anchor's. Bit 0 of the mask is Monday."""

    __slots__ = ("_mask", "_start", "_weeks")

    def __init__(self, anchor: int, weeks: int, mask: int) -> None:
        self._start = anchor - (anchor + 3) % 7
        self._weeks, self._mask = weeks, mask

    def next_day(self, day: int) -> int:
        week, weekday = divmod(day - self._start, 7)
        if week % self._weeks == 0:
            left = self._mask >> weekday
            if left:
                found = day + (left & -left).bit_length() - 1
                return found if found <= LAST_DAY else NO_DAY
            week += 1
        week += -week % self._weeks
        found = self._start + week * 7 + (self._mask & -self._mask).bit_length() - 1
        return found if found <= LAST_DAY else NO_DAY


class MonthGrid:
    """Some days of every nth month from the anchor's; days count from the end if negative."""

    __slots__ = ("_anchor", "_clamp", "_days", "_months")

    def __init__(self, anchor: date, months: int, days: tuple[int, ...], *, clamp: bool) -> None:
        self._anchor = anchor.year * 12 + anchor.month - 1
        self._months, self._days, self._clamp = months, days, clamp

    def next_day(self, day: int) -> int:
        if not FIRST_DAY <= day <= LAST_DAY:
            return NO_DAY if day > LAST_DAY else self.next_day(FIRST_DAY)
        at = date.fromordinal(day + EPOCH_DAY)
        month = at.year * 12 + at.month - 1
        last = min(9999 * 12 + 11, month + self._longest_search())
        least = at.day
        ahead = (self._anchor - month) % self._months
        if ahead:
            month += ahead
            least = 1
        while month <= last:
            found = min((d for d in self.days_in(month) if d >= least), default=0)
            if found:
                return date(month // 12, month % 12 + 1, found).toordinal() - EPOCH_DAY
            month += self._months
            least = 1
        return NO_DAY

    def occurs(self) -> bool:
        """Whether any month of the grid has one of the days."""
        start = CYCLE_MONTHS + self._anchor % CYCLE_MONTHS
        steps = CYCLE_MONTHS if self._months > 12 else 4 * 12 * 100
        return any(self.days_in(start + step * self._months) for step in range(steps))

    def _longest_search(self) -> int:
        # A grid of n months meets each month of the 400-year cycle it can meet within n cycles.
        return CYCLE_MONTHS * max(1, self._months)

    def days_in(self, month: int) -> set[int]:
        """The days of a month, counted from the year 0, which need not be on the grid."""
        length = monthrange(month // 12 % CYCLE_YEARS + CYCLE_YEARS, month % 12 + 1)[1]
        found = {d if d > 0 else length + 1 + d for d in self._days}
        if self._clamp:
            return {min(max(d, 1), length) for d in found}
        return {d for d in found if 1 <= d <= length}
