"""The records that replicas exchange through a store, and the policies they carry.

Everything here is frozen and plain. Instants (`*_at`, `tick`, `cursor`, `first`,
`last`, `now`) are `int` microseconds since 1970-01-01T00:00Z; durations (`*_for`,
`*_within`, `delay`, `timeout`, `jitter`) are `int` microseconds. JSON travels as text.
"""

from __future__ import annotations

import hashlib
import os
import threading
import unicodedata
import uuid
from enum import StrEnum
from typing import Any

import msgspec

from oncron import _defaults as limits
from oncron._clock import wall_us
from oncron.errors import InvalidOption


class RunState(StrEnum):
    """`pending -> running -> succeeded | failed | lost | cancelled | skipped`;
    `running -> pending` on retry, release and take-over; `pending -> skipped` only by
    superseding and only if never started."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def is_open(self) -> bool:
        return self in (RunState.PENDING, RunState.RUNNING)


class Missed(StrEnum):
    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class Overlap(StrEnum):
    SKIP = "skip"
    WAIT = "wait"
    QUEUE = "queue"
    CANCEL = "cancel"
    ALLOW = "allow"


class Status(StrEnum):
    """What a schedule does. Only an active one has a `next_at`."""

    ACTIVE = "active"
    PAUSED = "paused"
    DORMANT = "dormant"
    REMOVED = "removed"


class GapReason(StrEnum):
    """Why ticks were passed without a run."""

    MISSED = "missed"
    TOO_OLD = "too_old"
    OVERLAP = "overlap"
    UNIQUE = "unique"
    LIMIT = "limit"
    GUARD = "guard"
    """Somebody outside oncron had the tick's slot (`guard="slot:..."`)."""
    PAUSED = "paused"
    CHANGED = "changed"
    DORMANT = "dormant"
    REMOVED = "removed"
    STORE_ROLLED_BACK = "store_rolled_back"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the frozen records: comparable, JSON by msgspec. Each says `kw_only` again: it is not inherited."""


class Definition(Record, frozen=True, kw_only=True):
    """What a schedule is, as written in code or put by API. Equal text, equal schedule."""

    name: str
    trigger: str
    """Text of the bound trigger, zone included (`oncron.triggers.parse` reads it)."""
    task: str
    args: str = "{}"
    missed: Missed = Missed.LATEST
    missed_within: int | None = None
    missed_limit: int = limits.MISSED_LIMIT
    overlap: Overlap = Overlap.SKIP
    jitter: int = 0
    start_at: int | None = None
    end_at: int | None = None
    limit: int | None = None
    tags: tuple[str, ...] = ()
    queue: str = "default"
    priority: int = 0
    retries: int = limits.RETRIES
    retry_delay: int = limits.RETRY_DELAY
    """How long a take-over after a dead worker waits in the first attempt."""
    timeout: int | None = None
    unique: str | None = None
    guard: str | None = None
    """"advisory": a run holds PostgreSQL's advisory lock of the schedule's name while it executes.
    "slot:NAMESPACE": on Redis, `fire` takes another scheduler's key of the tick's minute as well."""
    origin: str = "code"
    """"code" or "api": neither overwrites the other's."""
    paused: bool = False
    """Whether the first declaration starts it paused; later ones leave the status alone."""
    release: int | None = None
    tzdata: str = ""

    def digest(self) -> str:
        """Equal digests, equal definitions: an unchanged declaration writes nothing. Which release
        and zone data a replica has, and how a schedule starts, is no part of that."""
        plain = msgspec.to_builtins(msgspec.structs.replace(self, release=None, tzdata="", paused=False))
        if self.guard is None:
            del plain["guard"]  # releases that do not know it give the same digest
        return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:32]

    def same_instants(self, other: Definition) -> bool:
        """Whether both give the same ticks, so that a change between them moves no cursor."""
        return (self.trigger, self.start_at, self.end_at) == (other.trigger, other.start_at, other.end_at)

    def is_used_up(self, created_count: int) -> bool:
        """Whether that many runs are all that its `limit` allows: then it has no next tick."""
        return self.limit is not None and created_count >= self.limit


class ScheduleRecord(Record, frozen=True, kw_only=True):
    """A schedule's row: its definition and how far its ticks are settled."""

    definition: Definition
    status: Status = Status.ACTIVE
    revision: int
    """Raised by every real change of definition or status; `fire` names the one it saw."""
    previous: str = ""
    """Digest of the definition before the newest change of it: two deploys that undo each other show."""
    cursor: int
    """Every tick up to here is settled. Only grows."""
    next_at: int | None
    last_token: int = 0
    created_count: int = 0
    """Scheduled runs created and not superseded, for `limit`."""
    created_at: int = 0
    changed_at: int = 0
    note: str = ""

    @property
    def name(self) -> str:
        return self.definition.name


