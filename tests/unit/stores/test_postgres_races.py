"""Losing a race is no error: the server's log stays clean, whatever steps meet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from oncron._clock import SECOND
from oncron._model import NewRun, Outcome, OutcomeKind, Overlap, RunState, WorkerRecord, new_id, new_run_id
from oncron.errors import NotFound
from oncron.stores.postgres import PostgresStore
from tests.unit.stores.postgres_kit import asked, declared, opened, plan, spec, succeeded


async def test_three_replicas_that_race_for_a_hundred_ticks_leave_no_error_line(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two, opened(postgres_url) as three:
        cursor = await declared(one, "a", overlap=Overlap.ALLOW, unique=None)
        won = 0
        for turn in range(100):
            seen = cursor + turn * SECOND
            answers = await asyncio.gather(
                *(each.fire([plan("a", seen)], spec(worker=new_id()), fire_id=new_id()) for each in (one, two, three))
            )
            won += sum(answer.results[0].outcome == "fired" for answer in answers)
        assert won == 100
    assert postgres_errors() == []


async def test_all_kinds_of_steps_at_once_neither_deadlock_nor_break_a_place(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    """Every policy, unique keys, a full task, retries, cancels, reaping: six sessions at random (a fixed seed
    each). Afterwards every schedule has one head at most, and a head if anything waits."""
    policies = {f"s-{overlap}": overlap for overlap in Overlap}
    async with opened(postgres_url, pool_size=8) as store:
        base = 0
        for name, overlap in policies.items():
            base = await declared(store, name, overlap=overlap, unique=f"key-{overlap}" if overlap == "allow" else None)
        await asyncio.gather(*(_player(store, list(policies), base, seed) for seed in range(6)))

        heads = await asked(
            postgres_url,
            "select schedule, count(*) filter (where not parked), count(*) filter (where parked)"
            " from oncron.runs where serial and state in ('pending', 'running') group by schedule",
        )
        assert all(head == 1 for _, head, _ in heads), heads
        running = "select count(*) from oncron.runs where state = 'running' and task = 'few'"
        assert (await asked(postgres_url, running))[0][0] <= 2
    assert postgres_errors() == []


async def _player(store: PostgresStore, names: list[str], base: int, seed: int) -> None:
    draw = random.Random(seed)
    worker = f"w{seed}"
    known: list[str] = []
    for _ in range(60):
        step = draw.choice(["fire", "fire", "claim", "claim", "finish", "enqueue", "cancel", "retry", "reap", "beat"])
        claim = spec(3, worker=worker, tasks=("send", "few"), max_running=(("few", 2),))
        if step == "fire":
            rows = await store.schedules(draw.sample(names, 3))
            plans = [plan(row.name, row.cursor) for row in rows]
            known += [tick.run_id for each in plans for tick in each.ticks]
            await store.fire(plans, draw.choice([claim, None]), fire_id=new_id())
        elif step == "claim":
            runs = (await store.claim(claim)).runs
            ended = [_some_end(draw, run.id, run.token) for run in runs if draw.random() < 0.8]
            await store.finish(ended)
        elif step == "finish":
            runs = [run for run in await store.get_runs(known[-30:]) if run.state is RunState.RUNNING]
            await store.finish([succeeded(run, enqueue=(NewRun(id=new_run_id(), task="few"),)) for run in runs])
        elif step == "enqueue":
            new = [
                NewRun(id=new_run_id(), task="few", unique=draw.choice([None, "a", "b", "key-allow"])),
                NewRun(id=new_run_id(), task="send", schedule=draw.choice(names)),
            ]
            known += [each.id for each in new]
            await store.enqueue(draw.sample(new, 2))
        elif step == "reap":
            await store.reap(now=await store.now() + draw.choice([0, 20 * SECOND]))
        elif step == "beat":
            await store.heartbeat(WorkerRecord(id=worker), 15 * SECOND)
        elif known:
            try:
                await (store.cancel if step == "cancel" else store.retry)(draw.choice(known[-10:]))
            except NotFound:
                pass


def _some_end(draw: random.Random, run_id: str, token: int) -> Outcome:
    kind = draw.choice([OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.RETRY, OutcomeKind.RELEASED])
    return Outcome(run_id=run_id, token=token, kind=kind)
