"""Workers: their heartbeats, and what becomes of the runs of those that are gone (G8)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._model import Pulse, Reaped, Report, RunRecord, RunState, WorkerRecord
from oncron.stores.sqlite._rows import run_of
from oncron.stores.sqlite._sheet import Sheet
from oncron.stores.sqlite._step import Step, listed

REAPED = "reaped"
"""What a run's `outcome` says of a claim that was taken away."""


def heartbeat(
    step: Step, worker: WorkerRecord, lease_for: int, held: Sequence[tuple[str, int]], reports: Sequence[Report]
) -> Pulse:
    until = max(step.now + lease_for, step.value("worker.lease", worker=worker.id) or 0)
    step.do(
        "worker.put",
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        started_at=worker.started_at,
        lease_until=until,
        release=worker.release,
        tzdata=worker.tzdata,
        version=worker.version,
        roles=json.dumps(worker.roles),
        declares=worker.declares,
        tasks=json.dumps(worker.tasks),
        queues=None if worker.queues is None else json.dumps(worker.queues),
        skew=worker.skew,
    )
    step.each("worker.report", [(r.progress, r.checkpoint, r.log, r.run_id, r.token, worker.id) for r in reports])
    mine = {(run_id, token): stop for run_id, token, stop in step.rows("worker.holds", worker=worker.id)}
    listed_by_worker = set(held)
    strays = [run_id for run_id, token in mine if (run_id, token) not in listed_by_worker]
    return Pulse(
        now=step.now,
        lease_until=until,
        lost=tuple(run_id for run_id, token in held if (run_id, token) not in mine),
        cancel=tuple(claim[0] for claim in held if mine.get(claim)),
        strays=tuple(run_of(row) for row in step.rows("run.get", ids=listed(strays))) if strays else (),
    )


def leave(step: Step, worker: str) -> None:
    step.do("worker.leave", worker=worker)
    step.do("worker.hide", worker=worker)


def reap(step: Step, limit: int) -> Reaped:
    holders = expired_holders(step)
    expired = [run_of(row) for row in step.rows("reap.runs", workers=listed(holders), limit=limit)] if holders else []
    if expired:
        sheet = Sheet(step)
        sheet.load_serial_of(sorted({run.schedule for run in expired if run.schedule is not None}))
        sheet.load(run.id for run in expired)
        expired = [_take_away(sheet, run) for run in expired]
        sheet.write()
    dropped = [row[0] for row in step.rows("worker.droppable", before=step.now - limits.DROPPED_AFTER)]
    step.each("worker.drop", [(worker,) for worker in dropped])
    step.do("worker.forget")
    return Reaped(runs=tuple(expired), workers=tuple(dropped))


def expired_holders(step: Step) -> list[str]:
    """Workers that hold runs without a live lease."""
    return [row[0] for row in step.rows("reap.holders", now=step.now)]


def _take_away(sheet: Sheet, run: RunRecord) -> RunRecord:
    """The claim is void; the run waits for another worker, if it may."""
    if run.cancel_requested or run.is_last_attempt:
        state = RunState.CANCELLED if run.cancel_requested else RunState.LOST
        run = sheet.end(run, state, outcome=REAPED, reason="its worker's lease expired")
        sheet.fill_place(run)
        return run
    return sheet.put(
        replace(
            run,
            state=RunState.PENDING,
            worker=None,
            outcome=REAPED,
            releases=0,
            due_at=sheet.step.now + run.retry_delay,
            retry_delay=max(run.retry_delay, min(2 * run.retry_delay, limits.RETRY_DELAY_CAP)),
        )
    )
