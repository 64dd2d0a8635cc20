"""Runs that a call asks for (G7, G10)."""

from __future__ import annotations

from collections.abc import Sequence

from oncron._model import EnqueueResult, NewRun, Overlap
from oncron.stores import _missing
from oncron.stores._occupancy import Verdict
from oncron.stores._runs import created
from oncron.stores.sqlite._sheet import Sheet
from oncron.stores.sqlite._step import Step


def enqueue(step: Step, runs: Sequence[NewRun]) -> list[EnqueueResult]:
    sheet = Sheet(step)
    load_for(sheet, runs)
    for new in runs:
        if new.schedule is not None and new.schedule not in sheet.overlaps:
            raise _missing.no_schedule(new.schedule)
        if not may_write(sheet, new):
            raise _missing.takes_no_more(new.batch)
    results = [enqueue_one(sheet, new) for new in runs]
    sheet.write()
    return results


def load_for(sheet: Sheet, runs: Sequence[NewRun]) -> None:
    """What `enqueue_one` will look at."""
    if runs:
        sheet.load(new.id for new in runs)
        sheet.load_holders(new.unique for new in runs)
        sheet.load_schedules(new.schedule for new in runs if new.schedule is not None)
        sheet.load_batches(new.batch for new in runs)


def may_write(sheet: Sheet, new: NewRun) -> bool:
    """Whether its schedule and its batch are there to take it; one on record needs neither."""
    if sheet.get(new.id) is not None:
        return True
    known = new.schedule is None or new.schedule in sheet.overlaps
    return known and (new.batch is None or new.batch in sheet.batches)


def enqueue_if_it_may(step: Step, new: NewRun) -> None:
    """A run that nobody waits for an answer of: one that would be refused is dropped."""
    sheet = Sheet(step)
    load_for(sheet, [new])
    if may_write(sheet, new):
        enqueue_one(sheet, new)
        sheet.write()


def enqueue_one(sheet: Sheet, new: NewRun) -> EnqueueResult:
    if (known := sheet.get(new.id)) is not None:
        return EnqueueResult(run=known)
    if (holder := sheet.holder_of(new.unique)) is not None:
        return EnqueueResult(run=holder, is_new=False)
    overlap = _policy(sheet, new)
    verdict = sheet.admit(new.schedule or "", overlap) if overlap is not Overlap.ALLOW else Verdict()
    if verdict.in_the_way is not None:
        return EnqueueResult(run=verdict.in_the_way, is_new=False, occupied=True)
    uncounted = sheet.make_room(verdict)
    if uncounted:
        sheet.step.each("schedule.count", [(-uncounted, new.schedule)])
    serial = overlap is not Overlap.ALLOW
    return EnqueueResult(run=sheet.put(created(new, sheet.step.now, serial=serial, parked=verdict.parked)))


def _policy(sheet: Sheet, new: NewRun) -> Overlap:
    """As what the run takes the place of its schedule. A backfill takes none unless it says as what."""
    if new.schedule is None or (new.backfill is not None and new.overlap is None):
        return Overlap.ALLOW
    return new.overlap or Overlap(sheet.overlaps.get(new.schedule, Overlap.ALLOW))


def serial_now(sheet: Sheet, schedule: str | None, backfill: str | None) -> bool:
    """Whether a run of that schedule takes its place, as its policy is now; a backfill takes none."""
    return schedule is not None and backfill is None and sheet.overlaps.get(schedule, Overlap.ALLOW) != Overlap.ALLOW
