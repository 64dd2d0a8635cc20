"""MemoryStore: the contract of `_store.py` as plain code. What the other stores do, this one says.

Read it in this order: `tables` (rows, the place of a schedule), `stores._occupancy` (G10), `schedules`
(declare, fire), `leases` (claim, heartbeat, reap), `runs` (enqueue, finish, cancel, retry), `reads`; then
`locks` (and limiters), `batches`, `queues`.
Every step is small functions named by the rule that they are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from oncron import _clock
from oncron.stores._no_guards import NoGuards
from oncron.stores._no_transactions import NoTransactions
from oncron.stores.memory.batches import Batches
from oncron.stores.memory.bell import Bell
from oncron.stores.memory.queues import Queues
from oncron.stores.memory.reads import Reads
from oncron.stores.memory.schedules import Schedules

__all__ = ["MemoryStore"]


class MemoryStore(Schedules, Batches, Queues, Reads, NoTransactions, NoGuards):
    """A store for one process: gone with it. Several apps, loops and threads may share one instance.

    `clock` gives microseconds (this machine's wall clock by default); a step backwards is ignored.
    """

    def __init__(self, *, clock: Callable[[], int] | None = None, url: str = "memory://") -> None:
        super().__init__(clock or _clock.wall_us)
        self.url = url
        self._bell = Bell()

    @asynccontextmanager
    async def guarded(self, name: str, lost: Callable[[str], None]) -> AsyncGenerator[bool]:  # noqa: ARG002
        """Nobody else is there, in a test whose app meets in PostgreSQL otherwise."""
        yield True

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Others may share this instance: the rows stay."""

    async def reset(self) -> None: ...

    async def migrate(self) -> None: ...

    async def check(self) -> None: ...

    async def now(self) -> int:
        with self._step() as now:
            return now

    async def hint(self) -> None:
        self._bell.ring()

    def wakeups(self) -> AsyncIterator[None]:
        return self._bell.rings()
