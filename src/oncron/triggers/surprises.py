"""What may surprise about a trigger, a sentence each, for `check` and `explain`."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

from oncron._clock import SECOND, from_us
from oncron.triggers.days import EPOCH_DAY
from oncron.triggers.fields import DAY, HOUR, MINUTE, MONTH, SECOND as SECOND_FIELD, WEEKDAY, FieldKind
from oncron.triggers.words import clock, duration
from oncron.triggers.zones import tzdata_version

if TYPE_CHECKING:
    from oncron.triggers.cron import CronTrigger
    from oncron.triggers.local import LocalTrigger
    from oncron.triggers.trigger import Trigger

_KINDS = (SECOND_FIELD, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_ANEW = {
    "second": "every minute",
    "minute": "every hour",
    "hour": "every day",
    "day of month": "every month",
    "month": "every year",
    "day of week": "every Sunday",
}
_STEP = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)/(\d+)")


def of_cron(trigger: CronTrigger) -> list[str]:
    """Of a cron expression."""
    found = [
        sentence
        for kind, text in zip(_KINDS, trigger.texts, strict=True)
        for item in text.split(",")
        for sentence in _of_step(kind, item)
    ]
    if trigger.follows_clock and (trigger.gap, trigger.fold) != ("next", "first"):
        found.append("gap and fold do not matter here: a second, minute or hour with a leading * follows the clock")
    return found + of_local(trigger)


def _of_step(kind: FieldKind, item: str) -> list[str]:
    match = _STEP.fullmatch(item)
    if match is None:
        return []
    step = int(match[3])
    size = kind.high - kind.low + 1
    if step >= size:
        return [f"the step of {item!r} is larger than the {kind.name} field: only its first value is left"]
    if match[2] is not None or step == 1 or (kind is not DAY and size % step == 0):
        return []
    advice = ""
    if kind in {SECOND_FIELD, MINUTE, HOUR}:
        advice = f"; every({kind.name}s={step}) is even"
    return [f"{item!r} starts anew {_ANEW[kind.name]}, so the gaps are not all {step}{advice}"]


def of_every(period: int) -> list[str]:
    """Of an interval of elapsed time."""
    if period % (86_400 * SECOND) == 0:
        advice = "daily(...) and weekly(...) keep it"
        return [f"{duration(period)} of elapsed time: summer time moves the time on the clock; {advice}"]
    return []


def coming(trigger: Trigger, now: int) -> list[str]:
    """What `trigger.warnings()` says, but only of clock changes after `now`, in microseconds."""
    from oncron.triggers.local import LocalTrigger

    if not isinstance(trigger, LocalTrigger):
        return trigger.warnings()
    timeless = of_local(trigger)
    return [said for said in trigger.warnings() if said not in timeless] + of_local(trigger, now)


def of_local(trigger: LocalTrigger, now: int | None = None) -> list[str]:
    """Of fixed local times: those that a clock change skips or repeats in the five years from the year of the
    zone rules, or of `now`, in microseconds: after that instant."""
    if trigger.follows_clock:
        return []
    year = int(tzdata_version()[:4]) if now is None else from_us(now).year
    found: dict[str, str] = {}
    for jump, before, after in trigger.zone.jumps_in(year, min(9999, year + 4)):
        if now is not None and jump * SECOND <= now:
            continue
        local = trigger.first_local_in(jump + min(before, after), jump + max(before, after))
        if local is None:
            continue
        day, at = local // 86_400, clock(local % 86_400)
        where = f"on {_date(day)} in {trigger.zone.name}"
        if after > before:
            new = clock((jump + after) % 86_400)
            moved = {
                "next": f"runs at {new}, when the clock has jumped",
                "skip": "is left out that day",
                "shift": f"runs at {clock((local + after - before) % 86_400)}",
            }
            found.setdefault("gap", f"{at} does not exist {where}: it {moved[trigger.gap]} (gap={trigger.gap!r})")
        else:
            which = {"first": "in the first", "second": "in the second", "both": "in both"}[trigger.fold]
            found.setdefault("fold", f"{at} comes twice {where}: it runs {which} (fold={trigger.fold!r})")
    return list(found.values())


def _date(day: int) -> str:
    return date.fromordinal(day + EPOCH_DAY).isoformat()
