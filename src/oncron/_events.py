"""What happened, for logs, metrics and listeners. Never on the path of correctness."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol, TypedDict

from typing_extensions import Unpack

from oncron._clock import from_us_if
from oncron._model import Record, RunRecord

NAMES = frozenset(
    (
        "tick.fired",
        "tick.skipped",
        "tick.missed",
        "run.enqueued",
        "run.claimed",
        "run.started",
        "run.succeeded",
        "run.failed",
        "run.retried",
        "run.lost",
        "run.cancelled",
        "run.skipped",
        "run.released",
        "run.overrun",
        "lease.lost",
        "schedule.declared",
        "schedule.changed",
        "schedule.paused",
        "schedule.resumed",
        "schedule.removed",
        "schedule.dormant",
        "schedule.overdue",
        "schedule.flapped",
        "worker.started",
        "worker.stopped",
        "worker.dead",
        "store.lost",
        "store.back",
        "store.rolled_back",
    )
)


class Event(Record, frozen=True, kw_only=True):
    """One thing that happened. `at` and `tick` are aware UTC datetimes; `run` is a run's id, `attempt` the
    number of its claim; `late_by` is how long after it was due a run was claimed, `took` how long a claim lasted that
    ended; fields that do not apply are None."""

    name: str
    at: datetime
    schedule: str | None = None
    tick: datetime | None = None
    run: str | None = None
    reason: str | None = None
    worker: str | None = None
    task: str | None = None
    attempt: int | None = None
    late_by: timedelta | None = None
    took: timedelta | None = None


class Fields(TypedDict, total=False):
    """What is said of an event beside its name and time."""

    schedule: str | None
    tick: datetime | None
    run: str | None
    reason: str | None
    worker: str | None
    task: str | None
    attempt: int | None
    late_by: timedelta | None
    took: timedelta | None


def of_run(run: RunRecord) -> Fields:
    """Which run an event is about."""
    return Fields(schedule=run.schedule, tick=from_us_if(run.tick), run=run.id, task=run.task, attempt=run.attempt)


Observer = Callable[[Event], None]
"""Takes an event without blocking and without raising."""


class Say(Protocol):
    """Tells the Observer of an event that happens now, about that run, here unless `worker` says where."""

    def __call__(self, name: str, about: RunRecord | None = None, /, **fields: Unpack[Fields]) -> None: ...
