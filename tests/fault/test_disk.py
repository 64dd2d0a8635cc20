"""The store's disk is full for a while: replicas survive it, say so, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.conftest import missed
from tests.fault.disk import Fillable, PostgresOnSmallDisk, Quota, SmallDisk
from tests.fault.fleet import REPOSITORY, Fleet, Load
from tests.servers import ServerMissing


def crowded(fleet: Fleet, disk: Fillable, *, seconds: float) -> str:
    """A full disk for so long while ticks flow; what `oncron doctor` finds wrong towards its end."""
    with fleet.running():
        fleet.until(lambda: len(fleet.lines()) > 60, 30, "work to be done")
        with fleet.disturbing("disk full", echo=1 + fleet.load.lease), disk.full(fleet):
            time.sleep(seconds)
            wrong = doctor(fleet)
        time.sleep(1)
        assert all(replica.alive for replica in fleet.replicas), fleet.logs()
        found = fleet.settle()
    print(f"\n{found.summary()}\n{wrong}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.ticks >= 20
    assert told(fleet, "the store answers again")
    return wrong


def doctor(fleet: Fleet) -> str:
    """What the health check says, if it says that something is wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "oncron", "doctor", "--store", fleet.url],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "COLUMNS": "400"},
    )  # fmt: skip
    return done.stdout + done.stderr if done.returncode else ""


def told(fleet: Fleet, text: str) -> bool:
    return any(text in replica.log.read_text(errors="replace") for replica in fleet.replicas)


@pytest.mark.timeout(90)
def test_a_full_disk_under_sqlite_is_told_and_survived(small_disk: SmallDisk, tmp_path: Path):
    if small_disk.refused:
        pytest.skip(
            f"this user may not mount a small disk ({small_disk.refused}); `make fault` has the same by a quota"
        )
    fleet = Fleet(f"sqlite:///{small_disk.place}/oncron.db", tmp_path, Load(lease=2), offsets=(0, 300))
    assert "the disk is full" in crowded(fleet, small_disk, seconds=4)
    assert told(fleet, "the disk is full")


@pytest.mark.long
@pytest.mark.timeout(90)
def test_a_quota_under_sqlite_is_survived(tmp_path: Path):
    """Without a right to mount anything: replicas whose files may not grow, their logs included."""
    fleet = Fleet(f"sqlite:///{tmp_path}/oncron.db", tmp_path, Load(lease=2), offsets=(0, 300))
    crowded(fleet, Quota(), seconds=4)


@contextlib.contextmanager
def small_server(small: Literal["tables", "log"]) -> Iterator[PostgresOnSmallDisk]:
    try:
        server = PostgresOnSmallDisk(small, 96)
    except ServerMissing as missing:
        missed(missing)
    with contextlib.closing(server):
        server.start()
        yield server


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_full_disk_under_postgresqls_tables_is_told_and_survived(tmp_path: Path):
    """Statements fail and reads are answered: the health check goes by the outcome, ticks that do not pass. In the
    end the server may give up, too."""
    with small_server("tables") as server:
        fleet = Fleet(server.create_database(), tmp_path, Load(lease=2), offsets=(0, 300))
        assert crowded(fleet, server, seconds=75)
        assert any("No space left" in line for line in server.errors())
        assert told(fleet, "No space left")


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_full_disk_under_postgresqls_log_is_told_and_survived(tmp_path: Path):
    """The server gives up, and is started again when there is room."""
    with small_server("log") as server:
        fleet = Fleet(server.create_database(), tmp_path, Load(lease=2), offsets=(0, 300))
        assert "cannot be reached" in crowded(fleet, server, seconds=6)
        assert any("PANIC" in line for line in server.errors())
