"""The replicas of a demo: real processes, `oncron run`, with a ledger that they share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import click

from oncron._clock import SECOND, boot_us, sleep_us
from oncron.cli import ledger


@dataclass(frozen=True)
class Beat:
    """When a schedule of the demo ticks: every so many microseconds, counted from `offset`."""

    every: int
    offset: int

    def grid(self, after: int, until: int) -> ledger.Grid:
        return ledger.Grid(every=self.every, offset=self.offset, after=after, until=until)


_FAST = 5
BEATS = {f"fast-{n + 1}": Beat(SECOND // 5, n * SECOND // 5 // _FAST) for n in range(_FAST)} | {
    "slow": Beat(SECOND, 20_000)
}
"""The schedules that every replica declares: a tick every 40 ms, and a slow one every second."""

_APP = "oncron.cli._demo_app:app"


class DemoFailed(click.ClickException):
    """The demo itself could not be carried out."""


@dataclass(frozen=True)
class Place:
    """Where a demo happens."""

    store: str
    namespace: str
    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"


class Tail:
    """A ledger that others append to, read as it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self.lines: list[ledger.Line] = []

    def follow(self) -> list[ledger.Line]:
        """Every line so far."""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read)
                new, newline, _ = file.read().rpartition(b"\n")
            self._read += len(new + newline)
            self.lines += ledger.read(new + newline)
        return self.lines


class Replica:
    """One process. `name` is what the ledger calls it."""

    def __init__(self, place: Place, number: int) -> None:
        self.name = str(number)
        self.killed = False
        self._log = place.folder / f"replica-{number}.log"
        environment = os.environ | {
            "ONCRON_DEMO_STORE": place.store,
            "ONCRON_DEMO_NAMESPACE": place.namespace,
            "ONCRON_DEMO_LEDGER": str(place.ledger),
            "ONCRON_DEMO_REPLICA": self.name,
        }
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C reaches the demo alone, which then stops its replicas.
            self.process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "oncron", "run", _APP],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL: it gets no chance to say goodbye."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        if self.alive:
            self.process.send_signal(signal.SIGTERM)

    async def ended(self, within: int) -> bool:
        """Whether it ends within so many microseconds."""
        until = boot_us() + within
        while self.alive and boot_us() < until:
            await sleep_us(20_000)
        return not self.alive

    def last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Replicas:
    """All of them; none outlives the `with` block."""

    def __init__(self, place: Place, number: int) -> None:
        self._place, self._number = place, number
        self.all: list[Replica] = []

    def __enter__(self) -> Self:
        self.all = [Replica(self._place, number) for number in range(1, self._number + 1)]
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.all:
            if replica.alive:
                replica.process.kill()
                replica.process.wait()

    @property
    def living(self) -> list[Replica]:
        return [replica for replica in self.all if replica.alive]

    def check(self) -> None:
        """Raise DemoFailed if one ended that nobody killed."""
        for replica in self.all:
            if not replica.killed and not replica.alive:
                raise DemoFailed(f"replica {replica.name} ended by itself: {replica.last_words()}")

    async def stop(self, within: int) -> None:
        """SIGTERM to all, and wait for them. Raises DemoFailed if one does not end or ended badly."""
        stopping = self.living
        for replica in stopping:
            replica.terminate()
        for replica in stopping:
            if not await replica.ended(within):
                raise DemoFailed(f"replica {replica.name} did not stop within {within / SECOND:g} s of SIGTERM")
            if replica.process.returncode != 0:
                raise DemoFailed(
                    f"replica {replica.name} left with {replica.process.returncode}: {replica.last_words()}"
                )
