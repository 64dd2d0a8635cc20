"""Tasks in processes of their own: for work that must be stoppable, or may take its process down."""

from __future__ import annotations

import pytest

from oncron import Oncron
from oncron.backoff import fixed
from oncron.errors import RunFailed
from tests.fundamentals import heavy


async def test_heavy_work_runs_in_a_process_and_leaves_this_one_alone(app: Oncron) -> None:
    count_primes = app.task(heavy.count_primes, executor="process")
    async with app:
        run = await count_primes.enqueue(10_000)
        assert await run.wait(60) == 1229


async def test_a_process_is_killed_at_its_timeout_where_a_thread_would_go_on(app: Oncron) -> None:
    match_for_ever = app.task(heavy.match_for_ever, executor="process", timeout=0.3, retries=0)
    async with app:
        run = await match_for_ever.enqueue()
        with pytest.raises(RunFailed, match=r"took longer than its timeout of 0.3 s"):
            await run.wait(60)


async def test_a_crash_costs_the_run_an_attempt_and_the_replica_nothing(app: Oncron) -> None:
    crash_once = app.task(heavy.crash_once, executor="process", backoff=fixed(0))
    async with app:
        run = await crash_once.enqueue()
        assert await run.wait(60) == "attempt 2"


async def test_what_was_checkpointed_before_a_crash_is_there_in_the_next_attempt(app: Oncron) -> None:
    resume = app.task(heavy.resume, executor="process", backoff=fixed(0))
    async with app:
        run = await resume.enqueue()
        assert await run.wait(60) == [0, 1, 2, 3]
        assert (await app.get_run(run.id)).attempt == 2
