"""Calendar triggers: every nth day, week or month, at times of day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from functools import lru_cache
from typing import Final, Literal, get_args

from oncron.errors import InvalidTrigger
from oncron.triggers import surprises, words
from oncron.triggers.days import CYCLE_DAYS, CYCLE_MONTHS, EPOCH_DAY, DayGrid, DayRule, EveryDay, MonthGrid, WeekGrid
from oncron.triggers.local import Fold, Gap, LocalTrigger, check_options
from oncron.triggers.text import Value, one_or_list, write
from oncron.triggers.times import ListedTimes

At = str | time | Sequence[str | time]
"""A time of day, `"HH:MM"`, `"HH:MM:SS"` or a `time`, or several."""

Days = str | int | Sequence[str | int]
Missing = Literal["skip", "last"]

EPOCH_DATE: Final = date(1970, 1, 1)
WEEKDAY_NAMES: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class CalendarTrigger(LocalTrigger):
    """Local days on a grid, at listed times of day. Made by `daily`, `weekly` and `monthly`."""

    __slots__ = ("_kind", "_options", "_values", "step", "values")

    def __init__(
        self,
        kind: str,
        days: DayRule,
        times: ListedTimes,
        values: tuple[Value, ...],
        options: dict[str, Value | None],
        *,
        step: int,
        timezone: str | None,
        gap: Gap,
        fold: Fold,
    ) -> None:
        super().__init__(days, times, timezone=timezone, gap=gap, fold=fold)
        self._kind, self._options, self.values, self.step = kind, options, values, step
        self._text = write(
            kind,
            *[one_or_list(value) if isinstance(value, list) else value for value in values],
            **options,
            timezone=timezone,
            gap=None if gap == "next" else gap,
            fold=None if fold == "first" else fold,
        )

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def listed(self) -> tuple[int, ...]:
        """Its times of day, in seconds."""
        times = self._times
        return times.listed if isinstance(times, ListedTimes) else ()

    def option(self, name: str) -> Value | None:
        """An option that is not its default, otherwise None."""
        return self._options.get(name)

    def bind(self, schedule: str, timezone: str | None = None) -> CalendarTrigger:
        del schedule
        if self._timezone is not None:
            return self
        times = ListedTimes(self.listed)
        return CalendarTrigger(
            self._kind,
            self._days,
            times,
            self.values,
            self._options,
            step=self.step,
            timezone=timezone or "UTC",
            gap=self._gap,
            fold=self._fold,
        )

    def describe(self) -> str:
        return words.describe_calendar(self)

    def warnings(self) -> list[str]:
        return surprises.of_local(self)


def daily(
    at: At,
    *,
    days: int = 1,
    anchor: date = EPOCH_DATE,
    timezone: str | None = None,
    gap: Gap = "next",
    fold: Fold = "first",
) -> CalendarTrigger:
    """A trigger of times of day on every nth local date: anchor + k x days. Raises InvalidTrigger."""
    check_options(gap, fold, at)
    listed = _times(at)
    step = _step(days, "days", CYCLE_DAYS)
    rule: DayRule = EveryDay() if step == 1 else DayGrid(_anchor(anchor).toordinal() - EPOCH_DAY, step)
    options: dict[str, Value | None] = {"days": _unless(step, 1), "anchor": _anchor_text(anchor, step)}
    return CalendarTrigger(
        "daily", rule, listed, (_time_texts(listed),), options, step=step, timezone=timezone, gap=gap, fold=fold
    )


def weekly(
    days: Days,
    /,
    at: At,
    *,
    weeks: int = 1,
    anchor: date = EPOCH_DATE,
    timezone: str | None = None,
    gap: Gap = "next",
    fold: Fold = "first",
) -> CalendarTrigger:
    """A trigger of times of day on some weekdays of every nth ISO week, counted from the anchor's.

    Days are `"mon"`, `"mon-fri"`, numbers with 0 (or 7) for Sunday, or several. Raises InvalidTrigger.
    """
    check_options(gap, fold, days)
    listed = _times(at)
    chosen = _weekdays(days)
    step = _step(weeks, "weeks", CYCLE_DAYS // 7)
    rule = WeekGrid(_anchor(anchor).toordinal() - EPOCH_DAY, step, sum(1 << day for day in chosen))
    names: list[Value] = [WEEKDAY_NAMES[day] for day in chosen]
    options: dict[str, Value | None] = {"weeks": _unless(step, 1), "anchor": _anchor_text(anchor, step)}
    return CalendarTrigger(
        "weekly", rule, listed, (names, _time_texts(listed)), options, step=step, timezone=timezone, gap=gap, fold=fold
    )


def monthly(
    days: int | Sequence[int],
    /,
    at: At,
    *,
    months: int = 1,
    missing: Missing = "skip",
    anchor: date = EPOCH_DATE,
    timezone: str | None = None,
    gap: Gap = "next",
    fold: Fold = "first",
) -> CalendarTrigger:
    """A trigger of times of day on some days of every nth month, counted from the anchor's.

    Days are 1 to 31, or -1 (the last) to -31 counted from the end. A month without the day is
    passed over for it (`missing="skip"`) or takes the nearest day it has (`"last"`). Raises
    InvalidTrigger, also for a rule that no month of its grid can satisfy.
    """
    check_options(gap, fold, days)
    if missing not in get_args(Missing):
        raise InvalidTrigger(
            f"missing={missing!r} means nothing", expression=days, field="missing", mend="write 'skip' or 'last'"
        )
    listed = _times(at)
    chosen = _month_days(days)
    step = _step(months, "months", CYCLE_MONTHS)
    rule = _month_grid(_anchor(anchor), step, chosen, missing == "last")
    if rule is None:
        raise InvalidTrigger(
            f"no month of this grid has such a day (every {step} months from {anchor:%Y-%m})",
            expression=days,
            field="days",
            mend="choose another anchor, or missing='last'",
        )
    options: dict[str, Value | None] = {
        "months": _unless(step, 1),
        "missing": _unless(missing, "skip"),
        "anchor": _anchor_text(anchor, step),
    }
    return CalendarTrigger(
        "monthly",
        rule,
        listed,
        (list(chosen), _time_texts(listed)),
        options,
        step=step,
        timezone=timezone,
        gap=gap,
        fold=fold,
    )


@lru_cache(maxsize=1024)
def _month_grid(anchor: date, months: int, days: tuple[int, ...], clamp: bool) -> MonthGrid | None:
    grid = MonthGrid(anchor, months, days, clamp=clamp)
    return grid if grid.occurs() else None


_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_RANGE = re.compile(r"([a-z]{3}|[0-7])(?:-([a-z]{3}|[0-7]))?")


def _times(at: At) -> ListedTimes:
    several = [at] if isinstance(at, str | time) else at
    if not isinstance(several, Iterable) or isinstance(several, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _not_a_time(several)
    found = {_second_of_day(item) for item in several}
    if not found:
        raise InvalidTrigger("no time of day", expression=at, field="at", mend="write '03:00', or several")
    return ListedTimes(tuple(sorted(found)))


def _second_of_day(at: object) -> int:
    if isinstance(at, str) and (match := _TIME.fullmatch(at)) is not None:
        return int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
    if isinstance(at, time):
        if at.tzinfo is not None:
            raise InvalidTrigger(
                "a time of day has no zone of its own", expression=at, field="at", mend="give timezone= to the trigger"
            )
        if at.microsecond:
            raise InvalidTrigger(
                "a time of day has whole seconds", expression=at, field="at", mend="leave the microseconds out"
            )
        return at.hour * 3600 + at.minute * 60 + at.second
    raise _not_a_time(at)


def _not_a_time(at: object) -> InvalidTrigger:
    return InvalidTrigger(
        "not a time of day", expression=at, field="at", mend="write 'HH:MM' or 'HH:MM:SS', 00:00 to 23:59:59"
    )


def _time_texts(times: ListedTimes) -> list[Value]:
    return [words.clock(second) for second in times.listed]


def _weekdays(days: Days) -> tuple[int, ...]:
    """Weekdays with 0 for Monday, ascending."""
    several = [days] if isinstance(days, str | int) else days
    if not isinstance(several, Iterable) or isinstance(several, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _not_a_weekday(several)
    found: set[int] = set()
    for item in several:
        found.update(_weekday_item(item))
    if not found:
        raise InvalidTrigger("no weekday", expression=days, field="days", mend="write 'mon', 'mon-fri' or a list")
    return tuple(sorted(found))


def _weekday_item(item: object) -> Iterable[int]:
    if isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= 7:
        return [(item - 1) % 7]
    if not isinstance(item, str) or len(item) > 64:
        raise _not_a_weekday(item)
    found: list[int] = []
    for part in item.lower().split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise _not_a_weekday(item)
        first = _weekday(match[1], item)
        last = first if match[2] is None else _weekday(match[2], item)
        # A range that begins with Sunday goes on to the days after it, as `0-3` does.
        if first == 6 and last != 6:
            first = -1
        if first > last:
            raise InvalidTrigger(
                "the range runs backwards", expression=item, field="days", mend="write it as two, ['sat-sun', 'mon']"
            )
        found += [day % 7 for day in range(first, last + 1)]
    return found


def _weekday(text: str, item: str) -> int:
    if text.isdigit():
        return (int(text) - 1) % 7
    if text not in WEEKDAY_NAMES:
        raise _not_a_weekday(item)
    return WEEKDAY_NAMES.index(text)


def _not_a_weekday(item: object) -> InvalidTrigger:
    return InvalidTrigger(
        "not a weekday",
        expression=item,
        field="days",
        mend=f"write {', '.join(WEEKDAY_NAMES)}, a range such as 'mon-fri', or a number with 0 for Sunday",
    )


def _month_days(days: object) -> tuple[int, ...]:
    several: object = [days] if isinstance(days, int) else days
    if isinstance(several, str | bytes) or not isinstance(several, Iterable):
        raise _not_a_month_day(several)
    found: set[int] = set()
    for item in several:  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(item, int) or isinstance(item, bool) or not 1 <= abs(item) <= 31:
            raise _not_a_month_day(item)  # pyright: ignore[reportUnknownArgumentType]
        found.add(item)
    if not found:
        raise InvalidTrigger("no day of the month", expression=days, field="days", mend="write 1, -1 or a list")
    return (*sorted(d for d in found if d > 0), *sorted(d for d in found if d < 0))


def _not_a_month_day(item: object) -> InvalidTrigger:
    return InvalidTrigger(
        "not a day of the month",
        expression=item,
        field="days",
        mend="write 1 to 31, or -1 (the last day) to -31",
    )


def _step(value: object, field: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidTrigger(
            f"{field}={value!r}", expression=value, field=field, mend=f"give a whole number, 1 to {most}"
        )
    return value


def _anchor(anchor: object) -> date:
    if not isinstance(anchor, date) or isinstance(anchor, datetime):
        raise InvalidTrigger("the anchor is a date", expression=anchor, field="anchor", mend="write date(2026, 1, 5)")
    return anchor


def _anchor_text(anchor: object, step: int) -> str | None:
    """The anchor for stored text; None where it is the default one or makes no difference."""
    chosen = _anchor(anchor)
    return None if step == 1 or chosen == EPOCH_DATE else chosen.isoformat()


def _unless(value: Value, default: Value) -> Value | None:
    return None if value == default else value
