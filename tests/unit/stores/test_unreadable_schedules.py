"""A schedule that this release cannot read (a newer one wrote it, somebody by hand) stays and stops no other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from oncron import Oncron, every
from oncron._engine import registrar
from oncron._model import Change
from oncron._store import ReadableStore
from oncron.errors import StoreError
from oncron.stores.postgres import PostgresStore
from oncron.stores.redis import RedisStore
from oncron.stores.sqlite import SQLiteStore
from tests.contract.given import FAR_AHEAD, at, declared, definition

NEWER = '{"name":"b","trigger":"every(seconds=1)","task":"send","overlap":"sideways"}'
"""As a release would write it that has one more policy."""


class There:
    """A store, and a way past it to what it holds."""

    def __init__(
        self, store: ReadableStore, app: Callable[[], Oncron], write: Callable[[str], object], read: Callable[[], str]
    ) -> None:
        self.store, self.app, self.write, self.read = store, app, write, read


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def there(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[There]:
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        namespace = server.namespace()
        store: ReadableStore = RedisStore(server.url(), namespace=namespace)
        key = f"{{{namespace}}}:definitions"
        there = There(
            store,
            lambda: Oncron(server.url(), namespace=namespace),
            lambda text: server.command("HSET", key, "b", text),
            lambda: server.command("HGET", key, "b"),
        )
    elif request.param == "sqlite":
        store = SQLiteStore(tmp_path / "a.db")

        def on_file(sql: str, *values: str) -> list[tuple[str]]:
            with sqlite3.connect(tmp_path / "a.db") as connection:
                return connection.execute(sql, values).fetchall()

        there = There(
            store,
            lambda: Oncron(f"sqlite:///{tmp_path}/a.db"),
            lambda text: on_file("update oncron_schedules set definition = ? where name = 'b'", text),
            lambda: on_file("select definition from oncron_schedules where name = 'b'")[0][0],
        )
    else:
        url = request.getfixturevalue("postgres_url")
        store = PostgresStore(url, namespace="unreadable")

        def on_server(sql: str, *values: str) -> psycopg.Cursor[tuple[str]]:
            with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
                return connection.execute(sql, values)  # type: ignore[arg-type]

        there = There(
            store,
            lambda: Oncron(url, namespace="unreadable"),
            lambda text: on_server("update unreadable.schedules set definition = %s where name = 'b'", text),
            lambda: on_server("select definition from unreadable.schedules where name = 'b'").fetchall()[0][0],
        )
    await store.open()
    await store.migrate()
    for name in ("a", "b", "c", "d"):
        await declared(store, name)
    yield there
    await store.close()


async def test_it_hides_none_of_the_others_and_no_page_ends_before_its_time(there: There) -> None:
    there.write(NEWER)

    async def names(found: Awaitable[list[object]]) -> list[str]:
        return [row.name for row in await found]  # type: ignore[attr-defined]

    assert await names(there.store.schedules()) == ["a", "c", "d"]  # type: ignore[arg-type]
    assert await names(there.store.schedules(["b", "c"])) == ["c"]  # type: ignore[arg-type]
    assert await names(there.store.schedules(limit=2)) == ["a", "c"]  # type: ignore[arg-type]
    assert await names(there.store.schedules(after="a", limit=5)) == ["c", "d"]  # type: ignore[arg-type]
    assert [due.name for due in await there.store.due(FAR_AHEAD, limit=9)] == ["a", "b", "c", "d"]


async def test_it_is_not_written_over_and_the_others_of_its_batch_are_declared(there: There) -> None:
    there.write(NEWER)
    new = [
        Change(name=name, definition=definition(name), status="active", new_cursor=at(0), next_at=at(1))  # type: ignore[arg-type]
        for name in ("b", "e")
    ]

    one, other = await there.store.declare(new, now=at(5))

    assert (one.changed, one.record, one.unreadable) == (False, None, True)
    assert other.changed
    assert there.read() == NEWER


async def test_whoever_declares_it_is_told_once_and_whoever_puts_it_is_refused(
    there: There, caplog: pytest.LogCaptureFixture
) -> None:
    there.write(NEWER)
    wanted = [definition(name, trigger="every(seconds=5)") for name in ("b", "f")]

    done = await registrar.declare(there.store, wanted)

    assert done == [("f", "declared")]
    assert sum("stays as stored" in record.getMessage() for record in caplog.records) == 1
    with pytest.raises(StoreError, match="'b' is stored as this release cannot read it"):
        await registrar.put(there.store, definition("b", trigger="every(seconds=5)"))
    assert there.read() == NEWER


@pytest.mark.parametrize("text", [NEWER, "no json at all"])
async def test_a_replica_fires_all_the_others_and_says_which_it_leaves_alone(
    there: There, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    there.write(text)
    app, ticked = there.app(), asyncio.Event()

    @app.schedule(every(seconds=0.05), overlap="allow")
    async def beat() -> None:
        ticked.set()

    async with app:
        await asyncio.wait_for(ticked.wait(), 15)

    assert any("'b' cannot be read by this release" in record.getMessage() for record in caplog.records)
    assert there.read() == text
