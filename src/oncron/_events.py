"""What happened, for logs, metrics and listeners. Never on the path of correctness."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from oncron._model import Record

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
    """One thing that happened. `at` and `tick` are aware UTC datetimes; `run` is a run's id;
    fields that do not apply are None."""

    name: str
    at: datetime
    schedule: str | None = None
    tick: datetime | None = None
    run: str | None = None
    reason: str | None = None
    worker: str | None = None


Observer = Callable[[Event], None]
"""Takes an event without blocking and without raising."""


class Say(Protocol):
    """Tells the Observer of an event that happens now, here unless `worker` says where."""

    def __call__(
        self,
        name: str,
        /,
        *,
        schedule: str | None = None,
        tick: datetime | None = None,
        run: str | None = None,
        reason: str | None = None,
        worker: str | None = None,
    ) -> None: ...
