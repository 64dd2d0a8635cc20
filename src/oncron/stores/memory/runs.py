"""Runs: how they come in, end, are asked to stop, come back, and are forgotten (G6, G7)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._model import (
    EnqueueResult,
    FinishResult,
    FinishStatus,
    Gap,
    NewRun,
    Outcome,
    OutcomeKind,
    Overlap,
    RunRecord,
    RunState,
    ScheduleRecord,
)
from oncron.stores import _missing
from oncron.stores._occupancy import Verdict
from oncron.stores._runs import created, reopened
from oncron.stores.memory.leases import REAPED, Leases
from oncron.stores.memory.locks import Locks


class Runs(Leases, Locks):
    """The steps that write runs."""

    # --- enqueue --------------------------------------------------------------------------

    async def enqueue(self, runs: Sequence[NewRun], *, now: int | None = None) -> list[EnqueueResult]:
        with self._step(now) as at:
            for new in runs:
                if new.schedule is not None and new.schedule not in self._schedule_rows:
                    raise _missing.no_schedule(new.schedule)
                if not self._may_write(new):
                    raise _missing.takes_no_more(new.batch)
            return [self._enqueue_one(new, at) for new in runs]

    def _enqueue_one(self, new: NewRun, now: int) -> EnqueueResult:
        if (known := self._run_rows.get(new.id)) is not None:
            return EnqueueResult(run=known)
        if (holder := self._holder_of(new.unique)) is not None:
            return EnqueueResult(run=holder, is_new=False)
        row = self._judging_schedule(new.schedule, new.backfill if new.overlap is None else None)
        overlap = None if row is None else new.overlap or row.definition.overlap
        verdict = Verdict() if row is None else self._enter(row, overlap=overlap)
        if verdict.in_the_way is not None:
            return EnqueueResult(run=verdict.in_the_way, is_new=False, occupied=True)
        self._make_room(verdict, now)
        serial = overlap not in (None, Overlap.ALLOW)
        return EnqueueResult(run=self._put(created(new, now, serial=serial, parked=verdict.parked)))

    def _judging_schedule(self, schedule: str | None, backfill: str | None) -> ScheduleRecord | None:
        """The schedule whose place the run takes; a backfill takes none unless it says how."""
        return None if schedule is None or backfill is not None else self._schedule_rows[schedule]

    # --- finish ---------------------------------------------------------------------------

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[FinishResult]:
        with self._step(now) as at:
            return [self._finish_one(outcome, at) for outcome in outcomes]

    def _finish_one(self, outcome: Outcome, now: int) -> FinishResult:
        run = self._run_rows.get(outcome.run_id)
        if run is None:
            return FinishResult(run_id=outcome.run_id, status=FinishStatus.LEASE_LOST, state=RunState.LOST)
        if self._is_repeated(run, outcome.token):
            return self._first_answer(run)
        if not self._is_held(run, outcome.token):
            return FinishResult(run_id=run.id, status=FinishStatus.LEASE_LOST, state=run.state)
        run = self._noted(run, outcome)
        kind = self._effective_kind(run, outcome)
        if kind in (OutcomeKind.RETRY, OutcomeKind.RELEASED):
            return self._put_back(run, outcome, kind, now)
        return self._finish_for_good(run, outcome, kind, now)

    def _is_repeated(self, run: RunRecord, token: int) -> bool:
        return run.token == token and run.outcome not in (None, REAPED)

    def _first_answer(self, run: RunRecord) -> FinishResult:
        """What the recorded outcome of the newest claim made of the run, whatever came later."""
        kind = OutcomeKind(run.outcome or "")
        again = kind in (OutcomeKind.RETRY, OutcomeKind.RELEASED)
        return FinishResult(
            run_id=run.id,
            status=FinishStatus.REPEATED,
            state=RunState.PENDING if again else RunState(kind.value),
            due_at=run.due_at if again else None,
        )

    def _noted(self, run: RunRecord, outcome: Outcome) -> RunRecord:
        """The run with what the outcome says about it, still running."""
        return replace(
            run,
            error=outcome.error,
            reason=outcome.reason,
            progress=run.progress if outcome.progress is None else outcome.progress,
            checkpoint=run.checkpoint if outcome.checkpoint is None else outcome.checkpoint,
            log=run.log if outcome.log is None else outcome.log,
        )

    def _effective_kind(self, run: RunRecord, outcome: Outcome) -> OutcomeKind:
        """Cancel is sticky, and a release that spends the last attempt has lost the run."""
        if outcome.kind not in (OutcomeKind.RETRY, OutcomeKind.RELEASED):
            return outcome.kind
        if run.cancel_requested:
            return OutcomeKind.CANCELLED
        if outcome.kind is OutcomeKind.RELEASED and self._release_spends(run) and run.is_last_attempt:
            return OutcomeKind.LOST
        return outcome.kind

    def _release_spends(self, run: RunRecord) -> bool:
        return run.releases >= limits.RELEASES_IN_A_ROW

    def _put_back(self, run: RunRecord, outcome: Outcome, kind: OutcomeKind, now: int) -> FinishResult:
        """Pending again, and still the head of its schedule."""
        released = kind is OutcomeKind.RELEASED
        spends = self._release_spends(run) if released else outcome.spend_attempt
        run = self._put(
            replace(
                run,
                state=RunState.PENDING,
                outcome=kind.value,
                worker=None,
                due_at=now + outcome.delay,
                retry_delay=outcome.retry_delay,
                given_back=run.given_back if spends else run.given_back + 1,
                releases=run.releases + 1 if released else 0,
            )
        )
        return FinishResult(run_id=run.id, status=FinishStatus.RECORDED, state=run.state, due_at=run.due_at)

    def _finish_for_good(self, run: RunRecord, outcome: Outcome, kind: OutcomeKind, now: int) -> FinishResult:
        state = RunState(kind.value)
        unparked = self._end(run, state, now, outcome=kind.value, result=outcome.result)
        if state is RunState.SUCCEEDED:
            for new in outcome.enqueue:
                if self._may_write(new):
                    self._enqueue_one(new, now)
        if outcome.then is not None and self._may_write(outcome.then):
            self._enqueue_one(outcome.then, now)
        freed = unparked is not None and unparked.state is RunState.PENDING and unparked.due_at <= now
        return FinishResult(run_id=run.id, status=FinishStatus.RECORDED, state=state, freed=freed)

    # --- cancel and retry -----------------------------------------------------------------

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> RunRecord:
        with self._step(now) as at:
            run = self._known(run_id)
            if not run.state.is_open or opening not in (None, run.opening):
                return run
            if run.state is RunState.PENDING:
                self._end(run, RunState.CANCELLED, at, cancel_requested=True)
            else:
                self._put(replace(run, cancel_requested=True))
            return self._run_rows[run_id]

    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> EnqueueResult:
        with self._step(now) as at:
            run = self._known(run_id)
            if run.state.is_open or opening not in (None, run.opening):
                return EnqueueResult(run=run, is_new=False)
            row = self._judging_schedule(run.schedule, run.backfill)
            serial = row is not None and row.definition.overlap is not Overlap.ALLOW
            if (blocker := self._blocker(run, serial=serial)) is not None:
                return EnqueueResult(run=blocker, is_new=False, occupied=True)
            if run.batch in self._batch_rows:
                self._reopened.add(run.batch)
            return EnqueueResult(run=self._put(reopened(run, at, serial=serial)))

    def _known(self, run_id: str) -> RunRecord:
        try:
            return self._run_rows[run_id]
        except KeyError:
            raise _missing.no_run(run_id) from None

    def _blocker(self, run: RunRecord, *, serial: bool) -> RunRecord | None:
        """The run that has the unique key or the schedule's place."""
        holder = self._holder_of(run.unique)
        if holder is not None or not serial or run.schedule is None:
            return holder
        return next((other for other in self._serial_runs_of(run.schedule) if not other.parked), None)

    # --- prune ----------------------------------------------------------------------------

    async def prune(
        self,
        *,
        ended_before: int,
        failed_before: int,
        keep_failed: int | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> int:
        with self._step(now) as at:
            self._forget_takes(at)
            self._forget_locks(at)
            pruned = self._prune_batches(failed_before, limit)
            surplus = self._surplus(keep_failed)
            runs = [
                run.id
                for run in self._run_rows.values()
                if (run.batch is None or run.batch not in self._batch_rows)
                and (run.id in surplus or self._is_old(run, ended_before, failed_before))
            ][: limit - pruned]
            for run_id in runs:
                del self._run_rows[run_id]
            pruned += len(runs)
            return pruned + self._prune_gaps(ended_before, limit - pruned)

    def _surplus(self, keep_failed: int | None) -> set[str]:
        """The failed and lost ones that are too many: the oldest."""
        if keep_failed is None:
            return set()
        dead = [run for run in self._run_rows.values() if run.state in (RunState.FAILED, RunState.LOST)]
        dead.sort(key=lambda run: (run.created_at, run.id), reverse=True)
        return {run.id for run in dead[keep_failed:]}

    def _prune_batches(self, before: int, limit: int) -> int:
        busy = {run.batch for run in self._open.values()}
        old = [
            row.id
            for row in self._batch_rows.values()
            if row.completed_at is not None and row.completed_at < before and row.id not in busy
            if row.parent is None or row.parent not in self._batch_rows
        ][:limit]
        for batch_id in old:
            del self._batch_rows[batch_id]
            self._reopened.discard(batch_id)
        return len(old)

    def _is_old(self, run: RunRecord, ended_before: int, failed_before: int) -> bool:
        kept_since = failed_before if run.state in (RunState.FAILED, RunState.LOST) else ended_before
        return run.ended_at is not None and run.ended_at < kept_since

    def _prune_gaps(self, before: int, limit: int) -> int:
        pruned = 0
        for schedule, gaps in self._gap_rows.items():
            old = [gap for gap in gaps if self._is_old_gap(gap, before)][: limit - pruned]
            self._gap_rows[schedule] = [gap for gap in gaps if gap not in old]
            pruned += len(old)
        return pruned

    def _is_old_gap(self, gap: Gap, before: int) -> bool:
        """One that is still being extended is young, and so is one that was recorded late."""
        return max(gap.last, gap.created_at) < before
