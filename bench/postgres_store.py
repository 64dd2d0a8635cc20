"""How fast the PostgreSQL store is. Usage: postgres_store.py [latency|herd|work|race|idle ...] [--url URL]

latency  one tick fired and leased in one step, beside a bare commit of one row, in turn
herd     10 000 schedules due at one instant: from the first `fire` call to the last commit
work     claim and finish in batches of 100, one worker
race     three processes fire the same schedules, one tick at a time
idle     transactions a minute of a replica that has nothing to do

Without a URL: a private PostgreSQL that ends with this program, durable as PostgreSQL ships it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from oncron._model import (
    Change,
    ClaimSpec,
    Definition,
    FireOutcome,
    FirePlan,
    NewRun,
    Outcome,
    OutcomeKind,
    Overlap,
    Status,
    TickRun,
    WorkerRecord,
    new_id,
    new_run_id,
    tick_run_id,
)
from oncron.stores.postgres import PostgresStore

SECOND = 1_000_000
BARE = "insert into bench_bare (id) values (default)"


async def opened(url: str, *, fresh: bool = True) -> PostgresStore:
    store = PostgresStore(url, namespace="bench")
    if fresh:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("drop schema if exists bench cascade")
    await store.open()
    await store.migrate()
    return store


async def declared(store: PostgresStore, names: Sequence[str], overlap: Overlap = Overlap.SKIP) -> int:
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


async def latency(url: str, ticks: int = 1000, pace: float = 0.0) -> None:
    """Fires as fast as it goes (`pace` 0) or one every `pace` seconds, a bare commit after each."""
    store = await opened(url)
    cursor = await declared(store, ["one"])
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as bare:
        await bare.execute("create table if not exists bench_bare (id bigint generated always as identity primary key)")
        fired: list[float] = []
        committed: list[float] = []
        finished: list[float] = []
        for _ in range(ticks):
            tick = cursor + SECOND
            if pace:
                await asyncio.sleep(pace)
            begun = time.perf_counter()
            answer = await store.fire([plan("one", cursor, tick)], spec(1), fire_id=new_id())
            fired.append(time.perf_counter() - begun)
            [run] = answer.leases
            begun = time.perf_counter()
            await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED)])
            finished.append(time.perf_counter() - begun)
            if pace:
                await asyncio.sleep(pace)
            begun = time.perf_counter()
            await bare.execute(BARE)
            committed.append(time.perf_counter() - begun)
            cursor = tick
    paced = f"one every {pace * 1e3:.0f} ms" if pace else "back to back"
    ratio = statistics.median(fired) / statistics.median(committed)
    print(
        f"latency, {paced}: fire with lease {quantiles(fired)}; bare commit {quantiles(committed)}; ratio {ratio:.2f}"
    )
    print(f"latency, {paced}: finish {quantiles(finished)}")
    await store.close()


async def herd(url: str, ticks: int = 10_000, overlap: Overlap = Overlap.SKIP) -> None:
    store = await opened(url)
    names = [f"schedule-{number:06}" for number in range(ticks)]
    begun = time.perf_counter()
    cursor = await declared(store, names, overlap)
    print(f"declare: {ticks} new schedules in {time.perf_counter() - begun:.2f} s")
    for turn in range(3):
        begun = time.perf_counter()
        due = await store.due(cursor + SECOND, limit=ticks)
        looked = time.perf_counter() - begun
        plans = [plan(row.name, row.cursor, row.next_at) for row in due]
        begun = time.perf_counter()
        fired = await store.fire(plans, spec(10), fire_id=new_id())
        took = time.perf_counter() - begun
        created = sum(result.created for result in fired.results)
        print(f"herd {turn + 1}, overlap={overlap}: {created} ticks in {took:.2f} s, {created / took:,.0f}/s "
              f"({len(fired.leases)} leased at once; due() {looked:.2f} s)")  # fmt: skip
        await drained(store, spec(500), show=False)
        cursor += SECOND
    await store.close()


async def drained(store: PostgresStore, claim: ClaimSpec, *, show: bool = True) -> int:
    done, begun = 0, time.perf_counter()
    while True:
        claim = ClaimSpec(
            claim_id=new_id(), worker=claim.worker, limit=claim.limit, lease_for=claim.lease_for, tasks=claim.tasks
        )
        runs = (await store.claim(claim)).runs
        if not runs:
            break
        await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED) for run in runs])
        done += len(runs)
    took = time.perf_counter() - begun
    if show:
        print(f"work: {done} runs claimed and finished in batches of {claim.limit}: {done / took:,.0f} runs/s")
    return done


async def work(url: str, runs: int = 20_000) -> None:
    store = await opened(url)
    for slots in (100, 500):
        begun = time.perf_counter()
        for _ in range(runs // 1000):
            await store.enqueue([NewRun(id=new_run_id(), task="work", args='{"n": 1}') for _ in range(1000)])
        print(f"enqueue in batches of 1000: {runs / (time.perf_counter() - begun):,.0f} runs/s")
        await drained(store, spec(slots))
    begun = time.perf_counter()
    for _ in range(500):
        await store.enqueue([NewRun(id=new_run_id(), task="work")])
    print(f"enqueue one by one: {500 / (time.perf_counter() - begun):,.0f} runs/s")
    await store.close()


async def _racer(url: str, names: list[str], seconds: float) -> tuple[int, int]:
    store = await opened(url, fresh=False)
    won = tried = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for row in await store.due(await store.now(), limit=len(names)):
            fired = await store.fire([plan(row.name, row.cursor, row.next_at)], spec(1), fire_id=new_id())
            tried += 1
            won += fired.results[0].outcome is FireOutcome.FIRED
    await store.close()
    return won, tried


def race_one(url: str, names: list[str], seconds: float) -> tuple[int, int]:
    return asyncio.run(_racer(url, names, seconds))


async def race(url: str, replicas: int = 3, seconds: float = 4) -> None:
    store = await opened(url)
    names = [f"schedule-{number}" for number in range(20)]
    await declared(store, names, Overlap.ALLOW)
    await store.close()
    with multiprocessing.get_context("spawn").Pool(replicas) as pool:
        results = await asyncio.to_thread(pool.starmap, race_one, [(url, names, seconds)] * replicas)
    won, tried = (sum(column) for column in zip(*results, strict=True))
    print(
        f"race: {replicas} replicas, one tick a call: {won / seconds:,.0f} ticks/s, {tried / won:.2f} attempts a tick"
    )


async def idle(url: str) -> None:
    """The calls of an idle replica in one minute, one after the other: 12 polls, 3 heartbeats."""
    store = await opened(url)
    await declared(store, ["one"])
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watch:
        count = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"

        async def seen() -> int:
            await watch.execute("select pg_stat_clear_snapshot()")
            row = await (await watch.execute(count)).fetchone()
            assert row is not None
            return row[0]

        await asyncio.sleep(1.5)
        before = await seen()
        begun = time.process_time()
        for _ in range(12):
            await store.poll(["work"], None)
        for _ in range(3):
            await store.heartbeat(WorkerRecord(id="bench", roles=("scheduler", "worker")), 15 * SECOND)
        cpu = time.process_time() - begun
        await store.close()
        await asyncio.sleep(1.5)
        print(f"idle: {await seen() - before - 4} transactions a minute, {cpu * 1e3:.1f} ms of CPU a minute")


async def paced(url: str) -> None:
    await latency(url, ticks=100, pace=0.05)


CASES = {"latency": latency, "paced": paced, "herd": herd, "work": work, "race": race, "idle": idle}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--url")
    chosen = parser.parse_args()
    cases = chosen.cases or list(CASES)
    if chosen.url:
        _run(cases, chosen.url)
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.servers import PostgresServer

    with PostgresServer() as server:
        _run(cases, server.create_database())


def _run(cases: Sequence[str], url: str) -> None:
    for case in cases:
        asyncio.run(CASES[case](url))


if __name__ == "__main__":
    main()
