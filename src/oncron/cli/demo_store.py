"""A demo's own corner of a store, and how it is swept afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from oncron._model import new_id
from oncron.cli.demo_replicas import Place
from oncron.errors import StoreError
from oncron.stores.open import opener


@contextmanager
def place(url: str | None) -> Generator[Place]:
    """A temporary SQLite file, or a namespace of the demo's own in the given store. Nothing of it is left
    afterwards, and nothing else in the store is touched."""
    namespace = f"demo_{new_id()[:8]}"
    with TemporaryDirectory(prefix="oncron-demo-", ignore_cleanup_errors=True) as folder:
        if url is None:
            yield Place(f"sqlite:///{folder}/demo.db", namespace, Path(folder))
            return
        opener(url, namespace=namespace)
        if url.startswith("memory:"):
            raise click.UsageError("memory:// lives in one process; the demo starts several: leave --store out")
        made_before = _file(url).exists() if url.startswith("sqlite") else True
        try:
            yield Place(url, namespace, Path(folder))
        finally:
            if url.startswith("sqlite"):
                _sweep_sqlite(_file(url), namespace, made_before=made_before)
            elif re.match(r"postgres(ql)?:", url):
                _sweep_postgres(url, namespace)
            else:
                asyncio.run(_sweep_redis(url, namespace))


def _file(url: str) -> Path:
    return Path(url.split("://", 1)[1].removeprefix("/"))


def _sweep_sqlite(file: Path, namespace: str, *, made_before: bool) -> None:
    if not made_before:
        for end in ("", "-wal", "-shm"):
            Path(f"{file}{end}").unlink(missing_ok=True)
        return
    with contextlib.closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as connection:
        names = connection.execute("select name from sqlite_schema where type = 'table'").fetchall()
        for (name,) in names:
            if re.fullmatch(rf"{namespace}_\w+", name):
                connection.execute(f'drop table "{name}"')


def _sweep_postgres(url: str, namespace: str) -> None:
    import psycopg
    from psycopg import sql

    url = re.sub(r"^\w+://", "postgresql://", url)
    # A demo that failed because the server went away cannot sweep either: its schema stays, by its name.
    with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        connection.execute("set lock_timeout = '10s'")
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(namespace)))


async def _sweep_redis(url: str, namespace: str) -> None:
    store: Any = opener(url, namespace=namespace)()
    try:
        await store.drop()
    except StoreError:
        pass  # the server went away, and the demo failed: its keys stay, by their hash tag
    finally:
        await store.close()
