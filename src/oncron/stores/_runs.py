"""Runs as every store that writes them in Python makes them: pure, from what was asked for to the record."""

from __future__ import annotations

from msgspec.structs import replace

from oncron._model import NewRun, RunRecord, RunState


def created(new: NewRun, now: int, *, serial: bool = False, parked: bool = False) -> RunRecord:
    """The run that an enqueue asks for."""
    return RunRecord(
        id=new.id,
        task=new.task,
        schedule=new.schedule,
        tick=new.tick,
        args=new.args,
        queue=new.queue,
        priority=new.priority,
        due_at=now + new.delay if new.due_at is None else new.due_at,
        created_at=now,
        retries=new.retries,
        retry_delay=new.retry_delay,
        timeout=new.timeout,
        unique=new.unique,
        guard=new.guard,
        batch=new.batch,
        backfill=new.backfill,
        reason=new.reason,
        serial=serial,
        parked=parked,
    )


def reopened(run: RunRecord, now: int, *, serial: bool) -> RunRecord:
    """An ended run that an operator opens again (G6): its attempts as new, its claims counted on."""
    return replace(
        run,
        state=RunState.PENDING,
        opening=run.opening + 1,
        due_at=now,
        ended_at=None,
        given_back=run.attempt,
        releases=0,
        worker=None,
        cancel_requested=False,
        result=None,
        error=None,
        reason=None,
        serial=serial,
        parked=False,
    )
