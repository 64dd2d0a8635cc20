"""The oracle of the fault runs: what the ledger and the store's records show, beside what was done to them.

Pure. The ledger is written by the tasks alone, so it shows what really ran. Instants are
microseconds of the machine's clock, which is the stores' clock too: they run on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from oncron._model import Gap, GapReason, RunRecord, RunState, tick_run_id
from oncron.cli.ledger import Line, percentile_ms
from tests.fault import turns
from tests.fault.disturbance import Disturbance
from tests.fault.turns import Execution, Turns


class Promised(Protocol):
    """What a schedule owes."""

    @property
    def until(self) -> int: ...

    def ticks(self) -> Iterable[int]:
        """Those that have to run."""
        ...

    def allows(self, tick: int) -> bool:
        """Whether it may have run."""
        ...


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A schedule's ticks: the multiples of `every`. Those in (after, until] were promised; a few more may
    have run until the schedule stood still."""

    every: int
    after: int
    until: int

    def ticks(self) -> range:
        return range((self.after // self.every + 1) * self.every, self.until + 1, self.every)

    def allows(self, tick: int) -> bool:
        return tick % self.every == 0 and tick > self.after - self.every


@dataclass(frozen=True)
class Lives:
    """A schedule that was changed: the ticks of each definition while it held, and no others. Of the first one
    a tick more may have run, before the row says that it was made."""

    parts: Sequence[Promise]

    @property
    def until(self) -> int:
        return self.parts[-1].until

    def ticks(self) -> list[int]:
        return sorted(tick for part in self.parts for tick in part.ticks())

    def allows(self, tick: int) -> bool:
        first = self.parts[0]
        return (tick <= first.after and first.allows(tick)) or any(tick in part.ticks() for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    lines: Sequence[Line]
    promises: Mapping[str, Promised]
    runs: Sequence[RunRecord] = ()
    """Every run on record of those schedules."""
    gaps: Sequence[Gap] = ()
    disturbances: Sequence[Disturbance] = ()
    lease: int = 0
    """lease_for of the replicas."""
    turns: Mapping[str, Turns] = field(default_factory=dict[str, Turns])
    """Schedules whose runs take turns."""
    stops: Sequence[Line] = ()
    """When executions of theirs were stopped before their end, told by the tasks too."""


@dataclass
class Findings:
    """Sentences by what is wrong; figures of what is not."""

    extra: list[str] = field(default_factory=list)
    """A second run of a tick, a second end without an excuse, a tick that nobody has."""
    missing: list[str] = field(default_factory=list)
    """A promised tick without an end."""
    early: list[str] = field(default_factory=list)
    """Something ran before its tick."""
    two_holders: list[str] = field(default_factory=list)
    """A run was executed by two at once, or taken from one that nobody had disturbed."""
    overlaps: list[str] = field(default_factory=list)
    """Two runs of a schedule were executed at once though its policy lets none, or a later tick came first."""
    disagreement: list[str] = field(default_factory=list)
    """The store's records say other things than the ledger."""
    ticks: int = 0
    skipped: int = 0
    """Ticks that became no run and are on record as skipped for an overlap: as promised."""
    takeovers: int = 0
    repeated_ends: Counter[str] = field(default_factory=Counter[str])
    """Second ends with an excuse, by the fault that is it: it came after the task's last line and before
    the store had heard of it. At least once, as promised."""
    lateness_us: list[int] = field(default_factory=list)
    """First start minus tick, where a fault was near: less than a lease before the tick, or until the start."""
    calm_lateness_us: list[int] = field(default_factory=list)
    """The same where none was."""
    takeover_us: list[int] = field(default_factory=list)
    """From the SIGKILL of a worker to the next start of a run that it held, if nothing else happened to it."""
    lease_us: int = 0

    @property
    def all(self) -> list[str]:
        return [*self.extra, *self.missing, *self.early, *self.two_holders, *self.overlaps, *self.disagreement]

    def summary(self) -> str:
        repeated = f"{self.repeated_ends.total()} {dict(self.repeated_ends) or ''}"
        calm, late = _spread(self.calm_lateness_us, 50, 99), _spread(self.lateness_us, 50, 99)
        after_kill = _spread(self.takeover_us, 50, 90, 99, 100)
        return (
            f"{self.ticks} ticks, {self.skipped} of them skipped on record: extra {len(self.extra)}, "
            f"missing {len(self.missing)}, early {len(self.early)}, two holders {len(self.two_holders)}, "
            f"overlaps {len(self.overlaps)}, records that disagree {len(self.disagreement)}; "
            f"take-overs {self.takeovers}, repeated ends {repeated}\n"
            f"late: {calm} where all was well, {late} near a fault\n"
            f"from SIGKILL to the run's next start: {after_kill}; twice the lease is {self.lease_us / 500:.0f} ms"
        )

    def __str__(self) -> str:
        return "\n".join([self.summary(), *self.all[:40], *(["..."] if len(self.all) > 40 else [])])


def examine(evidence: Evidence) -> Findings:
    """Everything that is wrong with it."""
    found = Findings(lease_us=evidence.lease)
    scheduled = [line for line in evidence.lines if line.schedule in evidence.promises]
    by_run: dict[str, list[Line]] = {}
    for line in scheduled:
        by_run.setdefault(line.run, []).append(line)
    skipped = _skipped(found, evidence)
    _ticks(found, evidence, scheduled, skipped)
    executions = [_executions(found, evidence, lines) for lines in by_run.values()]
    _turns(found, evidence, executions)
    _records(found, evidence, scheduled)
    return found


def _skipped(found: Findings, evidence: Evidence) -> Mapping[str, frozenset[int]]:
    """Ticks that owe no run, by schedule."""
    skipped: dict[str, frozenset[int]] = {}
    for name, rule in evidence.turns.items():
        skipped[name], wrong = turns.skipped(name, rule, evidence.runs, evidence.gaps)
        found.missing += [text for text in wrong if text.startswith("missing")]
        found.disagreement += [text for text in wrong if text.startswith("disagreement")]
        found.skipped += len(skipped[name])
    return skipped


def _turns(found: Findings, evidence: Evidence, executions: Iterable[Sequence[Execution]]) -> None:
    by_schedule: dict[str, list[Sequence[Execution]]] = {name: [] for name in evidence.turns}
    for of_run in executions:
        by_schedule.get(of_run[0].start.schedule, []).append(of_run)
    for name in evidence.turns:
        found.overlaps += turns.overlaps(by_schedule[name], evidence.stops, evidence.disturbances)
        found.overlaps += turns.out_of_order(by_schedule[name])


def _ticks(found: Findings, evidence: Evidence, lines: Iterable[Line], skipped: Mapping[str, frozenset[int]]) -> None:
    """Every promised tick has an end or was skipped, every tick that ran exists, has one run, and was not early."""
    runs_of: dict[tuple[str, int], set[str]] = {}
    ended: set[tuple[str, int]] = set()
    first_start: dict[tuple[str, int], int] = {}
    for line in lines:
        key = line.schedule, line.tick
        runs_of.setdefault(key, set()).add(line.run)
        if line.what == "end":
            ended.add(key)
        else:
            first_start[key] = min(first_start.get(key, line.at), line.at)
    for (schedule, tick), runs in sorted(runs_of.items()):
        promise = evidence.promises[schedule]
        if len(runs) > 1:
            found.extra.append(f"extra: {_shown(schedule, tick)} became {len(runs)} runs: {', '.join(sorted(runs))}")
        elif runs != {tick_run_id(schedule, tick)}:
            found.extra.append(f"extra: {_shown(schedule, tick)} has run {runs.pop()}, which is not its id")
        if not promise.allows(tick):
            found.extra.append(f"extra: {_shown(schedule, tick)} is no tick of its schedule")
    for key, at in first_start.items():
        near = any(d.touches(d.worker, key[1] - evidence.lease, at) for d in evidence.disturbances)
        if key[0] not in evidence.turns:  # those wait for their turn
            (found.lateness_us if near else found.calm_lateness_us).append(at - key[1])
        if at < key[1]:
            found.early.append(f"early: {_shown(*key)} started {key[1] - at} us before its time")
    for schedule, promise in evidence.promises.items():
        for tick in promise.ticks():
            found.ticks += 1
            if (schedule, tick) not in ended and tick not in skipped.get(schedule, ()):
                how = "started but never ended" if (schedule, tick) in runs_of else "never started"
                found.missing.append(f"missing: {_shown(schedule, tick)} {how}")


def _executions(found: Findings, evidence: Evidence, lines: Iterable[Line]) -> list[Execution]:
    """A token is executed once; a further execution has a cause and begins after the one before it ended.
    Returns those of a run by their tokens."""
    claims: dict[int, Execution] = {}
    for line in lines:
        name = f"{_shown(line.schedule, line.tick)} run {line.run} token {line.token}"
        if line.what == "start":
            if line.token in claims:
                found.two_holders.append(f"two holders: {name} was started twice under one token")
            claims[line.token] = Execution(line)
        elif line.token not in claims or claims[line.token].end is not None:
            found.two_holders.append(f"two holders: {name} ended without a start of its own")
        else:
            claims[line.token].end = line
    ordered = [claims[token] for token in sorted(claims)]
    found.takeovers += max(0, len(ordered) - 1)
    for before, after in pairwise(ordered):
        _take_over(found, evidence, before, after)
    return ordered


def _take_over(found: Findings, evidence: Evidence, before: Execution, after: Execution) -> None:
    first, second = before.start, after.start
    name = f"{_shown(first.schedule, first.tick)} run {first.run}: {first.worker} (token {first.token})"
    until = max(first.at, second.at)
    causes = [d for d in evidence.disturbances if d.touches(first.worker, first.at, until)]
    if second.attempt <= first.attempt:
        found.two_holders.append(f"two holders: {name} attempt {first.attempt}, then attempt {second.attempt}")
    if not causes:
        found.two_holders.append(
            f"two holders: {name} was undisturbed when {second.worker} (token {second.token}) started "
            f"{(second.at - first.at) / 1e6:.3f} s later; "
            + ("it had not ended" if before.end is None else f"it ended after {(before.end.at - first.at) / 1e6:.3f} s")
        )
    kills = [d for d in causes if d.kind.startswith("kill") and d.worker == first.worker]
    if kills == causes and kills and before.end is None:
        found.takeover_us.append(second.at - kills[0].began)
    if kills == causes and kills and second.at - kills[0].began < evidence.lease // 3:
        # Leases are renewed when a third of them has passed, so more than that was left.
        found.two_holders.append(
            f"two holders: {name} was killed, and {second.worker} started {(second.at - kills[0].began) / 1e6:.3f} s "
            "later, while the lease still lived"
        )
    if before.end is not None and after.end is not None:
        # A store that was away excuses nobody: ends are kept until it is back, and reaping waits for them.
        excuses = [d for d in causes if d.worker == first.worker]
        if excuses:
            found.repeated_ends[excuses[0].kind] += 1
        else:
            found.extra.append(f"extra: {name} ended, and {second.worker} ended the run again")


def _records(found: Findings, evidence: Evidence, lines: Iterable[Line]) -> None:
    """Each run on record has succeeded and was executed; each execution has its record; no gap hides a tick."""
    ended = {line.run for line in lines if line.what == "end"}
    if evidence.runs:
        known = {run.id for run in evidence.runs}
        for line in lines:
            if line.run not in known:
                known.add(line.run)
                found.disagreement.append(f"disagreement: run {line.run} was executed but is not on record")
    for run in evidence.runs:
        name = f"run {run.id} of {run.schedule}"
        if run.state is not RunState.SUCCEEDED:
            found.disagreement.append(f"disagreement: {name} is on record as {run.state} ({run.reason})")
        elif run.id not in ended:
            found.disagreement.append(f"disagreement: {name} is on record as succeeded, but no task ended")
    found.missing += [
        f"missing: {gap.schedule} passed {gap.count} ticks without a run: {gap.reason}"
        for gap in evidence.gaps
        if gap.count and not (gap.reason is GapReason.OVERLAP and gap.schedule in evidence.turns)
    ]


def _spread(values_us: Sequence[int], *percents: int) -> str:
    """The percentiles in milliseconds; the hundredth is the greatest."""
    if not values_us:
        return "none"
    shown = [f"{'max' if p == 100 else f'p{p}'} {percentile_ms(values_us, p)}" for p in percents]
    return f"{', '.join(shown)} ms of {len(values_us)}"


def _shown(schedule: str, tick: int) -> str:
    return f"{schedule} at {tick / 1_000_000:.3f}"
