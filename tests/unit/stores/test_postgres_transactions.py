"""Transactions of tasks on PostgreSQL: connections that are lost, left idle, pooled and misused."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import psycopg
import pytest
from psycopg.rows import dict_row

from oncron._clock import SECOND
from oncron._model import FinishStatus, Outcome, OutcomeKind, RunRecord, RunState
from oncron.errors import DefinitionError, NotSupported, StoreUnavailable
from oncron.stores.postgres import PostgresStore, _apart
from tests.servers import PostgresServer
from tests.unit.stores.pooler import Pooler
from tests.unit.stores.postgres_kit import new, opened, spec

WITHIN = 10 * SECOND


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("create table effects (note text unique deferrable initially deferred)")
        yield store


@pytest.fixture
def notes(postgres_url: str) -> Callable[[], list[str]]:
    def read() -> list[str]:
        with psycopg.connect(postgres_url) as connection:
            return [note for (note,) in connection.execute("select note from effects").fetchall()]

    return read


async def a_claimed_run(store: PostgresStore) -> RunRecord:
    await store.enqueue([new()])
    [run] = (await store.claim(spec(1))).runs
    return run


def succeeded(run: RunRecord, kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> Outcome:
    return Outcome(run_id=run.id, token=run.token, kind=kind)


def end(store: PostgresStore, run: RunRecord, note: str = "paid") -> None:
    with store.transaction(within=WITHIN) as connection:
        connection.execute("insert into effects values (%s)", [note])
        store.finish_in(connection, succeeded(run))


async def end_async(store: PostgresStore, run: RunRecord, note: str = "paid") -> None:
    async with store.transaction_async(within=WITHIN) as connection:
        await connection.execute("insert into effects values (%s)", [note])
        await store.finish_in_async(connection, succeeded(run))


class Scissors:
    """A way to the server that is cut at a word: before the message with it arrives, or before its answer does."""

    def __init__(self, port: int, word: bytes, *, arrives: bool) -> None:
        self._port, self._word, self._arrives = port, word, arrives
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        answering = asyncio.create_task(self._copy(server, out))
        while data := await client.read(1 << 16):
            if self._word in data:
                self.cuts += 1
                answering.cancel()
                await asyncio.wait({answering})
                if self._arrives:
                    to_server.write(data)
                    await server.read(1 << 16)
                break
            to_server.write(data)
        answering.cancel()
        for writer in (to_server, out):
            writer.close()

    async def _copy(self, source: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            out.write(data)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_commit_whose_answer_is_lost_has_ended_the_run(
    store: PostgresStore, postgres_server: PostgresServer, postgres_url: str, notes: Any, is_async: bool
) -> None:
    run = await a_claimed_run(store)
    async with Scissors(postgres_server.port, b"COMMIT\0", arrives=True) as way:
        cut = PostgresStore(postgres_url.replace(str(postgres_server.port), str(way.port)))
        with pytest.raises(StoreUnavailable, match="whether it was done is unknown"):
            await (end_async(cut, run) if is_async else asyncio.to_thread(end, cut, run))
        assert way.cuts == 1

    [answer] = await store.finish([succeeded(run, OutcomeKind.RETRY)])

    assert (answer.status, answer.state, notes()) == (FinishStatus.REPEATED, RunState.SUCCEEDED, ["paid"])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("word", [b"COMMIT\0", b"finish", b"insert"])
async def test_a_connection_that_is_cut_before_the_commit_leaves_the_run_to_be_tried_again(
    store: PostgresStore,
    postgres_server: PostgresServer,
    postgres_url: str,
    notes: Any,
    word: bytes,
    is_async: bool,
) -> None:
    run = await a_claimed_run(store)
    async with Scissors(postgres_server.port, word, arrives=False) as way:
        cut = PostgresStore(postgres_url.replace(str(postgres_server.port), str(way.port)))
        # What the user's own statement meets is the driver's word for it.
        with pytest.raises(psycopg.OperationalError if word == b"insert" else StoreUnavailable):
            await (end_async(cut, run) if is_async else asyncio.to_thread(end, cut, run))
        assert way.cuts == 1

    [answer] = await store.finish([succeeded(run, OutcomeKind.RETRY)])

    assert (answer.status, answer.state, notes()) == (FinishStatus.RECORDED, RunState.PENDING, [])


async def test_a_session_that_is_left_idle_in_a_transaction_is_ended_by_the_server(
    store: PostgresStore, notes: Any
) -> None:
    def sleep() -> None:
        with store.transaction(within=SECOND // 5) as connection:
            connection.execute("insert into effects values ('asleep')")
            select.select([connection.pgconn.socket], [], [], 20)
            connection.execute("select 1")

    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        await asyncio.to_thread(sleep)
    assert notes() == []


async def test_connections_are_used_again_as_they_were(store: PostgresStore, postgres_server: PostgresServer) -> None:
    def use() -> int:
        with store.transaction(within=WITHIN) as connection:
            [(pid,)] = connection.execute("select pg_backend_pid()").fetchall()
            connection.row_factory = dict_row
            assert connection.execute("select 1 as x").fetchall() == [{"x": 1}]
            return pid

    async def use_async() -> int:
        async with store.transaction_async(within=WITHIN) as connection:
            [(pid,)] = await (await connection.execute("select pg_backend_pid()")).fetchall()
            connection.row_factory = dict_row
            return pid

    first, first_async = await asyncio.to_thread(use), await use_async()
    assert (await asyncio.to_thread(use), await use_async()) == (first, first_async)

    postgres_server.terminate_backends(store.url)
    again, again_async = await asyncio.to_thread(use), await use_async()
    assert first != again
    assert first_async != again_async


async def test_more_transactions_than_connections_wait_for_their_turn(store: PostgresStore, notes: Any) -> None:
    runs = [await a_claimed_run(store) for _ in range(3 * _apart.SIZE)]

    await asyncio.gather(*(end_async(store, run, run.id) for run in runs))

    assert sorted(notes()) == sorted(run.id for run in runs)
    with psycopg.connect(store.url) as connection:
        [(count,)] = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
            "and query ilike 'commit%'"
        ).fetchall()
    assert 1 < count <= _apart.SIZE


async def test_each_loop_has_connections_of_its_own(store: PostgresStore, notes: Any) -> None:
    runs = [await a_claimed_run(store) for _ in range(4)]
    for run in runs:
        await asyncio.to_thread(lambda run=run: asyncio.run(end_async(store, run, run.id)))
    assert len(notes()) == 4


async def test_the_block_alone_ends_the_transaction(store: PostgresStore, notes: Any) -> None:
    first, second = await a_claimed_run(store), await a_claimed_run(store)

    def commit() -> None:
        with store.transaction(within=WITHIN) as connection:
            with pytest.raises(psycopg.ProgrammingError, match="commit"):
                connection.commit()
            connection.execute("insert into effects values ('kept')")
            store.finish_in(connection, succeeded(first))

    def commit_in_sql() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute("commit")
            store.finish_in(connection, succeeded(second))

    await asyncio.to_thread(commit)
    with pytest.raises(DefinitionError, match="has ended the transaction"):
        await asyncio.to_thread(commit_in_sql)
    assert notes() == ["kept"]
    assert await asyncio.to_thread(end, store, second, "and on") is None


async def test_a_swallowed_error_is_told_at_the_end(store: PostgresStore) -> None:
    run = await a_claimed_run(store)

    def swallow() -> None:
        with store.transaction(within=WITHIN) as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("select 1 / 0")
            store.finish_in(connection, succeeded(run))

    def keep_apart() -> None:
        with store.transaction(within=WITHIN) as connection:
            with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
                connection.execute("select 1 / 0")
            store.finish_in(connection, succeeded(run))

    with pytest.raises(DefinitionError, match="has failed already"):
        await asyncio.to_thread(swallow)
    await asyncio.to_thread(keep_apart)


async def test_a_constraint_that_is_checked_at_commit_has_its_own_word(store: PostgresStore, notes: Any) -> None:
    first, second = await a_claimed_run(store), await a_claimed_run(store)
    await asyncio.to_thread(end, store, first)

    with pytest.raises(psycopg.errors.UniqueViolation):
        await asyncio.to_thread(end, store, second)

    [still] = await store.get_runs([second.id])
    assert (still.state, notes()) == (RunState.RUNNING, ["paid"])


async def test_an_explicit_rollback_is_an_exception_like_any_other(store: PostgresStore, notes: Any) -> None:
    def roll_back() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute("insert into effects values ('no')")
            raise psycopg.Rollback

    with pytest.raises(psycopg.Rollback):
        await asyncio.to_thread(roll_back)
    assert notes() == []


async def test_it_is_read_committed_whatever_the_servers_default(store: PostgresStore, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    async with store.transaction_async(within=WITHIN) as inside:
        assert await (await inside.execute("show transaction_isolation")).fetchone() == ("read committed",)


async def test_connections_that_cannot_be_shared_are_refused(store: PostgresStore, postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        with pytest.raises(DefinitionError, match="has to be awaited"):
            store.enqueue_in(connection, [new()])
    latin = psycopg.connect(postgres_url, client_encoding="latin1")
    with latin as connection, pytest.raises(NotSupported, match="client_encoding"):
        store.enqueue_in(connection, [new()])
    with psycopg.connect(postgres_url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1 / 0")
        with pytest.raises(DefinitionError, match="has failed already"):
            store.enqueue_in(connection, [new()])


async def test_callers_connections_may_prepare_and_pipeline(store: PostgresStore, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, prepare_threshold=0) as connection:
        with connection.pipeline():
            connection.execute("insert into effects values ('piped')")
            results = store.enqueue_in(connection, [new()])
        connection.commit()
    assert len(await store.get_runs([result.run.id for result in results])) == 1


async def test_behind_a_pooler_too(
    store: PostgresStore, postgres_server: PostgresServer, postgres_url: str, notes: Any
) -> None:
    async with Pooler(postgres_server.port, postgres_url.rsplit("/", 1)[1], "oncron") as pooler:
        url = f"postgresql://oncron@127.0.0.1:{pooler.port}/any"
        pooled = PostgresStore(url)
        runs = [await a_claimed_run(store) for _ in range(6)]
        await asyncio.gather(
            *(end_async(pooled, run, run.id) for run in runs[:3]),
            *(asyncio.to_thread(end, pooled, run, run.id) for run in runs[3:]),
        )
        async with await psycopg.AsyncConnection.connect(url) as connection:
            [result] = await pooled.enqueue_in_async(connection, [new()])
            await connection.commit()
        await pooled.close()

    assert sorted(notes()) == sorted(run.id for run in runs)
    assert len(await store.get_runs([result.run.id])) == 1
