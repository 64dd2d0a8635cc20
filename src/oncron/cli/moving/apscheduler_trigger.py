"""Triggers of APScheduler 3, live ones and states from a job store, as oncron's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, cast
from zoneinfo import ZoneInfo

from oncron import cron, daily, every, monthly, once
from oncron._clock import from_us
from oncron.cli.moving import fields
from oncron.cli.moving.moved import NoEquivalent, Rule
from oncron.triggers import Trigger

WHOSE = "APScheduler"
_FIELDS = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_ENDS = {"year": (1970, 9999), "day": (1, 31), "day_of_week": (0, 6)}
_NTHS = ("1st", "2nd", "3rd", "4th", "5th", "last")


class HostZone(ZoneInfo):
    """Stands for the zone that APScheduler takes when nobody gives one."""


@dataclass(frozen=True)
class State:
    """A trigger's class, by its name, and its pickled state."""

    kind: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """What is known beside the trigger."""

    zone: str | None
    """Where APScheduler took the host's; None if nobody said."""
    now: datetime
    since: datetime | None = None
    """When the import of the code began, where triggers have just been made by it."""


def rule_of(state: State, reading: Reading) -> Rule:
    """Raises NoEquivalent, InvalidTrigger."""
    make = {
        "CronTrigger": _cron, "IntervalTrigger": _interval, "DateTrigger": _date,
        "CalendarIntervalTrigger": _calendar,
    }.get(state.kind)  # fmt: skip
    if make is not None:
        rule = make(state.values, reading)
        _window(rule, state.values, reading)
        return rule
    if state.kind == "OrTrigger":
        raise NoEquivalent("OrTrigger joins several triggers: make one schedule for each of them")
    if state.kind == "AndTrigger":
        raise NoEquivalent("AndTrigger has no equivalent: schedule one of its triggers and raise Skip in the task")
    raise NoEquivalent(f"its trigger is a {state.kind}, which is code: say when by one of oncron's triggers")


def _zone(value: Any, reading: Reading) -> str:
    if isinstance(value, HostZone):
        if reading.zone is None:
            raise NoEquivalent(
                "no zone was given, so APScheduler took the host's; oncron never does: give --timezone ZONE"
            )
        return reading.zone
    return _zone_name(value)


def _zone_name(value: Any) -> str:
    key = getattr(value, "key", None) or getattr(value, "zone", None)
    if isinstance(key, str):
        return key
    if isinstance(value, tzinfo) and value.utcoffset(None) == timedelta(0):
        return "UTC"
    raise NoEquivalent(f"its zone {value} is an offset without a name; give it an IANA zone there first")


def _instant(value: datetime, reading: Reading) -> datetime:
    """In UTC."""
    zone = _zone(value.tzinfo, reading)
    naive = value.replace(tzinfo=None, fold=0, microsecond=0)
    found = once(naive, timezone=zone, gap="shift", fold="second" if value.fold else "first").first_us
    return from_us(found) + timedelta(microseconds=value.microsecond)


def _window(rule: Rule, values: Mapping[str, Any], reading: Reading) -> None:
    """start_date and end_date."""
    start, end = values.get("start_date"), values.get("end_date")
    if isinstance(end, date) and not isinstance(end, datetime):
        zone = ZoneInfo(rule.trigger.timezone or "UTC")
        end = datetime.combine(end, time(23, 59, 59), tzinfo=zone)
    if isinstance(start, datetime) and not _is_default(start, values, reading):
        at = _instant(start, reading)
        rule.options["start_at"] = max(at, rule.options.get("start_at", at))
    if rule.options.get("start_at", reading.now) <= reading.now:
        rule.options.pop("start_at", None)
    if isinstance(end, datetime):
        at = _instant(end, reading)
        rule.options["end_at"] = min(at, rule.options.get("end_at", at))
    if (end_at := rule.options.get("end_at")) is not None and end_at <= reading.now:
        raise NoEquivalent(f"it has no run left: its last day was before {end_at.isoformat()}")
    if (jitter := values.get("jitter")) is not None and jitter > 0:
        rule.options["jitter"] = jitter
        rule.differs.append(
            "the jitter is drawn from the name and the tick, and the tick keeps its nominal instant"
            + (", from which the next one is counted" if rule.trigger.kind == "every" else "")
        )


# --- cron -------------------------------------------------------------------------------------


