"""Intervals of elapsed time, anchored so that every replica computes the same grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Never

from oncron._clock import EPOCH, SECOND, from_us
from oncron.errors import InvalidTrigger
from oncron.triggers import surprises, words
from oncron.triggers.hashed import draw, seed_of
from oncron.triggers.text import Value, write
from oncron.triggers.trigger import MAX_US, MIN_US, Trigger, instant_us

Interval = timedelta | float | Decimal
"""A timedelta, or a number of seconds."""

_LONGEST = 400 * 366 * 86_400 * SECOND
_UNITS = (("hours", 3600 * SECOND), ("minutes", 60 * SECOND), ("seconds", SECOND))


class EveryTrigger(Trigger):
    """anchor + k x period, for every whole k. Made by `every`."""

    __slots__ = ("_anchor", "_period", "_text")

    def __init__(self, period: int, anchor: int) -> None:
        self._period, self._anchor = period, anchor
        unit, amount = _in_unit(period)
        self._text = write("every", **{unit: amount}, anchor=anchor_text(anchor))

    @property
    def kind(self) -> str:
        return "every"

    @property
    def period_us(self) -> int:
        return self._period

    @property
    def anchor_us(self) -> int:
        """A tick of the grid, which runs on in both directions."""
        return self._anchor

    def next_after_us(self, t: int, /) -> int | None:
        t = max(t, MIN_US)
        found = t + self._period - (t - self._anchor) % self._period
        return found if found <= MAX_US else None

    def bind(self, schedule: str, timezone: str | None = None) -> EveryTrigger:
        del schedule, timezone
        return self

    def count_between_us(self, a: int, b: int, at_most: int = 10_000) -> tuple[int, bool]:
        a, b = max(a, MIN_US), min(b, MAX_US)
        count = max(0, (b - self._anchor) // self._period - (a - self._anchor) // self._period)
        return (at_most, True) if count > at_most else (count, False)

    def latest_in_us(self, a: int, b: int, n: int) -> list[int]:
        a, b = max(a, MIN_US), min(b, MAX_US)
        newest = b - (b - self._anchor) % self._period
        count = min(n, self.count_between_us(a, b, max(n, 0))[0])
        return [newest - self._period * back for back in range(count - 1, -1, -1)]

    def describe(self) -> str:
        return words.describe_every(self)

    def warnings(self) -> list[str]:
        return surprises.of_every(self._period)


class BetweenTrigger(Trigger):
    """anchor + k x mean + a draw from (name, k): gaps within [least, most]. Made by `every(between=)`."""

    __slots__ = ("_anchor", "_least", "_mean", "_most", "_seed", "_span", "_text")

    def __init__(self, least: int, most: int, anchor: int, seed: str | None) -> None:
        self._least, self._most, self._anchor, self._seed = least, most, anchor, seed
        self._mean, self._span = (least + most) // 2, (most - least) // 2
        bounds: list[Value] = [seconds_text(least), seconds_text(most)]
        self._text = write("every", between=bounds, anchor=anchor_text(anchor), seed=seed)

    @property
    def kind(self) -> str:
        return "every"

    @property
    def is_bound(self) -> bool:
        return self._seed is not None

    @property
    def bounds_us(self) -> tuple[int, int]:
        """The least and the greatest gap between two ticks."""
        return self._least, self._most

    @property
    def anchor_us(self) -> int:
        """Where the grid the draws are added to has its zero."""
        return self._anchor

    def next_after_us(self, t: int, /) -> int | None:
        if self._seed is None:
            raise InvalidTrigger(
                "between= is drawn from the schedule's name, and there is no schedule yet",
                expression=self._text,
                mend="ask trigger.bind('schedule-name') instead",
            )
        t = max(t, MIN_US)
        # The draw is less than the mean, so tick k lies in the kth stretch of that length.
        k = (t - self._anchor) // self._mean
        found = self._tick(k, self._seed)
        if found <= t:
            found = self._tick(k + 1, self._seed)
        return found if found <= MAX_US else None

    def bind(self, schedule: str, timezone: str | None = None) -> BetweenTrigger:
        del timezone
        if self._seed is not None:
            return self
        return BetweenTrigger(self._least, self._most, self._anchor, seed_of(schedule))

    def describe(self) -> str:
        return words.describe_between(self)

    def _tick(self, k: int, seed: str) -> int:
        return self._anchor + k * self._mean + draw(seed, str(k), self._span)


def every(
    period: timedelta | None = None,
    /,
    *,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime = EPOCH,
    between: tuple[Interval, Interval] | None = None,
    **refused: Never,
) -> EveryTrigger | BetweenTrigger:
    """A trigger of equal steps of elapsed time: anchor + k x period, in every zone.

    The period is a timedelta or the sum of `hours`, `minutes` and `seconds`. The anchor is
    1970-01-01T00:00Z unless given, so that replicas and restarts share one grid.
    `between=(least, most)` (timedeltas or seconds) draws each tick from the schedule's name
    instead, with gaps of least to most. Raises InvalidTrigger.
    """
    shown = _shown(period, hours, minutes, seconds, between, refused)
    if refused:
        raise _refused_unit(next(iter(refused)), shown)
    at = _anchor_us(anchor)
    sums = (("hours", hours), ("minutes", minutes), ("seconds", seconds))
    given = [name for name, value in sums if value]
    if (period is not None) + bool(given) + (between is not None) != 1:
        raise InvalidTrigger(
            "one period is needed, and only one",
            expression=shown,
            field="period",
            mend="write every(minutes=5), every(timedelta(...)) or every(between=(least, most))",
        )
    if between is not None:
        return _between(between, at, shown)
    if period is None:
        units = dict(_UNITS)
        total = sum(_to_us(value, units[name], shown, name) for name, value in sums)
    else:
        total = _duration_us(period, shown, "period", numbers=False)
    _check_period(total, shown, "period")
    return EveryTrigger(total, at)


def bound_between(least: Interval, most: Interval, anchor: datetime, seed: str) -> BetweenTrigger:
    """`every(between=)` as its text gives it back, with the seed its name had."""
    unbound = _between((least, most), _anchor_us(anchor), (least, most))
    if len(seed) != 16 or seed.strip("0123456789abcdef"):
        raise InvalidTrigger("a seed is 16 hexadecimal digits", expression=seed, field="seed")
    return BetweenTrigger(*unbound.bounds_us, unbound.anchor_us, seed)


def _between(between: Sequence[object], anchor: int, shown: object) -> BetweenTrigger:
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise InvalidTrigger("between= takes two durations", expression=shown, field="between", mend="write (30, 90)")
    least, most = (_duration_us(value, shown, "between", numbers=True) for value in between)
    _check_period(least, shown, "between")
    _check_period(most, shown, "between")
    if most - least < 2:
        raise InvalidTrigger(
            "the first of between= is the shorter one",
            expression=shown,
            field="between",
            mend="write between=(30, 90), or a plain period if both are the same",
        )
    return BetweenTrigger(least, most, anchor, None)


def _check_period(period: int, shown: object, field: str) -> None:
    if period <= 0:
        raise InvalidTrigger(
            "a period is longer than nothing", expression=shown, field=field, mend="give a positive duration"
        )
    if period > _LONGEST:
        raise InvalidTrigger(
            "a period of more than 400 years", expression=shown, field=field, mend="give a shorter one"
        )


def _duration_us(value: object, shown: object, field: str, *, numbers: bool) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if numbers:
        return _to_us(value, SECOND, shown, field)
    raise InvalidTrigger(
        "a period is a timedelta",
        expression=shown,
        field=field,
        mend="write every(seconds=30) or every(timedelta(...))",
    )


def _to_us(value: object, unit: int, shown: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        raise InvalidTrigger(f"{value!r} is no duration", expression=shown, field=field, mend="give a finite number")
    return value * unit if isinstance(value, int) else round(value * unit)


def _anchor_us(anchor: object) -> int:
    try:
        return instant_us(anchor)
    except InvalidTrigger as refused:
        raise InvalidTrigger(refused.reason, expression=refused.expression, field="anchor", mend=refused.mend) from None


def _refused_unit(unit: str, shown: object) -> InvalidTrigger:
    if unit in {"days", "weeks", "months", "years"}:
        return InvalidTrigger(
            f"{unit}= is refused: a period is elapsed time, and a day on the clock has 23 to 25 hours",
            expression=shown,
            field=unit,
            mend=f"write {'daily' if unit == 'days' else 'weekly' if unit == 'weeks' else 'monthly'}(...) for "
            "a time on the clock, or every(hours=24) for elapsed time",
        )
    return InvalidTrigger(
        f"{unit}= is no option of every", expression=shown, field=unit, mend="write hours=, minutes= or seconds="
    )


def _shown(
    period: object, hours: object, minutes: object, seconds: object, between: object, refused: dict[str, Never]
) -> str:
    parts = [repr(period)] if period is not None else []
    named: dict[str, object] = {"hours": hours or None, "minutes": minutes or None, "seconds": seconds or None}
    named |= {"between": between} | refused
    parts += [f"{name}={value!r}" for name, value in named.items() if value is not None]
    return f"every({', '.join(parts)})"


def _in_unit(period: int) -> tuple[str, Value]:
    for name, size in _UNITS:
        if period % size == 0:
            return name, period // size
    return "seconds", seconds_text(period)


def seconds_text(duration: int) -> Value:
    """Microseconds as a whole or exact decimal number of seconds."""
    whole, rest = divmod(duration, SECOND)
    return whole if rest == 0 else Decimal(f"{whole}.{rest:06d}".rstrip("0"))


def anchor_text(anchor: int) -> str | None:
    """The anchor for stored text; None for the default one."""
    return None if anchor == 0 else instant_text(anchor)


def instant_text(instant: int) -> str:
    """An instant in ISO 8601, in UTC."""
    return from_us(instant).isoformat().replace("+00:00", "Z")
