"""`oncron demo`: real processes, one killed; nothing of it is left afterwards."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from oncron.cli import ledger
from oncron.cli.demo_picture import strip
from oncron.cli.demo_replicas import Beat
from oncron.cli.ledger import Line

KEYS = ["ticks", "runs", "duplicates", "missed", "takeovers", "lateness_ms"]


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oncron", "demo", *options],
        cwd=folder, env=os.environ | {"TMPDIR": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def checked(process: subprocess.Popen[str], kept: Path, *, warns: str = "") -> dict[str, object]:
    """Its summary, which has to be what the ledger says."""
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    assert not warns or [line.split(":")[:2] for line in err.splitlines() if warns in line] == [["Note", f" {warns}"]]
    summary = json.loads(out.splitlines()[-1])
    assert list(summary) == KEYS
    assert summary["duplicates"] == summary["missed"] == 0
    assert summary["takeovers"] >= 1
    lines = ledger.read(kept.read_bytes())
    starts = [line for line in lines if line.what == "start"]
    assert len({line.run for line in starts}) == summary["runs"] == summary["ticks"]
    assert len(starts) - summary["runs"] == summary["takeovers"]
    assert re.search(r"SIGKILL to replica \d, which holds the run of slow", err)
    return summary


def test_on_sqlite_every_tick_runs_once_although_a_replica_is_killed(tmp_path):
    summary = checked(demo(tmp_path, "--seconds", "6", "--json", "--ledger", "kept"), tmp_path / "kept")
    assert summary["ticks"] >= 140
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_in_a_given_postgresql_nothing_is_left_and_nothing_is_touched(tmp_path, postgres_url):
    checked(
        demo(tmp_path, "--seconds", "4", "--replicas", "2", "--json", "--ledger", "kept", "--store", postgres_url),
        tmp_path / "kept",
    )
    with psycopg.connect(postgres_url) as connection:
        schemas = connection.execute("select nspname from pg_namespace where nspname !~ '^pg_'").fetchall()
    assert sorted(name for (name,) in schemas) == ["information_schema", "public"]


def test_in_a_given_redis_nothing_is_left_and_nothing_is_touched(tmp_path, redis_server):
    redis_server.command("SET", "mine", "kept")
    before = set(redis_server.command("KEYS", "*"))
    checked(
        demo(tmp_path, "--seconds", "4", "--replicas", "2", "--json", "--ledger", "k", "--store", redis_server.url()),
        tmp_path / "k",
        warns="store.not_durable",
    )
    assert set(redis_server.command("KEYS", "*")) == before


def test_in_a_given_sqlite_file_nothing_is_left_and_nothing_is_touched(tmp_path):
    with sqlite3.connect(tmp_path / "mine.db") as mine:
        mine.execute("create table demo_mine (x)")
        mine.execute("insert into demo_mine values (1)")
    mine.close()
    told = demo(tmp_path, "--seconds", "3", "--replicas", "2", "--store", "sqlite:///mine.db")
    out, err = told.communicate(timeout=110)
    assert told.returncode == 0, err
    assert re.search(r"\d s  fast-1 [12]{5}", out)
    assert "0 duplicates, 0 missed, 1 take-over" in out
    with sqlite3.connect(tmp_path / "mine.db") as mine:
        assert mine.execute("select name from sqlite_schema").fetchall() == [("demo_mine",)]
        assert mine.execute("select x from demo_mine").fetchall() == [(1,)]
    mine.close()


def replicas_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of its children, once they tick."""
    assert process.stdout is not None
    for line in process.stdout:
        if "fast-1" in line:
            break
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def all_end(pids: list[int], within: float) -> bool:
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        return all(select.select([handle], [], [], within)[0] for handle in handles)
    finally:
        for handle in handles:
            os.close(handle)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for other processes needs Linux")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_no_replica_outlives_the_demo_however_it_ends(tmp_path, how):
    process = demo(tmp_path, "--seconds", "60")
    pids = replicas_of(process)
    assert len(pids) == 3
    process.send_signal(how)
    assert all_end(pids, 30)
    _, err = process.communicate(timeout=30)
    assert process.returncode == {signal.SIGKILL: -9}.get(how, 130)
    assert "Traceback" not in err
    if how != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def test_the_picture_shows_who_ran_which_tick():
    def start(tick: int, worker: str) -> Line:
        return Line(schedule="s", tick=tick, run=f"r{tick}", attempt=1, token=1, what="start", worker=worker, at=tick)

    lines = [start(200, "1"), start(300, "2"), start(500, "1"), start(300, "3")]
    assert strip(lines, "s", Beat(100, 0), 100, 500) == [("1", False), ("3", True), ("·", False), ("1", False)]
