"""Hypothesis strategies: a trigger together with the slow rule that says the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from hypothesis import reject, strategies as st

from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, cron, daily, monthly, weekly
from tests.unit.triggers.slow import DAY, SlowRule

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "America/Santiago",
    "America/Havana",
    "Asia/Gaza",
    "Antarctica/Troll",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Asia/Tehran",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
    "America/Nuuk",
    "Europe/Dublin",
    "Asia/Kathmandu",
)


@dataclass(frozen=True)
class Pair:
    trigger: Trigger
    slow: SlowRule
    zone: str


@dataclass(frozen=True)
class FieldText:
    text: str
    values: frozenset[int]

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, most: int = 3) -> FieldText:
    """A field's text and what it stands for, written out by hand."""
    texts: list[str] = []
    values: set[int] = set()
    for _ in range(draw(st.integers(1, most))):
        form = draw(st.sampled_from(("*", "one", "range", "start")))
        a = draw(st.integers(low, high))
        step = draw(st.integers(1, high + 3))
        stepped = draw(st.booleans())
        if form == "one":
            texts.append(str(a))
            values.add(a)
            continue
        if form == "range":
            b = draw(st.integers(a, high))
            text = f"{a}-{b}"
        elif form == "start":
            b, text, stepped = high, str(a), True
        else:
            a, b, text = low, high, "*"
        texts.append(f"{text}/{step}" if stepped else text)
        values.update(v for v in range(a, b + 1) if (v - a) % (step if stepped else 1) == 0)
    return FieldText(",".join(texts), frozenset(values))


