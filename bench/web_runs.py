"""Time to the first byte of the dashboard's runs page over a million runs in PostgreSQL.

Usage: web_runs.py [--runs 1000000] [--times 30]

`oncron web` runs in a process of its own; each page is asked for by a client on the same machine, on an open
connection, over and over: to the first byte of the answer. The rows are written by SQL, as years of use would leave
them: 200 schedules, one run in fifty failed, one in a hundred thousand open.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psycopg

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from oncron.stores.open import opener  # noqa: E402
from tests.servers import PostgresServer  # noqa: E402

FILL = """
insert into oncron.runs (id, task, state, schedule, tick, args, queue, due_at, created_at, started_at, ended_at,
    attempt, retries, retry_delay, serial, reason, error, result)
select
    (lpad(to_hex(at / 1000), 12, '0') || '8' || substr(md5(n::text), 1, 3) || 'a' || substr(md5(n::text), 4, 15))::uuid,
    'task-' || n %% 20,
    case when n %% 100000 = 0 then 'pending' when n %% 50 = 0 then 'failed' else 'succeeded' end,
    'schedule-' || lpad((n %% 200)::text, 3, '0'), at, '{"tenant": ' || n %% 1000 || '}', 'default', at, at,
    case when n %% 100000 <> 0 then at + 3000 end, case when n %% 100000 <> 0 then at + 60000 end,
    case when n %% 100000 <> 0 then 1 else 0 end, 3, 1000000, false,
    case when n %% 50 = 0 then 'ValueError: no luck' end, case when n %% 50 = 0 then 'Traceback' end,
    case when n %% 50 <> 0 then '"done"' end
from (select n, 1700000000000000 + n * 1000000::bigint as at from generate_series(%s, %s) n) rows
"""
CHUNK = 100_000


async def migrate(url: str) -> None:
    store = opener(url)()
    await store.open()
    await store.migrate()
    await store.close()


def fill(url: str, runs: int) -> float:
    began = time.perf_counter()
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(1, runs + 1, CHUNK):
            connection.execute(FILL, (first, min(first + CHUNK - 1, runs)))
        connection.execute("vacuum analyze oncron.runs")
    return time.perf_counter() - began


def ask(web: http.client.HTTPConnection, page: str) -> tuple[float, bytes]:
    """Milliseconds to the first byte, and the answer."""
    began = time.perf_counter()
    web.request("GET", page)
    answer = web.getresponse()
    first = answer.read(1)
    took = (time.perf_counter() - began) * 1000
    body = first + answer.read()
    if answer.status != 200:
        raise SystemExit(f"{page}: {answer.status} {body[-300:]!r}")
    return took, body


def measure(web: http.client.HTTPConnection, page: str, times: int) -> dict[str, float]:
    taken = sorted(ask(web, page)[0] for _ in range(times))
    return {"median": round(statistics.median(taken), 1), "p95": round(taken[int(0.95 * (len(taken) - 1))], 1)}


def cursor(url: str, offset: int) -> str:
    """The id of the run that stands so deep in the listing."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select id from oncron.runs order by created_at desc, id desc offset %s limit 1", (offset,)
        ).fetchall()
    return str(rows[0][0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=30)
    given = parser.parse_args()
    server = PostgresServer()
    server.start()
    web = None
    try:
        url = server.create_database()
        asyncio.run(migrate(url))
        print(f"{given.runs} runs written in {fill(url, given.runs):.0f} s", file=sys.stderr)
        deep = cursor(url, given.runs - given.runs // 10)
        web = subprocess.Popen(
            [sys.executable, "-m", "oncron", "web", "--store", url, "--port", "0"], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")},
        )  # fmt: skip
        assert web.stdout is not None
        found = re.search(r"http://([\d.]+):(\d+)", web.stdout.readline())
        assert found is not None
        client = http.client.HTTPConnection(found[1], int(found[2]), timeout=60)
        pages = {
            "first page": "/runs",
            "failed ones": "/runs?state=failed",
            "of one schedule": "/runs?schedule=schedule-007",
            "of a schedule without any": "/runs?schedule=nobody",
            "of one task": "/runs?task=task-7",
            "open ones": "/runs?state=pending",
            "a word, searched": "/runs?text=luck",
            "nine tenths deep": f"/runs?before={deep}",
            "failed ones of a schedule": "/runs?state=failed&schedule=schedule-050",
        }
        figures: dict[str, dict[str, float]] = {}
        for name, page in pages.items():
            ask(client, page)
            figures[name] = measure(client, page, given.times)
            print(
                f"{name:28} median {figures[name]['median']:8.1f} ms   p95 {figures[name]['p95']:8.1f} ms", flush=True
            )
        print(json.dumps({"runs": given.runs, "to_first_byte_ms": figures}))
    finally:
        if web is not None:
            web.terminate()
            web.wait()
        server.close()


if __name__ == "__main__":
    main()
