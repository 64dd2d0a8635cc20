"""The fields of a cron expression as bit sets.

A field is parsed once per distinct text and kept as a mask, so a list or a range is never
expanded: `0-999999999` costs what `5` costs. What Debian's cron accepts is accepted with
its meaning, what its parser skips in silence is refused with a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class FieldKind(NamedTuple):
    """What a field may hold. `high` is the greatest value `*` and `a/step` reach; weekdays
    are read up to 7 and kept as 0..6. `hash_high` bounds `H`."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    names_from: int = 0
    hash_high: int = 0


SECOND = FieldKind("second", 0, 59, hash_high=59)
MINUTE = FieldKind("minute", 0, 59, hash_high=59)
HOUR = FieldKind("hour", 0, 23, hash_high=23)
DAY = FieldKind("day of month", 1, 31, hash_high=28)
MONTH = FieldKind("month", 1, 12, MONTHS, 1, hash_high=12)
WEEKDAY = FieldKind("day of week", 0, 6, WEEKDAYS, 0, hash_high=6)


class FieldRefused(ValueError):
    """Why a field's text is refused, and what to write instead; the caller adds the expression."""

    def __init__(self, reason: str, mend: str) -> None:
        self.reason, self.mend = reason, mend
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L` and `L-n`: n days before the last of the month."""

    before: int


@dataclass(frozen=True, slots=True)
class LastWorkday:
    """`LW`: the last Monday-to-Friday day of the month."""


@dataclass(frozen=True, slots=True)
class NearestWorkday:
    """`nW`: the Monday-to-Friday day nearest to day n, within the month."""

    day: int


@dataclass(frozen=True, slots=True)
class LastWeekday:
    """`5L`: the last such weekday of the month (0 is Sunday)."""

    weekday: int


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`5#2`: the nth such weekday of the month (0 is Sunday)."""

    weekday: int
    nth: int


Special = LastDay | LastWorkday | NearestWorkday | LastWeekday | NthWeekday


@dataclass(frozen=True, slots=True)
class Field:
    """A parsed field: bit v of `mask` for each plain value, and what a mask cannot say."""

    mask: int
    starred: bool
    specials: tuple[Special, ...] = ()

    @property
    def values(self) -> tuple[int, ...]:
        """The plain values, ascending."""
        return tuple(v for v in range(self.mask.bit_length()) if self.mask >> v & 1)


_ITEM = re.compile(r"(\*|(\d+|[A-Za-z]{3})(?:-(\d+|[A-Za-z]{3}))?)(?:/(\d+))?")
_LAST = re.compile(r"L(?:-(\d{1,3}))?", re.IGNORECASE)
_NEAREST = re.compile(r"(\d{1,3})W", re.IGNORECASE)
_WEEKDAY_LAST = re.compile(r"([0-7]|[A-Z]{3})L", re.IGNORECASE)
_WEEKDAY_NTH = re.compile(r"([0-7]|[A-Z]{3})#([1-5])", re.IGNORECASE)


@lru_cache(maxsize=8192)
def parse_field(kind: FieldKind, text: str) -> Field:
    """The field of a text. Raises FieldRefused for anything without a meaning."""
    if not text:
        raise FieldRefused("the field is empty", f"write * for every {kind.name}")
    mask = 0
    specials: list[Special] = []
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is not None:
            mask |= _plain(kind, item, match)
        else:
            specials.append(_special(kind, item))
    return Field(mask, text.startswith("*"), tuple(dict.fromkeys(specials)))


def _plain(kind: FieldKind, item: str, match: re.Match[str]) -> int:
    whole, first, last, step_text = match.groups()
    if whole == "*":
        low, high = kind.low, kind.high
    else:
        low = _value(kind, item, first)
        if last is not None:
            high = _value(kind, item, last)
            if kind is WEEKDAY and high == 0 and low > 0:
                high = 7
        else:
            if kind is WEEKDAY and low == 7:
                low = 0
            high = kind.high if step_text is not None else low
    if low > high:
        raise FieldRefused(
            f"the range {item!r} runs backwards", f"write it as two: {first}-{kind.high},{kind.low}-{last}"
        )
    step = _number(step_text) if step_text is not None else 1
    if step == 0:
        raise FieldRefused(f"the step of {_short(item)!r} is zero", "a step is 1 or more")
    if step > _GREATEST_STEP:
        raise FieldRefused(f"the step of {_short(item)!r} is absurd", f"the {kind.name} ends at {kind.high}")
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << value
    return _fold_sunday(mask) if kind is WEEKDAY else mask


_GREATEST_STEP = 9_999


def _fold_sunday(mask: int) -> int:
    return mask & 0x7F | mask >> 7


