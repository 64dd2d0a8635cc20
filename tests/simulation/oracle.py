"""The oracle: it watches every step of the store and every line that tasks write, and knows the guarantees.

It keeps books of its own from what it saw, so that it notices a store that is wrong as well as a
replica that is. What it finds is in `violations`, worst first to know: the first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from oncron._clock import SECOND
from oncron._model import (
    Claimed,
    Fired,
    Gap,
    GapReason,
    Outcome,
    Overlap,
    Pulse,
    RunRecord,
    RunState,
    ScheduleRecord,
    Status,
    tick_run_id,
)
from oncron._plan import next_tick
from oncron.stores.memory import MemoryStore
from oncron.triggers import parse
from tests.simulation.world import Process

STUBBORN = "stubborn"
"""The task that goes on in doubt (`on_doubt="continue"`): it asked to overlap."""


class Violation(AssertionError):
    """A guarantee was broken."""


@dataclass
class Line:
    """One execution of a task: from its start to its end, by the ledger that tasks write."""

    run: RunRecord
    process: Process
    began: int
    ended: int | None = None
    how: str = "runs"
    frozen: bool = False
    """Its process was stopped meanwhile: what it did then cannot be held against the lease."""


@dataclass
class Oracle:
    now: Callable[[], int]
    violations: list[str] = field(default_factory=list[str])
    alarm: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the first violation: the story need not go on."""
    steps: int = 0
    lines: list[Line] = field(default_factory=list[Line])
    ticks_made: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    fire_plans: int = 0
    passed: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    """Ticks that cursors passed, by schedule."""
    in_gaps: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    reaped: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _last_token: dict[str, int] = field(default_factory=dict[str, int])
    _ends: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    _told: dict[str, int] = field(default_factory=dict[str, int])
    _started: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    _open_lines: dict[tuple[str, int], Line] = field(default_factory=dict[tuple[str, int], Line])

    def say(self, guarantee: str, what: str) -> None:
        self.violations.append(f"{guarantee} at {self.now() / SECOND:.6f}: {what}")
        self.alarm.set()

    # --- the ledger -------------------------------------------------------------------

    def started(self, run: RunRecord, process: Process) -> None:
        now = self.now()
        if (run.id, run.token) in self._started:
            self.say("once per token", f"{_name(run)} was started twice under token {run.token}")
        self._started.add((run.id, run.token))
        if run.tick is not None and now < run.tick:
            self.say("G2", f"{_name(run)} started {run.tick - now} us early")
        line = Line(run, process, now)
        for other in self._open_lines.values():
            if other.frozen or STUBBORN in (run.task, other.run.task):
                continue
            if other.run.id == run.id:
                self.say("one at a time", f"{_name(run)} runs on {process.name} while {other.process.name} runs it")
            elif run.serial and other.run.serial and other.run.schedule == run.schedule:
                self.say("G10", f"{_name(run)} runs beside {_name(other.run)}")
        self._open_lines[run.id, run.token] = line
        self.lines.append(line)

    def ended(self, run: RunRecord, how: str) -> None:
        line = self._open_lines.pop((run.id, run.token))
        line.ended, line.how = self.now(), how

    def died(self, process: Process) -> None:
        for key, line in list(self._open_lines.items()):
            if line.process is process:
                line.ended, line.how = self.now(), "killed"
                del self._open_lines[key]

    def froze(self, process: Process | None = None) -> None:
        """That process was stopped; None: the store's clock was set, and no lease is worth what was told."""
        for line in self._open_lines.values():
            if process in (None, line.process):
                line.frozen = True

    # --- the steps --------------------------------------------------------------------

    def step(self, store: WatchedStore, now: int) -> None:
        self.steps += 1
        for before, after in store.journal_runs.values():
            self._run(store, before, after, now)
        for before, after in store.journal_schedules.values():
            self._schedule(store, before, after, now)
        for name in {run.schedule for pair in store.journal_runs.values() for run in pair if run and run.schedule}:
            serial = store._serial_runs_of(name)
            if serial and all(run.parked for run in serial):
                self.say("G10", f"{len(serial)} runs of {name} wait for a place that nobody has, since {store.calling}")

    def _run(self, store: WatchedStore, before: RunRecord | None, after: RunRecord | None, now: int) -> None:
        if after is None:
            if before is not None and before.state.is_open:
                self.say("prune", f"{_name(before)} was deleted while it was {before.state}")
            return
        if before is None:
            self._created(store, after, now)
            return
        if after.attempt < before.attempt or after.token < before.token or after.opening < before.opening:
            self.say("G5", f"{_name(after)}: attempt, token or opening went back")
        if before.state is RunState.RUNNING and (after.state, after.token) != (before.state, before.token):
            self._let_go(store, before, now)
        if after.state is RunState.RUNNING and after.token != before.token:
            self._claimed(store, before, after, now)
        if before.state.is_open and not after.state.is_open:
            self._ended(after)
        if not before.state.is_open and after.state.is_open:
            if store.calling != "retry" or after.opening != before.opening + 1:
                self.say("G6", f"{_name(after)} was re-opened by {store.calling}")
        elif not before.state.is_open and before.state is not after.state:
            self.say("G6", f"{_name(after)} ended as {before.state} and then as {after.state}")

    def _created(self, store: WatchedStore, run: RunRecord, now: int) -> None:
        if run.tick is None or run.backfill is not None or run.schedule is None:
            return
        key = run.schedule, run.tick
        if key in self.ticks_made:
            self.say("G1", f"the tick of {_name(run)} became a run a second time")
        self.ticks_made.add(key)
        if run.tick > now:
            self.say("G2", f"{_name(run)} was created {run.tick - now} us early")
        if run.id != tick_run_id(run.schedule, run.tick):
            self.say("G1", f"{_name(run)} has an id of its own: {run.id}")
        row = store._schedule_rows[run.schedule]
        others = [r for r in store._serial_runs_of(run.schedule) if r.id != run.id]
        if row.definition.overlap is Overlap.SKIP and not run.is_catchup and others:
            self.say("G10", f"{_name(run)} was created beside {_name(others[0])}, which is {others[0].state}")
        waiting = [r for r in others if r.parked]
        if row.definition.overlap in (Overlap.WAIT, Overlap.CANCEL) and not run.is_catchup and waiting:
            self.say("G10", f"{_name(run)} is the second that waits, after {_name(waiting[0])}")
        if run.serial and not run.parked and [r for r in others if not r.parked]:
            self.say("G10", f"{_name(run)} is a second head")

    def _let_go(self, store: WatchedStore, held: RunRecord, now: int) -> None:
        """A claim ends: by its own token, or by reap after its lease."""
        if store.calling == "finish":
            tokens = [outcome.token for outcome in store.outcomes if outcome.run_id == held.id]
            if held.token not in tokens:
                self.say("G5", f"{_name(held)} was ended by the stale token {tokens}, its own is {held.token}")
        elif store.calling == "reap":
            self.reaped.append((now, held.id))
            until = self._told.get(held.worker or "", 0)
            if now < until:
                self.say("G4", f"{_name(held)} was taken from {held.worker} {until - now} us before its lease ended")
        else:
            self.say("G4", f"{_name(held)} was taken from {held.worker} by {store.calling}")

    def _claimed(self, store: WatchedStore, before: RunRecord, run: RunRecord, now: int) -> None:
        if before.state is not RunState.PENDING:
            self.say("G4", f"{_name(run)} was claimed while {before.worker} held it")
        if before.due_at > now:
            self.say("G2", f"{_name(run)} was claimed {before.due_at - now} us before it was due")
        if before.cancel_requested or before.parked:
            self.say("G10", f"{_name(run)} was claimed though it was to be cancelled or waits")
        if run.attempt != before.attempt + 1:
            self.say("attempts", f"{_name(run)} went from attempt {before.attempt} to {run.attempt}")
        for owner in (run.id, run.schedule):
            if owner is not None:
                if run.token <= self._last_token.get(owner, 0):
                    self.say("G5", f"{_name(run)}: token {run.token} is not greater than the one before")
                self._last_token[owner] = run.token
        for task, most in store.max_running:
            if task == run.task and (held := sum(r.task == task for r in store._running())) > most:
                self.say("G10", f"{_name(run)} was claimed as number {held} of {task}, of which {most} may run")
        if run.serial and run.schedule is not None:
            # One that runs and is parked was left by a change from overlap="allow"; it ends in its own time.
            others = [r for r in store._serial_runs_of(run.schedule) if r.id != run.id and not r.parked]
            beside = [r for r in others if r.state is RunState.RUNNING]
            if beside:
                self.say("G10", f"{_name(run)} was claimed beside {_name(beside[0])}")

    def _ended(self, run: RunRecord) -> None:
        key = run.id, run.opening
        self._ends[key] = self._ends.get(key, 0) + 1
        if self._ends[key] > 1:
            self.say("G6", f"{_name(run)} ended {self._ends[key]} times in opening {run.opening}")

    def _schedule(
        self, store: WatchedStore, before: ScheduleRecord | None, after: ScheduleRecord | None, now: int
    ) -> None:
        if after is None:
            self.say("G1", f"the row of {before.name if before else '?'} was deleted")
            return
        if before is not None:
            if after.cursor < before.cursor or after.revision < before.revision:
                self.say("G3", f"{after.name}: cursor or revision went back, by {store.calling}")
            if after.cursor > before.cursor:
                self._passed(store, before, after, now)
        if after.status is not Status.ACTIVE or store.calling not in ("fire", "declare"):
            return  # a run-now that supersedes waiting ticks may free some of a `limit`: the audit finds that
        definition = after.definition
        full = definition.limit is not None and after.created_count >= definition.limit
        expected = None if full else next_tick(definition, parse(definition.trigger), after.cursor)
        if after.next_at != expected:
            self.say("G3", f"{after.name}: next_at is {after.next_at}, its trigger says {expected}")

    def _passed(self, store: WatchedStore, before: ScheduleRecord, after: ScheduleRecord, now: int) -> None:
        """Every tick that the cursor passed is a run or in a gap, and the counts add up (G3, G11)."""
        if after.cursor > now:
            self.say("G2", f"{after.name}: the cursor is {after.cursor - now} us in the future")
        trigger, name = parse(before.definition.trigger), before.name
        gaps = store.journal_gaps.get(name, [])
        low = before.cursor
        without: list[int] = []
        while (tick := next_tick(before.definition, trigger, low)) is not None and tick <= after.cursor:
            self.passed[name] += 1
            if (name, tick) not in self.ticks_made:
                without.append(tick)
                if not any(gap.first <= tick <= gap.last for gap in gaps):
                    self.say("G11", f"{name}: the tick at {tick} was passed by {store.calling} and nothing says why")
            elif any(gap.first <= tick <= gap.last for gap in gaps if gap.reason is GapReason.MISSED):
                self.say("G11", f"{name}: the tick at {tick} has a run and is in a gap as well")
            low = tick
        counted = sum(gap.count for gap in gaps)
        self.in_gaps[name] += len(without)
        if store.calling == "fire" and counted != len(without) and not any(gap.at_least for gap in gaps):
            self.say("G11", f"{name}: {len(without)} ticks became no run, the gaps count {counted}")

    def answered(self, calling: str, answer: Any, worker: str | None) -> None:
        if (
            worker is None
            or (isinstance(answer, Claimed) and not answer.runs)
            or (isinstance(answer, Fired) and not answer.leases)
        ):
            return
        if isinstance(answer, Pulse | Claimed | Fired):
            self._told[worker] = max(self._told.get(worker, 0), answer.lease_until)

    # --- at the end -------------------------------------------------------------------

    def verdict(self, store: WatchedStore, *, drained: bool = True) -> None:
        """After everything healed and every open run had its time. Raises Violation."""
        if drained and not self.violations:
            self._nothing_left(store)
        by_run: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            by_run[line.run.id].append(line)
        for run in store._run_rows.values():
            self._told_by_ledger(run, by_run[run.id])
        if self.violations:
            raise Violation(f"{len(self.violations)} violations\n" + "\n".join(self.violations[:12]))

    def _nothing_left(self, store: WatchedStore) -> None:
        now = self.now()
        for run in store._open.values():
            self.say("G8", f"{_name(run)} never came to an end: {_shown(run)}")
        for row in store._schedule_rows.values():
            if row.status is Status.ACTIVE and row.next_at is not None and row.next_at < now - 2 * SECOND:
                self.say("G3", f"{row.name} is stuck: its next tick is {(now - row.next_at) / SECOND} s past")

    def _told_by_ledger(self, run: RunRecord, lines: Sequence[Line]) -> None:
        if run.opening == 1:
            if run.retries == 0 and any(line.how != "asked for more" for line in lines[:-1]):
                self.say("at most once", f"{_name(run)} has no retries and was started {len(lines)} times")
            if len(lines) > run.attempt:
                self.say("attempts", f"{_name(run)} was started {len(lines)} times in {run.attempt} attempts")
        if run.state is RunState.SUCCEEDED and not any(
            line.run.token == run.token and line.how == "returned" for line in lines
        ):
            self.say("G6", f"{_name(run)} succeeded under {run.token} but no execution returned under it")
        if run.reason == "superseded" and lines:
            self.say("G10", f"{_name(run)} was superseded though it had started")


