"""Files that cannot serve: the error says who has to look at what."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from oncron._clock import SECOND
from oncron._model import RunFilter, WorkerRecord
from oncron.errors import SchemaOutdated, SchemaTooNew, StoreUnavailable, StoreUnsafe
from oncron.stores.sqlite import SQLiteStore, _schema
from oncron.stores.sqlite._errors import translated
from tests.unit.stores.sqlite_kit import child, opened, stranger, written

TRY = """
import asyncio, os, resource, signal, sys
from oncron._model import NewRun, new_run_id
from oncron.errors import OncronError
from oncron.stores.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    exec(sys.argv[2])
    try:
        await store.open()
        await store.migrate()
        for _ in range(200):
            await store.enqueue([NewRun(id=new_run_id(), task="t", args="x" * 10_000)])
        print("written")
    except OncronError as error:
        print(type(error).__name__, error)
    await store.close()

asyncio.run(main())
"""
AS_NOBODY = "os.getuid() or (os.setgid(65534), os.setuid(65534))"
"""Root may write everywhere; anybody else is kept out by the modes alone."""
NO_ROOM = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))"


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


async def made(path: Path) -> None:
    async with opened(path):
        pass


@pytest.fixture
def read_only(folder: Path) -> Path:
    path = folder / "a.db"
    asyncio.run(made(path))
    path.chmod(0o444)
    folder.chmod(0o777)
    return path


@pytest.fixture
def closed_folder(folder: Path) -> Path:
    folder.chmod(0o555)
    return folder


async def test_a_file_that_may_not_be_written_is_unsafe(read_only: Path) -> None:
    said = await child(TRY, read_only, AS_NOBODY)

    assert said.startswith("StoreUnsafe")
    assert str(read_only) in said


async def test_a_directory_that_may_not_be_written_is_unsafe(closed_folder: Path) -> None:
    said = await child(TRY, closed_folder / "a.db", AS_NOBODY)

    assert said.startswith("StoreUnsafe")
    assert str(closed_folder / "a.db") in said


async def test_a_full_disk_may_be_tried_again(tmp_path: Path) -> None:
    said = await child(TRY, tmp_path / "a.db", NO_ROOM)

    assert said.startswith("StoreUnavailable"), said
    async with opened(tmp_path / "a.db") as store:
        assert await store.runs(RunFilter()), "what was acknowledged before is there"
        await written(store)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnsafe, match=f"no directory {tmp_path}/none"):
        await SQLiteStore(tmp_path / "none" / "a.db").open()


async def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnsafe, match="is a directory"):
        await SQLiteStore(tmp_path).open()


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 100)

    with pytest.raises(StoreUnsafe, match="not a database"):
        await SQLiteStore(path).open()

    assert path.read_text() == "Dear reader, " * 100


async def test_a_new_file_asks_for_migration(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    await store.open()

    with pytest.raises(SchemaOutdated, match="oncron migrate"):
        await store.check()
    with pytest.raises(SchemaOutdated, match="oncron migrate"):
        await store.stats()

    await store.close()


async def test_an_older_schema_is_outdated_and_a_newer_minor_one_is_not(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.check()
        stranger(tmp_path / "a.db").execute("update oncron_meta set schema_minor = 0")
        with pytest.raises(SchemaOutdated, match="oncron migrate"):
            await store.check()

        stranger(tmp_path / "a.db").execute("update oncron_meta set schema_minor = 99")
        await store.check()
        await store.migrate()
        await written(store)

        [[minor]] = stranger(tmp_path / "a.db").execute("select schema_minor from oncron_meta")
        assert minor == 99


async def test_a_newer_major_schema_is_not_touched(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        stranger(tmp_path / "a.db").execute("update oncron_meta set schema_major = 2")

        for refused in (store.check(), store.migrate(), written(store)):
            with pytest.raises(SchemaTooNew, match="upgrade oncron"):
                await refused


async def test_many_stores_may_make_the_tables_at_once(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "a.db") for _ in range(8)]

    await asyncio.gather(*(store.migrate() for store in stores))

    for store in stores:
        await store.check()
        await written(store)
        await store.close()


async def test_two_namespaces_share_a_file_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", "shop") as shop, opened(tmp_path / "a.db", "post") as post:
        mine = await written(shop)

        assert [run.id for run in await shop.runs(RunFilter())] == [mine.id]
        assert await post.runs(RunFilter()) == []


# --- whose machine ----------------------------------------------------------------------------


async def test_another_machine_is_refused_while_a_lease_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.heartbeat(WorkerRecord(id="w"), 15 * SECOND)

        monkeypatch.setattr(_schema, "boot_id", lambda: "another boot")
        with pytest.raises(StoreUnsafe, match="another machine"):
            await SQLiteStore(tmp_path / "a.db").open()


async def test_another_machine_takes_the_file_once_no_lease_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db") as store:
        pulse = await store.heartbeat(WorkerRecord(id="w"), 15 * SECOND)
        here = _schema.boot_id()

        monkeypatch.setattr(_schema, "boot_id", lambda: "another boot")
        await written(store, now=pulse.lease_until)
        await store.heartbeat(WorkerRecord(id="theirs"), 15 * SECOND, now=pulse.lease_until)

        monkeypatch.setattr(_schema, "boot_id", lambda: here)
        with pytest.raises(StoreUnsafe, match="15 s more"):
            await written(store, now=pulse.lease_until)


# --- broken connections -----------------------------------------------------------------------


async def test_a_store_goes_on_after_its_connection_was_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        first = await written(store)

        await store.reset()

        assert await store.get_run(first.id) == first


async def test_a_file_that_was_exchanged_is_noticed_before_two_files_diverge(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await written(store)
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"a.db{suffix}").rename(tmp_path / f"b.db{suffix}")

        with pytest.raises(StoreUnavailable, match="moved"):
            await written(store)

        await store.migrate()
        assert await store.runs(RunFilter()) == []


def test_an_io_error_on_a_full_disk_is_called_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has no room for one more piece of the shared index, and says only that."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_SHMSIZE, "SQLITE_IOERR_SHMSIZE"
    assert "SQLITE_IOERR_SHMSIZE" in str(translated(error, tmp_path / "oncron.db"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    assert "the disk is full" in str(translated(error, tmp_path / "oncron.db"))
