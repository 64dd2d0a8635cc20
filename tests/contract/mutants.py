"""MemoryStore with one guard broken each: what the suite must be able to see.

A test that no broken store fails proves nothing. See `torn` for steps that are not atomic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from oncron._groups import QueueRecord
from oncron._model import (
    Change,
    Changed,
    ClaimSpec,
    EnqueueResult,
    FinishResult,
    FirePlan,
    Gap,
    NewRun,
    Outcome,
    OutcomeKind,
    Pulse,
    RunRecord,
    RunState,
    ScheduleRecord,
    Status,
    TickRun,
    WorkerRecord,
    new_run_id,
)
from oncron.stores._occupancy import Verdict
from oncron.stores.memory import MemoryStore
from oncron.stores.memory.leases import Room

# --- ticks ----------------------------------------------------------------------------------


class CursorNotCompared(MemoryStore):
    """Fire compares the revision alone: what an older plan passes is not what lies between."""

    def _is_as_planned(self, row: ScheduleRecord, plan: FirePlan, now: int) -> bool:
        return (row.status, row.revision) == (Status.ACTIVE, plan.seen_revision)


class RevisionNotCompared(MemoryStore):
    def _is_as_planned(self, row: ScheduleRecord, plan: FirePlan, now: int) -> bool:
        return row.status is Status.ACTIVE and row.cursor == plan.seen_cursor


class OlderZonesFire(MemoryStore):
    def _newest_tzdata(self, now: int) -> str:
        return ""


class PausedFires(MemoryStore):
    def _is_as_planned(self, row: ScheduleRecord, plan: FirePlan, now: int) -> bool:
        return super()._is_as_planned(replace(row, status=Status.ACTIVE), plan, now)


class PlanNotConfined(MemoryStore):
    """Fire trusts the plan: ticks and gaps may lie outside of what the cursor passes."""

    def _is_as_planned(self, row: ScheduleRecord, plan: FirePlan, now: int) -> bool:
        return super()._is_as_planned(row, replace(plan, ticks=(), gaps=()), now)


class EarlyAccepted(MemoryStore):
    def _is_early(self, plan: FirePlan, now: int) -> bool:
        return False


class TickIdRandom(MemoryStore):
    """The primary key is no second belt."""

    def _tick_run(self, row: ScheduleRecord, tick: TickRun, now: int, *, parked: bool, catchup: bool) -> RunRecord:
        return replace(super()._tick_run(row, tick, now, parked=parked, catchup=catchup), id=new_run_id())


class OverwritesRunOnRecord(MemoryStore):
    def _place_ticks(self, row: ScheduleRecord, plan: FirePlan, now: int) -> Any:
        for tick in plan.ticks:
            self._run_rows.pop(tick.run_id, None)
        return super()._place_ticks(row, plan, now)


class CursorMovedWithoutRecord(MemoryStore):
    def _record_gaps(self, schedule: str, gaps: Iterable[Gap], seen_cursor: int | None, now: int) -> None:
        pass


class GapPerTick(MemoryStore):
    def _extends(self, newest: Gap, gap: Gap, seen_cursor: int | None) -> bool:
        return False


class GapsOfTwoStretchesJoined(MemoryStore):
    def _extends(self, newest: Gap, gap: Gap, seen_cursor: int | None) -> bool:
        return newest.reason is gap.reason


class LimitIgnored(MemoryStore):
    def _limit_reached(self, row: ScheduleRecord) -> bool:
        return False


class SupersededStillCounts(MemoryStore):
    def _supersede(self, run: RunRecord, now: int) -> None:
        super()._supersede(replace(run, schedule=None), now)
        self._open_of[run.schedule or ""].pop(run.id)


class FireNotRepeatable(MemoryStore):
    """The answer was lost after the commit; the repetition is told STALE and its lease expires."""

    def _repeated(self, plan: FirePlan, fire_id: str) -> Any:
        return None


class FireRepeatedWithoutLeases(MemoryStore):
    def _still_held(self, plan: FirePlan, claim: ClaimSpec | None) -> list[RunRecord]:
        return []


class RepeatedForEver(MemoryStore):
    """A fire_id is known again although the schedule has moved on."""

    def _repeated(self, plan: FirePlan, fire_id: str) -> Any:
        last = self._last_fires.get(plan.name)
        return super()._repeated(plan, fire_id) or (last if fire_id.startswith("f") else None)


# --- declarations ---------------------------------------------------------------------------


class DeclareNotCompared(MemoryStore):
    def _is_as_declared(self, row: ScheduleRecord | None, change: Change) -> bool:
        return (row is None) == (change.seen_revision is None)


class DeclareComparesRevisionOnly(MemoryStore):
    def _is_as_declared(self, row: ScheduleRecord | None, change: Change) -> bool:
        return change.seen_revision == (None if row is None else row.revision)


class CursorGoesBack(MemoryStore):
    def _declare_one(self, change: Change, now: int) -> Changed:
        answer = super()._declare_one(change, now)
        if answer.changed and answer.record is not None:
            self._schedule_rows[change.name] = replace(answer.record, cursor=change.new_cursor)
        return answer


class CursorPassesTheFuture(MemoryStore):
    def _would_pass_the_future(self, row: ScheduleRecord | None, change: Change, now: int) -> bool:
        return False


class VersionStands(MemoryStore):
    def _declare_one(self, change: Change, now: int) -> Changed:
        version = self._version
        answer = super()._declare_one(change, now)
        self._version = version
        return answer


class NeverReparks(MemoryStore):
    def _repark(self, row: ScheduleRecord) -> None:
        pass


# --- overlap --------------------------------------------------------------------------------


class OccupancyIgnored(MemoryStore):
    def _enter(self, schedule: ScheduleRecord, **_: Any) -> Verdict:
        return Verdict()


class PlaceNeverFilled(MemoryStore):
    """What ends the head unparks nobody."""

    def _fill_place(self, schedule: str) -> RunRecord | None:
        return None


class ExpiredFreesPlace(MemoryStore):
    """An expired lease counts as ended before anybody reaped it."""

    def _serial_runs_of(self, schedule: str) -> list[RunRecord]:
        return [run for run in super()._serial_runs_of(schedule) if run.worker is None]


class RetryLosesPlace(MemoryStore):
    def _put_back(self, run: RunRecord, outcome: Outcome, kind: OutcomeKind, now: int) -> FinishResult:
        answer = super()._put_back(run, outcome, kind, now)
        waiting = self._serial_runs_of(run.schedule or "")
        if len(waiting) > 1:
            self._put(replace(self._run_rows[run.id], parked=True))
            self._put(replace(next(each for each in waiting if each.id != run.id), parked=False))
        return answer


class CatchupSuperseded(MemoryStore):
    def _tick_run(self, row: ScheduleRecord, tick: TickRun, now: int, *, parked: bool, catchup: bool) -> RunRecord:
        return super()._tick_run(row, tick, now, parked=parked, catchup=False)


class CancelPolicyStopsNobody(MemoryStore):
    def _make_room(self, verdict: Verdict, now: int) -> None:
        super()._make_room(verdict._replace(asked_to_stop=None), now)


# --- claims and tokens ----------------------------------------------------------------------


class ClaimsEarly(MemoryStore):
    def _take(self, candidates: Iterable[RunRecord], spec: ClaimSpec, now: int) -> list[RunRecord]:
        return super()._take([replace(run, due_at=min(run.due_at, now)) for run in candidates], spec, now)


class ClaimsForeignTasks(MemoryStore):
    def _is_claimable(self, run: RunRecord, spec: ClaimSpec) -> bool:
        return super()._is_claimable(replace(run, task=spec.tasks[0] if spec.tasks else ""), spec)


class ClaimsParked(MemoryStore):
    def _is_claimable(self, run: RunRecord, spec: ClaimSpec) -> bool:
        return super()._is_claimable(replace(run, parked=False), spec)


class ClaimsWhatIsHeld(MemoryStore):
    def _is_claimable(self, run: RunRecord, spec: ClaimSpec) -> bool:
        return super()._is_claimable(replace(run, state=RunState.PENDING), spec)


class PriorityBeforeAge(MemoryStore):
    """High priority always first: the low one starves."""

    def _in_claim_order(self, runs: Sequence[RunRecord], spec: ClaimSpec) -> list[RunRecord]:
        return sorted(super()._in_claim_order(runs, spec), key=lambda run: -run.priority)


class QueueOrderIgnored(MemoryStore):
    def _in_claim_order(self, runs: Sequence[RunRecord], spec: ClaimSpec) -> list[RunRecord]:
        return super()._in_claim_order(runs, replace(spec, queues=None))


class ClaimNotRepeatable(MemoryStore):
    def _held_by_claim(self, spec: ClaimSpec) -> list[RunRecord]:
        return []


class MaxRunningIgnored(MemoryStore):
    def _room(self, spec: ClaimSpec) -> Room:
        return super()._room(replace(spec, max_running=()))


class QueueLimitIgnored(MemoryStore):
    def _room(self, spec: ClaimSpec) -> Room:
        return super()._room(replace(spec, queue_limits=()))


class FleetLimitIgnored(MemoryStore):
    def _room(self, spec: ClaimSpec) -> Room:
        return super()._room(replace(spec, fleet_limit=None))


class QueueLimitPerTask(MemoryStore):
    """Each task counts for itself in the queue that they share."""

    def _room(self, spec: ClaimSpec) -> Room:
        room = super()._room(spec)
        mine = [run for run in self._running() if run.task in spec.tasks[:1]]
        held = {queue: sum(run.queue == queue for run in mine) for queue, _ in spec.queue_limits}
        return Room(room.tasks, {queue: most - held[queue] for queue, most in spec.queue_limits}, room.fleet)


class PausedQueueGives(MemoryStore):
    def _is_paused(self, queue: str) -> bool:
        return False


class PausedForOneSession(MemoryStore):
    """A claim does not look whether the queue is paused; the poll does."""

    def _is_claimable(self, run: RunRecord, spec: ClaimSpec) -> bool:
        paused, self._queue_rows = self._queue_rows, {}
        claimable = super()._is_claimable(run, spec)
        self._queue_rows = paused
        return claimable


class ParkedIsReady(MemoryStore):
    def _counted_queue(self, name: str, now: int) -> QueueRecord:
        row = super()._counted_queue(name, now)
        return replace(row, ready=row.ready + row.waiting, waiting=0)


class ClaimForgetsTheLease(MemoryStore):
    def _renew(self, worker: str, lease_for: int, now: int) -> int:
        self._worker_rows.setdefault(worker, WorkerRecord(id=worker, lease_until=now + lease_for))
        return now + lease_for


class TokenIsTheClock(MemoryStore):
    def _next_token(self, run: RunRecord, now: int) -> int:
        return now


class TokenPerRunOnly(MemoryStore):
    def _next_token(self, run: RunRecord, now: int) -> int:
        return max(run.token + 1, now)


class TokenNotChecked(MemoryStore):
    def _is_held(self, run: RunRecord, token: int) -> bool:
        return run.state is RunState.RUNNING


class ReapedTokenStillGood(MemoryStore):
    def _is_held(self, run: RunRecord, token: int) -> bool:
        return run.token == token


# --- endings --------------------------------------------------------------------------------


class CommitsTwice(MemoryStore):
    """The same token ends the run again, with whatever it says now."""

    def _is_repeated(self, run: RunRecord, token: int) -> bool:
        return False

    def _is_held(self, run: RunRecord, token: int) -> bool:
        return run.token == token and run.outcome != "reaped"


class FinishNotRepeatable(MemoryStore):
    def _is_repeated(self, run: RunRecord, token: int) -> bool:
        return False


class CancelNotSticky(MemoryStore):
    def _effective_kind(self, run: RunRecord, outcome: Outcome) -> OutcomeKind:
        return super()._effective_kind(replace(run, cancel_requested=False), outcome)


class CancelBeatsSuccess(MemoryStore):
    def _effective_kind(self, run: RunRecord, outcome: Outcome) -> OutcomeKind:
        return OutcomeKind.CANCELLED if run.cancel_requested else super()._effective_kind(run, outcome)


class ReleaseSpends(MemoryStore):
    def _release_spends(self, run: RunRecord) -> bool:
        return True


class ReleasesForEver(MemoryStore):
    def _release_spends(self, run: RunRecord) -> bool:
        return False


class EnqueuesWithoutSuccess(MemoryStore):
    def _finish_one(self, outcome: Outcome, now: int) -> FinishResult:
        answer = super()._finish_one(replace(outcome, enqueue=()), now)
        for new in outcome.enqueue:
            self._enqueue_one(new, now)
        return answer


class ThenWithEveryOutcome(MemoryStore):
    """Also with a retry that leaves the run pending."""

    def _put_back(self, run: RunRecord, outcome: Outcome, kind: OutcomeKind, now: int) -> FinishResult:
        if outcome.then is not None:
            self._enqueue_one(outcome.then, now)
        return super()._put_back(run, outcome, kind, now)


class ThenWithSuccessAlone(MemoryStore):
    def _finish_for_good(self, run: RunRecord, outcome: Outcome, kind: OutcomeKind, now: int) -> FinishResult:
        then = outcome.then if kind is OutcomeKind.SUCCEEDED else None
        return super()._finish_for_good(run, replace(outcome, then=then), kind, now)


class ThenBeforeThePlaceIsFree(MemoryStore):
    def _finish_for_good(self, run: RunRecord, outcome: Outcome, kind: OutcomeKind, now: int) -> FinishResult:
        if outcome.then is not None and self._may_write(outcome.then):
            self._enqueue_one(outcome.then, now)
        return super()._finish_for_good(run, replace(outcome, then=None), kind, now)


class ThenRefusesTheEnd(MemoryStore):
    """A follower that nobody may write takes the end of its run with it."""

    def _may_write(self, new: NewRun) -> bool:
        if not super()._may_write(new):
            raise KeyError(new.id)
        return True


class GuardForgotten(MemoryStore):
    def _put(self, run: RunRecord) -> RunRecord:
        return super()._put(replace(run, guard=None))


class ReapsTheLiving(MemoryStore):
    """The reaper does not look at the lease."""

    def _has_expired(self, worker: str | None, now: int) -> bool:
        return True


class ReapsTooLate(MemoryStore):
    """A worker that left is never expired: its runs are orphans."""

    def _has_expired(self, worker: str | None, now: int) -> bool:
        return worker in self._worker_rows and super()._has_expired(worker, now)


class ReaperRepeatsAtMostOnce(MemoryStore):
    def _take_away(self, run: RunRecord, now: int) -> RunRecord:
        return super()._take_away(replace(run, retries=99), now)


class StraysUntold(MemoryStore):
    async def heartbeat(self, *args: Any, **options: Any) -> Pulse:
        return replace(await super().heartbeat(*args, **options), strays=())


class LossUntold(MemoryStore):
    async def heartbeat(self, *args: Any, **options: Any) -> Pulse:
        return replace(await super().heartbeat(*args, **options), lost=())


class ExpiredCannotBeRevived(MemoryStore):
    async def heartbeat(self, worker: WorkerRecord, *args: Any, now: int | None = None, **options: Any) -> Pulse:
        await self.reap(now=now)
        return await super().heartbeat(worker, *args, now=now, **options)


class UniqueIgnored(MemoryStore):
    def _holder_of(self, unique: str | None) -> RunRecord | None:
        return None


class EnqueueNotRepeatable(MemoryStore):
    def _enqueue_one(self, new: NewRun, now: int) -> EnqueueResult:
        self._run_rows.pop(new.id, None)
        return super()._enqueue_one(replace(new, unique=None), now)


class RetryTakesAnyPlace(MemoryStore):
    def _blocker(self, run: RunRecord, *, serial: bool) -> RunRecord | None:
        return None


class RetryIgnoresOpening(MemoryStore):
    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> EnqueueResult:
        return await super().retry(run_id, now=now)


class PrunesFailedEarly(MemoryStore):
    def _is_old(self, run: RunRecord, ended_before: int, failed_before: int) -> bool:
        return super()._is_old(run, ended_before, ended_before)


class PrunesOpenRuns(MemoryStore):
    def _is_old(self, run: RunRecord, ended_before: int, failed_before: int) -> bool:
        return run.created_at < ended_before


class PrunesFreshGaps(MemoryStore):
    def _is_old_gap(self, gap: Gap, before: int) -> bool:
        return gap.last < before


class PrunesNewestFailed(MemoryStore):
    def _surplus(self, keep_failed: int | None) -> set[str]:
        dead = [run for run in self._run_rows.values() if run.state in (RunState.FAILED, RunState.LOST)]
        dead.sort(key=lambda run: (run.created_at, run.id))
        return set() if keep_failed is None else {run.id for run in dead[keep_failed:]}


class KeepsNoNumber(MemoryStore):
    def _surplus(self, keep_failed: int | None) -> set[str]:
        return set()


class SurplusOfEveryEnd(MemoryStore):
    """Succeeded ones count among those that are kept."""

    def _surplus(self, keep_failed: int | None) -> set[str]:
        ended = [run for run in self._run_rows.values() if run.ended_at is not None]
        ended.sort(key=lambda run: (run.created_at, run.id), reverse=True)
        return set() if keep_failed is None else {run.id for run in ended[keep_failed:]}


class PrunesRunsOfBatches(MemoryStore):
    def _prune_batches(self, before: int, limit: int) -> int:
        pruned = super()._prune_batches(before, limit)
        for run in list(self._run_rows.values()):
            self._run_rows[run.id] = replace(run, batch=None)
        return pruned


class TagPrefixFound(MemoryStore):
    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRecord]:
        rows = await super().schedules(names, after=after, limit=limit)
        return [row for row in rows if tag is None or any(each.startswith(tag) for each in row.definition.tags)]


class PageBeginsWithTheLast(MemoryStore):
    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRecord]:
        rows = await super().schedules(names, tag=tag)
        return [row for row in rows if after is None or row.name >= after][:limit]