class Gap(Record, frozen=True, kw_only=True):
    """Ticks in [first, last] that were passed without a run. `count` may be 0 (the cursor
    was moved on purpose over a stretch that owed nothing)."""

    schedule: str
    first: int
    last: int
    count: int
    reason: GapReason
    at_least: bool = False
    detail: str = ""
    created_at: int = 0


class TickRun(Record, frozen=True, kw_only=True):
    """One tick that shall become a run."""

    run_id: str
    tick: int
    due_at: int
    is_catchup: bool = False
    missed_count: int = 0


class FirePlan(Record, frozen=True, kw_only=True):
    """What one schedule's due ticks become; made from a row that was read, so it names
    the revision and cursor that it saw. Every tick and gap lies in (seen_cursor, new_cursor]."""

    name: str
    seen_revision: int
    seen_cursor: int
    new_cursor: int
    next_at: int | None
    ticks: tuple[TickRun, ...] = ()
    gaps: tuple[Gap, ...] = ()
    tzdata: str = ""
    """Version of the zone data that the plan was made with (`sortable_version`); "" where zones play no part."""

    @property
    def is_within(self) -> bool:
        """Whether every tick and gap lies in what the cursor is to pass (G1)."""
        low, high = self.seen_cursor, self.new_cursor
        return all(low < tick.tick <= high for tick in self.ticks) and all(
            low < gap.first <= high and low < gap.last <= high for gap in self.gaps
        )


class FireOutcome(StrEnum):
    FIRED = "fired"
    STALE = "stale"
    EARLY = "early"


class FireResult(Record, frozen=True, kw_only=True):
    """What became of one plan. `skipped` ticks were refused by `reason` and recorded as a gap."""

    name: str
    outcome: FireOutcome
    created: int = 0
    skipped: int = 0
    reason: GapReason | None = None
    superseded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    """Running runs that were asked to stop (overlap="cancel")."""


class RunRecord(Record, frozen=True, kw_only=True):
    """A run's row: the durable record that a tick, or a call, asked for work."""

    id: str
    task: str
    state: RunState = RunState.PENDING
    schedule: str | None = None
    tick: int | None = None
    args: str = "{}"
    queue: str = "default"
    priority: int = 0
    due_at: int = 0
    created_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    attempt: int = 0
    """Claims so far; never goes down."""
    given_back: int = 0
    """Claims that spent no attempt: attempts spent = attempt - given_back."""
    releases: int = 0
    """Releases in a row, now."""
    retries: int = limits.RETRIES
    retry_delay: int = limits.RETRY_DELAY
    """How long the run waits if its worker dies in this attempt; drawn when it was written."""
    timeout: int | None = None
    worker: str | None = None
    token: int = 0
    """Of the newest claim. A smaller one is stale."""
    outcome: str | None = None
    """What ended the newest claim (an `OutcomeKind`, or "reaped"); None while it is held."""
    claim_id: str | None = None
    opening: int = 1
    serial: bool = False
    """Whether it takes the schedule's one place (every overlap policy but "allow")."""
    parked: bool = False
    """Not claimable until an earlier run of its schedule ends."""
    cancel_requested: bool = False
    is_catchup: bool = False
    missed_count: int = 0
    unique: str | None = None
    guard: str | None = None
    batch: str | None = None
    backfill: str | None = None
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    progress: str | None = None
    checkpoint: str | None = None
    log: str | None = None
    """What it said with `ctx.log`, and how its attempts went: dated lines, the newest of them."""

    @property
    def order_key(self) -> int:
        """Claims go by this: sixty seconds of waiting outweigh one step of priority."""
        return order_key(self.due_at, self.priority)

    @property
    def attempts_spent(self) -> int:
        return self.attempt - self.given_back

    @property
    def is_last_attempt(self) -> bool:
        return self.attempts_spent >= 1 + self.retries

    @property
    def position(self) -> int:
        """Order among the runs of one schedule that wait for its place."""
        return self.created_at if self.tick is None else self.tick


class NewRun(Record, frozen=True, kw_only=True):
    """A run to be enqueued. The caller makes the id (`new_run_id`), so repeating is harmless."""

    id: str
    task: str
    args: str = "{}"
    queue: str = "default"
    priority: int = 0
    due_at: int | None = None
    """None: the store's now plus `delay`."""
    delay: int = 0
    retries: int = limits.RETRIES
    retry_delay: int = limits.RETRY_DELAY
    timeout: int | None = None
    unique: str | None = None
    guard: str | None = None
    batch: str | None = None
    schedule: str | None = None
    """Run now: takes the schedule's place as its overlap policy says."""
    tick: int | None = None
    backfill: str | None = None
    overlap: Overlap | None = None
    """For a backfill: None is not judged; otherwise it takes the schedule's place as this policy says."""
    reason: str | None = None


