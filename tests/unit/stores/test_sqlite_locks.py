"""Somebody else holds the file's write lock: every write waits for it, and none is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncron._model import FireOutcome, RunFilter, RunState, WorkerRecord, new_id
from oncron._store import ReadableStore
from oncron.errors import StoreUnavailable
from tests.contract.given import LEASE, at, changed, declared, enqueued, finish, fired, plan, seen, spec
from tests.unit.stores.sqlite_kit import opened, stranger


async def declare_again(store: ReadableStore, *, now: int) -> Any:
    return await changed(store, await seen(store, "waiting"), now=now, retries=9)


async def fire_again(store: ReadableStore, *, now: int) -> Any:
    return await store.fire([plan(await seen(store, "waiting"), now)], spec(), fire_id=new_id(), now=now)


async def finish_held(store: ReadableStore, *, now: int) -> Any:
    [run] = await store.runs(RunFilter(state=RunState.RUNNING))
    return await finish(store, run, now=now)


async def cancel_one(store: ReadableStore, *, now: int) -> Any:
    [run] = await store.runs(RunFilter(state=RunState.PENDING, limit=1))
    return await store.cancel(run.id, now=now)


WRITES: dict[str, Callable[..., Awaitable[Any]]] = {
    "declare": declare_again,
    "fire": fire_again,
    "claim": lambda store, *, now: store.claim(spec(), now=now),
    "finish": finish_held,
    "cancel": cancel_one,
    "enqueue": enqueued,
    "heartbeat": lambda store, *, now: store.heartbeat(WorkerRecord(id="w1"), LEASE, now=now),
    "reap": lambda store, *, now: store.reap(now=now + 100 * LEASE),
    "prune": lambda store, *, now: store.prune(ended_before=now, failed_before=now, now=now),
    "leave": lambda store, *, now: store.leave("w1"),
}


async def furnished(store: ReadableStore) -> None:
    """Something for each of the writes: a schedule, one run that is held and one that waits."""
    await declared(store, "waiting")
    await declared(store, "held")
    await fired(store, at(2), name="held", claim=spec())
    await enqueued(store, now=at(2))


@pytest.mark.parametrize("site", WRITES)
async def test_a_write_waits_for_the_lock_and_then_happens(tmp_path: Path, site: str) -> None:
    async with opened(tmp_path / "a.db") as store:
        await furnished(store)
        lock = stranger(tmp_path / "a.db")
        lock.execute("begin exclusive")

        writing = asyncio.ensure_future(WRITES[site](store, now=at(3)))
        done, _ = await asyncio.wait({writing}, timeout=0.05)
        assert not done, "it waits"
        lock.execute("rollback")

        await asyncio.wait_for(writing, 5)


@pytest.mark.parametrize("site", WRITES)
async def test_a_lock_that_stays_makes_the_write_unavailable_and_writes_nothing(tmp_path: Path, site: str) -> None:
    async with opened(tmp_path / "a.db") as store:
        await furnished(store)
        store._within = 50_000
        lock = stranger(tmp_path / "a.db")
        before = list(lock.iterdump())
        lock.execute("begin exclusive")

        with pytest.raises(StoreUnavailable, match="write lock"):
            await WRITES[site](store, now=at(3))
        lock.execute("rollback")

        assert list(lock.iterdump()) == before
        store._within = 5_000_000
        await WRITES[site](store, now=at(3))


async def test_looking_does_not_wait_for_the_write_lock(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await furnished(store)
        lock = stranger(tmp_path / "a.db")
        lock.execute("begin exclusive")

        assert len(await store.schedules()) == 2
        assert (await store.poll(["send"], None, now=at(3))).next_tick_at is not None
        assert len(await store.due(at(9))) == 2

        lock.execute("rollback")


async def test_whoever_loses_a_race_for_a_tick_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        row = await declared(store)
        await fired(store, at(1))
        log = tmp_path / "a.db-wal"
        before = log.read_bytes()

        late = await store.fire([plan(row, at(1))], fire_id=new_id(), now=at(1))

        assert late.results[0].outcome is FireOutcome.STALE
        assert log.read_bytes() == before
