"""A task's transaction on SQLite holds the only write lock: it is bounded, and nobody ends it by the way."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncron import _defaults
from oncron._clock import SECOND, boot_us
from oncron._model import ClaimSpec, NewRun, Outcome, OutcomeKind, RunRecord, RunState, new_id, new_run_id
from oncron.errors import DefinitionError, NotSupported, SchemaOutdated, StoreUnavailable
from oncron.stores.sqlite import SQLiteStore
from tests.unit.stores.sqlite_kit import opened, stranger, written

WITHIN = 10 * SECOND


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with opened(tmp_path / "oncron.db") as store:
        with sqlite3.connect(store.path) as connection:
            connection.execute("create table effects (note text unique)")
        connection.close()
        yield store


def notes(store: SQLiteStore) -> list[str]:
    connection = stranger(store.path)
    try:
        return [note for (note,) in connection.execute("select note from effects")]
    finally:
        connection.close()


def until_writable(store: SQLiteStore) -> None:
    """Returns once nobody holds the write lock."""
    connection = sqlite3.connect(store.path, timeout=20, isolation_level=None)
    connection.execute("begin immediate")
    connection.execute("rollback")
    connection.close()


async def a_claimed_run(store: SQLiteStore) -> RunRecord:
    await written(store)
    [run] = (
        await store.claim(
            ClaimSpec(claim_id=new_id(), worker="w", limit=1, lease_for=15 * SECOND, tasks=("send",)), now=2**60
        )
    ).runs
    return run


async def test_a_transaction_that_takes_too_long_is_rolled_back_though_its_task_sleeps(
    store: SQLiteStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "oncron.stores.sqlite")

    def linger() -> None:
        with store.transaction(within=SECOND // 20) as connection:
            connection.execute("insert into effects values ('too late')")
            until_writable(store)  # what a task does that waits for something else

    with pytest.raises(StoreUnavailable, match=r"open for more than 0\.05 s and was rolled back"):
        await asyncio.to_thread(linger)
    assert notes(store) == []
    assert "Compute, fetch and wait before it begins" in caplog.text


async def test_after_that_no_statement_gets_through(store: SQLiteStore) -> None:
    def go_on() -> None:
        with store.transaction(within=SECOND // 20) as connection:
            cursor = connection.execute("select 1 union select 2")
            until_writable(store)
            for statement in (
                lambda: connection.execute("insert into effects values ('alone')"),
                lambda: connection.executemany("insert into effects values (?)", [("alone",)]),
                cursor.fetchone,
                cursor.fetchall,
                lambda: next(cursor),
            ):
                with pytest.raises(StoreUnavailable):
                    statement()
            raise ZeroDivisionError

    with pytest.raises(StoreUnavailable, match="rolled back") as told:
        await asyncio.to_thread(go_on)
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert notes(store) == []


async def test_a_statement_that_takes_too_long_is_broken_off(store: SQLiteStore) -> None:
    def compute() -> None:
        with store.transaction(within=SECOND // 20) as connection:
            connection.execute(
                "with recursive n(i) as (select 1 union all select i + 1 from n limit 1000000000) select sum(i) from n"
            )

    began = boot_us()
    with pytest.raises(StoreUnavailable, match="rolled back"):
        await asyncio.to_thread(compute)
    assert boot_us() - began < 10 * SECOND


async def test_the_limit_holds_for_async_tasks_too(store: SQLiteStore) -> None:
    async def linger() -> None:
        async with store.transaction_async(within=SECOND // 20) as connection:
            await connection.execute("insert into effects values ('too late')")
            await asyncio.to_thread(until_writable, store)

    with pytest.raises(StoreUnavailable, match="rolled back"):
        await linger()
    assert notes(store) == []


def test_a_longer_limit_than_a_second_cannot_be_had() -> None:
    assert _defaults.SQLITE_TRANSACTION == SECOND


@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.commit(),
        lambda connection: connection.rollback(),
        lambda connection: connection.close(),
        lambda connection: connection.__enter__(),
        lambda connection: connection.executescript("select 1"),
        lambda connection: connection.cursor().executescript("select 1"),
        lambda connection: connection.execute("commit"),
        lambda connection: connection.execute("  -- so\n /* and so */ COMMIT"),
        lambda connection: connection.execute("end transaction"),
        lambda connection: connection.execute("rollback"),
        lambda connection: connection.execute("begin"),
    ],
)
async def test_the_block_alone_ends_the_transaction(store: SQLiteStore, end: Any) -> None:
    def work() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute("insert into effects values ('kept')")
            with pytest.raises(DefinitionError, match="leaving the block commits"):
                end(connection)

    await asyncio.to_thread(work)
    assert notes(store) == ["kept"]


async def test_savepoints_are_its_users(store: SQLiteStore) -> None:
    def work() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute("insert into effects values ('kept')")
            connection.execute("savepoint part")
            connection.execute("insert into effects values ('dropped')")
            connection.execute("rollback to part")
            connection.execute("release part")

    await asyncio.to_thread(work)
    assert notes(store) == ["kept"]


async def test_a_statement_that_rolls_back_by_itself_leaves_nothing_to_commit(store: SQLiteStore) -> None:
    def work() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute("insert into effects values ('once')")
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute("insert or rollback into effects values ('once')")
            with pytest.raises(StoreUnavailable):
                connection.execute("insert into effects values ('alone')")

    with pytest.raises(StoreUnavailable, match="a statement of yours rolled the transaction back"):
        await asyncio.to_thread(work)
    assert notes(store) == []


async def test_rows_and_texts_may_be_set(store: SQLiteStore) -> None:
    run = await a_claimed_run(store)

    def work() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.row_factory, connection.text_factory = sqlite3.Row, bytes
            assert connection.execute("select 'x' as y").fetchone()["y"] == b"x"
            store.finish_in(connection, Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED))
            assert connection.execute("select 'x' as y").fetchone()["y"] == b"x"

    await asyncio.to_thread(work)
    [ended] = await store.get_runs([run.id])
    assert ended.state is RunState.SUCCEEDED


async def test_an_async_cursor_gives_rows_one_by_one_and_together(store: SQLiteStore) -> None:
    async with store.transaction_async(within=WITHIN) as connection:
        added = await connection.executemany("insert into effects values (?)", [(str(n),) for n in range(250)])
        cursor = await connection.execute("select note from effects order by rowid")
        assert (added.rowcount, cursor.description[0][0]) == (250, "note")
        assert await cursor.fetchone() == ("0",)
        assert await cursor.fetchmany(2) == [("1",), ("2",)]
        assert [row async for row in cursor][-1] == ("249",)
        assert await cursor.fetchall() == []
        assert connection.connection.in_transaction
        last = await connection.execute("insert into effects values ('last')")
        assert last.lastrowid == 251
    assert len(notes(store)) == 251


async def test_transactions_of_many_threads_come_one_after_the_other(store: SQLiteStore) -> None:
    gate = threading.Barrier(4)

    def add() -> None:
        gate.wait(10)
        for _ in range(10):
            with store.transaction(within=WITHIN) as connection:
                [(seen,)] = connection.execute("select count(*) from effects").fetchall()
                connection.execute("insert into effects values (?)", [f"{seen:03}"])

    await asyncio.gather(*(asyncio.to_thread(add) for _ in range(4)))
    assert sorted(notes(store)) == [f"{n:03}" for n in range(40)]


async def test_a_connection_of_another_thread_is_refused_with_a_sentence(store: SQLiteStore) -> None:
    connection = await asyncio.to_thread(sqlite3.connect, store.path)
    with pytest.raises(DefinitionError, match="cannot be used here: SQLite objects created in a thread"):
        store.enqueue_in(connection, [])
    await asyncio.to_thread(lambda: None)


async def test_a_database_in_memory_is_refused(store: SQLiteStore) -> None:
    with sqlite3.connect(":memory:") as connection, pytest.raises(NotSupported, match="a database in memory"):
        store.enqueue_in(connection, [])
    connection.close()


async def test_a_link_to_the_file_is_the_file(store: SQLiteStore, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store.path)
    connection = sqlite3.connect(link)
    assert store.enqueue_in(connection, []) == []
    connection.commit()
    connection.close()


async def test_a_file_without_tables_says_migrate(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "empty.db")
    connection = sqlite3.connect(store.path)
    connection.execute("create table t (x)")
    with pytest.raises(SchemaOutdated, match="oncron migrate"):
        store.enqueue_in(connection, [])
    connection.close()


async def test_the_wait_for_the_lock_ends_with_a_sentence(store: SQLiteStore) -> None:
    store._within = SECOND // 10
    connection = stranger(store.path)
    connection.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="has held its write lock"):
        await asyncio.to_thread(lambda: store.transaction(within=WITHIN).__enter__())
    with pytest.raises(StoreUnavailable, match="has held its write lock"):
        async with store.transaction_async(within=WITHIN):
            pass
    connection.close()
    store._within = _defaults.CALL_DEADLINE
    await written(store)


async def test_a_transaction_that_has_read_before_others_wrote_is_told_how_to_begin(store: SQLiteStore) -> None:
    connection = stranger(store.path)
    connection.execute("begin")
    connection.execute("select * from effects").fetchall()
    await written(store)
    with pytest.raises(StoreUnavailable, match="begin it with `begin immediate`"):
        store.enqueue_in(connection, [NewRun(id=new_run_id(), task="send")])
    connection.execute("rollback")
    connection.execute("begin immediate")
    [result] = store.enqueue_in(connection, [NewRun(id=new_run_id(), task="send")])
    connection.execute("commit")
    connection.close()
    assert await store.get_run(result.run.id) is not None
