"""What a test of transactions needs beside the store: a table of the user's, and the user's own connections."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

WITHIN = 10_000_000


class Effects:
    """A table `effects` of the user's, beside the store's: on the same file, or in the same database."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind, self.place = kind, place
        self.mark = "?" if kind == "sqlite" else "%s"

    @property
    def insert(self) -> str:
        return f"insert into effects (note) values ({self.mark})"

    def make(self) -> None:
        with self.connected() as connection:
            connection.execute("drop table if exists effects")
            connection.execute("create table effects (note text not null unique)")
            connection.commit()

    def notes(self) -> list[str]:
        """What is committed."""
        with self.connected() as connection:
            return [note for (note,) in connection.execute("select note from effects order by note").fetchall()]

    @contextmanager
    def connected(self) -> Generator[Any]:
        """The user's own sync connection, as its driver makes it by default: a transaction begins by itself."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def connect(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.place)
        import psycopg

        return psycopg.connect(self.place)

    def connect_autocommit(self) -> Any:
        if self.kind == "sqlite":
            return sqlite3.connect(self.place, isolation_level=None)
        import psycopg

        return psycopg.connect(self.place, autocommit=True)

    def connected_async(self) -> AbstractAsyncContextManager[Any]:
        return _aiosqlite(self.place) if self.kind == "sqlite" else _psycopg(self.place)

    def of_sqlalchemy(self, driver: str = "") -> str:
        if self.kind == "sqlite":
            return f"sqlite{driver and '+aiosqlite'}:///{self.place}"
        return self.place.replace("postgresql://", "postgresql+psycopg://", 1)


@asynccontextmanager
async def _aiosqlite(place: str) -> AsyncIterator[Any]:
    import aiosqlite

    async with aiosqlite.connect(place) as connection:
        yield connection


@asynccontextmanager
async def _psycopg(place: str) -> AsyncIterator[Any]:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(place)
    try:
        yield connection
    finally:
        await connection.close()


def effects_of(kind: str, directory: Path, url: Callable[[], str]) -> Effects:
    effects = Effects(kind, str(directory / "oncron.db") if kind == "sqlite" else url())
    effects.make()
    return effects


async def off_loop(work: Callable[[], Any]) -> Any:
    """As a sync task does: in a thread."""
    return await asyncio.to_thread(work)
