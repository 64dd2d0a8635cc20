"""Runs that walk, interrupted in virtual time: by doubts, deploys and deaths."""

from __future__ import annotations

from oncron import RunContext
from oncron._engine.spec import Execution
from oncron._model import RunState
from tests.simulation.world import passes
from tests.unit.engine.given import One, one_replica


class Walks:
    """A task that takes `seconds` for each of `count` items; what was done, in order."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds
        self.done: list[int] = []

    async def __call__(self, execution: Execution) -> None:
        ctx = RunContext(execution, {}, None)
        async for item in ctx.walk(range(self.count), every=5):
            await passes(self.seconds)
            self.done.append(item)


def deploys(one: One, number: int = 0) -> None:
    replica = one.fleet.replicas[number]
    one.in_replica(replica.engine.stop(), number)
    replica.boot()
    one.passes(0.5)


def test_a_run_outlives_more_deploys_than_it_has_attempts_and_free_releases() -> None:
    walks = Walks(count=200, seconds=1)
    with one_replica(walks) as one:
        run_id = one.enqueue(retries=0)
        for _ in range(15):
            one.passes(4)
            deploys(one)
        for _ in range(300):
            if not one.run_of(run_id).state.is_open:
                break
            one.passes(1)
        run = one.run_of(run_id)
        assert (run.state, run.attempts_spent) == (RunState.SUCCEEDED, 1)
        assert run.attempt >= 15
        assert walks.done == list(range(200)), "each item once"


def test_a_doubt_in_the_middle_of_an_item_costs_a_run_with_retries_no_attempt_while_it_gets_further() -> None:
    walks = Walks(count=400, seconds=1)
    with one_replica(walks) as one:
        run_id = one.enqueue(retries=1)
        for _ in range(13):
            one.passes(5)
            one.link.cut = True
            one.passes(20)
            one.link.cut = False
            one.passes(10)
        run = one.run_of(run_id)
        assert run.state.is_open
        assert run.attempts_spent <= 1
        assert len(walks.done) == len(set(walks.done)), "an item that was cancelled was not done"


def test_a_killed_worker_repeats_what_was_done_since_its_last_heartbeat_and_no_more() -> None:
    walks = Walks(count=60, seconds=1)
    with one_replica(walks, replicas=2) as one:
        run_id = one.enqueue(retries=3)
        one.passes(18.5)
        holder = one.run_of(run_id).worker
        [dying] = [replica for replica in one.fleet.replicas if replica.process.name == holder]
        dying.kill()
        for _ in range(200):
            if not one.run_of(run_id).state.is_open:
                break
            one.passes(1)
        assert one.run_of(run_id).state is RunState.SUCCEEDED
        again = len(walks.done) - len(set(walks.done))
        assert sorted(set(walks.done)) == list(range(60))
        assert 0 < again <= 11, "a heartbeat comes every five seconds, and so does a cursor"
