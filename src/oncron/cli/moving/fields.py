"""Sets of minutes, days and weekdays as the fields of a cron expression.

APScheduler and Celery want the day of the month *and* the weekday; cron wants one of them, unless a field begins with
a star. What both say together is written in a way that means the same to cron, where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from oncron.cli.moving.moved import NoEquivalent
from oncron.triggers.fields import MONTHS

ALL_DAYS = frozenset(range(1, 32))
ALL_WEEKDAYS = frozenset(range(7))
"""0 is Sunday."""

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONG = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_WEEKS = {frozenset(range(first, min(first + 7, 32))): nth for nth, first in enumerate(range(1, 30, 7), start=1)}


def listed(values: Collection[int], low: int, high: int) -> str:
    """`*` for all of them; else ranges, steps and single values, without a star."""
    left = sorted(set(values))
    if len(left) == high - low + 1:
        return "*"
    found: list[str] = []
    while left:
        run = _progression(left)
        step = run[1] - run[0] if len(run) > 1 else 1
        if len(run) > 2 and step == 1:
            found.append(f"{run[0]}-{run[-1]}")
        elif len(run) > 3:
            found.append(f"{run[0]}-{run[-1]}/{step}")
        else:
            run = run[:1]
            found.append(str(run[0]))
        left = left[len(run) :]
    return ",".join(found)


def _progression(values: list[int]) -> list[int]:
    """As many of the first ones as have one distance."""
    end = min(2, len(values))
    while end < len(values) and values[end] - values[end - 1] == values[1] - values[0]:
        end += 1
    return values[:end]


def weekdays(values: Collection[int]) -> str:
    """By names, so that no numbering is in doubt; Monday first."""
    if len(set(values)) == 7:
        return "*"
    left = sorted({(value - 1) % 7 for value in values})
    found: list[str] = []
    while left:
        end = 1
        while end < len(left) and left[end] == left[end - 1] + 1:
            end += 1
        names = [WEEKDAYS[(day + 1) % 7] for day in left[:end]]
        found += [f"{names[0]}-{names[-1]}"] if end > 2 else names
        left = left[end:]
    return ",".join(found)


def weekday_words(values: Iterable[int]) -> str:
    """`Monday`, `Monday and Friday`, `Monday, Tuesday and Friday`."""
    names = [_LONG[day] for day in sorted(values, key=lambda day: (day - 1) % 7)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def month_name(number: int) -> str:
    return MONTHS[number - 1].lower()


def both(days: frozenset[int], chosen: frozenset[int], text: str) -> tuple[str, str]:
    """The day and the weekday field for dates that are among `days` and fall on a weekday of `chosen`; `text` is how
    the days were written. Raises NoEquivalent."""
    if chosen == ALL_WEEKDAYS:
        return text, "*"
    if days == ALL_DAYS:
        return "*", weekdays(chosen)
    if text.startswith("*"):
        return text, weekdays(chosen)
    if (nths := weeks_of(days)) is not None:
        return "*", ",".join(nth_weekdays(chosen, nths))
    if (step := _step_of(days, ALL_DAYS)) is not None:
        return f"*/{step}", weekdays(chosen)
    if 1 in days:
        # A field that begins with a star makes cron want both; `*/31` is the 1st alone.
        others = f",{listed(days - {1}, 1, 31)}" if len(days) > 1 else ""
        return f"*/31{others}", weekdays(chosen)
    if 0 in chosen:
        return text, "*/7" + (f",{weekdays(chosen - {0})}" if len(chosen) > 1 else "")
    raise NoEquivalent(
        f"it wants day {text} of the month and {weekday_words(chosen)} at once, where cron takes either; schedule the "
        "days and raise Skip in the task on other weekdays"
    )


def weeks_of(days: frozenset[int]) -> list[int] | None:
    """Which sevenths of a month they are, 1 to 5; None if they are not whole ones."""
    found = [nth for week, nth in _WEEKS.items() if week <= days]
    return found if frozenset[int]().union(*(week for week, nth in _WEEKS.items() if nth in found)) == days else None


def nth_weekdays(chosen: Iterable[int], nths: Iterable[int]) -> list[str]:
    """`mon#1`, ..."""
    ordered = sorted(chosen, key=lambda day: (day - 1) % 7)
    return [f"{WEEKDAYS[day]}#{nth}" for nth in nths for day in ordered]


def last_weekday(day: int) -> str:
    return f"{WEEKDAYS[day]}L"


def _step_of(days: frozenset[int], everything: frozenset[int]) -> int | None:
    low, high = min(everything), max(everything)
    return next((step for step in range(2, 16) if days == frozenset(range(low, high + 1, step))), None)
