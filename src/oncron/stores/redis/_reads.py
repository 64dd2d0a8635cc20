"""The Reader part: for CLI, web and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import asdict, replace

from oncron._groups import BatchRecord, LimitRule, LockRecord, QueueRecord, Taken
from oncron._model import Gap, RunFilter, RunRecord, ScheduleRecord, Stats, WorkerRecord
from oncron.stores.redis import _steps
from oncron.stores.redis._wire import decoder, readable

PAGE = 500
"""Records that one script looks through: others wait meanwhile."""

_gap = decoder(Gap)
_workers = decoder(list[WorkerRecord])
_queues = decoder(list[QueueRecord])
_locks = decoder(list[LockRecord])
batch = decoder(BatchRecord)
taken = decoder(Taken)


class _Page(msgspec.Struct):
    more: str | int | None = None


class _Stats(msgspec.Struct):
    now: int
    overdue: int
    schedules: list[tuple[str, int]]
    runs: list[tuple[str, int]]


_page = decoder(_Page)
_stats = decoder(_Stats)


class Reads(Protocol):
    """The steps that write nothing. What is longer than a page is read in several steps."""

    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRecord]:
        found: list[ScheduleRecord] = []
        most = PAGE if limit is None or tag is not None else max(1, min(limit, PAGE))
        wanted = None if names is None else sorted(set(names))
        mark = after or ""
        while limit is None or len(found) < limit:
            if wanted is not None:
                page, wanted = wanted[:most], wanted[most:]
                payload: dict[str, Any] = {"names": page}
            else:
                payload = {"after": mark, "page": most}
            last, *rows = await self._read("schedules", payload)
            records = [record for record in readable(_steps.schedule, rows) if record is not None]
            found += [
                row
                for row in records
                if (after is None or row.name > after) and (tag is None or tag in row.definition.tags)
            ]
            mark = last.decode()
            if not (wanted or mark):
                break
        return found if limit is None else found[:limit]

    async def gaps(
        self, schedule: str, *, since: int | None = None, until: int | None = None, limit: int = 100
    ) -> list[Gap]:
        found: list[Gap] = []
        start: str | int | None = 0
        while start is not None and len(found) < limit:
            asked = {"schedule": schedule, "since": since, "till": until, "limit": limit - len(found), "from": start}
            head, *raws = await self._read("gaps", asked | {"most": PAGE})
            found += readable(_gap, raws)
            start = _page(head).more
        return found

    async def get_run(self, run_id: str) -> RunRecord | None:
        found = await self.get_runs([run_id])
        return found[0] if found else None

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunRecord]:
        ids = list(dict.fromkeys(run_ids))
        found: list[RunRecord] = []
        for start in range(0, len(ids), PAGE):
            found += readable(_steps.run, await self._read("get_runs", {"ids": ids[start : start + PAGE]}))
        return found

    async def runs(self, where: RunFilter) -> list[RunRecord]:
        found: list[RunRecord] = []
        while len(found) < where.limit:
            asked = asdict(replace(where, limit=where.limit - len(found)))
            head, *raws = await self._read("runs", asked | {"most": PAGE})
            found += readable(_steps.run, raws)
            more = _page(head).more
            if more is None:
                break
            where = replace(where, before=str(more))
        return found

    async def workers(self) -> list[WorkerRecord]:
        [raw] = await self._read("workers", {})
        return sorted(_workers(raw), key=lambda worker: worker.id)

    async def stats(self, *, now: int | None = None) -> Stats:
        [raw] = await self._read("stats", {}, now)
        said = _stats(raw)
        return Stats(
            now=said.now,
            schedules={name: count for name, count in said.schedules if count},
            runs={name: count for name, count in said.runs if count},
            overdue=said.overdue,
            workers=tuple(await self.workers()),
        )

    async def queues(self, *, now: int | None = None) -> list[QueueRecord]:
        [raw] = await self._read("queues", {}, now)
        return sorted(_queues(raw), key=lambda queue: queue.name)

    async def locks(self, *, now: int | None = None) -> list[LockRecord]:
        [raw] = await self._read("locks", {}, now)
        return _locks(raw)

    async def taken(self, limiter: str, rule: LimitRule, *, now: int | None = None) -> Taken:
        [raw] = await self._read("taken", {"limiter": limiter, "rule": rule}, now)
        return taken(raw)

    async def get_batch(self, batch_id: str) -> BatchRecord | None:
        found = await self._read("batches", {"id": batch_id})
        return batch(found[0]) if found else None

    async def batches(self, *, dead: bool = False, before: str | None = None, limit: int = 100) -> list[BatchRecord]:
        return [batch(raw) for raw in await self._read("batches", {"dead": dead, "before": before, "limit": limit})]

    async def _read(self, name: str, payload: Any, now: int | None = None) -> Any:
        """The answer of a script that writes nothing."""
        ...
