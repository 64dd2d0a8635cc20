"""Queues, limits, locks, limiters and batches on PostgreSQL: many sessions at once, and what they leave in the log."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import psycopg

from oncron._clock import SECOND
from oncron._groups import LimitKind, LimitRule, NewBatch, Take
from oncron._model import NewRun, Outcome, OutcomeKind, RunFilter, RunState, new_id, new_run_id
from oncron.errors import NotFound
from oncron.stores.postgres import PostgresStore
from tests.unit.stores.postgres_kit import asked, declared, new, opened, plan, spec

QUEUES = ("q0", "q1", "q2")
LIMITS = (("q0", 1), ("q1", 2))


async def test_batches_limits_and_pauses_at_once_neither_deadlock_nor_call_back_twice(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    """Nested batches, callbacks into other batches and with unique keys, retries, pruning: six sessions at random
    (a fixed seed each). Afterwards all are closed and worked off."""
    async with opened(postgres_url, pool_size=8) as store:
        await declared(store, "a", "b")
        roots = [await _opened(store, random.Random(n), None) for n in range(3)]
        batches = roots + [await _opened(store, random.Random(n), roots[n % 3]) for n in range(6)]
        async with asyncio.timeout(90):
            await asyncio.gather(*(_player(store, batches, seed) for seed in range(6)))
            await _worked_off(store, batches)

        records = {record.id: record for record in await store.batches(limit=1000)}
        for batch in batches:
            record = records[batch]
            called = await store.get_runs([run.id for run in (record.on_complete, record.on_death) if run])
            assert record.completed_at is not None
            assert (record.pending, record.children) == (0, 0)
            died = record.runs.get("failed", 0) + record.runs.get("lost", 0) > 0
            assert len(called) <= 1 + (record.died_at is not None)
            assert not died or record.died_at is not None
    assert postgres_errors() == []


async def _opened(store: PostgresStore, draw: random.Random, parent: str | None) -> str:
    batch = NewBatch(
        id=new_id(),
        parent=parent,
        on_complete=new(queue="q1", unique=draw.choice([None, "k"]), schedule=draw.choice([None, "a"])),
        on_death=new(queue="q1", unique=draw.choice([None, "k"]), batch=draw.choice([None, parent])),
    )
    return (await store.open_batch(batch)).id


async def _player(store: PostgresStore, batches: list[str], seed: int) -> None:
    draw = random.Random(seed)
    worker = f"w{seed}"
    steps = ("add", "add", "work", "work", "work", "settle", "retry", "close", "pause", "prune", "fire")
    for _ in range(50):
        try:
            await _played(store, draw, draw.choice(steps), worker, batches)
        except NotFound:
            pass


async def _played(store: PostgresStore, draw: random.Random, step: str, worker: str, batches: list[str]) -> None:
    claim = spec(3, worker=worker, queue_limits=LIMITS, fleet_limit=5, max_running=(("send", 4),))
    if step == "add":
        keys = [None, None, "k", "l"]
        more = [new(batch=draw.choice(batches), queue=draw.choice(QUEUES), unique=draw.choice(keys)) for _ in range(3)]
        await store.enqueue(more)
    elif step == "work":
        runs = (await store.claim(claim)).runs
        await store.finish([_some_end(draw, run.id, run.token, draw.choice(batches)) for run in runs])
    elif step == "settle":
        await store.settle_batches(draw.choice([None, draw.sample(batches, 3)]))
    elif step == "retry":
        ended = await store.runs(RunFilter(batch=draw.choice(batches), state=RunState.FAILED, limit=3))
        for run in ended:
            await store.retry(run.id)
    elif step == "close":
        await (store.close_batch if draw.random() < 0.1 else store.invalidate_batch)(draw.choice(batches))
    elif step == "pause":
        await store.set_queue(draw.choice(QUEUES), paused=draw.random() < 0.3)
    elif step == "prune":
        await store.prune(ended_before=0, failed_before=0, keep_failed=5)
    else:
        rows = await store.schedules(["a", "b"])
        await store.fire([plan(row.name, row.cursor) for row in rows], claim, fire_id=new_id())


def _some_end(draw: random.Random, run_id: str, token: int, batch: str) -> Outcome:
    kind = draw.choice([OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.RETRY, OutcomeKind.LOST])
    then = draw.choice([None, NewRun(id=new_run_id(), task="send", batch=batch, unique="k")])
    return Outcome(run_id=run_id, token=token, kind=kind, then=then)


async def _worked_off(store: PostgresStore, batches: list[str]) -> None:
    for queue in QUEUES:
        await store.set_queue(queue, paused=False)
    for batch in reversed(batches):
        await store.close_batch(batch)
    while True:
        held = await store.runs(RunFilter(state=RunState.RUNNING, limit=1000))
        held += (await store.claim(spec(100))).runs
        await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED) for run in held])
        await store.settle_batches()
        if not held and not await store.runs(RunFilter(state=RunState.PENDING)):
            return


async def test_takes_of_eight_sessions_are_exact_and_leave_no_error_line(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    rule = LimitRule(kind=LimitKind.SLIDING, amount=50, per=3600 * SECOND)
    async with opened(postgres_url, pool_size=10) as store:

        async def take(n: int) -> bool:
            return (await store.take(Take(limiter="m", nonce=f"n{n}", rule=rule))).granted

        granted = await asyncio.gather(*(take(n % 100) for n in range(200)))
        assert sum(granted[:100]) == 50
        assert granted[:100] == granted[100:]
        assert (await store.taken("m", rule)).used == 50
    assert postgres_errors() == []


async def test_a_queue_is_sequential_for_eight_sessions_and_leaves_no_error_line(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    async with opened(postgres_url, pool_size=10) as store:
        await store.enqueue([new(task=f"t{n % 3}", queue="narrow") for n in range(40)])
        held: set[str] = set()
        done: list[str] = []

        async def work(worker: str) -> None:
            wants = {"worker": worker, "tasks": ("t0", "t1", "t2"), "queue_limits": (("narrow", 1),)}
            while len(done) < 40:
                for run in (await store.claim(spec(5, **wants))).runs:
                    held.add(run.id)
                    assert held == {run.id}
                    held.discard(run.id)
                    done.append(run.id)
                    await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED)])

        async with asyncio.timeout(60):
            await asyncio.gather(*(work(f"w{n}") for n in range(8)))
        assert len(set(done)) == 40
    assert postgres_errors() == []


async def test_a_claim_that_is_limited_waits_for_no_run_that_somebody_holds(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        first, second = [each.run for each in await store.enqueue([new(due_at=1), new(due_at=2)])]
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await connection.execute("select from oncron.runs where id = %s for update", [first.id])
            began = time.monotonic()

            answer = await store.claim(spec(queue_limits=(("default", 1),), fleet_limit=1))

            assert [run.id for run in answer.runs] == [second.id]
            assert time.monotonic() - began < 2


async def test_pausing_a_queue_of_many_runs_keeps_claims_and_polls_cheap(postgres_url: str) -> None:
    """Fifty thousand runs wait in it, in front of the one that is wanted."""
    async with opened(postgres_url) as store:
        await asked(
            postgres_url,
            "insert into oncron.runs (id, task, queue, priority, due_at, created_at, retries, retry_delay)"
            " select gen_random_uuid(), 'send', 'closed', 5, n, n, 3, 1 from generate_series(1, 50000) n",
        )
        await store.set_queue("closed", paused=True)
        [wanted] = await store.enqueue([new()])

        began = time.monotonic()
        assert (await store.poll(["send"], None)).next_due_at == wanted.run.due_at
        assert [run.id for run in (await store.claim(spec())).runs] == [wanted.run.id]
        assert (await store.poll(["send"], None)).next_due_at is None
        assert time.monotonic() - began < 1


async def test_a_batch_to_which_a_long_transaction_adds_holds_up_nobody_else_s(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        busy, quiet = [(await store.open_batch(NewBatch(id=f"b{n}"))).id for n in range(2)]
        for batch in (busy, quiet):
            await store.enqueue([new(batch=batch)])
        for run in (await store.claim(spec())).runs:
            await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.FAILED)])
        with psycopg.connect(postgres_url) as connection:
            await asyncio.to_thread(store.enqueue_in, connection, [new(batch=busy)])
            began = time.monotonic()
            looked = {record.id: record for record in await store.settle_batches()}
            assert time.monotonic() - began < 1
            assert [looked[batch].died_at is None for batch in (busy, quiet)] == [True, False]
            assert (await store.close_batch(quiet)).completed_at is not None
            connection.commit()

        [after] = await store.settle_batches([busy])
        assert after.died_at is not None
        assert after.runs == {"failed": 1, "pending": 1}
