"""The Reader part: for CLI, web and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from oncron._groups import BatchRecord, LimitRule, LockRecord, QueueRecord, Taken
from oncron._model import Gap, RunFilter, RunRecord, ScheduleRecord, Stats, WorkerRecord
from oncron.stores.postgres._steps import is_uuid, name_of, schedule
from oncron.stores.postgres._wire import encode

_schedule_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode
_gaps = msgspec.json.Decoder(list[Gap]).decode
_runs = msgspec.json.Decoder(list[RunRecord]).decode
_workers = msgspec.json.Decoder(list[WorkerRecord]).decode
_stats = msgspec.json.Decoder(Stats).decode
_queues = msgspec.json.Decoder(list[QueueRecord]).decode
_locks = msgspec.json.Decoder(list[LockRecord]).decode
_taken = msgspec.json.Decoder(Taken).decode
_batch = msgspec.json.Decoder(BatchRecord).decode
_batches = msgspec.json.Decoder(list[BatchRecord]).decode


class Reads(Protocol):
    """The steps that write nothing."""

    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRecord]:
        found: list[ScheduleRecord] = []
        while True:
            left = None if limit is None else limit - len(found)
            rows = _schedule_rows(await self._step("list_schedules", encode(names), tag, after, left))
            readable = [row for row in map(schedule, rows) if row is not None]
            found += readable
            if left is None or len(rows) < left or len(readable) == len(rows):
                return found
            after = name_of(rows[-1])  # some of the page cannot be read: it is filled with what comes after

    async def gaps(
        self, schedule: str, *, since: int | None = None, until: int | None = None, limit: int = 100
    ) -> list[Gap]:
        return _gaps(await self._step("list_gaps", schedule, since, until, limit))

    async def get_run(self, run_id: str) -> RunRecord | None:
        found = await self.get_runs([run_id])
        return found[0] if found else None

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunRecord]:
        known = [run_id for run_id in run_ids if is_uuid(run_id)]
        return _runs(await self._step("get_runs", encode(known))) if known else []

    async def runs(self, where: RunFilter) -> list[RunRecord]:
        if where.before is not None and not is_uuid(where.before):
            return []
        return _runs(await self._step("list_runs", encode(where)))

    async def workers(self) -> list[WorkerRecord]:
        return _workers(await self._step("list_workers"))

    async def stats(self, *, now: int | None = None) -> Stats:
        return _stats(await self._step("read_stats", now))

    async def queues(self, *, now: int | None = None) -> list[QueueRecord]:
        return _queues(await self._step("list_queues", now))

    async def locks(self, *, now: int | None = None) -> list[LockRecord]:
        return _locks(await self._step("list_locks", now))

    async def taken(self, limiter: str, rule: LimitRule, *, now: int | None = None) -> Taken:
        return _taken(await self._step("taken", limiter, encode(rule), now))

    async def get_batch(self, batch_id: str) -> BatchRecord | None:
        found = await self._step("get_batch", batch_id)
        return None if found is None else _batch(found)

    async def batches(self, *, dead: bool = False, before: str | None = None, limit: int = 100) -> list[BatchRecord]:
        return _batches(await self._step("list_batches", dead, before, limit))

    async def _step(self, function: str, *arguments: str | bytes | int | None) -> Any:
        """Call a function of the schema; its answer as JSON."""
        ...
