"""How late ticks run: three replicas, schedules every second, by the store's clock, beside a bare commit.

Usage: lateness.py [sqlite] [postgresql] [redis] [valkey] [--ticks 300] [--schedules 5] [--replicas 3]

A tick's lateness is from its instant to the first line of its task, in whichever process that runs.
The bare commit, one row inserted into a table of its own or one SET, is timed in the same run at the same pace,
half a second after each tick.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oncron.cli.ledger import percentile_ms
from tests.fault.fleet import Fleet, Load, machine_us
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

WARM_UP = 5
"""Seconds of running together before the ticks count."""


@contextmanager
def postgresql(_: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    import psycopg

    with PostgresServer() as server:
        url = server.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table bare (id bigint generated always as identity primary key, at text)")
            yield url, lambda: connection.execute("insert into bare (at) values ('now')", prepare=True)


@contextmanager
def sqlite(home: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    with closing(sqlite3.connect(home / "bare.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("create table bare (id integer primary key, at text)")
        yield f"sqlite:///{home}/oncron.db", lambda: connection.execute("insert into bare (at) values ('now')")


def on_redis(kind: str) -> Callable[[Path], AbstractContextManager[tuple[str, Callable[[], object]]]]:
    @contextmanager
    def place(_: Path) -> Iterator[tuple[str, Callable[[], object]]]:
        import redis

        with RedisServer(kind, {"appendfsync": "always"}) as server, redis.Redis(port=server.port) as client:
            yield server.url(), lambda: client.set("bare", "now")

    return place


STORES = {"postgresql": postgresql, "sqlite": sqlite, "redis": on_redis("redis"), "valkey": on_redis("valkey")}


def measure(store: str, ticks: int, schedules: int, replicas: int) -> str:
    seconds = -(-ticks // schedules)
    bare: list[int] = []
    with tempfile.TemporaryDirectory() as folder, STORES[store](Path(folder)) as (url, commit):
        load = Load(fast=0, second=schedules, work="1 1", lease=15)
        fleet = Fleet(url, Path(folder), load, offsets=(0,) * replicas)
        with fleet.running():
            fleet.until(lambda: all(replica.up for replica in fleet.replicas), 30, "every replica")
            first = int(time.time()) + WARM_UP
            while time.time() < first + seconds:
                time.sleep(1 - (time.time() - 0.5) % 1)
                began = machine_us()
                commit()
                if began > first * 1_000_000:
                    bare.append(machine_us() - began)
            found = fleet.settle()
        starts: dict[tuple[str, int], int] = {}
        for line in fleet.lines():
            if line.what == "start":
                starts.setdefault((line.schedule, line.tick), line.at)
    late = [at - tick for (_, tick), at in starts.items() if first * 1_000_000 <= tick < (first + seconds) * 1_000_000]
    ms = [percentile_ms(late, 50), percentile_ms(late, 99), percentile_ms(late, 100)]
    commits = [percentile_ms(bare, 50), percentile_ms(bare, 99)]
    wrong = len(found.extra) + len(found.missing) + len(found.early)
    return (
        f"{store:<12}{len(late):>7}{ms[0]:>10}{ms[1]:>10}{ms[2]:>10}{commits[0]:>12}{commits[1]:>12}"
        f"{(ms[0] or 0) / (commits[0] or 1):>8.1f}{wrong:>16}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", metavar="STORE", default=list(STORES))
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--schedules", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=3)
    given = parser.parse_args()
    print(f"{given.replicas} replicas, {given.schedules} schedules every second; milliseconds")
    print(
        f"{'store':<12}{'ticks':>7}{'late p50':>10}{'p99':>10}{'max':>10}{'commit p50':>12}{'commit p99':>12}"
        f"{'p50 x':>8}{'extra+missing':>16}"
    )
    for store in given.stores:
        print(measure(store, given.ticks, given.schedules, given.replicas), flush=True)


if __name__ == "__main__":
    main()
