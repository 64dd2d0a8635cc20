"""Why a lock held for the length of a run is not once per tick, measured; and a schedule's ticks beside it.

Usage: lock_alone.py [--ticks 150] [--noise 2] [--skews 0,0,0 0,10,30]

Three processes have one schedule, a tick every 200 ms, and a job of 1 ms. With the lock alone each of them wakes at
the tick, by its own clock and up to `noise` milliseconds late, and runs the job under `locked_run`: whoever comes when
the first is done finds the lock free. With oncron the same job is a task with a schedule. `skews` are milliseconds by
which the replicas' clocks are wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oncron import locked_run
from tests.fault.fleet import Fleet, Load
from tests.servers import PostgresServer

PERIOD = 0.2
JOB = 0.001


def replica(url: str, ledger: str, first: float, ticks: int, noise: float, skew: float) -> None:
    asyncio.run(_replica(url, ledger, first, ticks, noise, skew))


async def _replica(url: str, ledger: str, first: float, ticks: int, noise: float, skew: float) -> None:
    import psycopg_pool

    file = os.open(ledger, os.O_WRONLY | os.O_APPEND)
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
        for tick in range(ticks):

            async def job(tick: int = tick) -> None:
                os.write(file, f"{tick}\n".encode())
                await asyncio.sleep(JOB)

            woken = first + tick * PERIOD + skew + random.uniform(0, noise)
            await asyncio.sleep(max(0.0, woken - time.time()))
            await locked_run(pool, "job", job)


def with_the_lock_alone(url: str, home: Path, ticks: int, noise: float, skews: Sequence[float]) -> Counter[int]:
    ledger = home / "lock"
    ledger.touch()
    first = time.time() + 3
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=replica, args=(url, str(ledger), first, ticks, noise / 1000, skew / 1000))
        for skew in skews
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    ran = Counter(int(line) for line in ledger.read_text().split())
    return Counter(ran[tick] for tick in range(ticks))


def with_oncron(url: str, home: Path, ticks: int, skews: Sequence[float]) -> Counter[int]:
    fleet = Fleet(url, home, Load(fast=1, second=0, work="1 1", lease=15), offsets=[skew / 1000 for skew in skews])
    with fleet.running():
        fleet.until(lambda: len({line.tick for line in fleet.lines()}) > ticks, 30 + ticks * PERIOD * 2, "the ticks")
        fleet.settle()
    ran = Counter(line.tick for line in fleet.lines() if line.what == "start")
    first = min(ran)
    return Counter(ran[first + n * round(PERIOD * 1_000_000)] for n in range(ticks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=150)
    parser.add_argument("--noise", type=float, default=2, metavar="MS")
    parser.add_argument("--skews", nargs="*", default=["0,0,0", "0,10,30"], metavar="MS,MS,MS")
    given = parser.parse_args()
    print(f"3 processes, {given.ticks} ticks, a job of 1 ms, {given.noise:g} ms of wake-up noise, PostgreSQL")
    print(f"{'':<16}{'skews ms':<12}{'not run':>8}{'once':>8}{'twice':>8}{'3 times':>8}{'more than once':>16}")
    with PostgresServer() as server:
        for text in given.skews:
            skews = [float(part) for part in text.split(",")]
            for name in ("the lock alone", "oncron"):
                with tempfile.TemporaryDirectory() as folder:
                    url = server.create_database()
                    if name == "oncron":
                        ran = with_oncron(url, Path(folder), given.ticks, skews)
                    else:
                        ran = with_the_lock_alone(url, Path(folder), given.ticks, given.noise, skews)
                often = sum(count for times, count in ran.items() if times > 1)
                print(
                    f"{name:<16}{text:<12}{ran[0]:>8}{ran[1]:>8}{ran[2]:>8}{ran[3]:>8}{often / given.ticks:>16.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