def _cron(values: Mapping[str, Any], reading: Reading) -> Rule:
    found = {each.name: each for each in cast("Sequence[Any]", values["fields"])}
    texts = {name: ",".join(_text(each) for each in found[name].expressions) for name in _FIELDS}
    given = {name: texts[name] for name in _FIELDS if not found[name].is_default}
    was = f"cron[{', '.join(f'{name}={text!r}' for name, text in given.items())}]"
    if not _is_all(found["week"]):
        raise NoEquivalent(
            f"week={texts['week']!r} counts ISO weeks, which cron does not; weekly(..., weeks=n, anchor=...) runs "
            "every nth week, else raise Skip in the task in the other weeks"
        )
    zone = _zone(values["timezone"], reading)
    day, weekday, differs = _days(found["day"], found["day_of_week"], texts)
    expression = f"{texts['minute']} {texts['hour']} {day} {texts['month']} {weekday}"
    seconds = texts["second"] != "0"
    trigger = cron(f"{texts['second']} {expression}" if seconds else expression, seconds=seconds, timezone=zone)
    if seconds:
        differs.append(f"second={texts['second']!r} is the first of six fields here (seconds=True)")
    rule = Rule(trigger, f"{was} in {zone}", {}, differs, texts)
    _years(found["year"], texts["year"], zone, rule)
    return rule


def _text(expression: Any) -> str:
    """As APScheduler reads it back."""
    kind, step = type(expression).__name__, expression.step
    if kind == "LastDayOfMonthExpression":
        return "last"
    if kind == "WeekdayPositionExpression":
        return f"{_NTHS[expression.option_num]} {fields.WEEKDAYS[(expression.weekday + 1) % 7]}"
    if kind == "AllExpression":
        return f"*/{step}" if step else "*"
    first, last = expression.first, expression.last
    if kind == "WeekdayRangeExpression":
        names: list[str] = [fields.WEEKDAYS[(day + 1) % 7] for day in (first, first if last is None else last)]
        return names[0] if names[0] == names[1] else "-".join(names)
    shown = str(first) if last in (first, None) else f"{first}-{last}"
    return f"{shown}/{step}" if step else shown


def _is_all(found: Any) -> bool:
    return any(type(each).__name__ == "AllExpression" and (each.step or 1) == 1 for each in found.expressions)


def _values(name: str, expressions: Sequence[Any]) -> set[int]:
    """Those of plain ones; of years from 1970 on."""
    low, high = _ENDS[name]
    found: set[int] = set()
    for each in expressions:
        if type(each).__name__ == "AllExpression":
            found.update(range(low, high + 1, each.step or 1))
        else:
            last = high if each.last is None else each.last
            found.update(range(each.first, last + 1, each.step or 1))
    return found


