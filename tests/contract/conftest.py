"""One suite, every store: each test below takes `store`, and `other` for a second session on the same rows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from oncron._store import ReadableStore
from oncron.stores.memory import MemoryStore
from tests.contract.effects import Effects, effects_of
from tests.contract.race import Racers

KINDS = ("memory", "sqlite", "postgres", "redis", "valkey")
POOLED = "pgbouncer"
"""PostgreSQL behind PgBouncer in transaction mode: the whole suite as well."""
_namespaces = itertools.count(1)

Connect = Callable[[], ReadableStore]
"""Makes one more session, not yet opened, on the rows of this test."""


def connector(kind: str, directory: Path, request: pytest.FixtureRequest, *, namespace: str = "contract") -> Connect:
    """Sessions on empty rows of that kind of store."""
    if kind == "memory":
        shared = MemoryStore()
        return lambda: shared
    if kind == "sqlite":
        from oncron.stores.sqlite import SQLiteStore

        return lambda: SQLiteStore(directory / "oncron.db")
    if kind in ("redis", "valkey"):
        from oncron.stores.redis import RedisStore

        server = request.getfixturevalue(f"{kind}_server")
        fresh = server.namespace()
        return lambda: RedisStore(server.url(), namespace=fresh)
    from oncron.stores.postgres import PostgresStore

    url = request.getfixturevalue("postgres_shared_url")
    _empty(url, namespace)
    if kind == POOLED:
        pooled = request.getfixturevalue("pgbouncer").url(url)
        return lambda: PostgresStore(pooled, namespace=namespace, listen_url=url)
    return lambda: PostgresStore(url, namespace=namespace)


def _empty(url: str, namespace: str) -> None:
    """A schema takes ten times longer to make than a test to run: it is made once and emptied."""
    import psycopg

    with psycopg.connect(url, autocommit=True, options="-c lock_timeout=5s") as connection:
        tables = connection.execute(
            "select format('delete from %%I.%%I', schemaname, tablename) from pg_tables "
            "where schemaname = %s and tablename <> 'meta'",
            [namespace],
        )
        for (delete,) in tables.fetchall():
            connection.execute(delete)


@pytest.fixture(params=[*KINDS, POOLED])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    return connector(request.param, tmp_path, request)


@pytest.fixture(params=[*KINDS, POOLED])
def connect_unmigrated(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Where nobody has migrated yet."""
    return connector(request.param, tmp_path, request, namespace=f"contract_{next(_namespaces)}")


@pytest.fixture
async def store(connect: Connect) -> AsyncIterator[ReadableStore]:
    store = connect()
    await store.open()
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
async def other(connect: Connect, store: ReadableStore) -> AsyncIterator[ReadableStore]:
    """What another replica holds: its own connections to the same rows."""
    other = connect()
    await other.open()
    yield other
    await other.close()


@pytest.fixture
async def racers(connect: Connect, store: ReadableStore) -> AsyncIterator[Racers]:
    """Four sessions on threads of their own."""
    async with Racers(connect, sessions=4) as racers:
        yield racers


def _kind_of(request: pytest.FixtureRequest) -> str:
    return request.node.callspec.params["connect"]


@pytest.fixture
def effects(request: pytest.FixtureRequest, tmp_path: Path, store: ReadableStore) -> Effects:
    """A table of the user's beside the store's."""
    return effects_of(_kind_of(request), tmp_path, lambda: request.getfixturevalue("postgres_shared_url"))


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Effects:
    """The same in another file or database, which holds a store of the same namespace too."""
    kind, directory = _kind_of(request), tmp_path / "elsewhere"
    directory.mkdir()
    other = effects_of(kind, directory, lambda: request.getfixturevalue("postgres_url"))
    asyncio.run(_migrated(other))
    return other


async def _migrated(there: Effects) -> None:
    from oncron.stores.postgres import PostgresStore
    from oncron.stores.sqlite import SQLiteStore

    store = SQLiteStore(there.place) if there.kind == "sqlite" else PostgresStore(there.place, namespace="contract")
    await store.migrate()
    await store.close()