def _last_of(day: date) -> int:
    following = date(day.year + day.month // 12, day.month % 12 + 1, 1)
    return (following - DAY).day


def _nearest(number: int, day: date) -> bool:
    """Whether `day` is the weekday nearest to that number in its month."""
    if number > _last_of(day):
        return False
    candidates = [day.replace(day=d) for d in range(1, _last_of(day) + 1) if day.replace(day=d).weekday() < 5]
    aim = day.replace(day=number)
    return day == min(candidates, key=lambda c: (abs((c - aim).days), aim.weekday() == 5 and c > aim))


def special_days() -> st.SearchStrategy[tuple[str, Callable[[date], bool]]]:
    numbers = st.integers(1, 31)
    return st.one_of(
        st.just(("L", lambda day: (day + DAY).day == 1)),
        st.integers(1, 30).map(lambda n: (f"L-{n}", lambda day: day.day == _last_of(day) - n)),
        st.just(("LW", lambda day: _nearest(_last_of(day), day))),
        numbers.map(lambda n: (f"{n}W", lambda day: _nearest(n, day))),
    )


def special_weekdays() -> st.SearchStrategy[tuple[str, Callable[[date], bool]]]:
    weekday = st.integers(0, 6)
    return st.one_of(
        weekday.map(lambda w: (f"{w}L", lambda day: day.isoweekday() % 7 == w and (day + 7 * DAY).month != day.month)),
        st.tuples(weekday, st.integers(1, 5)).map(
            lambda p: (
                f"{NAMES[p[0]]}#{p[1]}",
                lambda day: day.isoweekday() % 7 == p[0] and (day.day - 1) // 7 == p[1] - 1,
            )
        ),
    )


@st.composite
def crons(draw: st.DrawFn, zones: tuple[str, ...] = ZONES, *, seconds: bool = False) -> Pair:
    zone = draw(st.sampled_from(zones))
    gap, fold = draw(st.sampled_from(("next", "skip", "shift"))), draw(st.sampled_from(("first", "second", "both")))
    minute, hour = draw(fields(0, 59)), draw(fields(0, 23))
    second = draw(fields(0, 59)) if seconds else FieldText("0", frozenset({0}))
    day, month, weekday = draw(fields(1, 31)), draw(fields(1, 12, 2)), draw(fields(0, 6))
    day_text, weekday_text = day.text, weekday.text
    also_day: Callable[[date], bool] = lambda _: False  # noqa: E731
    also_weekday: Callable[[date], bool] = also_day
    if draw(st.integers(0, 3)) == 0:
        text, also_day = draw(special_days())
        day_text += "," + text
    if draw(st.integers(0, 3)) == 0:
        text, also_weekday = draw(special_weekdays())
        weekday_text += "," + text

    def on_day(at: date) -> bool:
        by_day = at.day in day.values or also_day(at)
        by_weekday = at.isoweekday() % 7 in weekday.values or also_weekday(at)
        both = day.starred or weekday.starred
        return at.month in month.values and ((by_day and by_weekday) if both else (by_day or by_weekday))

    text = f"{minute.text} {hour.text} {day_text} {month.text} {weekday_text}"
    slow = SlowRule(
        on_day,
        hour.values,
        minute.values,
        second.values,
        follows_clock=minute.starred or hour.starred or second.starred,
        gap=gap,
        fold=fold,
    )
    if seconds:
        text = f"{second.text} {text}"
    try:
        trigger = cron(text, seconds=seconds, timezone=zone, gap=gap, fold=fold)
    except InvalidTrigger:
        # 28 years hold every kind of month: what has no day in them never has one.
        never = not any(on_day(date(2001, 1, 1) + n * DAY) for n in range(28 * 366))
        assert never, f"{text} was refused"
        reject()
    return Pair(trigger, slow, zone)


@st.composite
def calendars(draw: st.DrawFn) -> Pair:
    zone = draw(st.sampled_from(ZONES))
    gap, fold = draw(st.sampled_from(("next", "skip", "shift"))), draw(st.sampled_from(("first", "second", "both")))
    hour, minute, second = draw(st.integers(0, 23)), draw(st.integers(0, 59)), draw(st.sampled_from((0, 30, 59)))
    at = f"{hour:02d}:{minute:02d}:{second:02d}"
    anchor = draw(st.dates(date(1990, 1, 1), date(2040, 1, 1)))
    step = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(("daily", "weekly", "monthly")))
    trigger: Trigger
    if kind == "daily":
        trigger = daily(at, days=step, anchor=anchor, timezone=zone, gap=gap, fold=fold)

        def on_day(day: date) -> bool:
            return (day - anchor).days % step == 0

    elif kind == "weekly":
        chosen = draw(st.lists(st.integers(0, 6), min_size=1, unique=True))
        names = [WEEKDAYS[day] for day in chosen]
        trigger = weekly(names, at, weeks=step, anchor=anchor, timezone=zone, gap=gap, fold=fold)
        monday = anchor - anchor.weekday() * DAY

        def on_day(day: date) -> bool:
            return day.weekday() in chosen and (day - monday).days // 7 % step == 0

    else:
        numbers = draw(st.lists(st.integers(1, 28) | st.integers(-28, -1) | st.just(31), min_size=1, max_size=3))
        missing = draw(st.sampled_from(("skip", "last")))
        if 31 in numbers:
            numbers.append(1)  # a grid of one month a year may have no 31st
        trigger = monthly(numbers, at, months=step, missing=missing, anchor=anchor, timezone=zone, gap=gap, fold=fold)

        def on_day(day: date) -> bool:
            if (day.year * 12 + day.month - anchor.year * 12 - anchor.month) % step:
                return False
            last = _last_of(day)
            from_start = {min(n, last) if missing == "last" else n for n in numbers if n > 0}
            return day.day in from_start or day.day - last - 1 in numbers

    slow = SlowRule(on_day, frozenset({hour}), frozenset({minute}), frozenset({second}), gap=gap, fold=fold)
    return Pair(trigger, slow, zone)


def starts(first: int = 2005, last: int = 2036) -> st.SearchStrategy[datetime]:
    span = int(timedelta(days=(last - first) * 365).total_seconds() * 1_000_000)
    begin = datetime(first, 1, 1, tzinfo=UTC)
    return st.integers(0, span).map(lambda us: begin + timedelta(microseconds=us))
