"""MemoryStore without its lock, and another session let in between two statements of one step.

Each class names the statements: that is where the store it stands for would be wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from oncron._model import (
    Change,
    ClaimSpec,
    FirePlan,
    Outcome,
    RunRecord,
    ScheduleRecord,
)
from oncron.stores._occupancy import Verdict
from oncron.stores.memory import MemoryStore
from oncron.stores.memory.leases import Room


class Torn(MemoryStore):
    """No lock; `_let_others_in` stands between the two statements that belong together."""

    def __init__(self) -> None:
        super().__init__()
        self._never = threading.Event()

    @contextmanager
    def _step(self, now: int | None = None) -> Generator[int]:
        yield self._read_clock() if now is None else now

    def _let_others_in(self) -> None:
        self._never.wait(0.002)


class TornFire(Torn):
    """Between comparing the cursor and moving it."""

    def _is_as_planned(self, row: ScheduleRecord, plan: FirePlan, now: int) -> bool:
        same = super()._is_as_planned(row, plan, now)
        self._let_others_in()
        return same


class TornEntry(Torn):
    """Between judging the place and taking it: `exists(running)` in the statement that inserts."""

    def _enter(self, schedule: ScheduleRecord, **options: Any) -> Verdict:
        verdict = super()._enter(schedule, **options)
        self._let_others_in()
        return verdict


class TornClaim(Torn):
    """Between finding the runs and leasing them."""

    def _in_claim_order(self, runs: Sequence[RunRecord], spec: ClaimSpec) -> list[RunRecord]:
        found = super()._in_claim_order(runs, spec)
        self._let_others_in()
        return found


class TornCount(Torn):
    """Between counting what runs of a task, of a queue or of all, and leasing one more."""

    def _room(self, spec: ClaimSpec) -> Room:
        room = super()._room(spec)
        self._let_others_in()
        return room


class TornKey(Torn):
    """Between looking for the holder of a unique key and writing the run that gets it."""

    def _holder_of(self, unique: str | None) -> RunRecord | None:
        holder = super()._holder_of(unique)
        self._let_others_in()
        return holder


class TornFinish(Torn):
    """Between reading the run's token and writing its end."""

    def _noted(self, run: RunRecord, outcome: Outcome) -> RunRecord:
        self._let_others_in()
        return super()._noted(run, outcome)


class TornReap(Torn):
    """Between finding the expired lease and taking the run."""

    def _take_away(self, run: RunRecord, now: int) -> RunRecord:
        self._let_others_in()
        return super()._take_away(run, now)


class TornDeclare(Torn):
    """Between comparing the row and writing it."""

    def _would_pass_the_future(self, row: ScheduleRecord | None, change: Change, now: int) -> bool:
        self._let_others_in()
        return super()._would_pass_the_future(row, change, now)


class TornCancel(Torn):
    """Between seeing that the run is pending and ending it."""

    def _known(self, run_id: str) -> RunRecord:
        run = super()._known(run_id)
        self._let_others_in()
        return run
