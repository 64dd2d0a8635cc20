"""Words for the contract tests: a schedule is declared, its ticks fired, their runs claimed and ended.

Time is always said, never waited for: `at(90)` is ninety seconds after a fixed instant, and every
step is told its `now`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncron._clock import SECOND
from oncron._model import (
    Change,
    Changed,
    Claimed,
    ClaimSpec,
    Definition,
    EnqueueResult,
    FinishResult,
    Fired,
    FireOutcome,
    FirePlan,
    Gap,
    GapReason,
    NewRun,
    Outcome,
    OutcomeKind,
    RunFilter,
    RunRecord,
    ScheduleRecord,
    Status,
    TickRun,
    WorkerRecord,
    new_id,
    new_run_id,
    tick_run_id,
)
from oncron._store import ReadableStore

LEASE = 15 * SECOND
DAY = 24 * 3600 * SECOND
LONG_AGO, FAR_AHEAD = 0, 10**18


def at(seconds: float) -> int:
    """Microseconds of the instant so many seconds after 2025-06-15T15:06:40Z."""
    return 1_750_000_000 * SECOND + round(seconds * SECOND)


def definition(name: str = "report", **options: Any) -> Definition:
    return Definition(**({"name": name, "trigger": "every 1s", "task": "send"} | options))


async def declared(
    store: ReadableStore, name: str = "report", *, now: int = at(0), status: Status = Status.ACTIVE, **options: Any
) -> ScheduleRecord:
    """A new schedule whose cursor starts at `now`."""
    change = Change(
        name=name, definition=definition(name, **options), status=status, new_cursor=now, next_at=now + SECOND
    )
    [answer] = await store.declare([change], now=now)
    assert answer.changed
    assert answer.record is not None
    return answer.record


async def changed(
    store: ReadableStore,
    row: ScheduleRecord,
    *,
    now: int,
    status: Status | None = None,
    cursor: int | None = None,
    gaps: Sequence[Gap] = (),
    **options: Any,
) -> Changed:
    """The schedule as seen in `row`, declared again with other options or another status."""
    change = change_of(row, status=status, cursor=cursor, gaps=gaps, **options)
    [answer] = await store.declare([change], now=now)
    return answer


def change_of(
    row: ScheduleRecord,
    *,
    status: Status | None = None,
    cursor: int | None = None,
    next_at: int | None = None,
    gaps: Sequence[Gap] = (),
    note: str = "",
    **options: Any,
) -> Change:
    kept = {field: getattr(row.definition, field) for field in row.definition.__struct_fields__}
    return Change(
        name=row.name,
        definition=Definition(**(kept | options)),
        status=status or row.status,
        seen_revision=row.revision,
        seen_cursor=row.cursor,
        new_cursor=row.cursor if cursor is None else cursor,
        next_at=row.next_at if next_at is None else next_at,
        gaps=tuple(gaps),
        note=note,
    )


async def seen(store: ReadableStore, name: str = "report") -> ScheduleRecord:
    [row] = await store.schedules([name])
    return row


def plan(
    row: ScheduleRecord, *ticks: int, new_cursor: int | None = None, gaps: Sequence[Gap] = (), **options: Any
) -> FirePlan:
    """The plan of a replica that saw `row` and found these ticks due."""
    cursor = new_cursor if new_cursor is not None else max(ticks, default=row.cursor)
    return FirePlan(
        **(
            {
                "name": row.name,
                "seen_revision": row.revision,
                "seen_cursor": row.cursor,
                "new_cursor": cursor,
                "next_at": cursor + SECOND,
                "ticks": tuple(TickRun(run_id=tick_run_id(row.name, tick), tick=tick, due_at=tick) for tick in ticks),
                "gaps": tuple(gaps),
            }
            | options
        )
    )


def gap(
    first: int, last: int, count: int = 1, reason: GapReason = GapReason.MISSED, name: str = "report", **options: Any
) -> Gap:
    return Gap(schedule=name, first=first, last=last, count=count, reason=reason, **options)


async def fired(
    store: ReadableStore,
    *ticks: int,
    name: str = "report",
    now: int | None = None,
    claim: ClaimSpec | None = None,
    fire_id: str | None = None,
) -> Fired:
    """The ticks, fired in one plan by a replica that sees the schedule as it is."""
    row = await seen(store, name)
    answer = await store.fire(
        [plan(row, *ticks)], claim, fire_id=fire_id or new_id(), now=max(ticks) if now is None else now
    )
    assert answer.results[0].outcome is FireOutcome.FIRED
    return answer


def spec(worker: str = "w1", **options: Any) -> ClaimSpec:
    return ClaimSpec(
        **({"claim_id": new_id(), "worker": worker, "limit": 10, "lease_for": LEASE, "tasks": ("send",)} | options)
    )


async def claim(store: ReadableStore, worker: str = "w1", *, now: int, **options: Any) -> Claimed:
    return await store.claim(spec(worker, **options), now=now)


async def claimed(store: ReadableStore, worker: str = "w1", *, now: int, **options: Any) -> RunRecord:
    """The one run that is there to be claimed."""
    [run] = (await claim(store, worker, now=now, **options)).runs
    return run


def new_run(task: str = "send", **options: Any) -> NewRun:
    return NewRun(**({"id": new_run_id(), "task": task} | options))


async def enqueued(store: ReadableStore, task: str = "send", *, now: int, **options: Any) -> RunRecord:
    [answer] = await store.enqueue([new_run(task, **options)], now=now)
    assert answer.is_new
    return answer.run


async def enqueue(store: ReadableStore, task: str = "send", *, now: int, **options: Any) -> EnqueueResult:
    [answer] = await store.enqueue([new_run(task, **options)], now=now)
    return answer


def outcome(run: RunRecord, kind: OutcomeKind = OutcomeKind.SUCCEEDED, **fields: Any) -> Outcome:
    return Outcome(run_id=run.id, token=run.token, kind=kind, **fields)


async def finish(
    store: ReadableStore, run: RunRecord, kind: OutcomeKind = OutcomeKind.SUCCEEDED, *, now: int, **fields: Any
) -> FinishResult:
    [answer] = await store.finish([outcome(run, kind, **fields)], now=now)
    return answer


async def claimable(store: ReadableStore, *, now: int) -> list[int | None]:
    """The ticks whose runs a claim would take, found out by taking and giving back."""
    runs = (await claim(store, "prober", now=now)).runs
    for run in runs:
        await finish(store, run, OutcomeKind.RELEASED, now=now)
    return [run.tick for run in runs]


async def run_now(store: ReadableStore, run_id: str) -> RunRecord:
    run = await store.get_run(run_id)
    assert run is not None
    return run


async def run_of(store: ReadableStore, tick: int, name: str = "report") -> RunRecord:
    return await run_now(store, tick_run_id(name, tick))


async def beat(store: ReadableStore, worker: str = "w1", held: Sequence[RunRecord] = (), *, now: int, **options: Any):
    record = WorkerRecord(id=worker, started_at=at(0), roles=("scheduler", "worker"))
    return await store.heartbeat(record, LEASE, [(run.id, run.token) for run in held], now=now, **options)


async def picture(store: ReadableStore) -> dict[str, Any]:
    """Everything that can be read, so that two moments, or two stores, can be compared."""
    rows = await store.schedules()
    return {
        "schedules": rows,
        "gaps": {row.name: await store.gaps(row.name, limit=10_000) for row in rows},
        "runs": await store.runs(RunFilter(limit=10_000)),
        "workers": sorted(await store.workers(), key=lambda worker: worker.id),
    }
