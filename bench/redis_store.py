"""How fast the Redis store is. Usage: redis_store.py [latency|herd|work ...] [--server redis|valkey] [--fsync always]

latency  one tick fired and leased in one step, beside a bare SET, in turn
herd     10 000 schedules due at one instant: from the first `fire` call to the last answer
work     claim and finish in batches of 100 and 500, one worker; enqueue many and one by one

On a private server that ends with this program, with an append-only file.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from redis import asyncio as aioredis

from oncron._model import (
    Change,
    ClaimSpec,
    Definition,
    FirePlan,
    NewRun,
    Outcome,
    OutcomeKind,
    Overlap,
    Status,
    TickRun,
    new_id,
    new_run_id,
    tick_run_id,
)
from oncron.stores.redis import RedisStore

SECOND = 1_000_000


async def opened(url: str) -> RedisStore:
    store = RedisStore(url, namespace="bench")
    await store.open()
    await store.drop()
    await store.migrate()
    return store


async def declared(store: RedisStore, names: Sequence[str], overlap: Overlap = Overlap.SKIP) -> int:
    """The schedules' cursor: an hour ago, so that many ticks are due."""
    cursor = await store.now() - 3600 * SECOND
    await store.declare(
        [
            Change(
                name=name,
                definition=Definition(name=name, trigger="every 1s", task="work", overlap=overlap),
                status=Status.ACTIVE,
                new_cursor=cursor,
                next_at=cursor + SECOND,
            )
            for name in names
        ]
    )
    return cursor


def plan(name: str, cursor: int, tick: int) -> FirePlan:
    run = TickRun(run_id=tick_run_id(name, tick), tick=tick, due_at=tick)
    return FirePlan(
        name=name, seen_revision=1, seen_cursor=cursor, new_cursor=tick, next_at=tick + SECOND, ticks=(run,)
    )


def spec(limit: int = 100) -> ClaimSpec:
    return ClaimSpec(claim_id=new_id(), worker="bench", limit=limit, lease_for=15 * SECOND, tasks=("work",))


def quantiles(seconds: Sequence[float]) -> str:
    cut = statistics.quantiles(seconds, n=100)
    return f"p50 {cut[49] * 1e3:.2f} ms, p99 {cut[98] * 1e3:.2f} ms"


async def latency(url: str, ticks: int = 2000) -> None:
    store = await opened(url)
    cursor = await declared(store, ["one"])
    fired: list[float] = []
    bare: list[float] = []
    async with aioredis.Redis.from_url(url.partition("?")[0]) as client:
        for number in range(ticks):
            tick = cursor + SECOND
            begun = time.perf_counter()
            answer = await store.fire([plan("one", cursor, tick)], spec(1), fire_id=new_id())
            fired.append(time.perf_counter() - begun)
            [run] = answer.leases
            await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED)])
            begun = time.perf_counter()
            await client.set("{bench}:bare", number)
            bare.append(time.perf_counter() - begun)
            cursor = tick
    ratio = statistics.median(fired) / statistics.median(bare)
    print(f"latency: fire with lease {quantiles(fired)}; bare SET {quantiles(bare)}; ratio {ratio:.2f}")
    await store.drop()
    await store.close()


async def herd(url: str, ticks: int = 10_000) -> None:
    store = await opened(url)
    names = [f"schedule-{number:06}" for number in range(ticks)]
    begun = time.perf_counter()
    cursor = await declared(store, names)
    print(f"declare: {ticks} new schedules in {time.perf_counter() - begun:.2f} s")
    for turn in range(3):
        begun = time.perf_counter()
        due = await store.due(cursor + SECOND, limit=ticks)
        looked = time.perf_counter() - begun
        plans = [plan(row.name, row.cursor, row.next_at) for row in due]
        begun = time.perf_counter()
        answer = await store.fire(plans, spec(10), fire_id=new_id())
        took = time.perf_counter() - begun
        created = sum(result.created for result in answer.results)
        print(f"herd {turn + 1}: {created} ticks in {took:.2f} s, {created / took:,.0f}/s "
              f"({len(answer.leases)} leased at once; due() {looked:.2f} s)")  # fmt: skip
        await drained(store, 500)
        cursor += SECOND
    await store.drop()
    await store.close()


async def drained(store: RedisStore, slots: int) -> float:
    """Runs claimed and finished a second."""
    done, begun, claim = 0, time.perf_counter(), spec(slots)
    while True:
        runs = (await store.claim(replace(claim, claim_id=new_id()))).runs
        if not runs:
            return done / (time.perf_counter() - begun)
        await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED) for run in runs])
        done += len(runs)


async def work(url: str, runs: int = 20_000) -> None:
    store = await opened(url)
    for slots in (100, 500):
        begun = time.perf_counter()
        for _ in range(runs // 1000):
            await store.enqueue([NewRun(id=new_run_id(), task="work", args='{"n": 1}') for _ in range(1000)])
        print(f"enqueue in batches of 1000: {runs / (time.perf_counter() - begun):,.0f} runs/s")
        print(f"work: claimed and finished in batches of {slots}: {await drained(store, slots):,.0f} runs/s")
    begun = time.perf_counter()
    for _ in range(1000):
        await store.enqueue([NewRun(id=new_run_id(), task="work")])
    print(f"enqueue one by one: {1000 / (time.perf_counter() - begun):,.0f} runs/s")
    await store.drop()
    await store.close()


CASES = {"latency": latency, "herd": herd, "work": work}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--server", choices=("redis", "valkey"), default="valkey")
    parser.add_argument("--fsync", choices=("everysec", "always"), default="everysec")
    chosen = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.redis_server import RedisServer

    with RedisServer(chosen.server, {"appendfsync": chosen.fsync}) as server:
        print(f"{chosen.server} {server.info('server')['redis_version']}, appendfsync {chosen.fsync}")
        for case in chosen.cases or list(CASES):
            asyncio.run(CASES[case](server.url()))


if __name__ == "__main__":
    main()
