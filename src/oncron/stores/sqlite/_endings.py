"""Runs end, are asked to stop, come back, and are forgotten (G6, G7)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._model import (
    EnqueueResult,
    FinishResult,
    FinishStatus,
    NewRun,
    Outcome,
    OutcomeKind,
    RunRecord,
    RunState,
)
from oncron.stores import _missing
from oncron.stores._runs import reopened
from oncron.stores.sqlite import _limiters, _locks
from oncron.stores.sqlite._enqueue import enqueue_one, load_for, may_write, serial_now
from oncron.stores.sqlite._sheet import Sheet
from oncron.stores.sqlite._step import Step
from oncron.stores.sqlite._workers import REAPED

_AGAIN = (OutcomeKind.RETRY, OutcomeKind.RELEASED)

# --- finish -----------------------------------------------------------------------------------


def finish(step: Step, outcomes: Sequence[Outcome]) -> list[FinishResult]:
    sheet = Sheet(step)
    sheet.load(outcome.run_id for outcome in outcomes)
    ending = [run for outcome in outcomes if (run := sheet.get(outcome.run_id)) is not None]
    sheet.load_serial_of(sorted({run.schedule for run in ending if run.serial and run.schedule is not None}))
    load_for(sheet, [new for outcome in outcomes for new in _asked_for(outcome)])
    results = [_finish_one(sheet, outcome) for outcome in outcomes]
    sheet.write()
    return results


def _asked_for(outcome: Outcome) -> tuple[NewRun, ...]:
    return outcome.enqueue if outcome.then is None else (*outcome.enqueue, outcome.then)


def _finish_one(sheet: Sheet, outcome: Outcome) -> FinishResult:
    run = sheet.get(outcome.run_id)
    if run is None:
        return FinishResult(run_id=outcome.run_id, status=FinishStatus.LEASE_LOST, state=RunState.LOST)
    if run.token == outcome.token and run.outcome not in (None, REAPED):
        return _first_answer(run)
    if run.state is not RunState.RUNNING or run.token != outcome.token:
        return FinishResult(run_id=run.id, status=FinishStatus.LEASE_LOST, state=run.state)
    run = _noted(run, outcome)
    kind = _effective_kind(run, outcome)
    if kind in _AGAIN:
        return _put_back(sheet, run, outcome, kind)
    return _finish_for_good(sheet, run, outcome, kind)


def _first_answer(run: RunRecord) -> FinishResult:
    """What the recorded outcome of the newest claim made of the run, whatever came later."""
    kind = OutcomeKind(run.outcome or "")
    again = kind in _AGAIN
    return FinishResult(
        run_id=run.id,
        status=FinishStatus.REPEATED,
        state=RunState.PENDING if again else RunState(kind.value),
        due_at=run.due_at if again else None,
    )


def _noted(run: RunRecord, outcome: Outcome) -> RunRecord:
    """The run with what the outcome says about it, still running."""
    return replace(
        run,
        error=outcome.error,
        reason=outcome.reason,
        progress=run.progress if outcome.progress is None else outcome.progress,
        checkpoint=run.checkpoint if outcome.checkpoint is None else outcome.checkpoint,
        log=run.log if outcome.log is None else outcome.log,
    )


def _effective_kind(run: RunRecord, outcome: Outcome) -> OutcomeKind:
    """Cancel is sticky, and a release that spends the last attempt has lost the run."""
    if outcome.kind not in _AGAIN:
        return outcome.kind
    if run.cancel_requested:
        return OutcomeKind.CANCELLED
    if outcome.kind is OutcomeKind.RELEASED and _release_spends(run) and run.is_last_attempt:
        return OutcomeKind.LOST
    return outcome.kind


def _release_spends(run: RunRecord) -> bool:
    return run.releases >= limits.RELEASES_IN_A_ROW


def _put_back(sheet: Sheet, run: RunRecord, outcome: Outcome, kind: OutcomeKind) -> FinishResult:
    """Pending again, and still the head of its schedule."""
    released = kind is OutcomeKind.RELEASED
    spends = _release_spends(run) if released else outcome.spend_attempt
    run = sheet.put(
        replace(
            run,
            state=RunState.PENDING,
            outcome=kind.value,
            worker=None,
            due_at=sheet.step.now + outcome.delay,
            retry_delay=outcome.retry_delay,
            given_back=run.given_back if spends else run.given_back + 1,
            releases=run.releases + 1 if released else 0,
        )
    )
    return FinishResult(run_id=run.id, status=FinishStatus.RECORDED, state=run.state, due_at=run.due_at)


def _finish_for_good(sheet: Sheet, run: RunRecord, outcome: Outcome, kind: OutcomeKind) -> FinishResult:
    state = RunState(kind.value)
    ended = sheet.end(run, state, outcome=kind.value, result=outcome.result)
    unparked = sheet.fill_place(ended)
    for new in _asked_for(outcome) if state is RunState.SUCCEEDED else _asked_for(replace(outcome, enqueue=())):
        if may_write(sheet, new):
            enqueue_one(sheet, new)
    freed = unparked is not None and unparked.state is RunState.PENDING and unparked.due_at <= sheet.step.now
    return FinishResult(run_id=run.id, status=FinishStatus.RECORDED, state=state, freed=freed)


# --- cancel and retry -------------------------------------------------------------------------


def cancel(step: Step, run_id: str, opening: int | None) -> RunRecord:
    sheet = Sheet(step)
    run = _known(sheet, run_id)
    if not run.state.is_open or opening not in (None, run.opening):
        return run
    if run.state is RunState.PENDING:
        sheet.load_serial_of([] if run.schedule is None else [run.schedule])
        run = sheet.end(run, RunState.CANCELLED, cancel_requested=True)
        sheet.fill_place(run)
    else:
        run = sheet.put(replace(run, cancel_requested=True))
    sheet.write()
    return run


def retry(step: Step, run_id: str, opening: int | None) -> EnqueueResult:
    sheet = Sheet(step)
    run = _known(sheet, run_id)
    if run.state.is_open or opening not in (None, run.opening):
        return EnqueueResult(run=run, is_new=False)
    sheet.load_holders([run.unique])
    sheet.load_schedules([] if run.schedule is None else [run.schedule])
    serial = serial_now(sheet, run.schedule, run.backfill)
    if (blocker := _blocker(sheet, run, serial=serial)) is not None:
        return EnqueueResult(run=blocker, is_new=False, occupied=True)
    run = sheet.put(reopened(run, step.now, serial=serial))
    sheet.write()
    if run.batch is not None:
        step.do("batch.reopen", id=run.batch)
    return EnqueueResult(run=run)


def _known(sheet: Sheet, run_id: str) -> RunRecord:
    sheet.load([run_id])
    run = sheet.get(run_id)
    if run is None:
        raise _missing.no_run(run_id)
    return run


def _blocker(sheet: Sheet, run: RunRecord, *, serial: bool) -> RunRecord | None:
    """The run that has the unique key or the schedule's place."""
    holder = sheet.holder_of(run.unique)
    if holder is not None or not serial or run.schedule is None:
        return holder
    return next((other for other in sheet.serial_of(run.schedule) if not other.parked), None)


def prune(step: Step, ended_before: int, failed_before: int, keep_failed: int | None, limit: int) -> int:
    _locks.forget(step, limit)
    _limiters.forget(step, limit)
    pruned = step.do("batch.prune", before=failed_before, limit=limit)
    if keep_failed is not None and step.value("run.count_dead") > keep_failed:
        pruned += step.do("run.prune_dead", keep=keep_failed, limit=limit - pruned)
    for state in (state for state in RunState if not state.is_open):
        before = failed_before if state in (RunState.FAILED, RunState.LOST) else ended_before
        pruned += step.do("run.prune", state=state, before=before, limit=limit - pruned)
    return pruned + step.do("gap.prune", before=ended_before, limit=limit - pruned)
