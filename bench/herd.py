"""A herd: many schedules due at one instant. From the first `fire` call to the last commit.

Usage: herd.py [sqlite] [postgresql] [--schedules 10000] [--replicas 1 3] [--lead 20]

Real `oncron run` processes, which declare the schedules first and fire, claim and execute as ever. A
call of `fire` that lets nothing pass was beaten by another replica. `--lead`: seconds between the start
of the processes and the instant, for declaring.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from oncron.stores.open import opener  # noqa: E402
from tests.redis_server import RedisServer  # noqa: E402
from tests.servers import PostgresServer  # noqa: E402

WITHIN = 60
"""Seconds after the instant until which everything must have been fired."""


@contextmanager
def store_of(kind: str, home: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{home}/oncron.db"
        return
    if kind in ("redis", "valkey"):
        with RedisServer(kind, {"appendfsync": "always"}) as server:
            yield server.url()
        return
    with PostgresServer() as server:
        yield server.create_database()


def measure(kind: str, schedules: int, replicas: int, lead: float) -> str:
    with tempfile.TemporaryDirectory() as folder, store_of(kind, Path(folder)) as url:
        calls = Path(folder, "calls")
        calls.touch()
        at = (int(time.time() + lead) + 1) * 1_000_000
        environment = {
            **os.environ, "ONCRON_STORE": url, "HERD_CALLS": str(calls), "HERD_AT": str(at),
            "HERD_SCHEDULES": str(schedules),
        }  # fmt: skip
        command = [sys.executable, "-m", "oncron", "run", "bench._herd_app:app"]
        with Path(folder, "log").open("wb") as log:
            fleet = [
                subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
                for _ in range(replicas)
            ]
            try:
                spans = _wait(calls, at, schedules)
            finally:
                for process in fleet:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
        runs = asyncio.run(_runs(url))
    first, last = min(span[0] for span in spans), max(span[1] for span in spans if span[3])
    took = (last - first) / 1_000_000
    late = (first - at) / 1000
    return (
        f"{kind:<12}{schedules:>10}{replicas:>10}{runs:>8}{took:>10.3f}{schedules / took:>10.0f}{late:>13.1f}"
        f"{len(spans):>8}{sum(not span[3] for span in spans):>9}"
    )


def _wait(calls: Path, at: int, schedules: int) -> list[tuple[int, int, int, int]]:
    """The calls of `fire` since the instant, once all ticks have passed: (began, ended, plans, passed)."""
    while time.time() < at / 1_000_000 + WITHIN:
        time.sleep(0.25)
        lines = [tuple(map(int, line.split())) for line in calls.read_text().splitlines()]
        spans = [line for line in lines if line[1] > at]
        if sum(span[3] for span in spans) >= schedules:
            time.sleep(1)
            return spans
    raise SystemExit(f"not everything was fired {WITHIN} s after the instant; give the replicas more --lead")


async def _runs(url: str) -> int:
    store = opener(url)()
    await store.open()
    try:
        return sum((await store.stats()).runs.values())
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", metavar="STORE", default=["postgresql", "sqlite", "redis"])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--lead", type=float, default=20)
    given = parser.parse_args()
    print(
        f"{'store':<12}{'schedules':>10}{'replicas':>10}{'runs':>8}{'seconds':>10}{'ticks/s':>10}"
        f"{'begins, ms':>13}{'calls':>8}{'in vain':>9}"
    )
    for kind in given.stores:
        for replicas in given.replicas:
            print(measure(kind, given.schedules, replicas, given.lead), flush=True)


if __name__ == "__main__":
    main()
