"""A replica in a time that is moved by hand: the parts of every replica, without the loops that wait.

Where the store's clock stands still, nothing becomes due by itself. `settle` lets everything that is due
be fired, claimed and executed, and tells when something is due next; whoever moves the clock calls it at
that instant. Decisions, steps and executions are those of a replica that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from oncron._clock import SECOND, boot_us, wait_us
from oncron._engine.door import StoreClock
from oncron._engine.replica import Replica
from oncron._engine.spec import Execution

_BEAT = SECOND // 20
"""While tasks run, the store is asked so often (by the machine's clock) whether one was cancelled."""


class StillClock(StoreClock):
    """The store's clock as its mover knows it: exact, and it stands still."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__()
        self._now = now

    @property
    def known(self) -> bool:
        return True

    def heard(self, sent: int, received: int, now: int) -> None: ...

    def now_us(self) -> int:
        return self._now()

    def boot_at(self, instant: int) -> int:
        return boot_us() + instant - self._now()


class SteppedReplica(Replica):
    """Its lease is renewed in every step that holds something."""

    async def start(self) -> None:
        await self._keeper.once()
        await self._declare_all()
        self._say("worker.started")
        self.worker.accepting = self._runs_worker
        if self._runs_worker:
            self._executor.warm(self._tasks.values())
        self._spawn("finish", self.worker.endings.finish_loop)
        self._spawn("finish apart", self.worker.endings.finish_apart_loop)

    def look(self) -> None:
        super().look()
        self._look_at_all()

    def _look_at_all(self) -> None:
        self._scheduler.look_again()
        self.worker.due_at(0)
        self.worker.moved.set()

    def run_tasks_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Async tasks that begin from now on."""
        self._executor.run_on(loop)

    async def settle(self, is_asleep: Callable[[str], bool], patience: int) -> int | None:
        """Declare, fire, claim and execute all that is due by the store's clock, until nothing is left but runs that
        are asleep. When something is due next, a timeout included; None: never.

        Raises TimeoutError, naming the runs, if they neither end nor sleep for `patience` of the machine's time."""
        moved, held = self.worker.moved, bool(self.worker.executions)
        while True:
            moved.clear()
            await self.declare_what_is_new()
            tick = await self._scheduler.step() if self._runs_scheduler else None
            if held or self._look.is_set():  # the tick, or a caller, may have asked one to stop
                held = False
                self._look.clear()
                await self._keeper.once()
            due = await self.worker.step()
            self._strike()
            if moved.is_set():
                continue
            if not self._awake(is_asleep):
                now = self._door.clock.now_us()
                return min((at for at in (tick, due, *self._deadlines()) if at is not None and at > now), default=None)
            await self._wait(is_asleep, patience)

    async def declare_what_is_new(self) -> None:
        if self._declare.is_set():
            self._declare.clear()
            await self._declare_all()
            self._look_at_all()

    async def _wait(self, is_asleep: Callable[[str], bool], patience: int) -> None:
        """Until something ends, or falls asleep, or is asked for."""
        began = boot_us()
        while not self.worker.moved.is_set() and self._awake(is_asleep):
            if await wait_us(self.worker.moved, _BEAT):
                return
            await self._keeper.once()
            if boot_us() - began > patience:
                raise TimeoutError(_too_long(self._awake(is_asleep), patience))

    def _awake(self, is_asleep: Callable[[str], bool]) -> list[Execution]:
        """What runs, or was told to stop and has not done so."""
        executions = self.worker.executions.items()
        return [each for run_id, each in executions if not is_asleep(run_id) or self._must_end(each)]

    def _must_end(self, execution: Execution) -> bool:
        spec = self._tasks.get(execution.run.task)
        return execution.stop_reason is not None and spec is not None and spec.is_async

    def _strike(self) -> None:
        now = self._door.clock.now_us()
        for execution in self.worker.executions.values():
            if execution.deadline is not None and execution.deadline <= now and execution.stop_reason is None:
                execution.ask_to_stop("timeout")

    def _deadlines(self) -> list[int]:
        executions = self.worker.executions.values()
        return [each.deadline for each in executions if each.deadline is not None and each.stop_reason is None]


def _too_long(awake: list[Execution], patience: int) -> str:
    names = ", ".join(sorted({f"{each.run.task!r} ({each.run.id})" for each in awake})[:5])
    return (
        f"a run has not ended within {patience / SECOND:g} s: {names}. Tasks run in real time while the clock stands "
        "still: let them wait with clock.sleep(), or give ManualClock a larger patience="
    )
