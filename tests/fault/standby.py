"""A PostgreSQL that follows another one, and takes its place."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psycopg

from tests.servers import PostgresServer, ServerMissing, _as_owner, find_postgres

LAGS_FOR = 1.5
"""Seconds by which an asynchronous standby is behind when its primary dies."""


class Standby(PostgresServer):
    """A streaming copy of `primary`, made by pg_basebackup. Read-only until `promote`."""

    def __init__(self, primary: PostgresServer) -> None:
        if not (find_postgres() / "pg_basebackup").is_file():
            raise ServerMissing(f"{find_postgres()} has no pg_basebackup: install the whole of PostgreSQL's client")
        self._primary = primary
        super().__init__()

    def _initdb(self) -> None:
        command: list[str | Path] = [self._binaries / "pg_basebackup", "-D", self._data, "-d"]
        command += [self._primary.url().rsplit("/", 1)[0] + "/", "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._home, **_as_owner())
        if done.returncode:
            raise RuntimeError(f"pg_basebackup failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() in ("ready", "standby")

    def detach(self) -> None:
        """It hears nothing more of its primary, and is behind from now on."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("alter system set primary_conninfo = ''")
            connection.execute("select pg_reload_conf()")
            _until(connection, "select not exists (select from pg_stat_wal_receiver)")

    def promote(self) -> None:
        """It is a primary afterwards."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("select pg_promote(true, 30)")
            _until(connection, "select not pg_is_in_recovery()")


def acknowledge_by_standby(primary: PostgresServer) -> None:
    """From now on a commit is answered when the standby has it, too (synchronous replication)."""
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = '*'")
        connection.execute("select pg_reload_conf()")
        _until(connection, "select exists (select from pg_stat_replication where sync_state = 'sync')")


def with_both(primary: PostgresServer, standby: PostgresServer, url: str) -> str:
    """The URL of the same database that finds whichever of the two takes writes."""
    database = url.rsplit("/", 1)[1]
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://oncron@{hosts}/{database}?target_session_attrs=read-write"


def _until(connection: psycopg.Connection, question: str) -> None:
    deadline = time.monotonic() + 30
    while not connection.execute(question.encode()).fetchone()[0]:  # pyright: ignore[reportOptionalSubscript]
        assert time.monotonic() < deadline, question
        time.sleep(0.02)
