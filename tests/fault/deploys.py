"""Releases that follow one another on a fleet at work, and when which definition held: by the store's record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from oncron._model import GapReason, ScheduleRecord, Status
from oncron.triggers import parse
from tests.fault.fleet import Fleet, Load, Replica
from tests.fault.oracle import Lives, Promise

Declares = Mapping[str, tuple[int, int]]
"""Of each schedule: milliseconds between its ticks, and retries."""


@dataclass
class Deployed(Load):
    """Replicas whose code declares `declares`; a process that starts later may declare something else."""

    fast: int = 0
    second: int = 0
    declares: Declares = field(default_factory=dict[str, tuple[int, int]])

    @property
    def target(self) -> str:
        return "tests.fault.deployed:app"

    def environment(self) -> dict[str, str]:
        return super().environment() | {"FAULT_DECLARES": json.dumps(self.declares)}


@dataclass
class _Life:
    """A definition of a schedule: from which cursor on, and how long, it held."""

    every_us: int
    after: int
    until: int | None = None


class Roller:
    """Rolls releases over the fleet, one step at a time, and looks into the store after each."""

    def __init__(self, fleet: Fleet, load: Deployed, *, dwell: float = 0.5) -> None:
        self.fleet, self.load, self.dwell = fleet, load, dwell
        self._lives: dict[str, list[_Life]] = {}

    def release(self, number: int | None, declares: Declares) -> None:
        """What processes that start from now on are."""
        self.load.release, self.load.declares = number, declares

    def roll(self, *, stop: Callable[[Replica], None] | None = None) -> None:
        """One replica after the other."""
        for replica in self.fleet.replicas:
            (stop or self.fleet.terminate)(replica)
            self._start([replica])

    def recreate(self, stop: Callable[[Replica], None], pause: Callable[[], None]) -> None:
        """All at once, with a while in which nobody runs."""
        for replica in self.fleet.replicas:
            stop(replica)
        pause()
        self._start(self.fleet.replicas)

    def _start(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            replica.start()
        self.settled()

    def settled(self) -> None:
        """All are at work; what they declared has held for a while."""
        self.fleet.until(lambda: all(replica.up for replica in self.fleet.replicas), 30, "the new release to start")
        time.sleep(self.dwell)
        self.look()

    def until(self, schedule: str, period: int, within: float) -> None:
        """Wait for a definition to hold."""

        def holds() -> bool:
            self.look()
            return self.periods(schedule)[-1] == period

        self.fleet.until(holds, within, f"{schedule!r} to tick every {period} ms", every=0.2)
        time.sleep(self.dwell)

    def periods(self, schedule: str) -> list[int]:
        """Milliseconds between its ticks, in each of its lives."""
        return [life.every_us // 1000 for life in self._lives[schedule]]

    def look(self) -> None:
        """Note which definitions hold now. Between two looks a schedule changes once at most."""
        for row in self.fleet.store(lambda store: store.schedules()):
            lives = self._lives.setdefault(row.name, [])
            every_us = _every_us(row)
            if not lives:
                lives.append(_Life(every_us, row.created_at))
            elif row.status is Status.REMOVED:
                lives[-1].until = row.cursor
            elif lives[-1].until is not None or lives[-1].every_us != every_us:
                since = self._changed_at(row, lives[-1])
                lives[-1].until = lives[-1].until or since
                lives.append(_Life(every_us, since))

    def _changed_at(self, row: ScheduleRecord, before: _Life) -> int:
        """Up to where the change moved the cursor: what came before is the old definition's."""
        gaps = self.fleet.store(lambda store: store.gaps(row.name, since=before.after + 1, limit=1000))
        found = [gap.last for gap in gaps if gap.reason in (GapReason.CHANGED, GapReason.REMOVED)]
        assert found, f"{row.name} has revision {row.revision} and no record that says since when"
        return max(found)

    def promises(self, _: Mapping[str, int]) -> Mapping[str, Lives]:
        """Each definition's ticks, now that all schedules stand still: up to the cursor, exactly."""
        self.look()
        rows = {row.name: row for row in self.fleet.store(lambda store: store.schedules())}
        found: dict[str, Lives] = {}
        for name, lives in self._lives.items():
            if lives[-1].until is None:
                lives[-1].until = rows[name].cursor
            parts = [
                Promise(every=life.every_us, after=life.after, until=life.until)
                for life in lives
                if life.until is not None
            ]
            assert all(before.until <= after.after for before, after in pairwise(parts)), f"{name}: {parts}"
            found[name] = Lives(parts)
        return found


def _every_us(row: ScheduleRecord) -> int:
    trigger = parse(row.definition.trigger)
    first = trigger.next_after_us(0)
    assert first is not None
    second = trigger.next_after_us(first)
    assert second is not None
    return second - first