def _number(digits: str) -> int:
    """The number of a run of digits; absurdly long ones are all the same large number."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < 6 else 999_999


def _value(kind: FieldKind, item: str, text: str) -> int:
    if text.isdigit():
        value = _number(text)
        top = 7 if kind is WEEKDAY else kind.high
        if not kind.low <= value <= top:
            raise FieldRefused(
                f"{_short(text)} is outside {kind.low}-{top} in {_short(item)!r}", _range_hint(kind, top)
            )
        return value
    if text.upper() in kind.names:
        return kind.names.index(text.upper()) + kind.names_from
    raise FieldRefused(f"{_short(text)!r} is not a name of this field", _names_hint(kind))


def _range_hint(kind: FieldKind, top: int) -> str:
    sunday = " (Sunday is 0 or 7)" if kind is WEEKDAY else ""
    return f"the {kind.name} is {kind.low} to {top}{sunday}"


def _names_hint(kind: FieldKind) -> str:
    if kind.names:
        return f"write one of {', '.join(kind.names)} or a number {kind.low}-{kind.high}"
    return f"the {kind.name} takes numbers {kind.low}-{kind.high}"


def _special(kind: FieldKind, item: str) -> Special:
    """An item that a mask cannot hold, or the refusal that says what was probably meant."""
    special = None
    if kind is DAY:
        special = _day_special(item)
    elif kind is WEEKDAY:
        special = _weekday_special(item)
    if special is not None:
        return special
    raise _refusal(kind, item)


def _day_special(item: str) -> Special | None:
    if item.upper() == "LW":
        return LastWorkday()
    if (match := _LAST.fullmatch(item)) is not None:
        before = int(match[1] or 0)
        if before > 30:
            raise FieldRefused(f"no month has a day {before} days before its last", "write L-1 to L-30")
        return LastDay(before)
    if (match := _NEAREST.fullmatch(item)) is not None:
        day = int(match[1])
        if not 1 <= day <= 31:
            raise FieldRefused(f"{day} is outside 1-31 in {item!r}", "write 1W to 31W")
        return NearestWorkday(day)
    return None


def _weekday_special(item: str) -> Special | None:
    if (match := _WEEKDAY_LAST.fullmatch(item)) is not None:
        return LastWeekday(_value(WEEKDAY, item, match[1]) % 7)
    if (match := _WEEKDAY_NTH.fullmatch(item)) is not None:
        return NthWeekday(_value(WEEKDAY, item, match[1]) % 7, int(match[2]))
    return None


_MISTAKES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason, mend)
    for pattern, reason, mend in (
        (r"", "a list has an empty item", "remove the comma that has nothing beside it"),
        (
            r".*\?.*",
            "'?' is Quartz, which counts Sunday as 1",
            "write *, and weekdays as names or with 0 or 7 for Sunday",
        ),
        (r"\*\*+.*", "more than one star", "write a single *"),
        (r"W\d+", "W stands after the day", "write 15W, for the weekday nearest to the 15th"),
        (r"L\d+", "L stands after the weekday", "write 5L in the day-of-week field for the last Friday"),
        (r"(\d|[A-Z]{3})#L", "there is no #L", "write 5L for the last Friday"),
        (r".*#.*", "the part after # is 1 to 5, after one weekday", "write FRI#2 in the day-of-week field"),
        (r".+/.*/.*", "more than one step", "write one step, */5 for instance"),
        (r".*[LW].*/.*", "L, W and # take no step", "list the days, L,15 for instance"),
        (r".*/(?!\d+$).*", "the step is not a whole number", "write */5, a positive whole number after the slash"),
        (r"(\d+|[A-Z]{3}|\*)?-.*|.*-(\*|)", "a malformed range", "write a-b, one number or name on each side"),
        (r"H.*", "H is written H, H(a-b) or H/n", "write H, H(0-29) or H/15"),
        (r".*W", "W belongs to the day-of-month field, after one day", "write 15W or LW there"),
        (r".*L", "L belongs to the day fields", "write L for the last day of the month, 5L for the last Friday"),
        (r"[A-Z]+", "not a name of this field", "names are the three English letters, JAN or MON"),
    )
)


def _refusal(kind: FieldKind, item: str) -> FieldRefused:
    for pattern, reason, mend in _MISTAKES:
        if pattern.fullmatch(item):
            return FieldRefused(f"{_short(item)!r}: {reason}", mend)
    mend = "write *, a number, a range a-b, a step */n, or a list of these"
    return FieldRefused(f"{_short(item)!r} means nothing in the {kind.name} field", mend)


def _short(text: str) -> str:
    return text if len(text) <= 20 else text[:17] + "..."
