"""What the coming jumps of a zone's clock do to a rule. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oncron._clock import SECOND, from_us
from oncron._shown import iso, utc
from oncron.triggers import Trigger
from oncron.triggers.local import LocalTrigger

_CHANGES = 2
"""Coming clock changes that are shown: one of each kind where there is summer time."""
YEARS = 3
"""Clock changes are looked for so many years ahead."""
UNTOUCHED = "touches no tick"


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
            "at": iso(self.at),
            "from": _wall(self.at, self.before),
            "to": _wall(self.at, self.after),
            "what": self.what,
        }

    def row(self) -> tuple[str, str, str]:
        return utc(self.at), f"{_wall(self.at, self.before)} -> {_wall(self.at, self.after)}", self.what


def clock_changes(trigger: Trigger, now: int, most: int = _CHANGES) -> list[ClockChange]:
    """The next jumps of its zone's clock after `now`; none for a rule of elapsed time."""
    if not isinstance(trigger, LocalTrigger):
        return []
    year = from_us(now).year
    jumps = [jump for jump in trigger.zone.jumps_in(year, min(9999, year + YEARS)) if jump[0] * SECOND > now]
    return [
        ClockChange(at * SECOND, before, after, _effect(trigger, at, before, after))
        for at, before, after in jumps[:most]
    ]


def _effect(trigger: LocalTrigger, jump: int, before: int, after: int) -> str:
    """What becomes of the local times that the jump skips or repeats. What really happens is asked of
    the trigger, not concluded from its options."""
    named = _named(trigger, jump + min(before, after), jump + max(before, after))
    if not named:
        return UNTOUCHED
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
