"""Queues, limits and batches on SQLite: what must stay cheap however much is there, and files of an older release."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from oncron._groups import LimitKind, LimitRule, NewBatch, Take
from oncron._model import RunFilter, new_id
from oncron.stores import _sql
from oncron.stores.sqlite import SQLiteStore
from oncron.stores.sqlite._step import filled
from tests.contract.given import at, claim, claimed, declared, finish, new_run, picture, spec
from tests.unit.stores.sqlite_kit import opened, stranger

MANY = 20_000


async def work_of(store: SQLiteStore, step: Callable[[], Awaitable[Any]]) -> int:
    """How many hundreds of instructions SQLite runs for it."""
    done = 0

    def one_hundred_more() -> int:
        nonlocal done
        done += 1
        return 0

    await store._run(lambda connection, _: connection.set_progress_handler(one_hundred_more, 100))
    await step()
    await store._run(lambda connection, _: connection.set_progress_handler(None, 0))
    return done


async def enqueued_many(store: SQLiteStore, **options: Any) -> None:
    for _ in range(MANY // 5000):
        await store.enqueue([new_run(**options) for _ in range(5000)], now=at(0))


async def test_what_waits_in_a_paused_queue_costs_a_look_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.set_queue("big", paused=True, now=at(0))
        await store.enqueue([new_run(queue="big"), new_run(queue="small")], now=at(0))
        empty = spec(limit=0)

        async def look() -> None:
            await store.poll(["send"], None, now=at(1))
            await store.claim(empty, now=at(1))
            await store.poll(["send"], ["big"], now=at(1))

        few = await work_of(store, look)
        await enqueued_many(store, queue="big")

        assert await work_of(store, look) <= few + 3


async def test_what_waits_for_a_full_queue_or_fleet_costs_a_claim_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.enqueue([new_run(queue="big"), new_run(queue="big"), new_run(queue="small")], now=at(0))
        await claim(store, limit=1, queues=("big",), now=at(0))

        async def look() -> None:
            await store.claim(spec(limit=3, queues=("big",), queue_limits=(("big", 1),)), now=at(1))
            await store.claim(spec(limit=3, fleet_limit=1), now=at(1))

        few = await work_of(store, look)
        await enqueued_many(store, queue="big")

        assert await work_of(store, look) <= few + 3


async def test_whether_a_batch_is_complete_is_no_matter_of_its_size(tmp_path: Path) -> None:
    """But for the counts in the answer, which come from an index."""
    async with opened(tmp_path / "a.db") as store:
        await store.open_batch(NewBatch(id="b"), now=at(0))
        await enqueued_many(store, batch="b")

        async def settle() -> None:
            await store.settle_batches(["b"], now=at(1))

        assert await work_of(store, settle) < MANY / 10  # less than ten instructions a run


async def test_a_take_is_refused_without_reading_what_was_granted_one_by_one(tmp_path: Path) -> None:
    rule = LimitRule(kind=LimitKind.SLIDING, amount=MANY, per=60_000_000)
    async with opened(tmp_path / "a.db") as store:
        await store.take(Take(limiter="calls", nonce="first", rule=rule), now=at(0))
        with stranger(tmp_path / "a.db") as other:
            rows = [("calls", str(n), at(0) + n, 1, at(300), 0) for n in range(MANY - 1)]
            other.execute("begin immediate")
            other.executemany("insert into oncron_takes values (?, ?, ?, ?, ?, ?)", rows)
            other.execute("commit")

        refused = await store.take(Take(limiter="calls", nonce=new_id(), rule=rule, cost=3), now=at(1))

        assert (refused.granted, refused.used) == (False, MANY)
        assert refused.retry_in == 59_000_000 + 1  # the first two were granted at one instant


async def test_a_file_of_the_first_release_is_brought_up_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    older(path)
    async with opened(path) as store:
        run = await store.get_run("old")
        assert run is not None
        assert (run.batch, run.guard, run.queue) == (None, None, "default")
        assert (await store.workers())[0].queues is None

        await finish(store, await claimed(store, now=at(1)), now=at(2))
        await declared(store, now=at(2), guard="advisory")

        assert (await picture(store))["schedules"][0].definition.guard == "advisory"
        assert [run.state for run in await store.runs(RunFilter())] == ["succeeded"]


def older(path: Path) -> None:
    """A file as the first migration left it, with a run and a worker."""
    first = _sql.migrations("oncron.stores.sqlite")[0]
    with sqlite3.connect(path) as connection:
        connection.executescript("pragma journal_mode = wal;" + filled(first.sql, "oncron"))
        connection.execute("insert into oncron_meta (id, schema_major, schema_minor) values (1, 1, 1)")
        connection.execute(
            "insert into oncron_runs (seq, id, task, queue, priority, due_at, created_at, retries, retry_delay) "
            "values (1, 'old', 'send', 'default', 0, 1, 1, 3, 1)"
        )
        connection.execute("insert into oncron_workers (id, lease_until) values ('old', 1)")
    connection.close()


async def test_a_replica_of_the_first_release_goes_on_beside_the_new_tables(tmp_path: Path) -> None:
    """What it writes names none of the new columns."""
    path = tmp_path / "a.db"
    async with opened(path) as store:
        with stranger(path) as earlier:
            earlier.execute(
                "insert into oncron_runs (seq, id, task, queue, priority, due_at, created_at, retries, retry_delay) "
                "values (1, 'theirs', 'send', 'default', 0, 1, 1, 3, 1)"
            )
            earlier.execute("insert into oncron_workers (id, lease_until, roles) values ('theirs', 1, '[]')")

        assert (await claimed(store, now=at(1))).id == "theirs"
        assert [(worker.tasks, worker.queues) for worker in await store.workers() if worker.id == "theirs"] == [
            ((), None)
        ]
