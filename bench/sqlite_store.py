"""How fast the SQLite store is: a herd of ticks at one instant, claim and finish, and one tick at a time
while three processes race for it. Usage: sqlite_store.py [herd|work|race ...]

Figures are per second or milliseconds on this machine, with every commit synced (synchronous=FULL).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path

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
    new_id,
    new_run_id,
    tick_run_id,
)
from oncron.stores.sqlite import SQLiteStore

SECOND = 1_000_000


async def declared(store: SQLiteStore, names: list[str], overlap: Overlap) -> int:
    """The cursor of the schedules, two seconds ago."""
    cursor = await store.now() - 2 * SECOND
    for start in range(0, len(names), 1000):
        await store.declare(
            [
                Change(
                    name=name,
                    definition=Definition(name=name, trigger="every 1s", task="work", overlap=overlap),
                    status=Status.ACTIVE,
                    new_cursor=cursor,
                    next_at=cursor + SECOND,
                )
                for name in names[start : start + 1000]
            ]
        )
    return cursor


def plan(name: str, cursor: int, tick: int) -> FirePlan:
    run = TickRun(run_id=tick_run_id(name, tick), tick=tick, due_at=tick)
    return FirePlan(
        name=name, seen_revision=1, seen_cursor=cursor, new_cursor=tick, next_at=tick + SECOND, ticks=(run,)
    )


async def herd(path: Path, ticks: int = 10_000, chunk: int = 500, overlap: Overlap = Overlap.SKIP) -> None:
    store = SQLiteStore(path)
    await store.migrate()
    cursor = await declared(store, [f"schedule-{number:06}" for number in range(ticks)], overlap)
    plans = [plan(due.name, due.cursor, due.next_at) for due in await store.due(cursor + SECOND, limit=ticks)]
    begun = time.perf_counter()
    created = 0
    for start in range(0, ticks, chunk):
        fired = await store.fire(plans[start : start + chunk], fire_id=new_id())
        created += sum(result.created for result in fired.results)
    took = time.perf_counter() - begun
    print(f"herd, chunks of {chunk}, overlap={overlap}: {created / took:,.0f} ticks/s with their runs")
    await store.close()


async def work(path: Path, runs: int = 10_000, slots: int = 100) -> None:
    store = SQLiteStore(path)
    await store.migrate()
    begun = time.perf_counter()
    for start in range(0, runs, 1000):
        await store.enqueue([NewRun(id=new_run_id(), task="work") for _ in range(min(1000, runs - start))])
    print(f"enqueue, 1000 at once: {runs / (time.perf_counter() - begun):,.0f} runs/s")
    begun, done = time.perf_counter(), 0
    while True:
        spec = ClaimSpec(claim_id=new_id(), worker="bench", limit=slots, lease_for=15 * SECOND, tasks=("work",))
        claimed = await store.claim(spec)
        if not claimed.runs:
            break
        ended = [Outcome(run_id=r.id, token=r.token, kind=OutcomeKind.SUCCEEDED, result="null") for r in claimed.runs]
        done += len(await store.finish(ended))
    print(f"claim + finish, {slots} at once: {done / (time.perf_counter() - begun):,.0f} runs/s")
    await store.close()


async def race_one(path: Path, ticks: int, start_at: float, results: multiprocessing.Queue) -> None:
    store = SQLiteStore(path)
    await store.open()
    record = (await store.schedules(["raced"]))[0]
    cursor, took, won = record.cursor, [], 0
    await asyncio.sleep(max(0, start_at - time.time()))
    for _ in range(ticks):
        tick = cursor + 1
        spec = ClaimSpec(claim_id=new_id(), worker=new_id(), limit=10, lease_for=15 * SECOND, tasks=("work",))
        await asyncio.sleep(random.uniform(0.001, 0.003))
        begun = time.perf_counter()
        fired = await store.fire([plan("raced", cursor, tick)], spec, fire_id=new_id())
        if fired.results[0].outcome is FireOutcome.FIRED:
            took.append(time.perf_counter() - begun)
            won += 1
            cursor = tick
        else:
            cursor = (await store.schedules(["raced"]))[0].cursor
    results.put((won, took))
    await store.close()


def race_in_process(*args: object) -> None:
    asyncio.run(race_one(*args))  # type: ignore[arg-type]


async def race(path: Path, ticks: int = 400, processes: int = 3) -> None:
    store = SQLiteStore(path)
    await store.migrate()
    await declared(store, ["raced"], Overlap.ALLOW)
    await store.close()
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    start_at = time.time() + 2
    racers = [spawn.Process(target=race_in_process, args=(path, ticks, start_at, results)) for _ in range(processes)]
    for racer in racers:
        racer.start()
    answers = [results.get() for _ in racers]
    for racer in racers:
        racer.join()
    took = sorted(one for _, list_ in answers for one in list_)
    middle, late = took[len(took) // 2], took[int(len(took) * 0.99)]
    won = [count for count, _ in answers]
    print(f"fire one tick with its lease, {processes} racing: ticks won by each {won};")
    print(f"  p50 {middle * 1e3:.2f} ms, p99 {late * 1e3:.2f} ms, worst {took[-1] * 1e3:.1f} ms")


async def main(cases: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if "herd" in cases:
            await herd(Path(folder, "herd500.db"))
            await herd(Path(folder, "herd1000.db"), chunk=1000)
            await herd(Path(folder, "allow.db"), overlap=Overlap.ALLOW)
        if "work" in cases:
            await work(Path(folder, "work.db"))
        if "race" in cases:
            await race(Path(folder, "race1.db"), processes=1)
            await race(Path(folder, "race3.db"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["herd", "work", "race"]))
