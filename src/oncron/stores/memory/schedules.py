"""Schedules and ticks: `declare` and `fire` let a cursor pass, once, with a record (G1, G2, G3, G11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from oncron._model import (
    Change,
    Changed,
    ClaimSpec,
    Due,
    Fired,
    FireOutcome,
    FirePlan,
    FireResult,
    Gap,
    GapReason,
    Overlap,
    RunRecord,
    ScheduleRecord,
    Status,
    TickRun,
)
from oncron.stores import _occupancy as occupancy
from oncron.stores._schedules import declared
from oncron.stores.memory.leases import Leases
from oncron.stores.memory.tables import LastFire


class Placed(NamedTuple):
    """What became of the ticks of one plan."""

    result: FireResult
    created: list[RunRecord]
    refused: list[int]


class Schedules(Leases):
    """The steps that move cursors."""

    # --- declare --------------------------------------------------------------------------

    async def declare(self, changes: Sequence[Change], *, now: int | None = None) -> list[Changed]:
        with self._step(now) as at:
            return [self._declare_one(change, at) for change in changes]

    def _declare_one(self, change: Change, now: int) -> Changed:
        row = self._schedule_rows.get(change.name)
        if not self._is_as_declared(row, change) or self._would_pass_the_future(row, change, now):
            return Changed(name=change.name, changed=False, record=row)
        record = declared(row, change, now)
        self._schedule_rows[change.name] = record
        self._version += 1
        self._record_gaps(change.name, change.gaps, change.seen_cursor, now)
        if row is not None and row.definition.overlap is not change.definition.overlap:
            self._repark(record)
        return Changed(name=change.name, changed=True, record=record)

    def _is_as_declared(self, row: ScheduleRecord | None, change: Change) -> bool:
        if row is None:
            return change.seen_revision is None
        return (row.revision, row.cursor) == (change.seen_revision, change.seen_cursor)

    def _would_pass_the_future(self, row: ScheduleRecord | None, change: Change, now: int) -> bool:
        """A cursor that stays where it is passes nothing, wherever that is."""
        stays = row is not None and change.new_cursor <= row.cursor
        return change.new_cursor > now and not stays

    def _repark(self, row: ScheduleRecord) -> None:
        """The open runs take their places under the policy that the schedule has now."""
        serial = row.definition.overlap is not Overlap.ALLOW
        runs = [run for run in self._open_runs_of(row.name) if run.backfill is None]
        head = occupancy.next_head(runs)
        for run in runs:
            self._put(replace(run, serial=serial, parked=serial and run is not head))

    # --- who declares what ----------------------------------------------------------------

    async def register(self, set_id: str, names: Sequence[str] | None, *, now: int | None = None) -> bool:
        with self._step(now) as at:
            if names is None and set_id not in self._declared:
                return False
            held = self._declared[set_id][1] if names is None else frozenset(names)
            self._declared[set_id] = at, held
            return True

    async def unheld(self, before: int, *, limit: int = 1000, now: int | None = None) -> list[str]:
        with self._step(now):
            self._declared = {key: (at, names) for key, (at, names) in self._declared.items() if at >= before}
            held = frozenset[str]().union(*(names for _, names in self._declared.values()))
            return [
                name
                for name, row in sorted(self._schedule_rows.items())
                if row.status is Status.ACTIVE and row.definition.origin == "code"
                if row.changed_at < before and name not in held
            ][:limit]

    # --- due ------------------------------------------------------------------------------

    async def due(
        self, horizon: int, *, after: tuple[int, str] | None = None, exclude: Sequence[str] = (), limit: int = 1000
    ) -> list[Due]:
        with self._step():
            found = sorted(
                (row.next_at, row.name)
                for row in self._schedule_rows.values()
                if row.next_at is not None and row.next_at <= horizon and row.name not in exclude
            )
            rows = [self._schedule_rows[name] for key in found if after is None or key > after for name in key[1:]]
            return [
                Due(name=row.name, revision=row.revision, cursor=row.cursor, next_at=row.next_at or 0)
                for row in rows[:limit]
            ]

    # --- fire -----------------------------------------------------------------------------

    async def fire(
        self, plans: Sequence[FirePlan], claim: ClaimSpec | None = None, *, fire_id: str, now: int | None = None
    ) -> Fired:
        with self._step(now) as at:
            results: list[FireResult] = []
            created: list[RunRecord] = []
            held: list[RunRecord] = []
            for plan in plans:
                if (last := self._repeated(plan, fire_id)) is not None:
                    results.append(last.result)
                    held += self._still_held(plan, claim)
                    continue
                result, runs = self._fire_one(plan, fire_id, at)
                results.append(result)
                created += runs
            if claim is None:
                return Fired(results=tuple(results), now=at)
            held += self._take(created, claim, at)
            until = self._renew(claim.worker, claim.lease_for, at) if held else 0
            leases = self._in_claim_order(held, claim)
            return Fired(results=tuple(results), now=at, leases=tuple(leases), lease_until=until)

    def _repeated(self, plan: FirePlan, fire_id: str) -> LastFire | None:
        """The firing that this call repeats: the same id, and nothing has happened since (G7)."""
        last, row = self._last_fires.get(plan.name), self._schedule_rows.get(plan.name)
        if last is None or row is None or last.fire_id != fire_id:
            return None
        untouched = (last.revision, last.cursor) == (row.revision, row.cursor)
        same = (plan.seen_revision, plan.new_cursor) == (row.revision, row.cursor)
        return last if untouched and same else None

    def _still_held(self, plan: FirePlan, claim: ClaimSpec | None) -> list[RunRecord]:
        ids = {tick.run_id for tick in plan.ticks}
        return [] if claim is None else [run for run in self._held_by_claim(claim) if run.id in ids]

    def _fire_one(self, plan: FirePlan, fire_id: str, now: int) -> tuple[FireResult, list[RunRecord]]:
        row = self._schedule_rows.get(plan.name)
        if row is None or not self._is_as_planned(row, plan, now):
            return FireResult(name=plan.name, outcome=FireOutcome.STALE), []
        if self._is_early(plan, now):
            return FireResult(name=plan.name, outcome=FireOutcome.EARLY), []
        placed = self._place_ticks(row, plan, now)
        self._record_gaps(plan.name, [*plan.gaps, *self._gap_of_refused(plan.name, placed)], plan.seen_cursor, now)
        self._move_cursor(plan)
        self._last_fires[plan.name] = LastFire(fire_id, plan.seen_revision, plan.new_cursor, placed.result)
        return placed.result, placed.created

    def _is_as_planned(self, row: ScheduleRecord, plan: FirePlan, now: int) -> bool:
        """The compare of compare-and-set (G3), that the plan stays within what it passes (G1), and that no
        live scheduler knows the zones better."""
        seen = (row.status, row.revision, row.cursor) == (Status.ACTIVE, plan.seen_revision, plan.seen_cursor)
        if plan.tzdata and plan.tzdata < self._newest_tzdata(now):
            return False
        return seen and plan.is_within

    def _newest_tzdata(self, now: int) -> str:
        live = (row for row in self._worker_rows.values() if "scheduler" in row.roles and row.lease_until > now)
        return max((row.tzdata for row in live), default="")

    def _is_early(self, plan: FirePlan, now: int) -> bool:
        """G2, by the store's clock."""
        return plan.new_cursor > now or any(tick.tick > now for tick in plan.ticks)

    def _place_ticks(self, row: ScheduleRecord, plan: FirePlan, now: int) -> Placed:
        """The plan's ticks become runs or are refused, in tick order. Several are a catch-up."""
        catchup = len(plan.ticks) > 1
        created: list[RunRecord] = []
        refused: list[int] = []
        reason: GapReason | None = None
        entered: list[occupancy.Verdict] = []
        for tick in sorted(plan.ticks, key=lambda tick: tick.tick):
            if tick.run_id in self._run_rows:
                continue  # the second belt of G1: this tick's run is on record
            row = self._schedule_rows[plan.name]
            verdict = self._enter(row, catchup=catchup)
            refusal = self._refusal(row, verdict)
            if refusal is not None:
                reason = refusal
                refused.append(tick.tick)
                continue
            self._make_room(verdict, now)
            created.append(self._put(self._tick_run(row, tick, now, parked=verdict.parked, catchup=catchup)))
            self._count_created(plan.name)
            entered.append(verdict)
        result = FireResult(
            name=plan.name,
            outcome=FireOutcome.FIRED,
            created=len(created),
            skipped=len(refused),
            reason=reason,
            superseded=tuple(run.id for verdict in entered for run in verdict.superseded),
            cancelled=tuple(verdict.asked_to_stop.id for verdict in entered if verdict.asked_to_stop is not None),
        )
        return Placed(result, created, refused)

    def _refusal(self, row: ScheduleRecord, verdict: occupancy.Verdict) -> GapReason | None:
        """Why the next tick may not become a run: its place, then the limit, then the unique key."""
        if verdict.in_the_way is not None:
            return GapReason.OVERLAP
        if self._limit_reached(row):
            return GapReason.LIMIT
        return GapReason.UNIQUE if self._holder_of(row.definition.unique) is not None else None

    def _limit_reached(self, row: ScheduleRecord) -> bool:
        return row.definition.is_used_up(row.created_count)

    def _tick_run(self, row: ScheduleRecord, tick: TickRun, now: int, *, parked: bool, catchup: bool) -> RunRecord:
        definition = row.definition
        return RunRecord(
            id=tick.run_id,
            task=definition.task,
            schedule=row.name,
            tick=tick.tick,
            args=definition.args,
            queue=definition.queue,
            priority=definition.priority,
            due_at=tick.due_at,
            created_at=now,
            retries=definition.retries,
            retry_delay=definition.retry_delay,
            timeout=definition.timeout,
            unique=definition.unique,
            guard=definition.guard,
            serial=definition.overlap is not Overlap.ALLOW,
            parked=parked,
            is_catchup=tick.is_catchup or catchup,
            missed_count=tick.missed_count,
        )

    def _count_created(self, schedule: str) -> None:
        row = self._schedule_rows[schedule]
        self._schedule_rows[schedule] = replace(row, created_count=row.created_count + 1)

    def _move_cursor(self, plan: FirePlan) -> None:
        row = self._schedule_rows[plan.name]
        next_at = None if self._limit_reached(row) else plan.next_at
        self._schedule_rows[plan.name] = replace(row, cursor=plan.new_cursor, next_at=next_at)

    # --- gaps (G11) -----------------------------------------------------------------------

    def _gap_of_refused(self, schedule: str, placed: Placed) -> list[Gap]:
        """One gap for the ticks that the step refused: all of one plan are refused for one reason."""
        refused, reason = placed.refused, placed.result.reason
        if reason is None:
            return []
        return [Gap(schedule=schedule, first=refused[0], last=refused[-1], count=len(refused), reason=reason)]

    def _record_gaps(self, schedule: str, gaps: Iterable[Gap], seen_cursor: int | None, now: int) -> None:
        rows = self._gap_rows.setdefault(schedule, [])
        for gap in gaps:
            if rows and self._extends(rows[-1], gap, seen_cursor):
                rows[-1] = self._extended(rows[-1], gap)
            else:
                rows.append(replace(gap, schedule=schedule, created_at=now))

    def _extends(self, newest: Gap, gap: Gap, seen_cursor: int | None) -> bool:
        return newest.reason is gap.reason and newest.last == seen_cursor

    def _extended(self, newest: Gap, gap: Gap) -> Gap:
        return replace(newest, last=gap.last, count=newest.count + gap.count, at_least=newest.at_least or gap.at_least)
