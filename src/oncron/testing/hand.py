"""The hand of a clock that is moved, and who sleeps until it comes by."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from oncron.errors import Stopped


@dataclass(eq=False, frozen=True)
class Sleeper:
    run_id: str | None
    """The run whose task sleeps; None for a caller that is no task."""
    until: int
    wake: Callable[[], None]
    """May be called from any thread."""
    in_thread: bool
    """Whether nobody can cancel it."""


class Hand:
    """Instants in microseconds. Read and moved from any thread."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._sleepers: dict[int, Sleeper] = {}
        self._numbers = itertools.count()
        self.stirs = 0
        """Counts who falls asleep and who wakes."""
        self.lifted = False
        """Whether the clock is gone: nobody will wake who falls asleep now."""

    def now(self) -> int:
        return self._now

    def move(self, to: int) -> None:
        """Wakes who slept until then, in the order of their instants."""
        with self._lock:
            self._now = max(self._now, to)
            due = sorted((each.until, number) for number, each in self._sleepers.items() if each.until <= self._now)
            woken = [self._sleepers.pop(number) for _, number in due]
            self.stirs += len(woken)
        for sleeper in woken:
            sleeper.wake()

    def next_wake(self) -> int | None:
        with self._lock:
            return min((sleeper.until for sleeper in self._sleepers.values()), default=None)

    def is_asleep(self, run_id: str) -> bool:
        with self._lock:
            return any(sleeper.run_id == run_id for sleeper in self._sleepers.values())

    @contextmanager
    def asleep(self, run_id: str | None, until: int, wake: Callable[[], None], *, in_thread: bool) -> Generator[None]:
        """Once the clock is gone raises Stopped, CancelledError in a run."""
        number = next(self._numbers)
        with self._lock:
            self._refuse_if_lifted(run_id)
            self.stirs += 1
            self._sleepers[number] = Sleeper(run_id, until, wake, in_thread)
        try:
            yield
        finally:
            with self._lock:
                self.stirs += self._sleepers.pop(number, None) is not None
        self._refuse_if_lifted(run_id)

    def lift(self) -> None:
        """Whoever cannot be cancelled wakes, to hear that the clock is gone."""
        with self._lock:
            self.lifted = True
            sleepers = [each for each in self._sleepers.values() if each.in_thread or each.run_id is None]
        for sleeper in sleepers:
            sleeper.wake()

    def _refuse_if_lifted(self, run_id: str | None) -> None:
        if self.lifted and run_id is not None:
            raise asyncio.CancelledError
        if self.lifted:
            raise Stopped("the ManualClock's block was left: nobody moves this clock any more")