class EnqueueResult(Record, frozen=True, kw_only=True):
    """`run` is the new one, or the open one that has the unique key (`is_new` False), or,
    with `occupied`, the run that has the schedule's place: nothing was written."""

    run: RunRecord
    is_new: bool = True
    occupied: bool = False


class ClaimSpec(Record, frozen=True, kw_only=True):
    """Who claims what. `claim_id` makes a repetition return the same leases."""

    claim_id: str
    worker: str
    limit: int
    lease_for: int
    tasks: tuple[str, ...] = ()
    """Only runs of these: a replica never takes a task that it does not have."""
    queues: tuple[str, ...] | None = None
    """In this order; None is every queue."""
    max_running: tuple[tuple[str, int], ...] = ()
    """(task, claims held at most, fleet-wide)."""
    queue_limits: tuple[tuple[str, int], ...] = ()
    """(queue, claims held at most, fleet-wide): one makes the queue sequential."""
    fleet_limit: int | None = None
    """Claims held at most by all workers of the namespace together."""


class Claimed(Record, frozen=True, kw_only=True):
    runs: tuple[RunRecord, ...]
    now: int
    lease_until: int
    next_due_at: int | None = None
    """When something claimable under this spec will be due that is not yet."""


class Fired(Record, frozen=True, kw_only=True):
    results: tuple[FireResult, ...]
    """One per plan, in the order given."""
    now: int
    leases: tuple[RunRecord, ...] = ()
    lease_until: int = 0


