"""The runs that one step works on: read in bulk, changed in memory, written back in bulk.

Between reading and writing nobody else writes (BEGIN IMMEDIATE), so the rules may look at
plain records. Whatever a step will ask for has to be loaded first: it answers from the
sheet alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from oncron._model import Overlap, RunRecord, RunState
from oncron.stores import _occupancy as occupancy
from oncron.stores.sqlite._rows import changed_values, run_of, run_values
from oncron.stores.sqlite._step import Step, listed


class Sheet:
    def __init__(self, step: Step) -> None:
        self.step = step
        self._runs: dict[str, RunRecord] = {}
        self._open_of: dict[str, dict[str, RunRecord]] = {}
        self._holders: dict[str, str] = {}
        self._changed: dict[str, None] = {}
        self._new: dict[str, None] = {}
        self.overlaps: dict[str, Overlap] = {}
        """Overlap policies of the schedules that were loaded and exist."""
        self.batches: set[str] = set()
        """Batches that were loaded, exist and take more."""

    # --- reading ----------------------------------------------------------------------------

    def load(self, ids: Iterable[str]) -> None:
        self._enter_all("run.get", ids=listed(ids))

    def load_schedules(self, names: Iterable[str]) -> None:
        """The policies and the open serial runs of these schedules."""
        wanted = listed(sorted(set(names) - self.overlaps.keys()))
        if wanted != "[]":
            self.overlaps |= {
                name: Overlap(overlap) for name, overlap in self.step.rows("schedule.place", names=wanted)
            }
            self._enter_all("run.serial_of", schedules=wanted)

    def load_serial_of(self, names: Iterable[str]) -> None:
        self._enter_all("run.serial_of", schedules=listed(names))

    def load_open_of(self, names: Iterable[str]) -> None:
        self._enter_all("run.open_of", schedules=listed(names))

    def load_batches(self, ids: Iterable[str | None]) -> None:
        wanted = {batch for batch in ids if batch is not None} - self.batches
        if wanted:
            self.batches |= {row[0] for row in self.step.rows("batch.takes_more", ids=listed(sorted(wanted)))}

    def load_holders(self, keys: Iterable[str | None]) -> None:
        """The open runs that have these unique keys."""
        wanted = {key for key in keys if key is not None}
        if wanted:
            self._enter_all("run.holders", keys=listed(sorted(wanted)))

    def _enter_all(self, statement: str, **values: str) -> None:
        for row in self.step.rows(statement, **values):
            if row[0] not in self._runs:
                self._enter(run_of(row))

    def _enter(self, run: RunRecord) -> None:
        self._runs[run.id] = run
        if run.state.is_open:
            if run.schedule is not None:
                self._open_of.setdefault(run.schedule, {})[run.id] = run
            if run.unique is not None:
                self._holders[run.unique] = run.id
        else:
            if run.schedule is not None:
                self._open_of.get(run.schedule, {}).pop(run.id, None)
            if run.unique is not None and self._holders.get(run.unique) == run.id:
                del self._holders[run.unique]

    def get(self, run_id: str) -> RunRecord | None:
        return self._runs.get(run_id)

    def open_of(self, schedule: str) -> list[RunRecord]:
        return list(self._open_of.get(schedule, {}).values())

    def serial_of(self, schedule: str) -> list[RunRecord]:
        return [run for run in self._open_of.get(schedule, {}).values() if run.serial]

    def holder_of(self, unique: str | None) -> RunRecord | None:
        """The open run that has the unique key."""
        return None if unique is None or unique not in self._holders else self._runs[self._holders[unique]]

    # --- changing ---------------------------------------------------------------------------

    def put(self, run: RunRecord) -> RunRecord:
        if run.id in self._runs:
            self._changed[run.id] = None
        else:
            self._new[run.id] = None
        self._enter(run)
        return run

    def end(self, run: RunRecord, state: RunState, **fields: Any) -> RunRecord:
        """The run ends (G6). `fill_place` has to follow."""
        return self.put(replace(run, state=state, ended_at=self.step.now, parked=False, **fields))

    def fill_place(self, ended: RunRecord) -> RunRecord | None:
        """Unpark the next run of the schedule if nobody has its place now (G10). Answers that run."""
        if ended.schedule is None or not ended.serial:
            return None
        serial = self.serial_of(ended.schedule)
        if occupancy.head_of(serial) is not None:
            return None
        head = occupancy.next_head(serial)
        return None if head is None else self.put(replace(head, parked=False))

    def admit(self, schedule: str, overlap: Overlap) -> occupancy.Verdict:
        """Whether and how a new run of the schedule may enter now. Changes nothing."""
        return occupancy.admit(overlap, self.serial_of(schedule), catchup=False)

    def make_room(self, verdict: occupancy.Verdict) -> int:
        """What the verdict asks for: the superseded end, the running one is asked to stop. How
        many scheduled runs count no longer: the caller's to write down."""
        uncounted = 0
        for run in verdict.superseded:
            self.put(replace(run, state=RunState.SKIPPED, ended_at=self.step.now, parked=False, reason="superseded"))
            uncounted += run.tick is not None
        if verdict.asked_to_stop is not None:
            self.put(replace(verdict.asked_to_stop, cancel_requested=True))
        return uncounted

    # --- writing ----------------------------------------------------------------------------

    def write(self) -> None:
        """Everything that was changed; ended runs first, so that their unique keys are free."""
        changed = [self._runs[run_id] for run_id in self._changed if run_id not in self._new]
        changed.sort(key=lambda run: run.state.is_open)
        if changed:
            self.step.each("run.update", map(changed_values, changed))
        if self._new:
            seq = self.step.next_seq()
            new = [(seq + place, *run_values(self._runs[run_id])) for place, run_id in enumerate(self._new)]
            self.step.each("run.insert", new)
        self._changed.clear()
        self._new.clear()
