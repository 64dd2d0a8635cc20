"""The loop that async tasks run on is the user's: it may end, stand still, or be blocked, without the app's stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncron._engine.executor import Executor
from oncron._engine.spec import Execution, TaskSpec
from oncron._model import OutcomeKind, RunRecord, RunState
from tests.simulation.world import SECOND, passes
from tests.unit.engine.given import One, one_replica
from tests.unit.engine.test_threads import real, spec


async def quick(_execution: Execution) -> str:
    await passes(0.01)
    return "done"


def inline(_execution: Execution) -> str:
    return "done"


PLAIN = {"is_async": False, "prepare": lambda execution: lambda: inline(execution), "encode": repr}


@pytest.fixture(params=["closed", "standing"])
def dead_loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    if request.param == "closed":
        loop.close()
    yield loop
    loop.close()


def loses_its_loop(one: One, loop: asyncio.AbstractEventLoop) -> None:
    one.engine._replica._executor.user_loop = loop


def test_a_replica_whose_users_loop_is_gone_leaves_async_runs_to_others_and_says_so_once(
    dead_loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("oncron.worker").addHandler(caplog.handler)
    with one_replica(quick) as one:
        loses_its_loop(one, dead_loop)
        run_ids = [one.enqueue(retries=0), one.enqueue(retries=3)]
        one.passes(60)

        runs = [one.run_of(run_id) for run_id in run_ids]
        assert [(run.state, run.attempt) for run in runs] == [(RunState.PENDING, 0)] * 2
        [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "await app.stop()" in error.getMessage()
        assert one.link.calls.get("claim", 0) < 5

        loses_its_loop(one, one.fleet.loop)
        one.passes(6)
        assert {one.run_of(run_id).state for run_id in run_ids} == {RunState.SUCCEEDED}
    logging.getLogger("oncron.worker").removeHandler(caplog.handler)


def test_a_replica_without_a_loop_still_claims_for_its_threads(dead_loop: asyncio.AbstractEventLoop) -> None:
    with one_replica(quick, specs={"well": PLAIN}) as one:
        loses_its_loop(one, dead_loop)
        spec = one.engine._replica.worker.reserve()

        assert spec is not None
        assert spec.tasks == ("well",)


async def test_a_run_that_was_claimed_when_the_loop_ended_is_given_back_whole_and_not_at_once(
    dead_loop: asyncio.AbstractEventLoop,
) -> None:
    executor = Executor(dead_loop, lambda *_args, **_options: None)
    spec = TaskSpec(name="send", is_async=True, prepare=lambda execution: lambda: quick(execution), encode=repr)
    run = RunRecord(id="r", task="send", state=RunState.RUNNING, due_at=0, created_at=0, attempt=1, retries=0, token=7)
    outcome = await executor.run(Execution(run=run, store_now=lambda: 0), spec)

    assert outcome is not None
    assert (outcome.kind, outcome.delay) == (OutcomeKind.RELEASED, 5 * SECOND)


# --- a loop that is busy ----------------------------------------------------------------------


@contextmanager
def users_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


async def test_the_timeout_of_a_task_runs_from_when_it_is_entered_and_not_while_the_loop_is_blocked_by_another() -> (
    None
):
    claimed, deadlines = threading.Event(), list[int | None]()

    async def block(_execution: Execution) -> None:
        assert claimed.wait(10)
        threading.Event().wait(0.3)  # blocks the users' loop for longer than the other's timeout

    async def send(execution: Execution) -> None:
        deadlines.append(execution.deadline)

    with users_loop() as loop:
        tasks = spec("block", block, is_async=True), spec("send", send, is_async=True)
        async with real(*tasks, user_loop=loop) as one:
            await one.heard("run.started", await one.enqueue("block"))
            run_id = await one.enqueue(timeout=200_000, retries=0)
            claim = await one.heard("run.claimed", run_id)
            claimed.set()
            await one.heard("run.succeeded", run_id)

            claimed_at = int(claim.at.timestamp() * SECOND)
            assert deadlines[0] is not None
            assert deadlines[0] > claimed_at + 450_000


async def test_what_waits_for_its_turn_on_a_loop_that_ends_before_is_given_back_whole() -> None:
    loop, entered = asyncio.new_event_loop(), list[str]()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    free, queued = threading.Event(), threading.Event()

    async def block(_execution: Execution) -> None:
        loop.stop()  # at the end of this turn: before that of what is handed over meanwhile
        queued.set()
        assert free.wait(10)

    async def send(execution: Execution) -> None:
        entered.append(execution.run.id)

    async with real(spec("block", block, is_async=True), spec("send", send, is_async=True), user_loop=loop) as one:
        await one.enqueue("block")
        assert await asyncio.to_thread(queued.wait, 10)
        run_id = await one.enqueue(retries=0)
        await one.heard("run.claimed", run_id)
        free.set()
        await asyncio.to_thread(thread.join, 10)
        await one.heard("run.released", run_id)

        run = await one.run_of(run_id)
        assert (run.state, run.given_back, entered) == (RunState.PENDING, 1, [])
    loop.close()
