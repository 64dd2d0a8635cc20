"""What an app does to runs and schedules in the store, one function an operation.

Each may be called again with the same ids after an unknown outcome (G7), so ids are made
by the caller, outside.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncron._model import (
    EnqueueResult,
    NewRun,
    RunFilter,
    RunRecord,
    ScheduleRecord,
    Status,
)
from oncron._store import ReadableStore
from oncron.errors import NotFound, Occupied

_CHUNK = 1000


async def enqueue(store: ReadableStore, runs: Sequence[NewRun]) -> list[EnqueueResult]:
    """One result per run, in order."""
    results: list[EnqueueResult] = []
    for at in range(0, len(runs), _CHUNK):
        results += await store.enqueue(runs[at : at + _CHUNK])
    return results


async def fire(store: ReadableStore, name: str, run_id: str, reason: str) -> EnqueueResult:
    """A run of the schedule now: its cursor stays, its overlap policy rules, its pause does not.

    Raises NotFound, Occupied with the run that is in the way."""
    definition = (await schedule(store, name)).definition
    new = NewRun(
        id=run_id,
        task=definition.task,
        args=definition.args,
        queue=definition.queue,
        priority=definition.priority,
        retries=definition.retries,
        retry_delay=definition.retry_delay,
        timeout=definition.timeout,
        unique=definition.unique,
        schedule=name,
        reason=reason or None,
    )
    return (await store.enqueue([new]))[0]


async def schedule(store: ReadableStore, name: str) -> ScheduleRecord:
    """Raises NotFound, for a removed one too."""
    rows = await store.schedules([name])
    if not rows or rows[0].status is Status.REMOVED:
        raise NotFound(f"no schedule {name!r}; `oncron schedules` lists them")
    return rows[0]


async def schedules(store: ReadableStore, tag: str | None) -> list[ScheduleRecord]:
    """By name, without removed ones."""
    rows = [row for row in await store.schedules() if row.status is not Status.REMOVED]
    return rows if tag is None else [row for row in rows if tag in row.definition.tags]


async def run(store: ReadableStore, run_id: str) -> RunRecord:
    """Raises NotFound."""
    found = await store.get_run(run_id)
    if found is None:
        raise NotFound(f"no run {run_id!r}: the id is wrong, or it ended and was pruned")
    return found


async def runs(store: ReadableStore, where: RunFilter) -> list[RunRecord]:
    """Newest first. Raises NotFound for a `before` that is no run."""
    if where.before is not None:
        await run(store, where.before)
    return await store.runs(where)


def granted(result: EnqueueResult, wanted: str, what: str) -> RunRecord:
    """The run. Raises Occupied if another one has its schedule's place or its unique key."""
    if result.occupied or result.run.id != wanted:
        other = result.run
        why = "has its place" if result.occupied else "has its unique key"
        raise Occupied(f"{what}: run {other.id} ({other.state.value}) {why}; wait for its end or cancel it")
    return result.run
