"""What an idle replica costs: scheduler and worker with an hourly schedule, left alone.

Usage: idle.py [sqlite] [postgresql] [redis] [valkey] [--seconds 60] [--replicas 1]

Statements are counted in the server's log, transactions in pg_stat_database; on Redis both are commands.
CPU is of the replica's process, in percent of one core; memory is its resident set.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.redis_server import RedisServer  # noqa: E402
from tests.servers import PostgresServer  # noqa: E402

SETTLE = 20
"""Seconds between the start and the first look."""


class Server:
    """A PostgreSQL that counts, and a look at its counts that is not counted."""

    def __init__(self) -> None:
        self.server = PostgresServer({"log_statement": "all"})
        self.server.start()
        self.url = self.server.create_database()

    def counts(self) -> tuple[int, int]:
        import psycopg

        name = self.url.rsplit("/", 1)[1]
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            row = connection.execute(
                "select xact_commit + xact_rollback from pg_stat_database where datname = %s", [name]
            ).fetchone()
        assert row is not None
        log = self.server.log.read_text(errors="replace")
        return len(re.findall(rf"db={name} LOG:  (?:statement|execute)", log)), row[0]


class Commands:
    """A Redis or Valkey; what a script calls inside counts as well, and is left out here."""

    def __init__(self, kind: str) -> None:
        self.server = RedisServer(kind)
        self.server.start()
        self.url = self.server.url()

    def counts(self) -> tuple[int, int]:
        said = self.server.info("commandstats")
        outer = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_ping", "cmdstat_publish")
        count = sum(said[name]["calls"] for name in outer if name in said)
        return count, count


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def measure(kind: str, seconds: float, replicas: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        server = Server() if kind == "postgresql" else None if kind == "sqlite" else Commands(kind)
        url = server.url if server else f"sqlite:///{folder}/oncron.db"
        command = [sys.executable, "-m", "oncron", "run", "bench._idle_app:app"]
        with Path(folder, "log").open("wb") as log:
            fleet = [
                subprocess.Popen(
                    command, cwd=REPOSITORY, env={**os.environ, "ONCRON_STORE": url}, stdout=log, stderr=log
                )
                for _ in range(replicas)
            ]
        try:
            time.sleep(SETTLE)
            before, began = server.counts() if server else (0, 0), time.monotonic()
            cpu = sum(cpu_seconds(process.pid) for process in fleet)
            time.sleep(seconds)
            cpu = sum(cpu_seconds(process.pid) for process in fleet) - cpu
            after, took = server.counts() if server else (0, 0), time.monotonic() - began
            memory = sum(resident_mb(process.pid) for process in fleet) / replicas
        finally:
            for process in fleet:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
            if server:
                server.server.close()
    statements, transactions = ((new - old) / took for new, old in zip(after, before, strict=True))
    per_second = f"{statements:>14.2f}{transactions:>16.2f}" if server else f"{'-':>14}{'-':>16}"
    return f"{kind:<12}{replicas:>10}{took:>10.0f}{per_second}{100 * cpu / took / replicas:>10.2f}{memory:>10.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", metavar="STORE", default=["postgresql", "sqlite"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--replicas", type=int, default=1)
    given = parser.parse_args()
    print(
        f"{'store':<12}{'replicas':>10}{'seconds':>10}{'statements/s':>14}{'transactions/s':>16}"
        f"{'CPU, %':>10}{'RSS, MB':>10}"
    )
    for kind in given.stores:
        print(measure(kind, given.seconds, given.replicas), flush=True)


if __name__ == "__main__":
    main()
