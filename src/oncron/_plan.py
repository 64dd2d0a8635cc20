"""What becomes of a schedule's due ticks: pure, from (row, trigger, store-now) to a plan.

A tick is *missed* if the store's clock has passed it by more than a minute, or if a later
one is due as well; the `missed` policy rules what is missed, everything else fires. What is
not run is in the plan as a gap, so that the cursor passes nothing in silence (G3, G11).
Counts are exact to 10,000 and "at least" from there; planning never walks further.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oncron import _defaults as limits
from oncron._lifecycle import draw
from oncron._model import (
    Change,
    Definition,
    FirePlan,
    Gap,
    GapReason,
    Missed,
    ScheduleRecord,
    Status,
    TickRun,
    tick_run_id,
)


class Ticks(Protocol):
    """The part of a bound trigger that planning uses; instants in microseconds."""

    def next_after_us(self, t: int, /) -> int | None: ...
    def count_between_us(self, a: int, b: int, /, at_most: int = ...) -> tuple[int, bool]: ...
    def latest_in_us(self, a: int, b: int, n: int, /) -> Sequence[int]: ...


def next_tick(definition: Definition, trigger: Ticks, after: int) -> int | None:
    """The first tick strictly after `after` within [start_at, end_at], or None."""
    if definition.start_at is not None:
        after = max(after, definition.start_at - 1)
    tick = trigger.next_after_us(after)
    if tick is None or (definition.end_at is not None and tick > definition.end_at):
        return None
    return tick


def plan(row: ScheduleRecord, trigger: Ticks, now: int, *, tzdata: str = "") -> FirePlan | None:
    """What to do with the ticks in (cursor, now]. None if nothing is due and next_at is right.
    `tzdata` is the version of the zone data, for a trigger in which zones play a part."""
    definition = row.definition
    low, high = _window(definition, row.cursor, now)
    newest = list(trigger.latest_in_us(low, high, 1)) if high > low else []
    if not newest:
        return _realigned(row, trigger, tzdata)
    last = newest[-1]
    ticks, gaps = _ruled(definition, trigger, low, last, now)
    return FirePlan(
        name=row.name,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=last,
        next_at=next_tick(definition, trigger, last),
        ticks=tuple(ticks),
        gaps=tuple(gaps),
        tzdata=tzdata,
    )


def first_plan(definition: Definition, trigger: Ticks, now: int) -> Change:
    """A schedule that has no row yet: nothing fires for the past. `once` starts just before
    its first instant, so that the `missed` policy rules a late start."""
    first = getattr(trigger, "first_us", None)
    cursor = now if first is None else min(now, first - 1)
    return Change(
        name=definition.name,
        definition=definition,
        status=Status.PAUSED if definition.paused else Status.ACTIVE,
        new_cursor=cursor,
        next_at=None if definition.paused else next_tick(definition, trigger, cursor),
    )


_WHILE = {
    Status.PAUSED: GapReason.PAUSED,
    Status.DORMANT: GapReason.DORMANT,
    Status.REMOVED: GapReason.REMOVED,
}


def changed_plan(row: ScheduleRecord, definition: Definition, trigger: Ticks, now: int) -> Change:
    """The row with another definition. What is owed must have been settled before.

    Other instants: the cursor moves to now, with a gap record, and the first tick is strictly
    after now. The same instants: the cursor stays.
    """
    moves = not row.definition.same_instants(definition) or row.status in (Status.DORMANT, Status.REMOVED)
    cursor = max(row.cursor, now) if moves else row.cursor
    gaps: tuple[Gap, ...] = ()
    if cursor > row.cursor:
        reason = _WHILE.get(row.status, GapReason.CHANGED)
        gaps = (_passed(row, reason, row.cursor + 1, cursor, 0),)
    status = Status.ACTIVE if row.status in (Status.DORMANT, Status.REMOVED) else row.status
    if status is not Status.ACTIVE or definition.is_used_up(row.created_count):
        next_at = None
    else:
        next_at = next_tick(definition, trigger, cursor)
    return Change(
        name=row.name,
        definition=definition,
        status=status,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=cursor,
        next_at=next_at,
        gaps=gaps,
        note=row.note,
    )


def paused_plan(row: ScheduleRecord, note: str, status: Status = Status.PAUSED) -> Change:
    """Stops the schedule where its cursor stands. What is owed must have been settled before."""
    return Change(
        name=row.name,
        definition=row.definition,
        status=status,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=row.cursor,
        next_at=None,
        note=note,
    )


def resumed_plan(row: ScheduleRecord, trigger: Ticks, now: int) -> Change:
    """Goes on after now: ticks that fell in the pause owe nothing and are recorded as a gap."""
    definition = row.definition
    cursor = max(row.cursor, now)
    low, high = _window(definition, row.cursor, cursor)
    gaps: list[Gap] = []
    if high > low:
        count, cut = trigger.count_between_us(low, high, limits.PLAN_WALK)
        if count:
            last = trigger.latest_in_us(low, high, 1)[-1]
            first = trigger.next_after_us(low) or last
            reason = _WHILE.get(row.status, GapReason.PAUSED)
            gaps.append(_passed(row, reason, first, last, count, at_least=cut, detail=row.note))
    used_up = definition.is_used_up(row.created_count)
    return Change(
        name=row.name,
        definition=definition,
        status=Status.ACTIVE,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=cursor,
        next_at=None if used_up else next_tick(definition, trigger, cursor),
        gaps=tuple(gaps),
    )


def raised_plan(row: ScheduleRecord, trigger: Ticks, remembered: int) -> Change:
    """The store shows a smaller cursor than a replica remembers: it went back to an older state. What was
    settled then must not be run again (G1); the ticks in between are recorded as a gap."""
    count, cut = trigger.count_between_us(row.cursor, remembered, at_most=limits.PLAN_WALK)
    gap = _passed(row, GapReason.STORE_ROLLED_BACK, row.cursor + 1, remembered, count, at_least=cut)
    active = row.status is Status.ACTIVE
    return Change(
        name=row.name,
        definition=row.definition,
        status=row.status,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=remembered,
        next_at=next_tick(row.definition, trigger, remembered) if active else None,
        gaps=(gap,),
        note=row.note,
    )


def due_at(definition: Definition, tick: int) -> int:
    """The tick plus its jitter: drawn from (name, tick), so that every replica draws alike."""
    if not definition.jitter:
        return tick
    return tick + draw(f"{definition.name}\0{tick}", definition.jitter + 1)


def _window(definition: Definition, cursor: int, now: int) -> tuple[int, int]:
    """(low, high]: what lies after the cursor and not past now, within [start_at, end_at]."""
    low = cursor if definition.start_at is None else max(cursor, definition.start_at - 1)
    high = now if definition.end_at is None else min(now, definition.end_at)
    return low, high


def _ruled(definition: Definition, trigger: Ticks, low: int, last: int, now: int) -> tuple[list[TickRun], list[Gap]]:
    """The due ticks in (low, last], `last` being the newest: which run, and gaps for the others."""
    on_time = now - last <= limits.MISSED_AFTER
    keep = _kept_missed(definition, trigger, low, last, now, on_time=on_time)
    fires = [*keep, last] if on_time else keep
    total, cut = (
        (1, False) if trigger.next_after_us(low) == last else trigger.count_between_us(low, last, limits.PLAN_WALK)
    )
    ticks = [_run(definition, tick, catchup=not (on_time and tick == last)) for tick in fires]
    gaps = _unfired(definition, trigger, low, last, fires, total, cut=cut, now=now)
    if definition.missed is Missed.LATEST and ticks and total > 1:
        ticks[-1] = TickRun(
            run_id=ticks[-1].run_id,
            tick=ticks[-1].tick,
            due_at=ticks[-1].due_at,
            is_catchup=ticks[-1].is_catchup,
            missed_count=total - 1,
        )
    return ticks, gaps


def _kept_missed(definition: Definition, trigger: Ticks, low: int, last: int, now: int, *, on_time: bool) -> list[int]:
    """The missed ticks that run all the same, oldest first (without `last` if that is on time)."""
    if definition.missed is Missed.SKIP:
        return []
    if definition.missed is Missed.LATEST:
        kept = [] if on_time else [last]
    else:
        kept = list(trigger.latest_in_us(low, last - 1 if on_time else last, definition.missed_limit))
    if definition.missed_within is not None:
        kept = [tick for tick in kept if now - tick <= definition.missed_within]
    return kept


def _run(definition: Definition, tick: int, *, catchup: bool) -> TickRun:
    return TickRun(
        run_id=tick_run_id(definition.name, tick), tick=tick, due_at=due_at(definition, tick), is_catchup=catchup
    )


def _unfired(
    definition: Definition,
    trigger: Ticks,
    low: int,
    last: int,
    fires: list[int],
    total: int,
    *,
    cut: bool,
    now: int,
) -> list[Gap]:
    """One gap for the due ticks before the first that runs (all, if none does).

    The ticks that run are always the newest ones, so what does not run is one stretch, but
    for `missed="skip"` or `missed_within` with an on-time tick, where it is the stretch before that.
    """
    passed = total - len(fires)
    if passed <= 0:
        return []
    first = trigger.next_after_us(low)
    assert first is not None  # noqa: S101 - there are `total` > 0 ticks after `low`
    end = trigger.latest_in_us(low, fires[0] - 1, 1)[-1] if fires else last
    too_old = definition.missed_within is not None and now - end > definition.missed_within
    return [
        Gap(
            schedule=definition.name,
            first=first,
            last=end,
            count=passed,
            at_least=cut,
            reason=GapReason.TOO_OLD if too_old else GapReason.MISSED,
        )
    ]


def _realigned(row: ScheduleRecord, trigger: Ticks, tzdata: str) -> FirePlan | None:
    """Nothing is due, though the row said so (or will): put next_at right without moving the cursor."""
    next_at = next_tick(row.definition, trigger, row.cursor)
    if next_at == row.next_at:
        return None
    return FirePlan(
        name=row.name,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=row.cursor,
        next_at=next_at,
        tzdata=tzdata,
    )


def _passed(
    row: ScheduleRecord,
    reason: GapReason,
    first: int,
    last: int,
    count: int,
    *,
    at_least: bool = False,
    detail: str = "",
) -> Gap:
    return Gap(schedule=row.name, first=first, last=last, count=count, reason=reason, at_least=at_least, detail=detail)
