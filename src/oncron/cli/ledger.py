"""What really ran, told by the tasks themselves: an append-only ledger, and its judgement. Pure.

Every execution of a task appends a line when it starts and one when it ends, whatever the
store says about it, so that extra and missing runs show:

*duplicate*  two run ids for one tick, or two ends of one run;
*missed*     a tick of the stretch that was promised, without an end;
*extra*      a tick that no schedule has: off its grid, or past the end of the stretch;
*take-over*  a further start of the same run: shown, no fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

Tick = tuple[str, int]
"""Schedule and nominal instant."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event of one execution. Instants are microseconds since 1970 UTC."""

    schedule: str
    tick: int
    run: str
    attempt: int
    token: int
    what: Literal["start", "end"]
    worker: str
    at: int
    """The store's clock, as the worker estimates it."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks a schedule has: `offset` and every multiple of `every` from there (microseconds), each
    of which in (`after`, `until`] was promised. Earlier ones may have run, later ones may not."""

    every: int
    after: int
    until: int
    offset: int = 0

    def promised(self) -> range:
        first = ((self.after - self.offset) // self.every + 1) * self.every + self.offset
        return range(first, self.until + 1, self.every)

    def knows(self, tick: int) -> bool:
        return (tick - self.offset) % self.every == 0 and tick <= self.until


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the ledger shows. Sorted; `faults` has one sentence for each thing that is wrong."""

    ticks: int
    """Ticks promised or run."""
    runs: int
    """Run ids that started."""
    duplicates: Sequence[Tick]
    missed: Sequence[Tick]
    extra: Sequence[Tick]
    takeovers: Sequence[Tick]
    lateness_us: Sequence[int]
    """First start minus tick, of every run that started."""
    faults: Sequence[str]

    @property
    def clean(self) -> bool:
        return not self.faults

    def summary(self) -> dict[str, object]:
        """The figures, as the last line of `oncron demo --json` has them."""
        return {
            "ticks": self.ticks,
            "runs": self.runs,
            "duplicates": len(self.duplicates),
            "missed": len(self.missed),
            "takeovers": len(self.takeovers),
            "lateness_ms": {"p50": self.lateness_ms(50), "p99": self.lateness_ms(99)},
        }

    def lateness_ms(self, percent: float) -> float | None:
        return percentile_ms(self.lateness_us, percent)


def write(line: Line) -> bytes:
    """The line as one record: appended by a single write to a file opened with O_APPEND, records
    of concurrent processes do not mix."""
    return msgspec.json.encode(line) + b"\n"


def read(data: bytes) -> list[Line]:
    """The lines, in the order in which they were written. A last one without its newline is still
    being written and left out. Raises ValueError for anything else that is no line."""
    whole, _, _ = data.rpartition(b"\n")
    lines: list[Line] = []
    for number, text in enumerate(whole.split(b"\n") if whole else (), 1):
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.DecodeError as error:
            raise ValueError(f"line {number} of the ledger is none: {error}") from None
    return lines


def open_runs(lines: Iterable[Line]) -> dict[str, Line]:
    """The newest start of every run that has no end, by run id."""
    started: dict[str, Line] = {}
    ended: set[str] = set()
    for line in lines:
        if line.what == "start":
            started[line.run] = line
        else:
            ended.add(line.run)
    return {run: line for run, line in started.items() if run not in ended}


def judge(lines: Iterable[Line], grids: Mapping[str, Grid]) -> Verdict:
    """Compare what ran with what was promised. Schedules without a grid are judged for
    duplicates only."""
    starts: dict[str, list[Line]] = {}
    ends: dict[str, list[Line]] = {}
    runs_of: dict[Tick, list[str]] = {}
    for line in lines:
        (starts if line.what == "start" else ends).setdefault(line.run, []).append(line)
        runs = runs_of.setdefault((line.schedule, line.tick), [])
        if line.run not in runs:
            runs.append(line.run)
    promised = {(name, tick) for name, grid in grids.items() for tick in grid.promised()}
    done = {(line.schedule, line.tick) for found in ends.values() for line in found}

    duplicates: dict[Tick, str] = {}
    for tick, runs in runs_of.items():
        if len(runs) > 1:
            duplicates[tick] = f"ran as {len(runs)} runs: {', '.join(runs)}"
        for run in runs:
            if len(ends.get(run, ())) > 1:
                duplicates[tick] = f"run {run} ended {len(ends[run])} times"
    extra = [tick for tick in runs_of if tick[0] in grids and not grids[tick[0]].knows(tick[1])]
    missed = {
        tick: "started but never ended" if tick in runs_of else "never started" for tick in promised if tick not in done
    }
    faults = [f"duplicate: {_shown(tick)} {why}" for tick, why in sorted(duplicates.items())]
    faults += [f"missed: {_shown(tick)} {why}" for tick, why in sorted(missed.items())]
    faults += [f"extra: {_shown(tick)} is no tick of its schedule" for tick in sorted(extra)]
    firsts = [min(found, key=lambda line: (line.attempt, line.at)) for found in starts.values()]
    again = sorted(
        (line.schedule, line.tick) for found in starts.values() for line in sorted(found, key=_attempt_order)[1:]
    )
    return Verdict(
        ticks=len(promised | runs_of.keys()),
        runs=len(starts),
        duplicates=sorted(duplicates),
        missed=sorted(missed),
        extra=sorted(extra),
        takeovers=again,
        lateness_us=sorted(line.at - line.tick for line in firsts),
        faults=faults,
    )


def percentile_ms(values_us: Sequence[int], percent: float) -> float | None:
    """The nearest-rank percentile, in milliseconds; None of nothing."""
    if not values_us:
        return None
    ordered = sorted(values_us)
    rank = max(1, math.ceil(len(ordered) * percent / 100))
    return round(ordered[rank - 1] / 1000, 2)


def _attempt_order(line: Line) -> tuple[int, int]:
    return line.attempt, line.at


def _shown(tick: Tick) -> str:
    return f"{tick[0]} at {tick[1] / 1_000_000:.3f}"
