"""Replicas as real processes on one store, the faults done to them, and the evidence afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from oncron import Oncron
from oncron._model import Gap, GapReason, Overlap, RunFilter, RunRecord, RunState
from oncron._store import ReadableStore
from oncron.cli.ledger import Line, open_runs, read
from oncron.stores.open import opener
from tests.fault.disturbance import EVERYBODY, Disturbance
from tests.fault.oracle import Evidence, Findings, Promise, Promised, examine
from tests.fault.turns import Turns

REPOSITORY = Path(__file__).parents[2]
T = TypeVar("T")
Promises = Callable[[Mapping[str, int]], Mapping[str, Promised]]
"""From each schedule's last instant before it was paused to what was promised of it."""
EVERY = {"fast": 200_000, "second": 1_000_000, "skip": 500_000, "queue": 1_000_000}
"""Microseconds between the ticks of app.py's schedules, by the word that their names begin with."""


def machine_us() -> int:
    return time.time_ns() // 1000


@dataclass
class Load:
    """What every replica of a fleet is told to do."""

    fast: int = 2
    second: int = 1
    skip: int = 0
    queue: int = 0
    long: float = 0.15
    work: str = "20 200"
    lease: float = 3
    stop: float = 10
    retries: int = 1000
    release: int | None = None
    mutant: str | None = None
    """What is broken on purpose: a name in mutants.py."""

    @property
    def target(self) -> str:
        return "tests.fault.app:app" if self.mutant is None else "tests.fault.mutants:app"

    def environment(self) -> dict[str, str]:
        return {
            "FAULT_FAST": str(self.fast),
            "FAULT_SECOND": str(self.second),
            "FAULT_SKIP": str(self.skip),
            "FAULT_QUEUE": str(self.queue),
            "FAULT_LONG": str(self.long),
            "FAULT_WORK": self.work,
            "FAULT_LEASE": str(self.lease),
            "FAULT_STOP": str(self.stop),
            "FAULT_RETRIES": str(self.retries),
            "FAULT_RELEASE": "" if self.release is None else str(self.release),
            "FAULT_MUTANT": self.mutant or "",
        }


