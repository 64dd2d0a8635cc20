"""The loop that async tasks run on is the user's: it may end, stand still, or be blocked, without the app's stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from oncron._engine.executor import Executor
from oncron._engine.spec import Execution, TaskSpec
from oncron._model import OutcomeKind, RunRecord, RunState
from tests.simulation.world import SECOND, passes
from tests.unit.engine.given import One, one_replica


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
    one.engine._replica._executor._user_loop = loop


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
