"""The rows, the lock around every step, and the look-ups that several steps share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from oncron._groups import BatchRecord, LimitRule, LockRecord, QueueRecord
from oncron._model import FireResult, Gap, NewRun, Overlap, RunRecord, RunState, ScheduleRecord, WorkerRecord
from oncron.stores import _occupancy as occupancy


class LastFire(NamedTuple):
    """The newest firing of a schedule, so that its repetition is known again (G7)."""

    fire_id: str
    revision: int
    cursor: int
    result: FireResult


class TakeRow(NamedTuple):
    """What a limiter granted."""

    at: int
    cost: int
    until: int
    """It is remembered so long."""
    empty_at: int
    """When the bucket was to be empty after it."""


@dataclass
class Limiter:
    rule: LimitRule
    """The one that was asked by last."""
    empty_at: int = 0
    takes: dict[str, TakeRow] = field(default_factory=dict[str, TakeRow])
    """By nonce."""


class Tables:
    """Dicts of frozen records. One step holds the lock from its first look to its last write."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last_now = 0
        self._lock = threading.Lock()
        self._version = 0
        self._schedule_rows: dict[str, ScheduleRecord] = {}
        self._declared: dict[str, tuple[int, frozenset[str]]] = {}
        """Sets of declared names, and when a replica last said that it declares them."""
        self._last_fires: dict[str, LastFire] = {}
        self._gap_rows: dict[str, list[Gap]] = {}
        self._run_rows: dict[str, RunRecord] = {}
        self._open: dict[str, RunRecord] = {}
        self._open_of: dict[str, dict[str, RunRecord]] = {}
        self._worker_rows: dict[str, WorkerRecord] = {}
        self._left: dict[str, int] = {}
        """lease_until of workers that left while something of theirs was still running."""
        self._queue_rows: dict[str, QueueRecord] = {}
        """Queues that were paused once; without counts."""
        self._holders: dict[str, list[LockRecord]] = {}
        self._lock_tokens: dict[str, int] = {}
        """The last token of each lock's name."""
        self._limiters: dict[str, Limiter] = {}
        self._batch_rows: dict[str, BatchRecord] = {}
        """Without counts."""
        self._reopened: set[str] = set()
        """Complete batches of which a run was re-opened since."""

    @contextmanager
    def _step(self, now: int | None = None) -> Generator[int]:
        """One atomic step; yields its now."""
        with self._lock:
            yield self._read_clock() if now is None else now

    def _read_clock(self) -> int:
        """Never goes back, whatever the machine's clock does."""
        self._last_now = max(self._last_now, self._clock())
        return self._last_now

    # --- runs ---------------------------------------------------------------------------

    def _put(self, run: RunRecord) -> RunRecord:
        self._run_rows[run.id] = run
        if run.state.is_open:
            self._open[run.id] = run
            if run.schedule is not None:
                self._open_of.setdefault(run.schedule, {})[run.id] = run
        else:
            self._open.pop(run.id, None)
            if run.schedule is not None:
                self._open_of.get(run.schedule, {}).pop(run.id, None)
        return run

    def _open_runs_of(self, schedule: str) -> list[RunRecord]:
        return list(self._open_of.get(schedule, {}).values())

    def _serial_runs_of(self, schedule: str) -> list[RunRecord]:
        return [run for run in self._open_runs_of(schedule) if run.serial]

    def _holder_of(self, unique: str | None) -> RunRecord | None:
        """The open run that has the unique key."""
        if unique is None:
            return None
        return next((run for run in self._open.values() if run.unique == unique), None)

    def _takes_more(self, batch: str) -> bool:
        row = self._batch_rows.get(batch)
        return row is not None and row.completed_at is None

    def _may_write(self, new: NewRun) -> bool:
        """Whether its schedule and its batch are there to take it; one on record needs neither."""
        if new.id in self._run_rows:
            return True
        known = new.schedule is None or new.schedule in self._schedule_rows
        return known and (new.batch is None or self._takes_more(new.batch))

    def _running(self) -> list[RunRecord]:
        return [run for run in self._open.values() if run.state is RunState.RUNNING]

    def _end(self, run: RunRecord, state: RunState, now: int, **fields: Any) -> RunRecord | None:
        """The run ends (G6) and frees its place (G10). Answers the run that got it, if any."""
        self._put(replace(run, state=state, ended_at=now, parked=False, **fields))
        return None if run.schedule is None else self._fill_place(run.schedule)

    # --- the schedule's one place (G10) ---------------------------------------------------

    def _fill_place(self, schedule: str) -> RunRecord | None:
        """Unpark the next run if nobody has the place."""
        serial = self._serial_runs_of(schedule)
        if occupancy.head_of(serial) is not None:
            return None
        head = occupancy.next_head(serial)
        return None if head is None else self._put(replace(head, parked=False))

    def _enter(
        self, schedule: ScheduleRecord, *, catchup: bool = False, overlap: Overlap | None = None
    ) -> occupancy.Verdict:
        """Whether and how a new run of the schedule may enter now, under its policy or a backfill's own.
        Writes nothing."""
        serial = self._serial_runs_of(schedule.name)
        return occupancy.admit(overlap or schedule.definition.overlap, serial, catchup=catchup)

    def _make_room(self, verdict: occupancy.Verdict, now: int) -> None:
        for run in verdict.superseded:
            self._supersede(run, now)
        if verdict.asked_to_stop is not None:
            self._put(replace(verdict.asked_to_stop, cancel_requested=True))

    def _supersede(self, run: RunRecord, now: int) -> None:
        """The waiting run is skipped and no longer counts for its schedule's `limit`."""
        self._put(replace(run, state=RunState.SKIPPED, ended_at=now, parked=False, reason="superseded"))
        if run.schedule is not None and run.tick is not None:
            row = self._schedule_rows[run.schedule]
            self._schedule_rows[row.name] = replace(row, created_count=row.created_count - 1)

    # --- leases ---------------------------------------------------------------------------

    def _lease_until(self, worker: str | None) -> int | None:
        """When the lease of the worker, and of all that it holds, ends. None: it has none."""
        if worker is None:
            return None
        row = self._worker_rows.get(worker)
        return self._left.get(worker) if row is None else row.lease_until

    def _has_expired(self, worker: str | None, now: int) -> bool:
        """A lease is live while now < lease_until."""
        until = self._lease_until(worker)
        return until is None or until <= now
