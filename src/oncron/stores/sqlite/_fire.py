"""Firing: cursors pass their due ticks, once, and the ticks become runs or a gap (G1, G2, G3, G10, G11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from oncron._model import (
    ClaimSpec,
    Fired,
    FireOutcome,
    FirePlan,
    FireResult,
    Gap,
    GapReason,
    Overlap,
    RunRecord,
    TickRun,
    order_key,
)
from oncron.stores._occupancy import Verdict, admit
from oncron.stores.sqlite._claim import Candidate, held_by, lease, renewed, take
from oncron.stores.sqlite._declare import record_gaps
from oncron.stores.sqlite._sheet import Sheet
from oncron.stores.sqlite._step import Step, listed

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(FireResult).decode

FREE, PARKED = Verdict(), Verdict(parked=True)


def fire(step: Step, plans: Sequence[FirePlan], claim: ClaimSpec | None, fire_id: str) -> Fired:
    results: list[FireResult] = []
    created: list[Candidate] = []
    repeated: set[str] = set()
    for part in _without_doubles(plans):
        firing = Firing(step, part, fire_id, leases=claim is not None)
        results += [firing.settle(plan) for plan in part]
        firing.write()
        created += firing.claimable
        repeated |= firing.repeated
    if claim is None:
        return Fired(results=tuple(results), now=step.now)
    leases = [run for run in held_by(step, claim) if run.id in repeated] if repeated else []
    leases += lease(step, take(step, created, claim), claim)
    until = renewed(step, claim) if leases else 0
    return Fired(results=tuple(results), now=step.now, leases=tuple(leases), lease_until=until)


def _without_doubles(plans: Sequence[FirePlan]) -> Iterator[list[FirePlan]]:
    """Parts in which no name comes twice: a second plan has to see what the first one wrote."""
    part: dict[str, FirePlan] = {}
    for plan in plans:
        if plan.name in part:
            yield list(part.values())
            part = {}
        part[plan.name] = plan
    yield list(part.values())


@dataclass(slots=True)
class Row:
    """One row of `fire.rows`."""

    name: str
    revision: int
    status: str
    cursor: int
    created_count: int
    fire_id: str | None
    fire_result: str | None
    overlap: str
    limit: int | None
    unique: str | None
    task: str
    queue: str
    priority: int

    def is_full(self) -> bool:
        return self.limit is not None and self.created_count >= self.limit

    def is_as_planned(self, plan: FirePlan) -> bool:
        """The compare of compare-and-set (G3), and that the plan stays within what it passes (G1)."""
        if self.cursor != plan.seen_cursor or self.revision != plan.seen_revision or self.status != "active":
            return False
        return plan.is_within

    def repeats(self, plan: FirePlan, fire_id: str) -> bool:
        """This very fire_id fired the plan before, and nothing has happened since (G7): whatever
        moves the row otherwise forgets the fire_id or moves the cursor."""
        return self.fire_id == fire_id and (plan.seen_revision, plan.new_cursor) == (self.revision, self.cursor)


class Firing:
    """Plans of different schedules, judged against one reading and written at once."""

    def __init__(self, step: Step, plans: Sequence[FirePlan], fire_id: str, *, leases: bool) -> None:
        self.step, self.fire_id, self._leases = step, fire_id, leases
        names = listed(plan.name for plan in plans)
        self.rows = {row[0]: Row(*row) for row in step.rows("fire.rows", names=names)}
        self.claimable: list[Candidate] = []
        self.repeated: set[str] = set()
        """Ids of runs that an earlier call of this fire_id made."""
        self.sheet = Sheet(step)
        self._inserts: list[tuple[Any, ...]] = []
        self._moves: list[tuple[Any, ...]] = []
        self._gaps: list[tuple[str, int | None, Sequence[Gap]]] = []
        self._taken_keys: set[str] = set()
        self._on_record: set[str] = set()
        newest = step.value("fire.newest_tzdata", now=step.now) if any(plan.tzdata for plan in plans) else None
        fresh = [
            plan
            for plan in plans
            if (row := self.rows.get(plan.name)) is not None and row.is_as_planned(plan)
            if not plan.tzdata or plan.tzdata >= (newest or "")
        ]
        self._fresh = {plan.name for plan in fresh}
        if fresh:
            self._load(fresh)
        self._next_seq = step.next_seq()

    def _load(self, plans: Sequence[FirePlan]) -> None:
        rows = [self.rows[plan.name] for plan in plans if plan.ticks]
        self.sheet.load_serial_of(row.name for row in rows if row.overlap != "allow")
        self.sheet.load_holders(row.unique for row in rows)
        ids = listed(tick.run_id for plan in plans for tick in plan.ticks)
        self._on_record = {row[0] for row in self.step.rows("fire.on_record", ids=ids)}

    def settle(self, plan: FirePlan) -> FireResult:
        """What becomes of one plan."""
        row = self.rows.get(plan.name)
        if row is None:
            return FireResult(name=plan.name, outcome=FireOutcome.STALE)
        if row.repeats(plan, self.fire_id):
            self.repeated.update(tick.run_id for tick in plan.ticks)
            return _first_answer(row, plan)
        if plan.name not in self._fresh:
            return FireResult(name=plan.name, outcome=FireOutcome.STALE)
        if plan.new_cursor > self.step.now:  # G2; no tick lies past new_cursor
            return FireResult(name=plan.name, outcome=FireOutcome.EARLY)
        counted = row.created_count
        result, refused = self._place(row, plan)
        gaps = plan.gaps if result.reason is None else (*plan.gaps, _gap_of(plan, refused, result.reason))
        if gaps:
            self._gaps.append((plan.name, plan.seen_cursor, gaps))
        next_at = None if row.is_full() else plan.next_at
        told = None if _is_plain(result, plan) else _encode(result).decode()
        self._moves.append((plan.new_cursor, next_at, row.created_count - counted, self.fire_id, told, plan.name))
        return result

    def _place(self, row: Row, plan: FirePlan) -> tuple[FireResult, list[int]]:
        """The plan's ticks become runs or are refused, in tick order. Several are a catch-up."""
        catchup = len(plan.ticks) > 1
        serial = [] if row.overlap == "allow" else self.sheet.serial_of(row.name)
        crowded = bool(serial)
        refused: list[int] = []
        reason, created = None, 0
        superseded: list[str] = []
        stopped: list[str] = []
        for tick in plan.ticks if not catchup else sorted(plan.ticks, key=lambda tick: tick.tick):
            if tick.run_id in self._on_record:
                continue  # the second belt of G1: this tick's run is on record
            verdict = self._verdict(row, serial, catchup=catchup, crowded=crowded)
            refusal = self._refusal(row, verdict)
            if refusal is not None:
                refused.append(tick.tick)
                reason = refusal
                continue
            row.created_count -= self.sheet.make_room(verdict)
            superseded += [run.id for run in verdict.superseded]
            stopped += [] if verdict.asked_to_stop is None else [verdict.asked_to_stop.id]
            self._create(row, tick, parked=verdict.parked, catchup=catchup)
            crowded, created = True, created + 1
        result = FireResult(
            name=row.name,
            outcome=FireOutcome.FIRED,
            created=created,
            skipped=len(refused),
            reason=reason,
            superseded=tuple(superseded),
            cancelled=tuple(stopped),
        )
        return result, refused

    def _verdict(self, row: Row, serial: list[RunRecord], *, catchup: bool, crowded: bool) -> Verdict:
        if not crowded or row.overlap == "allow":
            return FREE
        return PARKED if catchup else admit(Overlap(row.overlap), serial, catchup=False)

    def _refusal(self, row: Row, verdict: Verdict) -> GapReason | None:
        """Why the next tick may not become a run: its place, then the limit, then the unique key."""
        if verdict.in_the_way is not None:
            return GapReason.OVERLAP
        if row.is_full():
            return GapReason.LIMIT
        if row.unique is None:
            return None
        held = row.unique in self._taken_keys or self.sheet.holder_of(row.unique) is not None
        return GapReason.UNIQUE if held else None

    def _create(self, row: Row, tick: TickRun, *, parked: bool, catchup: bool) -> None:
        row.created_count += 1
        if row.unique is not None:
            self._taken_keys.add(row.unique)
        seq, now = self._next_seq + len(self._inserts), self.step.now
        flags = (row.overlap != "allow", parked, tick.is_catchup or catchup, tick.missed_count)
        self._inserts.append((seq, tick.run_id, tick.tick, tick.due_at, now, *flags, row.name))
        if self._leases and not parked and tick.due_at <= now:
            key = order_key(tick.due_at, row.priority)
            self.claimable.append(Candidate(key, tick.due_at, tick.run_id, row.task, row.queue))

    def write(self) -> None:
        """Records first, cursors last; the transaction makes it one step anyway."""
        self.sheet.write()
        self.step.each("fire.insert_run", self._inserts)
        record_gaps(self.step, self._gaps)
        self.step.each("fire.move_cursor", self._moves)


def _is_plain(result: FireResult, plan: FirePlan) -> bool:
    """Every tick became a run and nobody had to make room: the plan alone tells the answer."""
    return result.created == len(plan.ticks) and not result.superseded and not result.cancelled


def _first_answer(row: Row, plan: FirePlan) -> FireResult:
    if row.fire_result is not None:
        return _decode(row.fire_result)
    return FireResult(name=plan.name, outcome=FireOutcome.FIRED, created=len(plan.ticks))


def _gap_of(plan: FirePlan, refused: Sequence[int], reason: GapReason) -> Gap:
    """One gap for the ticks that the step refused."""
    return Gap(schedule=plan.name, first=min(refused), last=max(refused), count=len(refused), reason=reason)
