"""Migrations: many at once, older and newer releases, missing rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import psycopg
import pytest

from oncron._groups import QueueRecord
from oncron._model import NewRun, RunFilter
from oncron.errors import SchemaOutdated, SchemaTooNew, StoreUnsafe
from oncron.stores.postgres import PostgresStore, _schema, _wire
from tests.servers import PostgresServer
from tests.unit.stores.postgres_kit import asked, declared, new, opened, plan, spec


async def test_eight_replicas_may_migrate_at_once(postgres_url: str, postgres_errors: Callable[[], list[str]]) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]

    await asyncio.gather(*(store.migrate() for store in stores))

    await asyncio.gather(*(store.check() for store in stores))
    assert await asked(postgres_url, "select count(*) from oncron.meta") == [(1,)]
    assert postgres_errors() == []


async def test_migrating_again_writes_nothing(postgres_url: str) -> None:
    written = "select xmin::text, ctid::text from oncron.meta"
    async with opened(postgres_url) as store:
        before = await asked(postgres_url, written)

        await store.migrate()

        assert await asked(postgres_url, written) == before


async def test_an_empty_database_is_outdated_and_the_look_leaves_no_error(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    with pytest.raises(SchemaOutdated, match="has no oncron schema 'oncron' yet; run `oncron migrate`"):
        await PostgresStore(postgres_url).check()
    assert postgres_errors() == []


async def test_a_newer_major_is_too_new_and_left_alone(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await asked(postgres_url, "update oncron.meta set major = 2, minor = 7")

        for step in (store.check, store.migrate):
            with pytest.raises(SchemaTooNew, match=r"2\.7.*upgrade oncron"):
                await step()
        assert await asked(postgres_url, "select major, minor from oncron.meta") == [(2, 7)]


async def test_a_newer_minor_serves_this_release_and_keeps_its_functions(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await asked(postgres_url, "update oncron.meta set minor = 900, functions = 'newer'")

        await store.migrate()
        await store.check()

        assert await asked(postgres_url, "select minor, functions from oncron.meta") == [(900, "newer")]
        await declared(store, "a")


async def test_functions_of_another_build_are_replaced(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await asked(
            postgres_url,
            "update oncron.meta set functions = 'older'",
            "create or replace function oncron.store_now(p_now bigint) returns bigint language sql as 'select 5'",
        )
        with pytest.raises(SchemaOutdated):
            await store.check()

        await store.migrate()

        await store.check()
        assert (await store.poll([], None)).now > 5


async def test_functions_of_a_newer_release_stay_where_an_older_one_starts_beside_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both need the same tables; otherwise each start of either would exchange the functions under the other."""
    async with opened(postgres_url) as store:
        monkeypatch.setattr(_schema, "version", lambda: "0.1.9")
        release = "update oncron.meta set functions = '{} another'"
        for newer in ("0.1.10", "0.2.0", "1.0.0"):
            await asked(postgres_url, release.format(newer))
            await store.check()
            await store.migrate()
            assert await asked(postgres_url, "select functions from oncron.meta") == [(f"{newer} another",)]
        for older in ("0.1.8", "0.1.9", ""):
            await asked(postgres_url, release.format(older))
            with pytest.raises(SchemaOutdated):
                await store.check()
            await store.migrate()
            await store.check()


