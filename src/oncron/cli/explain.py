"""`oncron explain`: an expression in words, its next instants, and what clock changes do to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from oncron import cron
from oncron._clock import SECOND, from_us, wall_us
from oncron.cli import render
from oncron.triggers import Trigger, parse, surprises
from oncron.triggers.local import LocalTrigger
from oncron.triggers.zones import load_zone

_CHANGES = 2
"""Coming clock changes that are shown: one of each kind where there is summer time."""
_YEARS = 3
"""Clock changes are looked for so many years ahead."""


@click.command("explain")
@click.argument("words", nargs=-1, required=True, metavar="EXPRESSION")
@click.option("--timezone", metavar="ZONE", help="The schedule's zone, an IANA name; UTC if not given.")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many instants.")
@click.option("--seconds", is_flag=True, help="Six fields, seconds first.")
@click.option("--name", metavar="SCHEDULE", help="The schedule's name, from which H and between= are drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(
    words: tuple[str, ...], timezone: str | None, count: int, seconds: bool, name: str | None, as_json: bool
) -> None:
    """Say in words what EXPRESSION means, when it ticks next, and what coming clock changes do to it.

    EXPRESSION is a cron expression, "0 3 * * mon-fri", or any trigger's text as `oncron show` prints
    it, 'every(minutes=5)'. Nothing is read from a store.
    """
    expression, *others = words
    if others:
        raise click.UsageError(f'{len(words)} words were given: quote the expression, oncron explain "0 3 * * *"')
    trigger = _read(expression, timezone, seconds, name)
    now = wall_us()
    instants = _next(trigger, now, count)
    zone = trigger.timezone or (load_zone(timezone).name if timezone else "UTC")
    changes = clock_changes(trigger, now)
    warnings = surprises.coming(trigger, now)
    if as_json:
        render.as_json(
            {
                "trigger": str(trigger),
                "words": trigger.describe(),
                "timezone": trigger.timezone,
                "next": [
                    {"at": render.iso(at), "local": render.local(at, zone).replace(" ", "T", 1)} for at in instants
                ],
                "clock_changes": [change.plain() for change in changes],
                "warnings": warnings,
            }
        )
        return
    render.lines([trigger.describe()], style="bold")
    render.lines([""])
    render.table(*_instants_table(instants, zone, now), empty="It never ticks again.")
    if changes:
        render.lines(["", "Coming clock changes"], style="bold")
        render.table(["AT", "CLOCK", "+WHAT HAPPENS"], [change.row() for change in changes])
    elif isinstance(trigger, LocalTrigger):
        render.lines(["", f"The clocks of {zone} do not change in the coming {_YEARS} years."])
    else:
        render.lines(["", "Counted in elapsed time: clock changes do not touch it."])
    # What clock changes do is said above, with the coming dates.
    said = surprises.of_local(trigger, now) if isinstance(trigger, LocalTrigger) else []
    if warnings := [warning for warning in warnings if warning not in said]:
        render.lines(["", *(f"! {warning}" for warning in warnings)], style="yellow")


def _read(expression: str, timezone: str | None, seconds: bool, name: str | None) -> Trigger:
    trigger: Trigger
    if "(" in expression:
        trigger = parse(expression)
        if timezone is not None and trigger.timezone not in (None, timezone):
            raise click.UsageError(f"{expression} has its own zone; leave out --timezone")
    else:
        trigger = cron(expression, seconds=seconds)
    # Names no schedule can have: what is drawn from the name stays undrawn.
    bound = trigger.bind(name or "", timezone)
    if name is None and str(bound) != str(trigger.bind("?", timezone)):
        raise click.UsageError(f"{expression!r} is drawn from the schedule's name; give it with --name")
    return bound


def _instants_table(instants: list[int], zone: str, now: int) -> tuple[list[str], list[tuple[str, ...]]]:
    if zone == "UTC":
        return ["UTC", ""], [(render.utc(at), render.away(at, now)) for at in instants]
    return ["UTC", zone, ""], [(render.utc(at), render.local(at, zone), render.away(at, now)) for at in instants]


def _next(trigger: Trigger, after: int, count: int) -> list[int]:
    found: list[int] = []
    tick = trigger.next_after_us(after)
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = trigger.next_after_us(tick)
    return found


@dataclass(frozen=True)
class ClockChange:
    """A jump of a zone's clock and what it does to a trigger."""

    at: int
    """Microseconds: the instant of the jump."""
    before: int
    """Seconds east of UTC."""
    after: int
    what: str

    def plain(self) -> dict[str, Any]:
        return {
            "at": render.iso(self.at),
            "from": _wall(self.at, self.before),
            "to": _wall(self.at, self.after),
            "what": self.what,
        }

    def row(self) -> tuple[str, str, str]:
        return render.utc(self.at), f"{_wall(self.at, self.before)} -> {_wall(self.at, self.after)}", self.what


def clock_changes(trigger: Trigger, now: int, most: int = _CHANGES) -> list[ClockChange]:
    """The next jumps of its zone's clock after `now`; none for a rule of elapsed time."""
    if not isinstance(trigger, LocalTrigger):
        return []
    year = from_us(now).year
    jumps = [jump for jump in trigger.zone.jumps_in(year, min(9999, year + _YEARS)) if jump[0] * SECOND > now]
    return [
        ClockChange(at * SECOND, before, after, _effect(trigger, at, before, after))
        for at, before, after in jumps[:most]
    ]


def _effect(trigger: LocalTrigger, jump: int, before: int, after: int) -> str:
    """What becomes of the local times that the jump skips or repeats. What really happens is asked of
    the trigger, not concluded from its options."""
    named = _named(trigger, jump + min(before, after), jump + max(before, after))
    if not named:
        return "touches no tick"
    size, times, one = abs(after - before), _times(named), len(named) == 1
    if after > before:
        usual = {at - after for at in _named(trigger, jump + after, jump + after + size)}
        moved = [at + after for at in _ticks(trigger, jump, jump + size) if at not in usual]
        said = f"{times} {'does' if one else 'do'} not exist that day"
        return f"{said}: runs at {_times(moved)}" if moved else f"{said}: left out"
    said = f"{times} {'comes' if one else 'come'} twice"
    first, second = _ticks(trigger, jump - size, jump), _ticks(trigger, jump, jump + size)
    if first and second:
        return f"{said}: runs both times"
    return f"{said}: runs the {'first' if first else 'second'} time only"


def _named(trigger: LocalTrigger, start: int, end: int) -> list[int]:
    """The local seconds in [start, end) that the rule names, jumps disregarded."""
    found: list[int] = []
    at = trigger.first_local_in(start, end)
    while at is not None:
        found.append(at)
        at = trigger.first_local_in(at + 1, end)
    return found


def _ticks(trigger: LocalTrigger, start: int, end: int) -> list[int]:
    """The ticks in [start, end), in seconds."""
    return [tick // SECOND for tick in trigger.ticks_us(start * SECOND - 1, end * SECOND - 1)]


def _times(named: list[int]) -> str:
    """Local seconds as times of day, the middle of many left out."""
    shown = [_clock(at) for at in named]
    return ", ".join(shown) if len(shown) <= 3 else f"{shown[0]}, {shown[1]} ... {shown[-1]}"


def _clock(local: int) -> str:
    second = local % 86_400
    text = f"{second // 3600:02d}:{second // 60 % 60:02d}"
    return text if second % 60 == 0 else f"{text}:{second % 60:02d}"


def _wall(at: int, offset: int) -> str:
    return _clock(at // SECOND + offset)
