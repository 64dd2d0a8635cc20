"""Who may have a schedule's one place (G10): pure rules over its open serial runs.

A *serial* run takes the place: every run of a schedule but backfills and those of
overlap="allow". The one that is not parked is the *head*: it has the place, running or
not yet claimed or waiting for a retry. The others wait, parked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncron._model import Overlap, RunRecord, RunState


class Verdict(NamedTuple):
    """What a new run meets at the place of its schedule."""

    in_the_way: RunRecord | None = None
    """The run because of which the new one is refused."""
    superseded: tuple[RunRecord, ...] = ()
    """What ends as skipped, so that the new one waits instead."""
    asked_to_stop: RunRecord | None = None
    parked: bool = False
    """Whether the new one waits."""


def admit(overlap: Overlap, serial: Sequence[RunRecord], *, catchup: bool) -> Verdict:
    """How a new run enters, `serial` being the open serial runs of its schedule.

    Only parked runs that never started are superseded, never the head: otherwise the ticks of
    a fast schedule would throw each other out of the queue and none would ever start.
    """
    if overlap is Overlap.ALLOW or not serial:
        return Verdict()
    if catchup or overlap is Overlap.QUEUE:
        return Verdict(parked=True)
    head = next_head(serial) if head_of(serial) is None else head_of(serial)
    if overlap is Overlap.SKIP:
        return Verdict(in_the_way=head)
    waiting = in_order([run for run in serial if run.parked])
    for run in waiting:
        if not may_be_superseded(run):
            return Verdict(in_the_way=run)
    stop = head if overlap is Overlap.CANCEL and head is not None and may_be_asked_to_stop(head) else None
    return Verdict(superseded=tuple(waiting), asked_to_stop=stop, parked=True)


def may_be_superseded(run: RunRecord) -> bool:
    """Never one that has started, and none of a catch-up: those were all meant to run."""
    return run.state is RunState.PENDING and run.attempt == 0 and not run.is_catchup


def may_be_asked_to_stop(run: RunRecord) -> bool:
    return run.state is RunState.RUNNING and not run.cancel_requested


def head_of(serial: Sequence[RunRecord]) -> RunRecord | None:
    return next((run for run in serial if not run.parked), None)


def in_order(runs: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(runs, key=lambda run: (run.position, run.created_at, run.id))


def next_head(serial: Sequence[RunRecord]) -> RunRecord | None:
    """Who gets the place: one that runs (a changed policy may leave several), else one that has
    started, else the first in order."""
    ranked = sorted(in_order(serial), key=lambda run: (run.state is not RunState.RUNNING, run.attempt == 0))
    return ranked[0] if ranked else None
