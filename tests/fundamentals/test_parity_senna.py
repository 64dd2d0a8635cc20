"""What Senna says of jobs and how they are enqueued, and ours."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from oncron import Oncron, RunContext, every
from oncron.backoff import fixed
from oncron.errors import InvalidArguments, InvalidOption
from oncron.limits import slots

Replica = Callable[[], Oncron]


async def test_s01_a_run_is_enqueued_for_now_for_later_or_for_an_instant(app: Oncron) -> None:
    @app.task
    def job() -> None: ...

    at = datetime(2099, 1, 1, 3, tzinfo=UTC)
    now, later, then = await job.enqueue(), await job.options(delay=90).enqueue(), await job.options(at=at).enqueue()
    assert (now.queue, now.record.retries, now.state) == ("default", 3, "pending")
    assert now.due_at <= now.created_at
    assert abs(later.due_at - later.created_at - timedelta(seconds=90)) < timedelta(seconds=5)
    assert then.due_at == at
    async with app:
        await now.wait(15)
        assert (await app.stats()).runs["pending"] == 2


async def test_s02_many_are_enqueued_all_or_none_and_each_unique_one_has_its_answer(app: Oncron) -> None:
    """Senna drops an item that cannot be encoded in silence, and takes no unique keys in bulk."""

    @app.task
    def plain(n: int) -> None: ...

    @app.task(unique=True)
    def unique(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match="item 2"):
        await plain.enqueue_many([{"n": 0}, {"n": 1}, {"n": "two"}])
    assert (await app.stats()).runs.get("pending", 0) == 0
    runs = await plain.options(delay=60, queue="bulk").enqueue_many({"n": n} for n in range(1200))
    assert [run.args["n"] for run in runs] == list(range(1200))
    assert {run.queue for run in runs} == {"bulk"}
    first = await unique.enqueue(1)
    once, again, other = await unique.enqueue_many([{"n": 1}, {"n": 2}, {"n": 2}])
    assert (once.id, once.is_new) == (first.id, False)
    assert (other.id, again.is_new, other.is_new) == (again.id, True, False)
    assert (await app.stats()).runs["pending"] == 1202


async def test_s03_queue_retries_and_time_are_said_per_call_and_a_blank_queue_is_refused(app: Oncron) -> None:
    @app.task(queue="mail", retries=7)
    def job() -> None: ...

    run = await job.options(queue="urgent", retries=0, delay=60).enqueue()
    assert (run.queue, run.record.retries) == ("urgent", 0)
    for blank in ("", "  "):
        with pytest.raises(InvalidOption, match="queue name"):
            job.options(queue=blank)
        with pytest.raises(InvalidOption, match="queue name"):
            await app.enqueue("elsewhere", queue=blank)
    assert (await app.stats()).runs["pending"] == 1


async def test_s06_a_run_tells_what_it_is_where_it_comes_from_and_what_became_of_it(app: Oncron) -> None:
    tokens: list[int] = []
    errors: list[str] = []

    @app.task(queue="mail", retries=2, backoff=fixed(0))
    async def send(ctx: RunContext, to: str) -> str:
        tokens.append(ctx.token)
        if ctx.attempt == 1:
            raise ConnectionError("no route")
        errors.append((await app.get_run(ctx.run_id)).error or "")
        return f"sent to {to}"

    app.add_schedule("letters", every(seconds=0.2), send, args={"to": "ada"}, unique="ada", priority=4, limit=1)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    app.on("run.succeeded")(lambda _: loop.call_soon_threadsafe(ended.set))
    async with app:
        await asyncio.wait_for(ended.wait(), 15)
        (worker,) = (await app.stats()).workers
    (run,) = await app.runs(schedule="letters")
    assert (run.task, run.schedule, run.args, run.queue, run.priority) == ("send", "letters", {"to": "ada"}, "mail", 4)
    assert (run.state, run.attempt, run.record.retries, run.result) == ("succeeded", 2, 2, "sent to ada")
    assert ("no route" in errors[0], run.error) == (True, None)
    assert run.tick is not None
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.tick <= run.created_at <= run.started_at <= run.ended_at
    assert run.worker == worker.id
    assert run.record.unique == "send\nada"
    assert tokens[-1] == run.record.token > tokens[0]


async def test_s82_what_was_due_while_every_replica_was_away_is_made_up_for_and_the_rest_on_record(
    replica: Replica,
) -> None:
    """Senna fires a tick only if a poll falls into its minute."""
    before, away, after = replica(), replica(), replica()
    ran: asyncio.Queue[RunContext] = asyncio.Queue()
    first, a_while_later = asyncio.Event(), asyncio.Event()

    @before.schedule(every(seconds=0.05), name="beat", missed="all", missed_limit=3)
    async def beat() -> None:
        first.set()

    @after.schedule(every(seconds=0.05), name="beat", missed="all", missed_limit=3)
    async def beat_again(ctx: RunContext) -> None:
        ran.put_nowait(ctx)

    @away.task
    async def clock() -> None:
        a_while_later.set()

    async with before:
        await asyncio.wait_for(first.wait(), 15)
    stopped_at = (await away.get_schedule("beat")).cursor
    await clock.options(delay=0.4).enqueue()
    await away.start(scheduler=False)
    await asyncio.wait_for(a_while_later.wait(), 15)
    await away.stop()
    ticks: list[datetime] = []
    async with after, asyncio.timeout(15):
        while len(ticks) < 3:
            ctx = await ran.get()
            if ctx.is_catchup and ctx.tick is not None and ctx.tick > stopped_at:
                ticks.append(ctx.tick)
    assert [b - a for a, b in itertools.pairwise(ticks)] == [timedelta(seconds=0.05)] * 2
    told = await after.why("beat", stopped_at + timedelta(seconds=0.05))
    assert (told.verdict, told.reason) == ("gap", "missed")


async def test_s44_a_slot_is_renewed_for_as_long_as_its_block_runs() -> None:
    app = Oncron("memory://")
    limiter = app.limiter("db", slots(1, lease_for=0.5), policy="skip")
    two_leases_later = asyncio.Event()
    async with limiter:
        asyncio.get_running_loop().call_later(1.1, two_leases_later.set)
        await two_leases_later.wait()
        async with limiter as second:
            assert not second
        assert await limiter.used() == 1
    assert await limiter.used() == 0


async def test_s55_a_run_in_a_batch_may_have_a_time_of_its_own(app: Oncron) -> None:
    """Senna refuses it."""

    @app.task(queue="bulk")
    def load(n: int) -> None: ...

    async with app.batch() as batch:
        batch.add(load, 1)
        batch.add(load.options(delay=0.3, queue="slow"), 2)
    async with app:
        done = await batch.wait(15)
    assert (done.total, done.succeeded) == (2, 2)
    by_queue = {run.queue: run for run in await app.runs(batch=batch.id)}
    assert sorted(by_queue) == ["bulk", "slow"]
    later = by_queue["slow"]
    assert later.due_at - later.created_at > timedelta(seconds=0.25)


async def test_s13_runs_that_are_enqueued_together_are_taken_in_their_order(app: Oncron) -> None:
    seen: list[int] = []
    app.queue("ledger", sequential=True)

    @app.task(queue="ledger")
    async def post(n: int) -> None:
        seen.append(n)

    runs = await post.enqueue_many({"n": n} for n in range(12))
    async with app.batch() as batch:
        for n in range(12, 20):
            batch.add(post, n)
    async with app:
        for run in runs:
            await run.wait(15)
        await batch.wait(15)
    assert seen == list(range(20))
