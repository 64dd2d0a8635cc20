"""What the tests of the PostgreSQL store share: an opened store, schedules and plans, a look at the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from oncron._clock import SECOND
from oncron._model import (
    Change,
    ClaimSpec,
    Definition,
    FirePlan,
    NewRun,
    Outcome,
    OutcomeKind,
    RunRecord,
    Status,
    TickRun,
    new_id,
    new_run_id,
    tick_run_id,
)
from oncron._store import ReadableStore
from oncron.stores.postgres import PostgresStore


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, **options)
    await store.open()
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


async def declared(store: ReadableStore, *names: str, **options: Any) -> int:
    """The schedules' cursor: an hour ago."""
    cursor = await store.now() - 3600 * SECOND
    answers = await store.declare(
        [
            Change(
                name=name,
                definition=Definition(**({"name": name, "trigger": "every 1s", "task": "send"} | options)),
                status=Status.ACTIVE,
                new_cursor=cursor,
                next_at=cursor + SECOND,
            )
            for name in names
        ]
    )
    assert all(answer.changed for answer in answers)
    return cursor


def plan(name: str, seen: int, tick: int | None = None) -> FirePlan:
    tick = seen + SECOND if tick is None else tick
    run = TickRun(run_id=tick_run_id(name, tick), tick=tick, due_at=tick)
    return FirePlan(name=name, seen_revision=1, seen_cursor=seen, new_cursor=tick, next_at=tick + SECOND, ticks=(run,))


def spec(limit: int = 10, worker: str = "w", **options: Any) -> ClaimSpec:
    fields = {"claim_id": new_id(), "worker": worker, "limit": limit, "lease_for": 15 * SECOND, "tasks": ("send",)}
    return ClaimSpec(**(fields | options))


def new(**options: Any) -> NewRun:
    return NewRun(**({"id": new_run_id(), "task": "send"} | options))


def succeeded(run: RunRecord, **options: Any) -> Outcome:
    return Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED, **options)


async def asked(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as the database's owner, in a session of their own; the rows of the last."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            answer = await connection.execute(statement.encode())
            rows = await answer.fetchall() if answer.description else []
        return rows


def outcomes(runs: Sequence[RunRecord]) -> list[Outcome]:
    return [succeeded(run) for run in runs]
