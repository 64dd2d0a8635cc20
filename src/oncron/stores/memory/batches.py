"""Batches: runs that belong together. What they count is read from the runs, so nothing is counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from oncron._groups import BatchRecord, NewBatch
from oncron._model import NewRun, RunState
from oncron.stores import _missing
from oncron.stores.memory.runs import Runs

UNSUCCESSFUL = (RunState.FAILED, RunState.LOST, RunState.CANCELLED)


class Batches(Runs):
    """The steps that open, close and settle batches."""

    async def open_batch(self, batch: NewBatch, *, now: int | None = None) -> BatchRecord:
        with self._step(now) as at:
            if batch.id not in self._batch_rows:
                if batch.parent is not None and not self._takes_more(batch.parent):
                    raise _missing.takes_no_more(batch.parent)
                self._batch_rows[batch.id] = BatchRecord(
                    id=batch.id,
                    parent=batch.parent,
                    data=batch.data,
                    created_at=at,
                    on_complete=batch.on_complete,
                    on_success=batch.on_success,
                    on_death=batch.on_death,
                )
            return self._counted(batch.id)

    async def close_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        with self._step(now) as at:
            self._batch_rows[batch_id] = replace(self._known_batch(batch_id), closed=True)
            self._settle(batch_id, at)
            return self._counted(batch_id)

    async def invalidate_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        with self._step(now):
            self._batch_rows[batch_id] = replace(self._known_batch(batch_id), invalid=True)
            return self._counted(batch_id)

    async def delete_batch(self, batch_id: str, *, now: int | None = None) -> bool:
        with self._step(now) as at:
            row = self._batch_rows.pop(batch_id, None)
            self._reopened.discard(batch_id)
            if row is not None and row.parent in self._batch_rows:
                self._settle(row.parent, at)
            return row is not None

    async def settle_batches(
        self, ids: Sequence[str] | None = None, *, after: str = "", limit: int = 100, now: int | None = None
    ) -> list[BatchRecord]:
        with self._step(now) as at:
            wanted = self._unsettled() if ids is None else ids
            found = sorted({name for name in wanted if name > after and name in self._batch_rows})[:limit]
            for batch_id in found:
                self._settle(batch_id, at)
            return [self._counted(batch_id) for batch_id in found]

    def _unsettled(self) -> list[str]:
        return [
            row.id
            for row in self._batch_rows.values()
            if row.succeeded_at is None and (row.completed_at is None or row.id in self._reopened)
        ]

    def _settle(self, batch_id: str, now: int) -> None:
        row = self._batch_rows[batch_id]
        if row.succeeded_at is not None:
            return
        runs = self._runs_by_state(batch_id)
        children = [child for child in self._batch_rows.values() if child.parent == batch_id]
        if row.died_at is None and (runs[RunState.FAILED] or runs[RunState.LOST]):
            row = replace(row, died_at=now)
            self._call_back(row.on_death, now)
        quiet = row.closed and not any(runs[state] for state in RunState if state.is_open)
        quiet = quiet and all(child.completed_at is not None for child in children)
        before = row
        if quiet and row.completed_at is None:
            row = replace(row, completed_at=now)
            self._call_back(row.on_complete, now)
        well = not any(runs[state] for state in UNSUCCESSFUL) and all(
            child.succeeded_at is not None for child in children
        )
        if quiet and well:
            row = replace(row, succeeded_at=now)
            self._call_back(row.on_success, now)
        self._batch_rows[batch_id] = row
        if quiet:
            self._reopened.discard(batch_id)
        moved = (row.completed_at, row.succeeded_at) != (before.completed_at, before.succeeded_at)
        if moved and row.parent is not None and row.parent in self._batch_rows:
            self._settle(row.parent, now)

    def _call_back(self, callback: NewRun | None, now: int) -> None:
        if callback is not None and self._may_write(callback):
            self._enqueue_one(callback, now)

    async def get_batch(self, batch_id: str) -> BatchRecord | None:
        with self._step():
            return self._counted(batch_id) if batch_id in self._batch_rows else None

    async def batches(self, *, dead: bool = False, before: str | None = None, limit: int = 100) -> list[BatchRecord]:
        with self._step():
            page = sorted(self._batch_rows.values(), key=lambda row: (row.created_at, row.id), reverse=True)
            if before is not None:
                mark = self._batch_rows.get(before)
                page = [] if mark is None else [r for r in page if (r.created_at, r.id) < (mark.created_at, mark.id)]
            return [self._counted(row.id) for row in page if not dead or row.died_at is not None][:limit]

    def _known_batch(self, batch_id: str) -> BatchRecord:
        try:
            return self._batch_rows[batch_id]
        except KeyError:
            raise _missing.no_batch(batch_id) from None

    def _runs_by_state(self, batch_id: str) -> Counter[str]:
        return Counter(run.state.value for run in self._run_rows.values() if run.batch == batch_id)

    def _counted(self, batch_id: str) -> BatchRecord:
        incomplete = [row for row in self._batch_rows.values() if row.parent == batch_id and row.completed_at is None]
        return replace(self._batch_rows[batch_id], runs=dict(self._runs_by_state(batch_id)), children=len(incomplete))
