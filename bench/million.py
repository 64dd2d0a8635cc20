"""Schedules by the million, put at run time, in PostgreSQL: what a replica holds of them, and when it fires.

Usage: million.py [--schedules 1000000] [--at-once 10000]

Each schedule ticks once a day, spread over the day, but for `--at-once` of them, which tick at one
instant. RSS is of a replica (`oncron run`) before that instant and after it; late is from the instant
to the commit of the last of its runs. The backlog that came due while the schedules were being
written is fired first.
"""

from __future__ import annotations

import argparse
import asyncio
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

from msgspec.structs import replace  # noqa: E402

from oncron import every  # noqa: E402
from oncron._clock import from_us  # noqa: E402
from oncron._model import Change, Definition, Status  # noqa: E402
from oncron.stores.open import opener  # noqa: E402
from tests.servers import PostgresServer  # noqa: E402

SECOND, DAY = 1_000_000, 86_400_000_000
CHUNK, WRITERS = 1000, 2


def changes(first: int, count: int, at: int, at_once: int, now: int) -> list[Change]:
    made: list[Change] = []
    for number in range(first, first + count):
        next_at = at if number < at_once else now + 1 + (number * 7919 % 86_400) * SECOND
        name = f"tenant-{number:07}"
        trigger = every(hours=24, anchor=from_us(next_at)).bind(name, "UTC")
        definition = Definition(name=name, trigger=str(trigger), task="nothing", origin="api", overlap="allow")
        made.append(Change(name=name, definition=definition, status=Status.ACTIVE, new_cursor=now, next_at=next_at))
    return made


async def fill(url: str, schedules: int, at: int, at_once: int) -> None:
    stores = [opener(url)() for _ in range(WRITERS)]
    for store in stores:
        await store.open()
    await stores[0].migrate()
    now = await stores[0].now()
    starts = iter(range(0, schedules, CHUNK))

    async def write(store: object) -> None:
        for first in starts:
            answers = await store.declare(changes(first, min(CHUNK, schedules - first), at, at_once, now))  # type: ignore[attr-defined]
            assert all(answer.changed for answer in answers)

    await asyncio.gather(*(write(store) for store in stores))
    for store in stores:
        await store.close()


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def last_commit(url: str, at: int, at_once: int, within: float) -> float:
    """Seconds from the instant until all of its ticks have a run."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        until = time.time() + within
        while time.time() < until:
            row = connection.execute(
                "select count(*), max(created_at) from oncron.runs where tick = %s", [at]
            ).fetchone()
            assert row is not None
            if row[0] >= at_once:
                return (row[1] - at) / SECOND
            time.sleep(0.5)
    raise SystemExit(f"{row[0] if row else 0} of the {at_once} ticks were fired within {within} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--at-once", type=int, default=10_000)
    given = parser.parse_args()
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder:
        url = server.create_database()
        at = (int(time.time()) + 3600) * SECOND
        began = time.monotonic()
        asyncio.run(fill(url, given.schedules, at, 0))
        wrote = time.monotonic() - began
        at = (int(time.time()) + 60) * SECOND
        move(url, at, given.at_once)
        with Path(folder, "log").open("wb") as log:
            replica = subprocess.Popen(
                [sys.executable, "-m", "oncron", "run", "bench._million_app:app"],
                cwd=REPOSITORY, env={**os.environ, "ONCRON_STORE": url}, stdout=log, stderr=log,
            )  # fmt: skip
            try:
                time.sleep(max(0.0, at / SECOND - 5 - time.time()))
                before = resident_mb(replica.pid)
                late = last_commit(url, at, given.at_once, 60)
                time.sleep(3)
                after = resident_mb(replica.pid)
            except SystemExit:
                print(Path(folder, "log").read_text(errors="replace")[-3000:], file=sys.stderr)
                raise
            finally:
                replica.send_signal(signal.SIGTERM)
                replica.wait(30)
    print(
        f"{'schedules':>10}{'written in, s':>15}{'RSS before, MB':>16}{'at once':>9}{'late, s':>9}{'RSS after, MB':>15}"
    )
    print(f"{given.schedules:>10}{wrote:>15.1f}{before:>16.1f}{given.at_once:>9}{late:>9.3f}{after:>15.1f}")


def move(url: str, at: int, at_once: int) -> None:
    """The first so many tick at that instant: rewritten here rather than by a million calls."""
    asyncio.run(_move(url, at, at_once))


async def _move(url: str, at: int, at_once: int) -> None:
    store = opener(url)()
    await store.open()
    try:
        now = await store.now()
        for first in range(0, at_once, CHUNK):
            wanted = changes(first, min(CHUNK, at_once - first), at, at_once, now)
            rows = {row.name: row for row in await store.schedules([change.name for change in wanted])}
            moved = [
                replace(change, seen_revision=rows[change.name].revision, seen_cursor=rows[change.name].cursor)
                for change in wanted
            ]
            assert all(answer.changed for answer in await store.declare(moved))
    finally:
        await store.close()


if __name__ == "__main__":
    main()
