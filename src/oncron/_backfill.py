"""Runs for instants of the past: a schedule's ticks in a stretch, each at most once.

A backfilled run is (schedule, instant, backfill id). Its own id is a function of these three, so a
call that died in the middle is made again and goes on where it stopped (G1, G7).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from oncron import _defaults as limits, _options as check
from oncron._clock import SECOND, from_us
from oncron._model import (
    Definition,
    EnqueueResult,
    NewRun,
    Overlap,
    ScheduleRecord,
    Status,
    new_id,
    tick_run_id,
)
from oncron._store import ReadableStore
from oncron.errors import InvalidOption
from oncron.triggers import Trigger, parse

T = TypeVar("T")

FIRST = "first"
"""The backfill id of every call without `again`."""

_CHUNK = 500
_LISTED = 1000
"""So many run ids, and refused ticks, are told one by one."""


def backfill_run_id(schedule: str, tick: int, backfill: str = FIRST) -> str:
    """No name holds a line break, so this is no scheduled tick's id."""
    return tick_run_id(f"{schedule}\n{backfill}", tick)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A tick that a backfill left alone: `on_record` (`run` is its run), `occupied` (`run` has the
    schedule's place), `owed` (not settled yet: a scheduler will fire it, or record why not)."""

    tick: datetime
    reason: Literal["on_record", "occupied", "owed"]
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """What a backfill did or, with `dry_run`, would do. `str()` is the sentence."""

    schedule: str
    id: str
    """Runs carry it. The same for every call without `again`."""
    dry_run: bool
    ticks: int = 0
    """The schedule's ticks in the stretch: created + on_record + occupied + owed."""
    created: int = 0
    on_record: int = 0
    """Ticks that have a run already, scheduled or backfilled."""
    occupied: int = 0
    """Ticks that the `overlap` policy refused; a dry run does not foretell them."""
    owed: int = 0
    """Ticks that a scheduler has still to settle."""
    first: datetime | None = None
    """The first of the ticks."""
    last: datetime | None = None
    runs: tuple[str, ...] = ()
    """Ids of the created runs, oldest tick first; the first thousand."""
    refused: tuple[Refused, ...] = ()
    """The ticks that were left alone; the first thousand."""

    def __str__(self) -> str:
        if self.first is None or self.last is None:
            return f"no tick of {self.schedule!r} lies in that stretch"
        parts = [f"{self.created} {'would be created' if self.dry_run else 'created'}"]
        for count, what in (
            (self.on_record, "have a run on record"),
            (self.occupied, "refused by the overlap policy"),
            (self.owed, "left to the scheduler, which has not settled them yet"),
        ):
            parts += [f"{count} {what}"] if count else []
        stretch = f"from {_shown(self.first)} to {_shown(self.last)}" if self.ticks > 1 else f"at {_shown(self.first)}"
        return f"{self.ticks} tick{'s' * (self.ticks != 1)} of {self.schedule!r} {stretch}: {', '.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A backfill that was asked for, checked; instants in microseconds."""

    start: int
    end: int
    id: str
    dry_run: bool = False
    pace: int = 0
    """Microseconds between the due times of two runs."""
    overlap: Overlap | None = None
    again: bool = False


def checked_wish(start: Any, end: Any, *, dry_run: Any, rate: Any, overlap: Any, again: Any) -> Wish:
    """Raises InvalidOption for what means nothing, whatever the store holds."""
    first, last = check.instant(start, "start"), check.instant(end, "end")
    if first is None or last is None:
        raise InvalidOption("a backfill needs a start and an end: datetime(2027, 1, 1, tzinfo=UTC) say")
    if first > last:
        raise InvalidOption("start lies after end, so there is nothing between; swap them")
    return Wish(
        start=first,
        end=last,
        id=new_id() if check.truth(again, "again") else FIRST,
        dry_run=check.truth(dry_run, "dry_run"),
        pace=0 if rate is None else round(SECOND / _rate(rate)),
        overlap=None if overlap is None else check.overlap_word(overlap),
        again=again,
    )


def _rate(rate: Any) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not (math.isfinite(rate) and rate > 0):
        raise InvalidOption(f"rate={rate!r}: give runs per second, a number above 0, or None for all at once")
    if rate < 1e-6:
        raise InvalidOption(f"rate={rate!r} is less than one run in eleven days; give runs per second")
    return float(rate)


class Desk(Protocol):
    """Where a backfill goes with its wishes."""

    async def ask(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T: ...
    def written(self, results: Sequence[EnqueueResult]) -> None: ...


async def backfill(desk: Desk, row: ScheduleRecord, now: int, wish: Wish) -> Backfill:
    """Chunk by chunk, oldest tick first. `row` was read before `now`; what it had settled stays settled.

    Raises InvalidOption for an end in the future or too many ticks, InvalidTrigger for a trigger that this
    release cannot read, StoreUnavailable: the same call then goes on where it stopped."""
    if wish.end > now:
        raise InvalidOption(
            f"end={_shown(from_us(wish.end))} lies in the future: it is {_shown(from_us(now))} by the store's clock; "
            "a backfill is for instants that have passed"
        )
    trigger = parse(row.definition.trigger)
    most = limits.BACKFILL_TICKS
    if trigger.count_between_us(wish.start - 1, wish.end, most)[1]:
        raise InvalidOption(
            f"more than {most} ticks of {row.name!r} lie between start and end; backfill it in shorter stretches"
        )
    done = Backfill(schedule=row.name, id=wish.id, dry_run=wish.dry_run)
    ticks = _ticks(trigger, wish)
    while chunk := list(itertools.islice(ticks, _CHUNK)):
        done = await _chunk_done(desk, row, chunk, wish, now, done)
    return done


def _ticks(trigger: Trigger, wish: Wish) -> Iterator[int]:
    """Of the trigger alone: when the schedule starts, ends or was paused does not matter."""
    tick = trigger.next_after_us(wish.start - 1)
    while tick is not None and tick <= wish.end:
        yield tick
        tick = trigger.next_after_us(tick)


async def _chunk_done(
    desk: Desk, row: ScheduleRecord, chunk: Sequence[int], wish: Wish, now: int, done: Backfill
) -> Backfill:
    """What was done so far, with these ticks."""
    # Asked and written apart: a write that is repeated after a lost answer must not take its own runs for
    # somebody else's, nor, with `again`, make a second one.
    ids = [found for tick in chunk for found in _known_ids(row.name, tick)]
    on_record = {run.id: run for run in await desk.ask(lambda store: store.get_runs(ids))}
    refused: list[Refused] = []
    wanted: list[NewRun] = []
    for tick in chunk:
        known = next((on_record[found] for found in _known_ids(row.name, tick) if found in on_record), None)
        if _is_owed(row, tick):
            refused.append(Refused(tick=from_us(tick), reason="owed", run=None if known is None else known.id))
        elif known is not None and not wish.again:
            refused.append(Refused(tick=from_us(tick), reason="on_record", run=known.id))
        else:
            due_at = now + wish.pace * (done.created + len(wanted)) if wish.pace else None
            # What never ran is no repetition: it is found on record by whoever asks without `again`.
            wanted.append(_new_run(row.definition, tick, FIRST if known is None else wish.id, due_at, wish.overlap))
    results: list[EnqueueResult] = []
    if wanted and not wish.dry_run:
        results = await desk.ask(lambda store: store.enqueue(wanted))
        desk.written(results)
    taken = [
        Refused(tick=from_us(new.tick or 0), reason="occupied", run=result.run.id)
        for new, result in zip(wanted, results, strict=False)
        if result.occupied
    ]
    created = [new.id for new in wanted] if wish.dry_run else [r.run.id for r in results if not r.occupied]
    return _summed(done, chunk, created, sorted([*refused, *taken], key=lambda item: item.tick))


def _known_ids(schedule: str, tick: int) -> tuple[str, str]:
    """Of the runs that an instant has, if it has any: its tick's, and its first backfilled one."""
    return tick_run_id(schedule, tick), backfill_run_id(schedule, tick)


def _is_owed(row: ScheduleRecord, tick: int) -> bool:
    """Whether a scheduler has still to fire it: made now, it would run twice (G1)."""
    exhausted = row.definition.limit is not None and row.created_count >= row.definition.limit
    begun = row.definition.start_at is None or tick >= row.definition.start_at
    over = row.definition.end_at is not None and tick > row.definition.end_at
    return tick > row.cursor and row.status is Status.ACTIVE and begun and not over and not exhausted


def _new_run(definition: Definition, tick: int, backfill: str, due_at: int | None, overlap: Overlap | None) -> NewRun:
    """Without the schedule's unique key: an instant's run is like no other's."""
    return NewRun(
        id=backfill_run_id(definition.name, tick, backfill),
        task=definition.task,
        args=definition.args,
        queue=definition.queue,
        priority=definition.priority,
        due_at=due_at,
        retries=definition.retries,
        retry_delay=definition.retry_delay,
        timeout=definition.timeout,
        guard=definition.guard,
        schedule=definition.name,
        tick=tick,
        backfill=backfill,
        overlap=overlap,
    )


def _summed(done: Backfill, chunk: Sequence[int], created: Sequence[str], refused: Sequence[Refused]) -> Backfill:
    counts = Counter(item.reason for item in refused)
    return replace(
        done,
        ticks=done.ticks + len(chunk),
        created=done.created + len(created),
        on_record=done.on_record + counts["on_record"],
        occupied=done.occupied + counts["occupied"],
        owed=done.owed + counts["owed"],
        first=from_us(chunk[0]) if done.first is None else done.first,
        last=from_us(chunk[-1]),
        runs=(*done.runs, *created[: max(0, _LISTED - len(done.runs))]),
        refused=(*done.refused, *refused[: max(0, _LISTED - len(done.refused))]),
    )


def _shown(instant: datetime) -> str:
    return instant.isoformat(timespec="auto").replace("+00:00", "Z")
