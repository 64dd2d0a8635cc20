"""What follows when runs end: callbacks of batches, and the next run of tasks with `every_after_end`.

Both are written by the very step that they follow wherever that is possible. What a crash, an
operator or a dead worker leaves is found by looking again; finding it twice is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._clock import sleep_us, wait_us
from oncron._engine.door import Door
from oncron._engine.spec import TaskSpec
from oncron._groups import BatchRecord
from oncron._model import NewRun

_LOOK_EVERY = 120 * limits.SECOND
_PAGE = 100


class Followers:
    """`due` hears that something was enqueued which a worker may take."""

    def __init__(self, door: Door, tasks: Mapping[str, TaskSpec], *, due: Callable[[], None]) -> None:
        self._door, self._tasks, self._due = door, tasks, due
        self._ended: set[str] = set()
        self._told = asyncio.Event()
        self._look = asyncio.Event()

    def worker_died(self) -> None:
        """It may have written the end of a run, and not what follows from it."""
        self._look.set()

    def run_ended(self, batch: str | None) -> None:
        """A run of this batch has ended, or was taken away."""
        if batch is not None:
            self._ended.add(batch)
            self._told.set()

    async def settle_loop(self) -> None:
        """One call on its way at a time; batches that are told of meanwhile go with the next one."""
        while True:
            await self._told.wait()
            self._told.clear()
            ids = sorted(self._ended)[:_PAGE]
            # Before the call: what ends while it is under way is told of anew, and may not be in its answer.
            self._ended.difference_update(ids)
            if ids:
                try:
                    settled = await self._door(lambda store, ids=ids: store.settle_batches(ids))
                except BaseException:
                    self._ended.update(ids)
                    self._told.set()
                    raise
                self._tell(settled)
            if self._ended:
                self._told.set()

    async def look_loop(self) -> None:
        """Batches whose last run ended unseen, and chains that broke off: at the start, when a worker has died, and
        now and then."""
        first = True
        while True:
            await self._mend_chains(at_once=first)
            first = False
            after = ""
            while True:
                page = await self._door(lambda store, after=after: store.settle_batches(None, after=after, limit=_PAGE))
                self._tell(page)
                if len(page) < _PAGE:
                    break
                after = page[-1].id
                await sleep_us(50_000)
            await wait_us(self._look, _LOOK_EVERY)
            self._look.clear()

    async def _mend_chains(self, *, at_once: bool) -> None:
        """Every chain has an open run. One that never had any begins at once."""
        chains = [spec.chained() for spec in list(self._tasks.values()) if spec.chained is not None]
        if not chains:
            return
        wanted = [_now(run) for run in chains] if at_once else chains
        if any(result.is_new for result in await self._door(lambda store: store.enqueue(wanted))):
            self._due()

    def _tell(self, settled: list[BatchRecord]) -> None:
        if any(batch.completed_at is not None or batch.died_at is not None for batch in settled):
            self._due()


def _now(run: NewRun) -> NewRun:
    return replace(run, delay=0)
