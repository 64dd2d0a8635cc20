"""Stopping: what runs may end, what has stopped is given back, nothing is repeated that may not be."""

from __future__ import annotations

import asyncio

import pytest

from oncron._engine.spec import Execution
from oncron._model import RunState
from oncron.errors import AlreadyRunning
from oncron.triggers import every
from tests.simulation.world import SECOND, passes
from tests.unit.engine.given import One, one_replica, scheduled


async def seconds_5(_execution: Execution) -> None:
    await passes(5)


async def long(_execution: Execution) -> None:
    await passes(300)


def stop(one: One, number: int = 0) -> int:
    """Stop the replica, as by SIGTERM; how long that took."""
    began = one.fleet.loop.now_us
    replica = one.fleet.replicas[number]
    one.in_replica(replica.engine.stop(), number)
    return one.fleet.loop.now_us - began


def test_a_stop_waits_for_what_runs_and_it_ends_as_it_ends() -> None:
    with one_replica(seconds_5, stop_within=30 * SECOND) as one:
        run_id = one.enqueue()
        one.passes(1)
        took = stop(one)

        assert 3 * SECOND < took < 5 * SECOND
        assert (one.run_of(run_id).state, one.lines) == (RunState.SUCCEEDED, ["returned"])
        assert not one.fleet.store._worker_rows, "a worker that left is listed no more"


def test_an_idle_replica_stops_at_once() -> None:
    with one_replica(long) as one:
        one.passes(3)
        assert stop(one) < SECOND


def test_heartbeats_go_on_until_the_drain_ends() -> None:
    with one_replica(long, stop_within=200 * SECOND, replicas=2) as one:
        run_id = one.enqueue(retries=0)
        one.passes(1)
        holder = int((one.run_of(run_id).worker or "r0")[1])
        stop(one, holder)

        assert one.fleet.oracle.reaped == []
        assert one.run_of(run_id).reason == "stopped"


def test_what_does_not_end_in_time_is_cancelled_and_given_back_without_spending_an_attempt() -> None:
    with one_replica(long, replicas=2) as one:
        run_id = one.enqueue(retries=1)
        one.passes(1)
        holder = one.run_of(run_id).worker or ""
        took = stop(one, int(holder[1]))

        assert 5 * SECOND <= took < 6 * SECOND
        assert one.lines[0] == "cancelled"
        one.passes(1)
        run = one.run_of(run_id)
        assert (run.state, run.attempt, run.given_back) == (RunState.RUNNING, 2, 1)
        assert run.worker != holder
        assert one.heard(run_id) == ["claimed", "started", "released", "claimed", "started"]


def test_a_started_run_without_retries_is_never_given_back() -> None:
    with one_replica(long, replicas=2) as one:
        run_id = one.enqueue(retries=0)
        one.passes(1)
        stop(one, int((one.run_of(run_id).worker or "")[1]))
        one.passes(60)

        run = one.run_of(run_id)
        assert (run.state, run.reason, run.attempt) == (RunState.LOST, "stopped", 1)
        assert one.lines == ["cancelled"]


def test_a_task_that_ends_well_when_it_is_told_to_stop_has_succeeded() -> None:
    async def polite(execution: Execution) -> None:
        while not execution.stop.is_set():
            await passes(0.5)

    with one_replica(polite, stop_within=30 * SECOND) as one:
        run_id = one.enqueue()
        one.passes(3)
        took = stop(one)

        assert took < 2 * SECOND
        assert one.run_of(run_id).state is RunState.SUCCEEDED


def test_while_it_stops_a_replica_neither_claims_nor_fires() -> None:
    with one_replica(seconds_5, definitions=[scheduled("each", every(seconds=1), "well")]) as one:
        one.enqueue()
        one.passes(1)
        stopping = one.fleet.loop.in_process(one.fleet.replicas[0].process, one.engine.stop())
        one.passes(1)
        fired, other = one.fleet.oracle.passed["each"], one.enqueue()
        one.does(asyncio.wait_for(stopping, 20))

        assert one.fleet.oracle.passed["each"] == fired
        assert one.run_of(other).attempt == 0


def test_the_second_signal_waits_no_longer() -> None:
    with one_replica(long, stop_within=200 * SECOND) as one:
        run_id = one.enqueue()
        one.passes(1)
        stopping = one.fleet.loop.in_process(one.fleet.replicas[0].process, one.engine.stop())
        one.passes(2)
        began = one.fleet.loop.now_us
        one.engine.hurry()
        one.does(asyncio.wait_for(stopping, 20))

        assert one.fleet.loop.now_us - began < 2 * SECOND
        assert one.run_of(run_id).state is RunState.PENDING


@pytest.mark.parametrize("fate", [["lost"], ["refused", "lost"], ["late 3"]])
def test_an_end_whose_answer_is_lost_while_stopping_is_written_all_the_same(fate: list[str]) -> None:
    with one_replica(seconds_5, stop_within=30 * SECOND) as one:
        run_id = one.enqueue()
        one.passes(1)
        one.link.fates["finish"] = list(fate)
        stop(one)

        assert one.run_of(run_id).state is RunState.SUCCEEDED
        assert not one.fleet.store._worker_rows


def test_a_store_that_is_away_does_not_hold_up_a_stop_for_ever() -> None:
    with one_replica(seconds_5) as one:
        run_id = one.enqueue()
        one.passes(1)
        one.link.cut = True
        took = stop(one)

        assert took < 25 * SECOND
        assert one.run_of(run_id).state is RunState.RUNNING, "its lease will end, and it is taken over"


def test_a_run_that_was_claimed_in_the_moment_of_the_stop_is_given_back() -> None:
    with one_replica(long, replicas=1) as one:
        one.passes(3)
        one.link.fates["claim"] = ["late 2"]
        run_id = one.enqueue(retries=0)
        one.passes(0.5)
        assert one.run_of(run_id).state is RunState.RUNNING
        stop(one)

        run = one.run_of(run_id)
        assert (run.state, run.attempt, run.given_back) == (RunState.PENDING, 1, 1), "it was never started"
        assert one.lines == []


def test_after_a_stop_it_may_start_again_and_goes_on() -> None:
    with one_replica(seconds_5, definitions=[scheduled("each", every(seconds=1), "well")]) as one:
        one.passes(5)
        stop(one)
        ticks = len(one.fleet.oracle.ticks_made)
        one.passes(5)
        assert len(one.fleet.oracle.ticks_made) == ticks
        loop = one.fleet.loop
        one.in_replica(one.engine.start(scheduler=True, worker=True, user_loop=loop))
        one.passes(5)

        assert len(one.fleet.oracle.ticks_made) > ticks
        one.is_well()


def test_starting_twice_is_refused() -> None:
    with one_replica(seconds_5) as one, pytest.raises(AlreadyRunning):
        one.in_replica(one.engine.start(scheduler=True, worker=True, user_loop=one.fleet.loop))


def test_more_than_ten_stops_in_a_row_spend_an_attempt() -> None:
    with one_replica(long, stop_within=0) as one:
        run_id = one.enqueue(retries=1)
        for _ in range(11):
            one.passes(2)
            stop(one)
            one.in_replica(one.engine.start(scheduler=True, worker=True, user_loop=one.fleet.loop))
        one.passes(2)

        run = one.run_of(run_id)
        assert (run.attempt, run.given_back) == (12, 10)