class OutcomeKind(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    RETRY = "retry"
    RELEASED = "released"


class Outcome(Record, frozen=True, kw_only=True):
    """How one claim ended, by its token."""

    run_id: str
    token: int
    kind: OutcomeKind
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    delay: int = 0
    """For retry and release: due again this long after the store's now."""
    retry_delay: int = limits.RETRY_DELAY
    spend_attempt: bool = True
    """For retry: False gives the attempt back. A release never spends one, up to ten in a row."""
    progress: str | None = None
    checkpoint: str | None = None
    log: str | None = None
    """Instead of what the run has; None leaves that."""
    enqueue: tuple[NewRun, ...] = ()
    """Written in the very step that ends the run as succeeded; otherwise dropped."""
    then: NewRun | None = None
    """Written in the very step that ends the run, however it ends; not with a retry or a release that
    leaves it pending."""


class FinishStatus(StrEnum):
    RECORDED = "recorded"
    REPEATED = "repeated"
    LEASE_LOST = "lease_lost"


class FinishResult(Record, frozen=True, kw_only=True):
    run_id: str
    status: FinishStatus
    state: RunState
    """After this call. A repeated or sticky-cancelled finish tells what was recorded."""
    freed: bool = False
    """A run that waited for this one's place is due now."""
    due_at: int | None = None


class Report(Record, frozen=True, kw_only=True):
    """What a running run says with the next heartbeat: instead of what it has; None leaves that."""

    run_id: str
    token: int
    progress: str | None = None
    checkpoint: str | None = None
    log: str | None = None


class WorkerRecord(Record, frozen=True, kw_only=True):
    id: str
    host: str = ""
    pid: int = 0
    started_at: int = 0
    lease_until: int = 0
    release: int | None = None
    tzdata: str = ""
    version: str = ""
    roles: tuple[str, ...] = ()
    """Of "scheduler", "worker"."""
    declares: str = ""
    """Id of the set of schedules that its code declares (`Store.register`)."""
    tasks: tuple[str, ...] = ()
    """The tasks that it has; empty as well when there are too many to tell."""
    queues: tuple[str, ...] | None = None
    """The queues that it takes from; None is every queue."""
    skew: int = 0
    """Microseconds by which its host's clock is ahead of the store's, as it last knew. It decides nothing."""

    def is_counted_on(self, now: int) -> bool:
        """Whether it is alive, as far as anybody knows: an idle worker's lease may end between two heartbeats."""
        return self.lease_until + limits.IDLE_HEARTBEAT > now


class Pulse(Record, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    now: int
    lease_until: int
    lost: tuple[str, ...] = ()
    """Listed, but no longer this worker's under that token."""
    cancel: tuple[str, ...] = ()
    strays: tuple[RunRecord, ...] = ()
    """Leased to this worker but not listed: the answer that brought them was lost."""


class Poll(Record, frozen=True, kw_only=True):
    """The one idle question: has anything changed, is anything due?"""

    now: int
    version: int
    """Raised by every change of a schedule's definition or status."""
    next_tick_at: int | None
    next_due_at: int | None
    workers: tuple[str, ...] = ()
    """Workers with the scheduler's role whose lease ended less than twenty seconds ago or has
    not ended: who shares the shards."""
    expired: bool = False
    """Whether `reap` has something to do: a run whose worker's lease has expired (or has no row),
    or a worker to drop."""


class Due(Record, frozen=True, kw_only=True):
    name: str
    revision: int
    cursor: int
    next_at: int


class Change(Record, frozen=True, kw_only=True):
    """A new or changed schedule row; the same compare-and-set step as a FirePlan.

    `seen_revision=None`: there must be no row of that name yet."""

    name: str
    definition: Definition
    status: Status
    new_cursor: int
    next_at: int | None
    seen_revision: int | None = None
    seen_cursor: int | None = None
    gaps: tuple[Gap, ...] = ()
    note: str = ""


class Changed(Record, frozen=True, kw_only=True):
    """`record` is the row as it stands after the call; `changed` False means the row was not
    as seen (stale): read again and plan again. `unreadable`: it is there, and this release cannot
    read it; it stays as it is, and `record` is None."""

    name: str
    changed: bool
    record: ScheduleRecord | None
    unreadable: bool = False


class Reaped(Record, frozen=True, kw_only=True):
    """Runs whose worker's lease had expired, as they are now (pending, lost or cancelled)."""

    runs: tuple[RunRecord, ...]
    workers: tuple[str, ...] = ()
    """Workers that were dropped because nothing of theirs is left."""


class RunFilter(Record, frozen=True, kw_only=True):
    """Newest first; every field that is not None must match."""

    schedule: str | None = None
    task: str | None = None
    state: RunState | None = None
    queue: str | None = None
    batch: str | None = None
    since: int | None = None
    """Created at or after."""
    before: str | None = None
    """Page on: only runs older than this id's in the listing's order."""
    limit: int = 100


class Stats(Record, frozen=True, kw_only=True):
    now: int
    schedules: dict[str, int]
    """Number of schedules by status."""
    runs: dict[str, int]
    """Number of runs on record by state."""
    overdue: int
    """Active schedules whose next tick is more than a minute past."""
    workers: tuple[WorkerRecord, ...]


def order_key(due_at: int, priority: int) -> int:
    return due_at - 60_000_000 * priority


def tick_run_id(schedule: str, tick: int) -> str:
    """The id of a tick's run: a function of (schedule, instant), so that the primary key is a
    second belt under G1. A UUID (version 8, RFC 9562): 48 bits of the tick's milliseconds, so
    that neighbours in time are neighbours in the index, and 74 bits of SHA-256."""
    digest = hashlib.sha256(f"{tick}\0{schedule}".encode()).digest()
    return _uuid(max(0, tick // 1000), int.from_bytes(digest[:10], "big"), version=8)


def new_run_id() -> str:
    """A UUIDv7 (RFC 9562): time-ordered, made by the caller, so that enqueueing may be repeated. Of those that one
    thread makes within a millisecond each is greater than the one before, so that runs that are enqueued together
    are taken in their order."""
    millis, drawn = wall_us() // 1000, int.from_bytes(os.urandom(10), "big")
    if millis == _newest.millis:
        _newest.tail += 1 + (drawn >> 32)
    else:
        _newest.millis, _newest.tail = millis, drawn >> 7
    return _uuid(millis, _newest.tail >> 62 << 64 | _newest.tail & (1 << 62) - 1, version=7)


class _Newest(threading.local):
    """The newest id that this thread has made: its time, and the 74 bits that are left free."""

    millis = tail = 0


_newest = _Newest()


def new_id() -> str:
    """A random id for a claim, a fire or a worker."""
    return str(uuid.UUID(bytes=os.urandom(16), version=4))


def _uuid(millis: int, rest: int, *, version: int) -> str:
    value = (millis & (1 << 48) - 1) << 80 | (rest & (1 << 80) - 1)
    value = value & ~(0xF << 76) | version << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def sortable_version(version: str) -> str:
    """A version of the zone data such that later ones sort later as text: 2026.6 becomes 2026.06."""
    return ".".join(part.zfill(2) if part.isdigit() else part for part in version.split("."))


def checked_name(name: Any, what: str) -> str:
    """The name in NFC, or InvalidOption: 1 to 200 characters, not all blank, no controls, no lone surrogates."""
    if not isinstance(name, str):
        raise InvalidOption(f"{what} name {name!r} is not text; give a str of 1 to {limits.NAME_CHARS} characters")
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name) <= limits.NAME_CHARS:
        shown = name[:40] + "..." if len(name) > 40 else name
        raise InvalidOption(f"{what} name {shown!r} has {len(name)} characters; give it 1 to {limits.NAME_CHARS}")
    bad = next((c for c in name if unicodedata.category(c) in ("Cc", "Cs")), None)
    if bad is not None:
        raise InvalidOption(f"{what} name {name!r} holds the control character U+{ord(bad):04X}; leave it out")
    if not name.strip():
        raise InvalidOption(f"{what} name {name!r} is blank, and would be seen nowhere; give it a letter")
    return name
