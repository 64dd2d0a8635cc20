"""Schedules whose runs take turns: the oracle's part that counts overlaps, and the ticks that were skipped for one.

An execution has the schedule's place from its first line on, until the first of: its last line, the line that says it
was stopped, the death of its process, the next execution of the same run. That last one is how the store's loss of
trust shows: a holder whose lease is over, because it was stopped or cut off, may act on until it next asks, but the
place is with its run's new holder then, and two executions of two runs still never share it. Nothing else excuses an
overlap, whatever was done to whom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oncron._model import Gap, GapReason, Overlap, RunRecord
from oncron.cli.ledger import Line
from tests.fault.disturbance import Disturbance


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What is known of a schedule whose runs take turns."""

    overlap: Overlap
    every: int
    after: int
    cursor: int
    """Where it stands still: all its ticks in (after, cursor] are settled."""


@dataclass
class Execution:
    """One claim of a run, as the ledger shows it."""

    start: Line
    end: Line | None = None


@dataclass(frozen=True)
class Stay:
    """For how long an execution had the place."""

    line: Line
    until: float
    how: str

    @property
    def shown(self) -> str:
        return f"run {self.line.run} (token {self.line.token}) in {self.line.worker}"


def overlaps(
    runs: Iterable[Sequence[Execution]], stops: Sequence[Line], disturbances: Sequence[Disturbance]
) -> list[str]:
    """Of one schedule: executions by run, each run's by token."""
    stopped = {(line.run, line.token): line.at for line in stops}
    stays = sorted(
        (stay for executions in runs for stay in _stays(executions, stopped, disturbances)),
        key=lambda stay: stay.line.at,
    )
    found: list[str] = []
    longest: Stay | None = None
    for stay in stays:
        if longest is not None and stay.line.at < longest.until and stay.line.run != longest.line.run:
            found.append(
                f"overlap: {stay.line.schedule}: {stay.shown} started {(stay.line.at - longest.line.at) / 1e6:.3f} s "
                f"after {longest.shown}, which {longest.how}"
            )
        if longest is None or stay.until > longest.until:
            longest = stay
    return found


def _stays(
    executions: Sequence[Execution], stopped: Mapping[tuple[str, int], int], disturbances: Sequence[Disturbance]
) -> Iterable[Stay]:
    for number, execution in enumerate(executions):
        line, ends = execution.start, [(math.inf, "never ended")]
        if execution.end is not None:
            ends.append((execution.end.at, f"ended after {(execution.end.at - line.at) / 1e6:.3f} s"))
        if (stop := stopped.get((line.run, line.token))) is not None:
            ends.append((stop, f"was stopped after {(stop - line.at) / 1e6:.3f} s"))
        kills = [d for d in disturbances if d.kind.startswith("kill") and d.worker == line.worker]
        ends += [(kill.ended, "was killed later") for kill in kills]
        if number + 1 < len(executions):
            ends.append((executions[number + 1].start.at, "was taken over later"))
        until, how = min(ends)
        if until > line.at:
            yield Stay(line, until, how)


def out_of_order(runs: Iterable[Sequence[Execution]]) -> list[str]:
    """Of one schedule: runs that started before one of an earlier tick had, which is before them in every policy."""
    # The first start is not always the first token's: a process may be stopped between its claim and the task's line.
    starts = ([execution.start for execution in executions] for executions in runs)
    firsts = sorted((min(lines, key=lambda line: line.at) for lines in starts), key=lambda line: line.at)
    return [
        f"overlap: {after.schedule} at {after.tick / 1e6:.3f} started after its later tick at {before.tick / 1e6:.3f}"
        for before, after in pairwise(firsts)
        if after.tick < before.tick
    ]


def skipped(
    name: str, turns: Turns, runs: Iterable[RunRecord], gaps: Iterable[Gap]
) -> tuple[frozenset[int], list[str]]:
    """The ticks that are on record as skipped for an overlap, and what is wrong with those records: each tick is a run
    or in one of them, never both, and they count right (G11)."""
    if turns.overlap is not Overlap.SKIP:
        return frozenset(), []
    first = (turns.after // turns.every + 1) * turns.every
    records = [gap for gap in gaps if gap.schedule == name and gap.reason is GapReason.OVERLAP]
    ran = {run.tick for run in runs if run.schedule == name}
    found: list[str] = []
    without: set[int] = set()
    for tick in range(first, turns.cursor + 1, turns.every):
        on_record = any(gap.first <= tick <= gap.last for gap in records)
        if tick not in ran:
            without.add(tick)
            if not on_record:
                found.append(f"missing: {name} at {tick / 1e6:.3f} was passed and nothing says why")
        elif on_record:
            found.append(f"disagreement: {name} at {tick / 1e6:.3f} has a run and is on record as skipped")
    counted = sum(gap.count for gap in records if gap.last >= first)
    if counted != len(without):
        found.append(f"disagreement: {name} passed {len(without)} ticks without a run, its records count {counted}")
    return frozenset(without), found
