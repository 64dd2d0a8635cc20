"""Schedules, and the store at a glance, as users read them: plain values, aware UTC datetimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from oncron import triggers
from oncron._cipher import readable
from oncron._clock import from_us, from_us_if
from oncron._groups import QueueRecord
from oncron._json import loads
from oncron._model import Missed, Overlap, ScheduleRecord, Stats as StatsRecord, Status, WorkerRecord
from oncron._queue import Queue
from oncron.errors import InvalidTrigger


@dataclass(frozen=True)
class Schedule:
    """A schedule as it stands in the store; `record` is its row. Instants are aware UTC datetimes, durations
    timedeltas."""

    record: ScheduleRecord

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def trigger(self) -> str:
        """The bound trigger's text, zone included; `oncron.triggers.parse` reads it."""
        return self.record.definition.trigger

    @property
    def task(self) -> str:
        return self.record.definition.task

    @property
    def args(self) -> Mapping[str, Any]:
        """Raises WrongKey."""
        return loads(readable(self.record.definition.args, f"the arguments of schedule {self.name!r}"))

    @property
    def status(self) -> Status:
        """`active`, `paused`, `dormant` (no replica has declared it for an hour) or `removed`."""
        return self.record.status

    @property
    def paused(self) -> bool:
        return self.record.status is Status.PAUSED

    @property
    def note(self) -> str:
        """What was said when it was paused."""
        return self.record.note

    @property
    def cursor(self) -> datetime:
        """Every tick up to here is settled."""
        return from_us(self.record.cursor)

    @property
    def next_at(self) -> datetime | None:
        """The next tick; None if there is none, or while it is not active."""
        return from_us_if(self.record.next_at)

    @property
    def missed(self) -> Missed:
        return self.record.definition.missed

    @property
    def missed_within(self) -> timedelta | None:
        return _duration(self.record.definition.missed_within)

    @property
    def missed_limit(self) -> int:
        return self.record.definition.missed_limit

    @property
    def overlap(self) -> Overlap:
        return self.record.definition.overlap

    @property
    def jitter(self) -> timedelta:
        return timedelta(microseconds=self.record.definition.jitter)

    @property
    def start_at(self) -> datetime | None:
        return from_us_if(self.record.definition.start_at)

    @property
    def end_at(self) -> datetime | None:
        return from_us_if(self.record.definition.end_at)

    @property
    def limit(self) -> int | None:
        return self.record.definition.limit

    @property
    def tags(self) -> tuple[str, ...]:
        return self.record.definition.tags

    @property
    def queue(self) -> str:
        return self.record.definition.queue

    @property
    def priority(self) -> int:
        return self.record.definition.priority

    @property
    def retries(self) -> int:
        return self.record.definition.retries

    @property
    def timeout(self) -> timedelta | None:
        return _duration(self.record.definition.timeout)

    @property
    def origin(self) -> str:
        """`code` (declared) or `api` (put)."""
        return self.record.definition.origin

    @property
    def revision(self) -> int:
        return self.record.revision

    def describe(self) -> str:
        """The trigger in words; its text if a newer release wrote it and this one cannot read it."""
        try:
            return triggers.parse(self.trigger).describe()
        except InvalidTrigger:
            return self.trigger

    def __repr__(self) -> str:
        return f"<Schedule {self.name} {self.trigger} {self.status.value}>"


@dataclass(frozen=True)
class Worker:
    """A replica that holds a lease; `record` is its row."""

    record: WorkerRecord

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def host(self) -> str:
        return self.record.host

    @property
    def pid(self) -> int:
        return self.record.pid

    @property
    def roles(self) -> tuple[str, ...]:
        """Of `scheduler`, `worker`."""
        return self.record.roles

    @property
    def started_at(self) -> datetime:
        return from_us(self.record.started_at)

    @property
    def lease_until(self) -> datetime:
        return from_us(self.record.lease_until)

    @property
    def version(self) -> str:
        """Of oncron."""
        return self.record.version

    @property
    def skew(self) -> timedelta:
        """How far its host's clock is ahead of the store's (negative: behind), as it last knew. It decides nothing."""
        return timedelta(microseconds=self.record.skew)


@dataclass(frozen=True)
class Stats:
    """The store at a glance."""

    at: datetime
    """The store's clock."""
    schedules: Mapping[str, int]
    """Number of schedules by status."""
    runs: Mapping[str, int]
    """Number of runs on record by state."""
    overdue: int
    """Active schedules whose next tick is more than a minute past: 0 while anybody fires."""
    workers: tuple[Worker, ...]
    queues: tuple[Queue, ...]
    """How many runs wait where: those with open runs and those that are paused, by name."""


def stats_of(record: StatsRecord, queues: Sequence[QueueRecord]) -> Stats:
    return Stats(
        at=from_us(record.now),
        schedules=record.schedules,
        runs=record.runs,
        overdue=record.overdue,
        workers=tuple(Worker(worker) for worker in record.workers),
        queues=tuple(map(Queue, queues)),
    )


def _duration(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(microseconds=value)