class Replica:
    """One slot of the fleet: a process, and the next one after that has ended."""

    def __init__(self, fleet: Fleet, name: str, offset: float) -> None:
        self.fleet, self.name, self.offset = fleet, name, offset
        self.log = fleet.home / f"{name}.log"
        self.code = REPOSITORY
        """The tree that it runs: another release's, perhaps."""
        self.environment: dict[str, str] = {}
        """What it is told besides what all are told."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def worker(self) -> str:
        """Its name in the ledger."""
        return f"{self.name}:{self.pid}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def up(self) -> bool:
        """Whether this process has said that it is at work."""
        return f":{self.pid}:" in self.log.read_text(errors="replace")

    def start(self) -> None:
        assert not self.alive
        environment = {**os.environ, **self.fleet.load.environment()}
        if self.code != REPOSITORY:
            environment["PYTHONPATH"] = str(self.code / "src")
        environment |= {
            "ONCRON_STORE": self.fleet.url,
            "ONCRON_CLOCK_OFFSET": str(self.offset),
            "FAULT_LEDGER": str(self.fleet.ledger),
            "FAULT_STOPS": str(self.fleet.stops),
            "FAULT_WORKER": self.name,
            "PYTHONUNBUFFERED": "1",
        } | self.environment
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oncron", "run", self.fleet.load.target],
                cwd=self.code, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within: float) -> int:
        """Its exit code. Raises TimeoutExpired."""
        assert self.process is not None
        return self.process.wait(timeout=within)


@dataclass
class Fleet:
    """Replicas on one store, one ledger, one journal of what was done to them."""

    url: str
    home: Path
    load: Load = field(default_factory=Load)
    offsets: Sequence[float] = (0, 300, -60)
    journal: list[Disturbance] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = self.home / "ledger.jsonl"
        self.stops = self.home / "stops.jsonl"
        self.ledger.touch()
        self.stops.touch()
        self.replicas = [Replica(self, f"r{n}", offset) for n, offset in enumerate(self.offsets)]
        self.app = Oncron(self.url)
        """For asking and enqueueing: it is never started, so it fires and executes nothing."""

    @contextmanager
    def running(self, within: float = 30) -> Iterator[Fleet]:
        """All replicas at work; whatever happens, none is left behind."""
        try:
            for replica in self.replicas:
                replica.start()
            if self.replicas and (self.load.fast or self.load.second):
                self.until(lambda: bool(self.lines()), within, "the first run")
            yield self
        finally:
            for replica in self.replicas:
                if replica.alive:
                    replica.signal(signal.SIGKILL)
                    replica.wait(10)
            self.app._life.engine.close()

    def add(self, name: str, offset: float = 0) -> Replica:
        """One more replica, started."""
        replica = Replica(self, name, offset)
        self.replicas.append(replica)
        replica.start()
        return replica

    # --- looking ----------------------------------------------------------------------

    def lines(self) -> list[Line]:
        return read(self.ledger.read_bytes())

    def holder(self, within: float = 20) -> Replica:
        """A live replica that holds a run right now, by the ledger."""
        found: list[Replica] = []

        def look() -> bool:
            held = {line.worker for line in open_runs(self.lines()).values()}
            found[:] = [replica for replica in self.replicas if replica.alive and replica.worker in held]
            return bool(found)

        self.until(look, within, "a replica that holds a run", every=0.005)
        return found[0]

    def until(self, condition: Callable[[], bool], within: float, what: str, every: float = 0.05) -> None:
        deadline = time.monotonic() + within
        while not condition():
            for replica in self.replicas:
                if replica.process is not None and replica.process.poll() not in (None, 0, -signal.SIGKILL):
                    raise AssertionError(f"{replica.worker} ended with {replica.process.returncode}\n{self.logs()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {within:.0f} s for {what}\n{self.logs()}")
            time.sleep(every)

    def logs(self, tail: int = 1500) -> str:
        texts = [(replica.log.name, replica.log.read_text(errors="replace")) for replica in self.replicas]
        return "\n".join(f"--- {name}\n{text[-tail:]}" for name, text in texts)

    def store(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """Ask the store directly."""

        async def go() -> T:
            store = opener(self.url)()
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(go())

    def runs(self, state: RunState | None = None) -> list[RunRecord]:
        return self.store(lambda store: store.runs(RunFilter(state=state, limit=100_000)))

    def held_by(self, pid: int) -> list[RunRecord]:
        """What the store says a process holds."""
        return [run for run in self.runs(RunState.RUNNING) if run.worker is not None and f":{pid}:" in run.worker]

    # --- faults -----------------------------------------------------------------------

    @contextmanager
    def disturbing(self, kind: str, worker: str = EVERYBODY, *, echo: float = 0) -> Iterator[None]:
        """Journal what is done inside. `echo`: for how many seconds afterwards it still explains things."""
        began = machine_us()
        try:
            yield
        finally:
            ended = machine_us() + round(echo * 1e6)
            self.journal.append(Disturbance(kind=kind, worker=worker, began=began, ended=ended))

    def kill(self, replica: Replica, kind: str = "kill") -> None:
        with self.disturbing(kind, replica.worker):
            replica.signal(signal.SIGKILL)
            replica.wait(10)

    def suspend(self, replica: Replica, seconds: float) -> None:
        """Stopped longer than its lease, then let go on."""
        with self.disturbing("stop", replica.worker, echo=1):
            replica.signal(signal.SIGSTOP)
            time.sleep(seconds)
            replica.signal(signal.SIGCONT)

    def terminate(self, replica: Replica) -> None:
        """A graceful stop: exit code 0, within the limit, and nothing stays claimed."""
        self.until(lambda: replica.up, 20, f"{replica.worker} to start")
        pid, began = replica.pid, time.monotonic()
        replica.signal(signal.SIGTERM)
        code = replica.wait(self.load.stop + 5)
        took = time.monotonic() - began
        assert code == 0, f"{replica.name}:{pid} ended with {code}\n{self.logs()}"
        assert took < self.load.stop + 1, f"{replica.name}:{pid} took {took:.1f} s to stop\n{self.logs()}"
        held = self.held_by(pid)
        assert not held, f"{replica.name}:{pid} has left and still holds {held}\n{self.logs()}"

    # --- the end ----------------------------------------------------------------------

    def settle(self, within: float = 60, *, patient: bool = True, promises: Promises | None = None) -> Findings:
        """Pause every schedule, let everything end, stop the replicas, and judge. `patient=False` judges
        what there is when the time is up; `promises` tells what was promised, asked after the pause."""
        return examine(self.end(within, patient=patient, promises=promises))

    def end(self, within: float = 60, *, patient: bool = True, promises: Promises | None = None) -> Evidence:
        """The same, to be judged by the caller."""
        names = self._pause()
        try:
            self.until(lambda: not self._open(), within, "the open runs to end", every=0.2)
        except AssertionError as error:
            if patient:
                raise AssertionError(f"{self._open_by_kind()}\n{error}") from None
        for replica in self.replicas:
            if replica.alive:
                self.terminate(replica)
        return self._evidence((promises or self._steady)(names))

    def _pause(self) -> Mapping[str, int]:
        """Until when each schedule's ticks were promised: the instant before it was paused."""
        promised: dict[str, int] = {}

        async def go() -> None:
            for schedule in await self.app.schedules():
                promised[schedule.name] = machine_us()
                await self.app.pause(schedule.name)

        self.app.sync(go())
        return promised

    def _open(self) -> int:
        runs = self.store(lambda store: store.stats()).runs
        return runs.get("pending", 0) + runs.get("running", 0)

    def _open_by_kind(self) -> str:
        kinds = Counter(
            f"{run.schedule} {run.state}{' and parked' if run.parked else ''}"
            for state in (RunState.PENDING, RunState.RUNNING)
            for run in self.runs(state)
        )
        return f"still open: {dict(kinds)}"

    def _steady(self, promised: Mapping[str, int]) -> Mapping[str, Promise]:
        """Of schedules that were what they are from the first declaration on."""
        rows = self.store(lambda store: store.schedules(list(promised)))
        return {
            row.name: Promise(every=_every_us(row.name), after=row.created_at, until=promised[row.name]) for row in rows
        }

    def _evidence(self, promises: Mapping[str, Promised]) -> Evidence:
        gaps = [gap for name in promises for gap in self.store(lambda store, name=name: store.gaps(name, limit=10_000))]
        turns = self._turns(promises, gaps)

        def counts(gap: Gap) -> bool:
            # A pause owes nothing: its own record is none of a missed tick.
            return gap.last <= promises[gap.schedule].until or (
                gap.schedule in turns and gap.reason is GapReason.OVERLAP
            )

        return Evidence(
            lines=self.lines(),
            promises=promises,
            runs=[run for run in self.runs() if run.schedule in promises],
            gaps=[gap for gap in gaps if counts(gap)],
            disturbances=tuple(self.journal),
            lease=round(self.load.lease * 1_000_000),
            turns=turns,
            stops=read(self.stops.read_bytes()),
        )

    def _turns(self, names: Iterable[str], gaps: Sequence[Gap]) -> Mapping[str, Turns]:
        """Of the schedules whose runs take turns. What fell into the pause at the end owes nothing."""
        pauses = {gap.schedule: gap.first for gap in reversed(gaps) if gap.reason is GapReason.PAUSED}
        return {
            row.name: Turns(
                overlap=row.definition.overlap,
                every=_every_us(row.name),
                after=row.created_at,
                cursor=min(row.cursor, pauses.get(row.name, row.cursor + 1) - 1),
            )
            for row in self.store(lambda store: store.schedules(list(names)))
            if row.definition.overlap is not Overlap.ALLOW
        }


def _every_us(name: str) -> int:
    return EVERY[name.split("-", maxsplit=1)[0]]
