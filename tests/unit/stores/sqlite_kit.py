"""What the tests of the SQLite store share: a store on a file, and a stranger's connection to it."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from oncron._model import NewRun, RunRecord, new_run_id
from oncron._store import ReadableStore
from oncron.stores.sqlite import SQLiteStore

REPOSITORY = Path(__file__).parents[3]


@asynccontextmanager
async def opened(path: Path, namespace: str = "oncron") -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, namespace=namespace)
    await store.open()
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


async def written(store: ReadableStore, now: int | None = None) -> RunRecord:
    """A run that a call has just asked for, by the store's own clock unless told."""
    [answer] = await store.enqueue([NewRun(id=new_run_id(), task="send")], now=now)
    return answer.run


def stranger(path: Path) -> sqlite3.Connection:
    """Somebody else's connection, without waiting for locks."""
    return sqlite3.connect(path, timeout=0, isolation_level=None)


async def child(script: str, *arguments: object, expect: int = 0) -> str:
    """What a Python process of its own prints. `expect` is its exit code, negative for a signal."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=REPOSITORY)
    try:
        said, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == expect, complaint.decode()
    return said.decode()