async def test_without_the_right_to_create_one_sentence_says_what_to_grant(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    await asked(postgres_server.url(), "drop role if exists reader", "create role reader login")
    poor = postgres_url.replace("oncron@", "reader@")

    with pytest.raises(StoreUnsafe, match=r"may not write oncron's schema.*grant this user CREATE") as caught:
        await PostgresStore(poor).migrate()

    assert "\n" not in str(caught.value)


async def test_a_migration_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    await asked(postgres_url, "create schema oncron", "create table oncron.gaps (id int)")

    with pytest.raises(Exception, match="already exists"):
        await PostgresStore(postgres_url).migrate()

    assert await asked(postgres_url, "select tablename from pg_tables where schemaname = 'oncron'") == [("gaps",)]


async def test_namespaces_do_not_see_each_other(postgres_url: str) -> None:
    async with opened(postgres_url, namespace="shop") as shop, opened(postgres_url, namespace="my-Blog") as blog:
        await declared(shop, "report")

        assert [row.name for row in await shop.schedules()] == ["report"]
        assert await blog.schedules() == []
        assert (await blog.poll([], None)).version == 0


async def test_no_number_that_grows_is_32_bits_wide(postgres_url: str) -> None:
    async with opened(postgres_url):
        narrow = await asked(
            postgres_url,
            "select table_name, column_name from information_schema.columns where table_schema = 'oncron'"
            " and table_name <> 'meta' and data_type in ('integer', 'smallint', 'real')",
        )
    assert narrow == []


async def test_nothing_of_the_store_is_left_outside_of_its_schema(postgres_url: str) -> None:
    everything = (
        "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'oncron')"
    )
    before = await asked(postgres_url, everything)
    async with opened(postgres_url):
        assert await asked(postgres_url, everything) == before


async def test_what_the_release_before_batches_wrote_goes_on_after_the_migration(postgres_url: str) -> None:
    """As it left its tables, and the functions whose answers have other columns now."""
    older = PostgresStore(postgres_url)
    older._schema._migrations = older._schema._migrations[:2]
    older._schema._functions = [
        "create function changes_of(p_changes jsonb) returns table (place bigint) language sql as 'select 1::bigint'",
        "create function new_runs(p_runs jsonb) returns table (place bigint) language sql as 'select 1::bigint'",
    ]
    await older.migrate()
    await asked(
        postgres_url,
        "set search_path = oncron",
        "insert into schedules (name, definition, task, args, queue, priority, retries, retry_delay, overlap,"
        ' created_at, changed_at) values (\'a\', \'{"name": "a", "trigger": "every 1s", "task": "send"}\', \'send\','
        " '{}', 'default', 0, 3, 1, 'skip', 0, 0)",
        "insert into cursors (name, status, revision, cursor, next_at) values ('a', 'active', 1, 5, 6)",
        "insert into runs (id, task, due_at, created_at, retries, retry_delay)"
        " values ('01a22f40-7f77-70ed-9ae7-5e6c22f33989', 'send', 1, 1, 3, 1)",
    )
    async with opened(postgres_url) as store:
        [row] = await store.schedules()
        assert (row.cursor, row.definition.guard) == (5, None)
        fired = await store.fire([plan("a", 5)], spec(), fire_id="f")
        assert [run.guard for run in fired.leases] == [None]
        [run] = (await store.claim(spec())).runs
        assert (run.id[:8], run.batch) == ("01a22f40", None)
        assert await store.queues() == [QueueRecord(name="default", running=2)]


async def test_a_release_before_batches_works_on_beside_this_one(postgres_url: str) -> None:
    """It calls these functions with what it knew."""
    claim = {
        key: value for key, value in msgspec.to_builtins(spec()).items() if key not in ("queue_limits", "fleet_limit")
    }
    async with opened(postgres_url) as store:
        await declared(store, "a")
        run, next_run = new(), new(task="next")
        said = [
            ("list_schedules", ["null"]),
            ("list_schedules", ['["a"]']),
            ("enqueue", [_older(run), "[]", None]),
            ("claim", [_wire.encode(claim).decode(), None]),
        ]
        answers = [await _called(postgres_url, function, arguments) for function, arguments in said]
        assert [[row["name"] for row in answer] for answer in answers[:2]] == [["a"], ["a"]]
        [held] = answers[3]["runs"]
        assert held["id"] == run.id

        outcome = {"run_id": run.id, "token": held["token"], "kind": "succeeded", "result": None}
        more = f'{{"{run.id}": {_older(next_run)}}}'
        await _called(postgres_url, "finish", [_wire.encode([outcome]).decode(), more, None])

        assert [each.id for each in await store.runs(RunFilter(task="next"))] == [next_run.id]
        assert await _called(postgres_url, "prune", [2**60, 2**60, 10]) == 1


def _older(run: NewRun) -> str:
    known = {key: value for key, value in msgspec.to_builtins(run).items() if key not in ("guard", "batch")}
    return _wire.encode([known]).decode()


async def _called(url: str, function: str, arguments: list[Any]) -> Any:
    places = ", ".join(["%s"] * len(arguments))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = psycopg.AsyncClientCursor(connection)
        await cursor.execute(f"select oncron.{function}({places})".encode(), arguments)
        [(answer,)] = await cursor.fetchall()
        return answer
