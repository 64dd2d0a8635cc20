"""Looking without touching: the idle poll, and the reads for CLI, web and metrics."""

from __future__ import annotations

from collections.abc import Sequence

from oncron import _defaults as limits
from oncron._model import Gap, Poll, RunFilter, RunRecord, RunState, Stats, WorkerRecord
from oncron.stores.sqlite._claim import next_due, paused_queues, waiting_groups
from oncron.stores.sqlite._rows import gap_of, run_of, worker_of
from oncron.stores.sqlite._step import Step, listed
from oncron.stores.sqlite._workers import expired_holders

_NEWEST = (1 << 63) - 1
_OLDEST = -(1 << 63)


def poll(step: Step, tasks: Sequence[str], queues: Sequence[str] | None, version: int) -> Poll:
    groups = [group for stage in waiting_groups(step, queues, paused_queues(step)) for group in stage]
    droppable = step.rows("worker.droppable", before=step.now - limits.DROPPED_AFTER)
    return Poll(
        now=step.now,
        version=version,
        next_tick_at=step.value("poll.next_tick"),
        next_due_at=next_due(step, tasks, groups),
        workers=tuple(worker.id for worker in workers(step) if _is_firing(worker, step.now)),
        expired=bool(droppable or expired_holders(step)),
    )


def _is_firing(worker: WorkerRecord, now: int) -> bool:
    return "scheduler" in worker.roles and worker.is_counted_on(now)


def workers(step: Step) -> list[WorkerRecord]:
    return [worker_of(row) for row in step.rows("worker.list")]


def gaps(step: Step, schedule: str, since: int | None, until: int | None, limit: int) -> list[Gap]:
    return [gap_of(row) for row in step.rows("gap.list", schedule=schedule, since=since, until=until, limit=limit)]


def get_runs(step: Step, run_ids: Sequence[str]) -> list[RunRecord]:
    return [run_of(row) for row in step.rows("run.get", ids=listed(dict.fromkeys(run_ids)))]


def runs(step: Step, where: RunFilter) -> list[RunRecord]:
    mark = (_NEWEST, "", _NEWEST) if where.before is None else step.row("run.mark", id=where.before)
    if mark is None:
        return []
    before_at, before_id, above = mark
    found: list[RunRecord] = []
    for statement in _listings(where):
        rows = step.rows(
            statement,
            schedule=where.schedule,
            task=where.task,
            state=where.state,
            queue=where.queue,
            batch=where.batch,
            since=_OLDEST if where.since is None else where.since,
            before_at=before_at,
            before_id=before_id,
            above=above,
            limit=where.limit,
        )
        found += map(run_of, rows)
    found.sort(key=lambda run: (run.created_at, run.id), reverse=True)
    return found[: where.limit]


def _listings(where: RunFilter) -> list[str]:
    if where.batch is not None:
        return ["run.list_of_batch"]
    is_open = where.state in (RunState.PENDING, RunState.RUNNING)
    if where.schedule is None:
        return ["run.list_open" if is_open else "run.list"]
    return ["run.list_open_of"] if is_open else ["run.list_open_of", "run.list_past_of"]


def stats(step: Step) -> Stats:
    runs = dict(step.rows("stats.ended"))
    running, opened = step.value("stats.running"), step.value("stats.open")
    runs |= {RunState.RUNNING.value: running, RunState.PENDING.value: opened - running}
    return Stats(
        now=step.now,
        schedules=dict(step.rows("stats.schedules")),
        runs={state: count for state, count in runs.items() if count},
        overdue=step.value("stats.overdue", before=step.now - limits.OVERDUE_AFTER),
        workers=tuple(workers(step)),
    )
