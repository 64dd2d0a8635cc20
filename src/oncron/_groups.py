"""The records of what runs share: queues, locks, limiters and batches.

Units and form as in `_model.py`: frozen and plain, instants and durations in microseconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from oncron._model import NewRun, Record, RunState


class QueueRecord(Record, frozen=True, kw_only=True):
    """A queue that has open runs, or that was paused once. All counts are of open runs."""

    name: str
    paused: bool = False
    note: str = ""
    changed_at: int | None = None
    """When it was paused or resumed last."""
    ready: int = 0
    """Pending, due and not parked: what a worker could take now, were the queue not paused."""
    waiting: int = 0
    """Pending, but not due yet or parked."""
    running: int = 0
    oldest_due_at: int | None = None
    """Of the ready ones."""


class Acquired(Record, frozen=True, kw_only=True):
    """The answer to `acquire`."""

    now: int
    token: int | None
    """Fencing token of the lock's name: only grows. None: all slots are held."""
    lease_until: int
    """Of this holder; without a token when the first of the others' leases ends."""
    holders: int
    """Live ones, this one included."""


class LockRecord(Record, frozen=True, kw_only=True):
    """One holder of a lock."""

    name: str
    owner: str
    token: int
    since: int
    lease_until: int


class LimitKind(StrEnum):
    """`window`: at most `amount` in each aligned stretch [k * per, (k + 1) * per). `sliding`: at most
    `amount` in every (t - per, t]. `bucket`: a level that each take raises by its cost and that drains by
    `amount` per `per`; it holds at most `amount`."""

    WINDOW = "window"
    SLIDING = "sliding"
    BUCKET = "bucket"


class LimitRule(Record, frozen=True, kw_only=True):
    kind: LimitKind
    amount: int
    per: int


class Take(Record, frozen=True, kw_only=True):
    """Ask a limiter for `cost`. The same nonce gets the same answer while it is remembered."""

    limiter: str
    nonce: str
    rule: LimitRule
    cost: int = 1
    keep_for: int = 60_000_000
    """How long a granted take is remembered at least; never less than the rule's `per`."""


class Taken(Record, frozen=True, kw_only=True):
    granted: bool
    now: int
    used: int
    """What counts against the rule after this step, rounded up; may be more than `amount` after `settle`."""
    retry_in: int = 0
    """Refused: how long until the same cost fits, if nobody else takes any. 0 when granted."""


class NewBatch(Record, frozen=True, kw_only=True):
    """Runs that belong together. The callbacks are runs whose ids the caller made."""

    id: str
    parent: str | None = None
    data: str = "null"
    on_complete: NewRun | None = None
    on_success: NewRun | None = None
    on_death: NewRun | None = None


class BatchRecord(Record, frozen=True, kw_only=True):
    """A batch's row; `runs` counts its runs by state."""

    id: str
    parent: str | None = None
    data: str = "null"
    created_at: int = 0
    closed: bool = False
    """Whether all was added that comes from outside: an open one never completes."""
    invalid: bool = False
    """Its runs are to skip themselves."""
    died_at: int | None = None
    """When the first of its runs was seen failed or lost."""
    completed_at: int | None = None
    succeeded_at: int | None = None
    runs: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    children: int = 0
    """Batches in it that are not complete yet."""
    on_complete: NewRun | None = None
    on_success: NewRun | None = None
    on_death: NewRun | None = None

    @property
    def total(self) -> int:
        return sum(self.runs.values())

    @property
    def pending(self) -> int:
        """Runs that have not ended."""
        return sum(count for state, count in self.runs.items() if RunState(state).is_open)
