"""Leases: who may execute what, until when, under which token (G4, G5, G8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._model import Claimed, ClaimSpec, Pulse, Reaped, Report, RunRecord, RunState, WorkerRecord
from oncron.stores.memory.tables import Tables

REAPED = "reaped"
"""What a run's `outcome` says of a claim that was taken away."""


@dataclass
class Room:
    """Claims that may be made yet."""

    tasks: dict[str, int]
    queues: dict[str, int]
    fleet: int | None

    def fits(self, run: RunRecord) -> bool:
        fleet = 1 if self.fleet is None else self.fleet
        return min(self.tasks.get(run.task, 1), self.queues.get(run.queue, 1), fleet) > 0

    def takes(self, run: RunRecord) -> bool:
        """Count the run in, if it fits."""
        if not self.fits(run):
            return False
        if run.task in self.tasks:
            self.tasks[run.task] -= 1
        if run.queue in self.queues:
            self.queues[run.queue] -= 1
        if self.fleet is not None:
            self.fleet -= 1
        return True


class Leases(Tables):
    """The steps that make, extend and take away leases."""

    # --- claim ----------------------------------------------------------------------------

    async def claim(self, spec: ClaimSpec, *, now: int | None = None) -> Claimed:
        with self._step(now) as at:
            runs = self._held_by_claim(spec) or self._take(list(self._open.values()), spec, at)
            until = self._renew(spec.worker, spec.lease_for, at) if runs else self._lease_until(spec.worker) or 0
            return Claimed(runs=tuple(runs), now=at, lease_until=until, next_due_at=self._next_due_at(spec))

    def _held_by_claim(self, spec: ClaimSpec) -> list[RunRecord]:
        """What an earlier call with this claim_id took and still holds (G7)."""
        held = [run for run in self._running() if (run.claim_id, run.worker) == (spec.claim_id, spec.worker)]
        return self._in_claim_order(held, spec)

    def _take(self, candidates: Iterable[RunRecord], spec: ClaimSpec, now: int) -> list[RunRecord]:
        """Lease the first of the candidates that the spec may have now."""
        room = self._room(spec)
        taken: list[RunRecord] = []
        fitting = [run for run in candidates if self._is_claimable(run, spec) and run.due_at <= now]
        for run in self._in_claim_order(fitting, spec):
            if len(taken) >= spec.limit:
                break
            if room.takes(run):
                taken.append(self._lease(run, spec, now))
        return taken

    def _is_claimable(self, run: RunRecord, spec: ClaimSpec) -> bool:
        """Whether it could be claimed under the spec once it is due."""
        waits = run.state is RunState.PENDING and not run.parked and not run.cancel_requested
        open_here = (spec.queues is None or run.queue in spec.queues) and not self._is_paused(run.queue)
        return waits and run.task in spec.tasks and open_here

    def _is_paused(self, queue: str) -> bool:
        return queue in self._queue_rows and self._queue_rows[queue].paused

    def _in_claim_order(self, runs: Sequence[RunRecord], spec: ClaimSpec) -> list[RunRecord]:
        queues = spec.queues or ()
        place = {queue: place for place, queue in reversed(list(enumerate(queues)))}
        return sorted(runs, key=lambda run: (place.get(run.queue, 0), run.order_key, run.due_at, run.id))

    def _room(self, spec: ClaimSpec) -> Room:
        """How many more claims each limited task and queue, and the fleet, may have: what is held counts until
        finish or reap frees it, expired or not (G10)."""
        running = self._running()
        tasks, queues = Counter(run.task for run in running), Counter(run.queue for run in running)
        return Room(
            tasks={task: most - tasks[task] for task, most in spec.max_running},
            queues={queue: most - queues[queue] for queue, most in spec.queue_limits},
            fleet=None if spec.fleet_limit is None else spec.fleet_limit - len(running),
        )

    def _lease(self, run: RunRecord, spec: ClaimSpec, now: int) -> RunRecord:
        token = self._next_token(run, now)
        if run.schedule is not None:
            row = self._schedule_rows[run.schedule]
            self._schedule_rows[row.name] = replace(row, last_token=token)
        return self._put(
            replace(
                run,
                state=RunState.RUNNING,
                attempt=run.attempt + 1,
                started_at=now if run.started_at is None else run.started_at,
                worker=spec.worker,
                claim_id=spec.claim_id,
                token=token,
                outcome=None,
            )
        )

    def _next_token(self, run: RunRecord, now: int) -> int:
        """G5: greater than every earlier token of the run and of its schedule."""
        schedule = None if run.schedule is None else self._schedule_rows[run.schedule]
        return max(run.token + 1, 0 if schedule is None else schedule.last_token + 1, now)

    def _next_due_at(self, spec: ClaimSpec) -> int | None:
        """When the next run that is left may be claimed: past, if one is due now."""
        room = self._room(spec)
        left = [run for run in self._open.values() if self._is_claimable(run, spec) and room.fits(run)]
        return min((run.due_at for run in left), default=None)

    def _renew(self, worker: str, lease_for: int, now: int) -> int:
        """The worker's lease reaches at least two thirds of `lease_for` past now. Answers its end."""
        until = self._lease_until(worker)
        if until is None or until < now + lease_for * 2 // 3:
            until = now + lease_for
        row = self._worker_rows.get(worker) or WorkerRecord(id=worker, started_at=now)
        self._worker_rows[worker] = replace(row, lease_until=until)
        self._left.pop(worker, None)
        return until

    # --- heartbeat ------------------------------------------------------------------------

    async def heartbeat(
        self,
        worker: WorkerRecord,
        lease_for: int,
        held: Sequence[tuple[str, int]] = (),
        reports: Sequence[Report] = (),
        *,
        now: int | None = None,
    ) -> Pulse:
        with self._step(now) as at:
            until = max(at + lease_for, self._lease_until(worker.id) or 0)
            self._worker_rows[worker.id] = replace(worker, lease_until=until)
            self._left.pop(worker.id, None)
            for report in reports:
                self._store_report(report, worker.id)
            mine = {(run.id, run.token): run for run in self._running() if run.worker == worker.id}
            return Pulse(
                now=at,
                lease_until=until,
                lost=tuple(run_id for run_id, token in held if (run_id, token) not in mine),
                cancel=tuple(claim[0] for claim in held if claim in mine and mine[claim].cancel_requested),
                strays=tuple(run for claim, run in mine.items() if claim not in held),
            )

    def _store_report(self, report: Report, worker: str) -> None:
        run = self._run_rows.get(report.run_id)
        if run is None or not self._is_held(run, report.token) or run.worker != worker:
            return
        self._put(
            replace(
                run,
                progress=run.progress if report.progress is None else report.progress,
                checkpoint=run.checkpoint if report.checkpoint is None else report.checkpoint,
                log=run.log if report.log is None else report.log,
            )
        )

    def _is_held(self, run: RunRecord, token: int) -> bool:
        """Whether the token is that of the claim under which the run is held now."""
        return run.state is RunState.RUNNING and run.token == token

    async def leave(self, worker: str) -> None:
        with self._step():
            row = self._worker_rows.pop(worker, None)
            if row is not None and any(run.worker == worker for run in self._running()):
                self._left[worker] = row.lease_until

    # --- reap -----------------------------------------------------------------------------

    async def reap(self, limit: int = 1000, *, now: int | None = None) -> Reaped:
        with self._step(now) as at:
            expired = [run for run in self._running() if self._has_expired(run.worker, at)]
            runs = [self._take_away(run, at) for run in expired[:limit]]
            return Reaped(runs=tuple(runs), workers=tuple(self._drop_workers(at)))

    def _take_away(self, run: RunRecord, now: int) -> RunRecord:
        """The claim is void; the run waits for another worker, if it may."""
        if run.cancel_requested:
            self._end(run, RunState.CANCELLED, now, outcome=REAPED, reason="its worker's lease expired")
        elif run.is_last_attempt:
            self._end(run, RunState.LOST, now, outcome=REAPED, reason="its worker's lease expired")
        else:
            self._put(
                replace(
                    run,
                    state=RunState.PENDING,
                    worker=None,
                    outcome=REAPED,
                    releases=0,
                    due_at=now + run.retry_delay,
                    retry_delay=max(run.retry_delay, min(2 * run.retry_delay, limits.RETRY_DELAY_CAP)),
                )
            )
        return self._run_rows[run.id]

    def _droppable(self, now: int) -> list[str]:
        busy = {run.worker for run in self._running()}
        before = now - limits.DROPPED_AFTER
        return sorted(row.id for row in self._worker_rows.values() if row.id not in busy and row.lease_until < before)

    def _drop_workers(self, now: int) -> list[str]:
        busy = {run.worker for run in self._running()}
        self._left = {worker: until for worker, until in self._left.items() if worker in busy}
        dropped = self._droppable(now)
        for worker in dropped:
            del self._worker_rows[worker]
        return dropped
