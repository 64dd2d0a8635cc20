"""Looking without touching: the idle poll, and the reads for CLI, web and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from oncron import _defaults as limits
from oncron._model import (
    Gap,
    Poll,
    RunFilter,
    RunRecord,
    RunState,
    ScheduleRecord,
    Stats,
    Status,
    WorkerRecord,
)
from oncron.stores.memory.leases import Leases


class Reads(Leases):
    """The steps that write nothing."""

    async def poll(self, tasks: Sequence[str], queues: Sequence[str] | None, *, now: int | None = None) -> Poll:
        with self._step(now) as at:
            waiting = [
                run.due_at
                for run in self._open.values()
                if run.state is RunState.PENDING and not run.parked and not run.cancel_requested
                if run.task in tasks and (queues is None or run.queue in queues) and not self._is_paused(run.queue)
            ]
            return Poll(
                now=at,
                version=self._version,
                next_tick_at=min(
                    (row.next_at for row in self._schedule_rows.values() if row.next_at is not None), default=None
                ),
                next_due_at=min(waiting, default=None),
                workers=tuple(sorted(row.id for row in self._worker_rows.values() if self._is_firing(row, at))),
                expired=bool(self._droppable(at)) or any(self._has_expired(run.worker, at) for run in self._running()),
            )

    def _is_firing(self, worker: WorkerRecord, now: int) -> bool:
        return "scheduler" in worker.roles and worker.is_counted_on(now)

    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRecord]:
        with self._step():
            rows = self._schedule_rows
            wanted = [rows[name] for name in sorted(rows if names is None else rows.keys() & set(names))]
            return [
                row
                for row in wanted
                if (after is None or row.name > after) and (tag is None or tag in row.definition.tags)
            ][:limit]

    async def gaps(
        self, schedule: str, *, since: int | None = None, until: int | None = None, limit: int = 100
    ) -> list[Gap]:
        with self._step():
            touching = [
                gap
                for gap in reversed(self._gap_rows.get(schedule, []))
                if (since is None or gap.last >= since) and (until is None or gap.first <= until)
            ]
            return touching[:limit]

    async def get_run(self, run_id: str) -> RunRecord | None:
        with self._step():
            return self._run_rows.get(run_id)

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunRecord]:
        with self._step():
            return [self._run_rows[run_id] for run_id in dict.fromkeys(run_ids) if run_id in self._run_rows]

    async def runs(self, where: RunFilter) -> list[RunRecord]:
        with self._step():
            page = sorted(self._run_rows.values(), key=_age, reverse=True)
            if where.before is not None:
                mark = self._run_rows.get(where.before)
                page = [] if mark is None else [run for run in page if _age(run) < _age(mark)]
            return [run for run in page if _matches(run, where)][: where.limit]

    async def workers(self) -> list[WorkerRecord]:
        with self._step():
            return self._workers_by_id()

    async def stats(self, *, now: int | None = None) -> Stats:
        with self._step(now) as at:
            rows = self._schedule_rows.values()
            return Stats(
                now=at,
                schedules=dict(Counter(row.status.value for row in rows)),
                runs=dict(Counter(run.state.value for run in self._run_rows.values())),
                overdue=sum(
                    row.status is Status.ACTIVE and row.next_at is not None and row.next_at < at - limits.OVERDUE_AFTER
                    for row in rows
                ),
                workers=tuple(self._workers_by_id()),
            )

    def _workers_by_id(self) -> list[WorkerRecord]:
        return [self._worker_rows[worker] for worker in sorted(self._worker_rows)]


def _age(run: RunRecord) -> tuple[int, str]:
    return run.created_at, run.id


def _matches(run: RunRecord, where: RunFilter) -> bool:
    return (
        where.schedule in (None, run.schedule)
        and where.task in (None, run.task)
        and where.state in (None, run.state)
        and where.queue in (None, run.queue)
        and where.batch in (None, run.batch)
        and (where.since is None or run.created_at >= where.since)
    )
