"""What a clock change will do to a schedule that it did not do before: both are asked, nothing is concluded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date

from oncron._clock import SECOND, from_us
from oncron.cli import render
from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, parse
from oncron.triggers.local import Fold, Gap, LocalTrigger
from oncron.triggers.text import Call, read, write
from oncron.triggers.zones import Zone

Ticks = Callable[[int, int], Sequence[int]]
"""The instants in (a, b] of the other scheduler; microseconds."""

YEAR = 366 * 86_400 * SECOND
_HOUR = 3600 * SECOND
_LOOKED_AT = ((30 * _HOUR, 54 * _HOUR), (4 * _HOUR, 4 * _HOUR), (90 * 60 * SECOND, 90 * 60 * SECOND))
"""Before and after a jump: less where there are many ticks."""
_HOURS_AFTER = 30 * _HOUR
_MANY = 250
_SHOWN = 3


def differences(trigger: Trigger, theirs: Ticks, whose: str, now: int) -> list[str]:
    """A sentence for each clock change of the coming year at which they do not agree."""
    if not isinstance(trigger, LocalTrigger):
        return []
    jumps = _jumps(trigger.zone, now)
    spans = [_span(trigger, jump[0] * SECOND, now) for jump in jumps]
    more, less = set[int](), set[int]()
    for start, end in spans:
        ours, others = set(trigger.ticks_us(start, end)), {tick for tick in theirs(start, end) if start < tick <= end}
        more |= ours - others
        less |= others - ours
    said: list[str] = []
    for jump in jumps:
        new, gone = ({tick for tick in ticks if _nearest(jumps, tick) == jump} for ticks in (more, less))
        if new or gone:
            said.append(_told(trigger.zone, jump, new, gone, whose))
    if said and (options := _options_that_agree(trigger, theirs, spans)):
        said[-1] += f"; {options} keeps what {whose} did"
    return said


def _nearest(jumps: Sequence[tuple[int, int, int]], tick: int) -> tuple[int, int, int]:
    return min(jumps, key=lambda jump: abs(jump[0] * SECOND - tick))


def _jumps(zone: Zone, now: int) -> list[tuple[int, int, int]]:
    year = from_us(now).year
    return [jump for jump in zone.jumps_in(year, min(9999, year + 1)) if now < jump[0] * SECOND <= now + YEAR]


def _span(trigger: LocalTrigger, jump: int, now: int) -> tuple[int, int]:
    """What is compared, within the coming year: hours around the jump, and of a rare schedule the last tick before it
    and the first one after it, as some look for the next one across the jump in a way of their own."""
    before, after = next(
        (span for span in _LOOKED_AT if not trigger.count_between_us(jump - span[0], jump + span[1], _MANY)[1]),
        _LOOKED_AT[-1],
    )
    start, end = jump - before, jump + after
    last = trigger.latest_in_us(jump - YEAR, start, 1)
    first = trigger.next_after_us(jump)
    start, end = last[0] - 1 if last else start, end if first is None else max(end, first + _HOURS_AFTER)
    return max(now, start), min(now + YEAR, end)


def _told(zone: Zone, jump: tuple[int, int, int], more: set[int], less: set[int], whose: str) -> str:
    at, before, after = jump
    day = _day(at * SECOND + before * SECOND)
    clock = f"{_wall(at + before)} -> {_wall(at + after)}"
    new, gone = _times(zone, more, day), _times(zone, less, day)
    if new and gone:
        what = f"oncron ticks at {new}, {whose} at {gone}"
    elif new:
        what = f"oncron ticks at {new}, where {whose} did not"
    else:
        what = f"{whose} ticked at {gone}, oncron does not"
    return f"on {day.isoformat()} ({zone.name}, {clock}) {what}"


def _times(zone: Zone, ticks: set[int], day: date) -> str:
    """On the zone's clocks, with the offset: a local time alone may be there twice."""
    shown: list[str] = []
    for tick in sorted(ticks):
        on, _, clock = render.local(tick, zone.name).partition(" ")
        clock = clock[:5] + clock[8:] if clock[5:8] == ":00" else clock
        shown.append(clock if on == day.isoformat() else f"{clock} of {on}")
    if len(shown) <= _SHOWN:
        return ", ".join(shown)
    return f"{', '.join(shown[:2])} ... {shown[-1]} ({len(shown)} times)"


def _options_that_agree(trigger: LocalTrigger, theirs: Ticks, spans: Sequence[tuple[int, int]]) -> str:
    """`gap=` and `fold=` with which nothing would differ at these jumps; empty if there are none."""
    if trigger.follows_clock:
        return ""
    expected = [[tick for tick in theirs(start, end) if start < tick <= end] for start, end in spans]
    call = read(str(trigger))
    gaps: tuple[Gap, ...] = ("next", "shift", "skip")
    folds: tuple[Fold, ...] = ("first", "both", "second")
    for fold in folds:
        for gap in gaps:
            other = _with(call, gap, fold)
            if other is not None and [other.ticks_us(start, end) for start, end in spans] == expected:
                chosen = {"gap": gap if gap != "next" else None, "fold": fold if fold != "first" else None}
                return ", ".join(f'{name}="{value}"' for name, value in chosen.items() if value)
    return ""


def _with(call: Call, gap: Gap, fold: Fold) -> LocalTrigger | None:
    options = {**call.options, "gap": gap, "fold": fold}
    try:
        made = parse(write(call.kind, *call.arguments, **options))
    except InvalidTrigger:
        return None
    return made if isinstance(made, LocalTrigger) else None


def _day(at: int) -> date:
    return from_us(at).astimezone(UTC).date()


def _wall(local: int) -> str:
    return f"{local % 86_400 // 3600:02d}:{local % 3600 // 60:02d}"