def _days(day: Any, weekday: Any, texts: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """The day and weekday field for cron, and what to know about them."""
    chosen = frozenset((value + 1) % 7 for value in _values("day_of_week", weekday.expressions))
    differs: list[str] = []
    if any(character.isdigit() for character in texts["day_of_week"]):
        differs.append(
            f"day_of_week={texts['day_of_week']!r} is {fields.weekday_words(chosen)}: APScheduler counts from Monday = "
            "0, cron from Sunday = 0; if cron's days were meant, it ran on the wrong ones, and still does"
        )
    special = {"WeekdayPositionExpression", "LastDayOfMonthExpression"}
    plain = [each for each in day.expressions if type(each).__name__ not in special]
    nths = [each for each in day.expressions if type(each).__name__ == "WeekdayPositionExpression"]
    last = len(plain) + len(nths) < len(day.expressions)
    numbers = frozenset(_values("day", plain))
    if (not nths and not last) or numbers == fields.ALL_DAYS:
        found = fields.both(numbers, chosen, "*" if numbers == fields.ALL_DAYS else texts["day"])
    else:
        found = _special_days(plain, nths, chosen, texts, last=last)
    if chosen != fields.ALL_WEEKDAYS and not _is_all(day):
        written = " ".join(found)
        differs.append(f"APScheduler wants the day and the weekday, cron either of them: written as {written!r}")
    return (*found, differs)


def _special_days(
    plain: Sequence[Any], nths: Sequence[Any], chosen: frozenset[int], texts: Mapping[str, str], *, last: bool
) -> tuple[str, str]:
    """Days such as `last` and `2nd fri`, perhaps among plain ones."""
    if chosen != fields.ALL_WEEKDAYS and (plain or last):
        raise NoEquivalent(
            f"day={texts['day']!r} together with day_of_week={texts['day_of_week']!r} has no equivalent; schedule the "
            "days and raise Skip in the task on other weekdays"
        )
    kept = sorted({((each.weekday + 1) % 7, each.option_num) for each in nths}, key=lambda at: (at[1], (at[0] - 1) % 7))
    kept = [(weekday, nth) for weekday, nth in kept if weekday in chosen]
    if nths and not kept:
        raise NoEquivalent(
            f"day={texts['day']!r} never falls on day_of_week={texts['day_of_week']!r}: it has never run"
        )
    words = [fields.last_weekday(w) if nth == 5 else fields.nth_weekdays([w], [nth + 1])[0] for w, nth in kept]
    numbers = frozenset(_values("day", plain))
    days = [fields.listed(numbers, 1, 31)] if numbers else []
    days += ["L"] if last else []
    return ",".join(days) or "*", ",".join(words) or "*"


def _years(found: Any, text: str, zone: str, rule: Rule) -> None:
    """Years are unknown to cron; some years in a row are a window."""
    if _is_all(found):
        return
    years = _values("year", found.expressions)
    first, last = min(years), max(years)
    if len(years) != last - first + 1:
        raise NoEquivalent(f"year={text!r}: cron has no years, and these do not follow each other: make it several")
    rule.options["start_at"] = _local(datetime(first, 1, 1), zone)  # noqa: DTZ001 - on the zone's clocks
    if last < _ENDS["year"][1]:
        rule.options["end_at"] = _local(datetime(last, 12, 31, 23, 59, 59), zone)  # noqa: DTZ001
    rule.differs.append(f"year={text!r} is start_at= and end_at= here")


def _local(naive: datetime, zone: str) -> datetime:
    return from_us(once(naive, timezone=zone).first_us)


# --- others -----------------------------------------------------------------------------------


def _is_default(start: datetime, values: Mapping[str, Any], reading: Reading) -> bool:
    """Whether it was counted from the import of the code: nobody gave it."""
    interval = values.get("interval")
    if reading.since is None or not isinstance(interval, timedelta):
        return False
    return reading.since <= start.astimezone(UTC) - interval <= reading.now


def _interval(values: Mapping[str, Any], reading: Reading) -> Rule:
    interval, start = cast("timedelta", values["interval"]), cast("datetime", values["start_date"])
    was = f"interval[{interval}]"
    if _is_default(start, values, reading):
        said = (
            "APScheduler counts from each start of the process; here on one grid from 1970 on, unless anchor= is given"
        )
        return Rule(every(interval), was, {}, [said])
    anchor = _instant(start, reading)
    return Rule(every(interval, anchor=anchor), f"{was} from {anchor.isoformat()}")


def _date(values: Mapping[str, Any], reading: Reading) -> Rule:
    at = cast("datetime", values["run_date"])
    if reading.since is not None and reading.since <= at.astimezone(UTC) <= reading.now:
        raise NoEquivalent("a date trigger without a date runs when the scheduler starts: call the function there")
    instant = _instant(at, reading)
    if instant <= reading.now:
        raise NoEquivalent(f"its date, {instant.isoformat()}, is over")
    return Rule(once(instant), f"date[{at.isoformat()}]")


def _calendar(values: Mapping[str, Any], reading: Reading) -> Rule:
    years, months, weeks, days = cast("Sequence[int]", values["interval"])
    at, start = time(*values["time"]), cast("date", values["start_date"])
    zone = _zone(values["timezone"], reading)
    named = {"years": years, "months": months, "weeks": weeks, "days": days}
    was = f"calendarinterval[{', '.join(f'{n}={v}' for n, v in named.items() if v)}, {at}, from {start}] in {zone}"
    if (years or months) and (weeks or days):
        raise NoEquivalent("months and days in one interval have no equivalent; use one of them")
    trigger: Trigger
    if years or months:
        trigger = monthly(start.day, at, months=12 * years + months, anchor=start, timezone=zone, gap="skip")
    else:
        trigger = daily(at, days=7 * weeks + days, anchor=start, timezone=zone, gap="skip")
    return Rule(trigger, was, {"start_at": _local(datetime.combine(start, time()), zone)})
