"""Celery's schedules as oncron's triggers: crontab and intervals."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from oncron import cron, daily, every
from oncron._clock import SECOND
from oncron.cli.moving import clocks, fields
from oncron.cli.moving.moved import NoEquivalent, Rule
from oncron.triggers import fields as cron_fields
from oncron.triggers.fields import FieldRefused, parse_field
from oncron.triggers.local import LocalTrigger

WHOSE = "Celery"
_DAY = 86_400
_KINDS = {
    "minute": cron_fields.MINUTE,
    "hour": cron_fields.HOUR,
    "day_of_month": cron_fields.DAY,
    "month_of_year": cron_fields.MONTH,
    "day_of_week": cron_fields.WEEKDAY,
}
"""In the order of cron's fields."""

_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)
_FAR = 10 * 366 * _DAY


def parse(name: str, text: str) -> frozenset[int]:
    """What Celery makes of a field's text: a range may run over the end, names may be long. Raises NoEquivalent for
    what Celery refuses."""
    kind = _KINDS[name]
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or (match[2] is None and match[1] is not None and match[3] is not None):
            raise NoEquivalent(f"{name}={text!r} is nothing that Celery takes either")
        first = kind.low if match[1] is None else _number(name, text, match[1])
        last = kind.high if match[1] is None else _number(name, text, match[2] or match[1])
        run = [*range(first, last + 1)] or [*range(first, kind.high + 1), *range(kind.low, last + 1)]
        if match[3] is not None and int(match[3]) == 0:
            raise NoEquivalent(f"{name}={text!r} has a step of 0, which Celery does not take either")
        found.update(run[:: int(match[3] or 1)])
    return frozenset(found)


def _number(name: str, text: str, word: str) -> int:
    kind = _KINDS[name]
    short = word[:3].upper()
    if word.isdigit():
        value = int(word)
    elif short in kind.names:
        value = kind.names.index(short) + kind.names_from
    else:
        raise NoEquivalent(f"{name}={text!r}: {word!r} is nothing that Celery takes either")
    if not kind.low <= value <= kind.high:
        raise NoEquivalent(f"{name}={text!r}: {value} is outside {kind.low}-{kind.high}, in Celery too")
    return value


def crontab_rule(values: Mapping[str, Collection[int]], given: Mapping[str, str], zone: str, now: int) -> Rule:
    """Of a crontab whose fields hold these values, and were written like that. Raises NoEquivalent, InvalidTrigger."""
    shown = {name: _shown(name, frozenset(values[name]), given[name]) for name in _KINDS}
    days, chosen = frozenset(values["day_of_month"]), frozenset(values["day_of_week"])
    day, weekday = fields.both(days, chosen, shown["day_of_month"])
    trigger = cron(f"{shown['minute']} {shown['hour']} {day} {shown['month_of_year']} {weekday}", timezone=zone)
    wanted = {name: given[name] for name in _KINDS if given[name] != "*"}
    was = f"crontab({', '.join(f'{name}={text!r}' for name, text in wanted.items())}) in {zone}"
    rule = Rule(trigger, was, texts=shown)
    if chosen != fields.ALL_WEEKDAYS and days != fields.ALL_DAYS:
        rule.differs.append(
            f"Celery wants the day and the weekday, cron either of them: written as {f'{day} {weekday}'!r}"
        )
    rule.differs += clocks.differences(trigger, lambda start, end: ticks(trigger, start, end), WHOSE, now)
    return rule


def _shown(name: str, values: frozenset[int], text: str) -> str:
    """The text as it was where it means the same here: a leading star matters when clocks change."""
    if name == "day_of_week":
        return fields.weekdays(values)
    kind = _KINDS[name]
    try:
        same = frozenset(parse_field(kind, text).values) == values
    except FieldRefused:
        same = False
    return text if same else fields.listed(values, kind.low, kind.high)


def interval_rule(period: timedelta, anchor: datetime | None = None) -> Rule:
    """Of a period counted from the last run, which happened at `anchor` if that is known. Raises InvalidTrigger."""
    was = f"every {period}"
    if anchor is not None:
        said = f"counted on one grid, of {anchor.isoformat()}; Celery counts from the last run, and drifts"
        return Rule(every(period, anchor=anchor), was, {}, [said])
    said = "counted on one grid from 1970 on, unless anchor= is given; Celery counts from the last run, and drifts"
    return Rule(every(period), was, {}, [said])


def relative_rule(period: timedelta, zone: str) -> Rule:
    """Of `relative=True`, which cuts what comes next to whole days, hours or minutes. Raises NoEquivalent."""
    was = f"every {period}, relative, in {zone}"
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if period >= unit:
            if period % unit:
                break
            if unit == timedelta(days=1):
                return Rule(daily("00:00", days=period // unit, timezone=zone), was)
            return Rule(every(period), was, {}, ["counted on one grid from 1970 on; Celery counts from the last run"])
    raise NoEquivalent(f"relative=True cuts {period} to whole units, unevenly: say cron(...) or every(...)")


def ticks(trigger: LocalTrigger, start: int, end: int) -> list[int]:
    """The instants in (start, end] at which beat would run it; microseconds. Beat adds to the local clock of the last
    run: what the clock skips comes as much later, and what it repeats is passed at the first time."""
    zone, found = trigger.zone, list[int]()
    at = start // SECOND
    while True:
        local = at + zone.offset_at(at)
        following = trigger.first_local_in(local + 1, local + _FAR)
        if following is None:
            return found
        offsets = sorted({zone.offset_at(following - _DAY), zone.offset_at(following + _DAY)}, reverse=True)
        valid = [following - offset for offset in offsets if zone.offset_at(following - offset) == offset]
        at = max(at + 1, valid[0] if valid else following - zone.offset_at(following - _DAY))
        if at * SECOND > end:
            return found
        found.append(at * SECOND)
