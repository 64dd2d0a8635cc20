"""Triggers in English words, for people who did not write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from oncron._clock import SECOND, from_us
from oncron.triggers.fields import (
    MINUTE,
    SECOND as SECOND_FIELD,
    Field,
    FieldKind,
    LastDay,
    LastWeekday,
    LastWorkday,
    NearestWorkday,
    Special,
)

if TYPE_CHECKING:
    from oncron.triggers.calendar import CalendarTrigger
    from oncron.triggers.cron import CronFields, CronTrigger
    from oncron.triggers.every import BetweenTrigger, EveryTrigger
    from oncron.triggers.local import LocalTrigger
    from oncron.triggers.once import OnceTrigger

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_FROM_MONDAY = tuple(f"{WEEKDAYS[(day + 1) % 7]}s" for day in range(7))
MONTHS = tuple("January February March April May June July August September October November December".split())  # noqa: SIM905
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_FEW_TIMES = 6
_GAPS = {
    "skip": "a time that a clock change skips is dropped",
    "shift": "a time that a clock change skips moves on by as much",
}
_FOLDS = {"second": "of a repeated time the second counts", "both": "a repeated time counts twice"}


def describe_cron(trigger: CronTrigger) -> str:
    """`every day at 03:00 (Europe/Berlin)`."""
    fields = trigger.fields
    when = _time_words(fields)
    days = _day_words(fields)
    months = _month_words(fields.month)
    if when.startswith("every") or " of every " in when:
        said = [when, days, months]
    else:
        said = [days or "every day", months, when]
    return " ".join(part for part in said if part) + _clock_words(trigger)


def describe_hashed(expression: str, zone: str | None) -> str:
    """An expression with `H`, before there is a name to draw from."""
    return f"as {expression}, each H a fixed value drawn from the schedule's name{_in_zone(zone)}"


def describe_calendar(trigger: CalendarTrigger) -> str:
    """`on Mondays and Fridays at 09:00 (Europe/Berlin)`."""
    at = f"at {_list([clock(second) for second in trigger.listed])}"
    said = {"daily": _daily, "weekly": _weekly, "monthly": _monthly}[trigger.kind](trigger)
    anchor = trigger.option("anchor")
    since = f", counted from {anchor or '1970-01-01'}" if trigger.step > 1 else ""
    return f"{said} {at}{since}{_clock_words(trigger)}"


def describe_every(trigger: EveryTrigger) -> str:
    """`every 5 minutes`."""
    since = f", counted from {instant(trigger.anchor_us)}" if trigger.anchor_us else ""
    return f"every {duration(trigger.period_us)}{since}"


def describe_between(trigger: BetweenTrigger) -> str:
    """`every 30 seconds to 1 minute 30 seconds, drawn from the schedule's name`."""
    least, most = trigger.bounds_us
    return f"every {duration(least)} to {duration(most)}, drawn from the schedule's name"


def describe_once(trigger: OnceTrigger) -> str:
    """`once, at 2026-01-01 00:00:00 UTC`."""
    instants = trigger.instants_us
    if len(instants) == 1:
        return f"once, at {instant(instants[0])}"
    if len(instants) <= _FEW_TIMES:
        return f"{len(instants)} times, at {_list([instant(at) for at in instants])}"
    return f"{len(instants)} times, from {instant(instants[0])} to {instant(instants[-1])}"


def clock(second: int) -> str:
    """A time of day: `03:00`, or `03:00:30`."""
    text = f"{second // 3600:02d}:{second // 60 % 60:02d}"
    return text if second % 60 == 0 else f"{text}:{second % 60:02d}"


def instant(at: int) -> str:
    """An instant, to the microsecond if it has any."""
    return str(from_us(at)).replace("+00:00", " UTC")


def duration(length: int) -> str:
    """Microseconds as hours, minutes and seconds: `1 hour 30 minutes`."""
    hours, rest = divmod(length, 3600 * SECOND)
    minutes, rest = divmod(rest, 60 * SECOND)
    parts = [(hours, "hour"), (minutes, "minute")]
    said = [_count(amount, unit) for amount, unit in parts if amount]
    if rest:
        seconds = timedelta(microseconds=rest).total_seconds()
        said.append(_count(rest // SECOND, "second") if rest % SECOND == 0 else f"{seconds:f}".rstrip("0") + " seconds")
    return " ".join(said).removeprefix("1 ") if len(said) == 1 else " ".join(said)


def ordinal(number: int) -> str:
    """`1st`, `22nd`, `13th`."""
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _clock_words(trigger: LocalTrigger) -> str:
    said = _in_zone(trigger.timezone)
    if trigger.follows_clock:
        return said
    return said + "".join(
        f"; {words[option]}" for words, option in ((_GAPS, trigger.gap), (_FOLDS, trigger.fold)) if option in words
    )


def _in_zone(name: str | None) -> str:
    return f" ({name})" if name else ""


def _daily(trigger: CalendarTrigger) -> str:
    return "every day" if trigger.step == 1 else f"every {ordinal(trigger.step)} day"


def _weekly(trigger: CalendarTrigger) -> str:
    chosen = trigger.values[0]
    short = [name[:3].lower() for name in _FROM_MONDAY]
    numbers = [short.index(str(day)) for day in (chosen if isinstance(chosen, list) else [chosen])]
    days = _list(_runs(numbers, _FROM_MONDAY))
    return f"on {days}" if trigger.step == 1 else f"every {ordinal(trigger.step)} week on {days}"


def _monthly(trigger: CalendarTrigger) -> str:
    chosen = trigger.values[0]
    numbers = [day for day in (chosen if isinstance(chosen, list) else [chosen]) if isinstance(day, int)]
    days = _list([_from_end(day) if day < 0 else f"the {ordinal(day)}" for day in numbers])
    of = "every month" if trigger.step == 1 else f"every {ordinal(trigger.step)} month"
    nearest = " (or the nearest day that a month has)" if trigger.option("missing") else ""
    return f"on {days} of {of}{nearest}"


def _from_end(day: int) -> str:
    return "the last day" if day == -1 else f"the {ordinal(-day)} last day"


def _time_words(fields: CronFields) -> str:
    seconds, minutes, hours = fields.second.values, fields.minute.values, fields.hour.values
    if len(seconds) * len(minutes) * len(hours) <= _FEW_TIMES:
        times = [clock(h * 3600 + m * 60 + s) for h in hours for m in minutes for s in seconds]
        return f"at {_list(times)}"
    in_minute = "" if seconds == (0,) else _part_words(SECOND_FIELD, fields.second)
    if len(minutes) == 1 and not in_minute:
        past = "" if minutes == (0,) else f" at minute {minutes[0]}"
        return f"{_hour_steps(fields.hour, 'every') or 'every hour ' + _hour_words(hours)}{past}"
    during = (_hour_steps(fields.hour, "of every") if len(hours) < 24 else "") or _hour_words(hours)
    if not in_minute:
        said = _part_words(MINUTE, fields.minute)
    elif len(minutes) == 60:
        said = in_minute if in_minute.startswith("every") else f"every minute {in_minute}"
    else:
        said = f"{in_minute} {_minutes_of(fields.minute)}"
    if not during and not said.startswith("every minute") and not _even_step(fields.minute):
        during = "of every hour"
    return " ".join(part for part in (said, during) if part)


def _minutes_of(field: Field) -> str:
    """Which minutes of an hour the seconds belong to."""
    step = _even_step(field)
    if step:
        return f"of every {ordinal(step)} minute"
    return _part_words(MINUTE, field).replace("every minute from", "of minutes").replace("at minute", "of minute")


def _even_step(field: Field) -> int:
    """N for what `*/n` means where n divides 60 (1 for every value), otherwise 0."""
    values = field.values
    step = values[1] - values[0] if len(values) > 1 else 60
    return step if values == tuple(range(0, 60, step)) and 60 % step == 0 and step < 60 else 0


def _hour_steps(field: Field, every: str) -> str:
    values = field.values
    if len(values) == 24:
        return f"{every} hour"
    step = values[1] - values[0] if len(values) > 1 else 0
    if step > 1 and values == tuple(range(0, 24, step)) and 24 % step == 0:
        return f"{every} {step} hours" if every == "every" else f"{every} {ordinal(step)} hour"
    return ""


def _hour_words(hours: Sequence[int]) -> str:
    """During which hours: nothing for all of them."""
    if len(hours) == 24:
        return ""
    if len(hours) > 1 and hours[-1] - hours[0] == len(hours) - 1:
        return f"from {hours[0]:02d}:00 to {hours[-1]:02d}:59"
    return f"in the hour{'s' if len(hours) > 1 else ''} of {_list([f'{hour:02d}:00' for hour in hours])}"


def _part_words(kind: FieldKind, field: Field) -> str:
    """The seconds of a minute or the minutes of an hour."""
    values = field.values
    step = _even_step(field)
    if step:
        return f"every {kind.name}" if step == 1 else f"every {step} {kind.name}s"
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"every {kind.name} from {values[0]} to {values[-1]}"
    return f"at {kind.name}{'s' if len(values) > 1 else ''} {_list([str(value) for value in values])}"


def _day_words(fields: CronFields) -> str:
    """Which days, "" for all of them."""
    days, weekdays = fields.day, fields.weekday
    all_days = not days.specials and days.mask == 0xFFFFFFFE
    all_weekdays = not weekdays.specials and weekdays.mask == 0x7F
    either = not days.starred and not weekdays.starred
    if either and (all_days or all_weekdays):
        return ""
    if all_days:
        return "" if all_weekdays else f"on {_weekday_list(weekdays)}"
    if all_weekdays:
        return f"on {_day_list(days)}"
    if either:
        return f"on {_day_list(days)} or on {_weekday_list(weekdays)}"
    return f"on {_day_list(days)}, only on {_weekday_list(weekdays)},"


def _day_list(field: Field) -> str:
    values = field.values
    step = values[1] - values[0] if len(values) > _FEW_TIMES else 0
    if step > 1 and values == tuple(range(values[0], values[-1] + 1, step)) and not field.specials:
        return f"every {ordinal(step)} day from the {ordinal(values[0])} to the {ordinal(values[-1])}"
    said = [f"the {run}" for run in _runs(values, [ordinal(day) for day in range(32)])]
    return _list(said + [_special_words(special) for special in field.specials])


def _weekday_list(field: Field) -> str:
    # Monday first, so that Friday to Sunday is one run.
    values = sorted((value - 1) % 7 for value in field.values)
    said = _runs(values, _FROM_MONDAY)
    return _list(said + [_special_words(special) for special in field.specials])


def _special_words(special: Special) -> str:
    if isinstance(special, LastDay):
        return "the last day" if special.before == 0 else f"the {ordinal(special.before + 1)} last day"
    if isinstance(special, LastWorkday):
        return "the last day from Monday to Friday"
    if isinstance(special, NearestWorkday):
        return f"the day from Monday to Friday nearest to the {ordinal(special.day)}"
    if isinstance(special, LastWeekday):
        return f"the last {WEEKDAYS[special.weekday]}"
    return f"the {_NTH[special.nth]} {WEEKDAYS[special.weekday]}"


def _month_words(field: Field) -> str:
    if len(field.values) == 12:
        return ""
    return f"in {_list(_runs([value - 1 for value in field.values], MONTHS))}"


def _runs(values: Iterable[int], names: Sequence[str]) -> list[str]:
    """Ascending values by name, three or more in a row as `first to last`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    said: list[str] = []
    for run in runs:
        said += [f"{names[run[0]]} to {names[run[-1]]}"] if len(run) > 2 else [names[value] for value in run]
    return said


def _list(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _count(amount: int, unit: str) -> str:
    return f"{amount} {unit}" if amount == 1 else f"{amount} {unit}s"
