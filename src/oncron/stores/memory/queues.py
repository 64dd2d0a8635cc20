"""Queues: paused by the whole fleet, and how much waits in them."""

from __future__ import annotations

from msgspec.structs import replace

from oncron._groups import QueueRecord
from oncron._model import RunState
from oncron.stores.memory.tables import Tables


class Queues(Tables):
    async def set_queue(self, name: str, *, paused: bool, note: str = "", now: int | None = None) -> QueueRecord:
        with self._step(now) as at:
            row = self._queue_rows.get(name) or QueueRecord(name=name)
            if (row.paused, row.note) != (paused, note):
                self._queue_rows[name] = QueueRecord(name=name, paused=paused, note=note, changed_at=at)
            return self._counted_queue(name, at)

    async def queues(self, *, now: int | None = None) -> list[QueueRecord]:
        with self._step(now) as at:
            names = {run.queue for run in self._open.values()}
            names |= {row.name for row in self._queue_rows.values() if row.paused}
            return [self._counted_queue(name, at) for name in sorted(names)]

    def _counted_queue(self, name: str, now: int) -> QueueRecord:
        row = self._queue_rows.get(name) or QueueRecord(name=name)
        runs = [run for run in self._open.values() if run.queue == name]
        pending = [run for run in runs if run.state is RunState.PENDING]
        ready = [run.due_at for run in pending if run.due_at <= now and not run.parked]
        return replace(
            row,
            ready=len(ready),
            waiting=len(pending) - len(ready),
            running=len(runs) - len(pending),
            oldest_due_at=min(ready, default=None),
        )