class _Rows(dict[str, Any]):
    """A table that tells of its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: dict[str, tuple[Any, Any]] = {}
        """What a step changed: each key as it was before and is after it."""

    def __setitem__(self, key: str, value: Any) -> None:
        before = self.get(key)
        super().__setitem__(key, value)
        self.journal[key] = self.journal.get(key, (before,))[0], value

    def __delitem__(self, key: str) -> None:
        before = self[key]
        super().__delitem__(key)
        self.journal[key] = self.journal.get(key, (before,))[0], None


class WatchedStore(MemoryStore):
    """MemoryStore, with the oracle looking on after each step."""

    def __init__(self, oracle: Oracle, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self.oracle = oracle
        self.calling = ""
        self.outcomes: Sequence[Outcome] = ()
        self.max_running: tuple[tuple[str, int], ...] = ()
        self._run_rows = _Rows()
        self._schedule_rows = _Rows()
        self.journal_runs = self._run_rows.journal
        self.journal_schedules = self._schedule_rows.journal
        self.journal_gaps: dict[str, list[Gap]] = {}
        for name in ("declare", "fire", "enqueue", "claim", "heartbeat", "finish", "reap", "cancel", "retry", "prune"):
            setattr(self, name, self._watched(name))

    def _watched(self, name: str) -> Callable[..., Any]:
        method = getattr(self, name)

        async def step(*args: Any, **options: Any) -> Any:
            self.calling = name
            worker: str | None = None
            if name == "finish":
                self.outcomes = args[0]
            elif name == "fire":
                self.oracle.fire_plans += len(args[0])
                spec = args[1] if len(args) > 1 else options.get("claim")
                worker = None if spec is None else spec.worker
                self.max_running = () if spec is None else spec.max_running
            elif name == "claim":
                worker, self.max_running = args[0].worker, args[0].max_running
            elif name == "heartbeat":
                worker = args[0].id
            answer = await method(*args, **options)
            self.oracle.answered(name, answer, worker)
            return answer

        return step

    @contextmanager
    def _step(self, now: int | None = None) -> Generator[int]:
        with super()._step(now) as at:
            self.journal_runs.clear()
            self.journal_schedules.clear()
            self.journal_gaps.clear()
            yield at
            if self.journal_runs or self.journal_schedules:
                self.oracle.step(self, at)

    def _record_gaps(self, schedule: str, gaps: Iterable[Gap], seen_cursor: int | None, now: int) -> None:
        noted = list(gaps)
        self.journal_gaps.setdefault(schedule, []).extend(noted)
        super()._record_gaps(schedule, noted, seen_cursor, now)


def _name(run: RunRecord) -> str:
    where = "" if run.tick is None else f" of {run.schedule} at {run.tick / SECOND:.3f}"
    return f"run {run.id[-8:]}{where}"


def _shown(run: RunRecord) -> str:
    fields = ("state", "attempt", "parked", "cancel_requested", "worker", "due_at", "outcome", "reason", "task")
    return ", ".join(f"{name}={getattr(run, name)}" for name in fields)
