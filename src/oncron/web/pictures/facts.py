"""What pictures are drawn from: plain values. Instants and durations are integer microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a tick. The order is from bad to good: the worst of a day is its first."""

    LOST = "lost"
    FAILED = "failed"
    MISSED = "missed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    COMING = "coming"


_OF_STATE = {"pending": Outcome.WAITING}
_SKIPPED_FOR = {"overlap", "unique", "limit", "guard", "paused"}


def outcome_of_state(state: str) -> Outcome:
    """Of a run's state."""
    return _OF_STATE.get(state) or Outcome(state)


def outcome_of_gap(reason: str) -> Outcome:
    """Of a gap's reason: skipped on purpose, or missed."""
    return Outcome.SKIPPED if reason in _SKIPPED_FOR else Outcome.MISSED


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One tick, or several that share a fate (a gap: `last` and `count`). In any order."""

    at: int
    """The tick; for a run without one, the instant it was due."""
    outcome: Outcome
    started_at: int | None = None
    ended_at: int | None = None
    is_tick: bool = True
    """Whether its start can be late: not for a run by hand, nor a backfilled or caught-up one."""
    last: int | None = None
    """A gap's last tick."""
    count: int = 1
    """A gap's ticks. One of none is not drawn."""
    at_least: bool = False
    """Whether there may have been more than `count`."""
    words: str = ""
    """Why it did not run, or how it ended: shown as it is, whatever is in it."""
    href: str = ""
    """Where its run is."""

    @property
    def late(self) -> int | None:
        """How long after its tick it started; None if it did not."""
        return max(0, self.started_at - self.at) if self.is_tick and self.started_at is not None else None

    @property
    def took(self) -> int | None:
        """How long it ran; None if it did not, or still does."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0, self.ended_at - self.started_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class Jump:
    """A change of a zone's clock: `before` and `after` in seconds east of UTC."""

    at: int
    before: int
    after: int
    what: str = ""
    """What it does to the schedule's ticks, in words."""
