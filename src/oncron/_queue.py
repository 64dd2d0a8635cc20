"""Queues as users read them: plain values, aware UTC datetimes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from oncron._clock import from_us_if
from oncron._groups import QueueRecord


@dataclass(frozen=True)
class Queue:
    """A queue as it stands in the store; `record` is its row."""

    record: QueueRecord

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def paused(self) -> bool:
        return self.record.paused

    @property
    def note(self) -> str:
        """What was said when it was paused."""
        return self.record.note

    @property
    def changed_at(self) -> datetime | None:
        """When it was paused or resumed last."""
        return from_us_if(self.record.changed_at)

    @property
    def ready(self) -> int:
        """Runs that a worker could take now, were the queue not paused."""
        return self.record.ready

    @property
    def waiting(self) -> int:
        """Pending runs that are not due yet, or that wait for their schedule's place."""
        return self.record.waiting

    @property
    def running(self) -> int:
        return self.record.running

    @property
    def oldest_due_at(self) -> datetime | None:
        """Since when the first of the ready ones could have begun."""
        return from_us_if(self.record.oldest_due_at)

    def __repr__(self) -> str:
        return f"<Queue {self.name} {self.ready} ready{', paused' if self.paused else ''}>"
