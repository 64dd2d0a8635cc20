"""One suite, every store: each test below takes `store`, and `other` for a second session on the same rows."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from oncron._store import ReadableStore
from oncron.stores.memory import MemoryStore

KINDS = ("memory", "sqlite", "postgres")
_namespaces = itertools.count(1)

Connect = Callable[[], ReadableStore]
"""Makes one more session, not yet opened, on the rows of this test."""


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    kind: str = request.param
    if kind == "memory":
        shared = MemoryStore()
        return lambda: shared
    if kind == "sqlite":
        from oncron.stores.sqlite import SQLiteStore

        return lambda: SQLiteStore(tmp_path / "oncron.db")
    from oncron.stores.postgres import PostgresStore

    url = request.getfixturevalue("postgres_shared_url")
    namespace = f"contract_{next(_namespaces)}"
    return lambda: PostgresStore(url, namespace=namespace)


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
