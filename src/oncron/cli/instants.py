"""Instants and durations as people write them: with an offset, or on the clocks of a schedule's zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from oncron._clock import SECOND, from_us, to_us
from oncron._model import Definition, ScheduleRecord
from oncron._plan import next_tick
from oncron.cli import render
from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, parse
from oncron.triggers.zones import Zone, load_zone

_DAY = 86_400
DURATION = r"(\d+(?:\.\d*)?)\s*([a-z]*)"
_UNITS = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": _DAY}


@dataclass(frozen=True)
class Instant:
    """What somebody meant; microseconds since 1970 UTC."""

    at: int
    note: str = ""
    """What to know about it: a local time that a clock change skips or repeats."""

    @property
    def moment(self) -> datetime:
        return from_us(self.at)


def coming(trigger: Trigger, after: int, count: int) -> list[int]:
    """The next ticks of a bound trigger, so many at most."""
    found: list[int] = []
    tick = trigger.next_after_us(after)
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = trigger.next_after_us(tick)
    return found


def ticks(definition: Definition, after: int, count: int, created: int) -> list[tuple[int, str]]:
    """The next ticks and the zone they are meant in, no more than its limit still allows. Nothing for a trigger of
    a newer release."""
    if definition.limit is not None:
        count = min(count, definition.limit - created)
    try:
        trigger: Trigger = parse(definition.trigger)
    except InvalidTrigger:
        return []
    found: list[tuple[int, str]] = []
    tick = next_tick(definition, trigger, after)
    while tick is not None and len(found) < count:
        found.append((tick, trigger.timezone or "UTC"))
        tick = next_tick(definition, trigger, tick)
    return found


def zone_of(row: ScheduleRecord) -> str:
    """The zone that a schedule's times are meant in; UTC for one of elapsed time, or of a newer release."""
    try:
        return parse(row.definition.trigger).timezone or "UTC"
    except InvalidTrigger:
        return "UTC"


def read_instant(text: str, zone: str, option: str) -> Instant:
    """`2027-03-28T02:30Z` or with another offset; without one it is read on the clocks of the zone, a date
    alone as its midnight. Raises click.UsageError."""
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.UsageError(
            f"{option} {text!r} is no instant; write 2027-03-28T02:30:00Z, or 2027-03-28T02:30 for {zone}"
        ) from None
    if not 2 <= given.year <= 9998:
        raise click.UsageError(f"{option} {text!r} lies outside of the years 2 to 9998")
    if given.tzinfo is not None:
        return Instant(to_us(given))
    local, fraction = divmod(to_us(given.replace(tzinfo=UTC)), SECOND)
    found = _on_the_clocks(local, load_zone(zone))
    return Instant(found.at * SECOND + fraction, found.note)


def _on_the_clocks(local: int, zone: Zone) -> Instant:
    """In seconds: the instant at which the zone's clocks show `local`."""
    offsets = dict.fromkeys((zone.offset_at(local - _DAY), zone.offset_at(local + _DAY)))
    shown = sorted(local - offset for offset in offsets if zone.offset_at(local - offset) == offset)
    if len(shown) == 1:
        return Instant(shown[0])
    if shown:
        first, second = (render.local(at * SECOND, zone.name) for at in shown)
        return Instant(
            shown[0], f"{_wall(local)} comes twice in {zone.name}: taken as {first}; the second one is {second}"
        )
    # The clocks jump over it: what they show next is meant, as a schedule with gap="next" means it.
    year = from_us(local * SECOND).year
    jump = next(
        (at for at, before, after in zone.jumps_in(year - 1, year + 1) if at + before <= local < at + after), local
    )
    return Instant(
        jump,
        f"{_wall(local)} does not exist in {zone.name}: taken as {render.local(jump * SECOND, zone.name)}, "
        "when the clocks have jumped",
    )


def _wall(local: int) -> str:
    return render.utc(local * SECOND).removesuffix("Z")


def read_duration(text: str, option: str) -> float:
    """Seconds: `90`, `1.5s`, `10min`, `2h`, `1d`. Raises click.UsageError."""
    found = re.fullmatch(DURATION, text.strip())
    if found is None or found[2] not in _UNITS:
        raise click.UsageError(f"{option} {text!r} is no duration; write seconds, or 90s, 10min, 2h, 1d")
    return float(found[1]) * _UNITS[found[2]]
