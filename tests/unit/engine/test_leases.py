"""Answers that are lost, late or doubled; leases that are doubted, lost and found again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from oncron._clock import boot_us
from oncron._engine.spec import Execution
from oncron._model import Overlap, RunState
from oncron.triggers import every
from tests.simulation.network import Weather
from tests.simulation.world import SECOND, passes
from tests.unit.engine.given import One, one_replica, scheduled


async def quick(_execution: Execution) -> None:
    await passes(0.01)


async def slow(_execution: Execution) -> None:
    await passes(60)


# --- answers ----------------------------------------------------------------------------------

FATES = [
    {"claim": ["lost"]},
    {"claim": ["refused"]},
    {"claim": ["lost", "lost"]},
    {"claim": ["lost", "refused"], "heartbeat": ["lost"]},
    {"claim": ["late 9"]},
    {"finish": ["lost"]},
    {"finish": ["refused", "lost", "lost"]},
    {"finish": ["late 30"]},
    {"claim": ["lost"], "finish": ["lost"]},
]


@pytest.mark.parametrize("fates", FATES, ids=str)
def test_a_run_is_executed_once_whichever_answer_is_lost(fates: dict[str, list[str]]) -> None:
    with one_replica(quick) as one:
        one.link.fates.update({method: list(fate) for method, fate in fates.items()})
        run_id = one.enqueue()
        one.passes(60)

        run = one.run_of(run_id)
        assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
        assert one.lines == ["returned"]
        assert one.heard(run_id) == ["claimed", "started", "succeeded"]
        one.is_well()


@pytest.mark.parametrize("fate", ["lost", "refused", "late 9", "late 40"])
def test_a_tick_is_one_run_and_one_execution_whatever_becomes_of_the_answer_to_fire(fate: str) -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=30))]) as one:
        one.passes(20)
        one.link.fates["fire"] = [fate]
        one.passes(100)

        assert one.fleet.oracle.passed["each"] == 4
        assert one.fleet.oracle.in_gaps["each"] == 0
        assert one.lines == ["returned"] * 4
        ticks = [event.tick for event in one.fleet.events if event.name == "tick.fired"]
        assert len(ticks) == len(set(ticks)) == 4
        one.is_well()


def test_what_comes_twice_is_started_once() -> None:
    with one_replica(slow) as one:
        run_id = one.enqueue()
        one.passes(1)
        worker, run = one.engine._replica.worker, one.run_of(run_id)

        async def again() -> None:
            worker.accept(run, boot_us())
            await passes(70)
            worker.accept(run, boot_us())
            await passes(1)

        one.in_replica(again())
        assert one.lines == ["returned"]
        assert one.run_of(run_id).state is RunState.SUCCEEDED


def test_a_loss_that_was_told_of_an_older_token_leaves_the_new_claim_alone() -> None:
    with one_replica(slow) as one:
        run_id = one.enqueue()
        one.passes(1)
        worker, token = one.engine._replica.worker, one.run_of(run_id).token

        async def told() -> None:
            worker.lose(run_id, token - 1)

        one.in_replica(told())
        one.passes(70)
        assert one.lines == ["returned"]


def test_a_lease_that_was_lost_ends_the_execution_and_records_nothing() -> None:
    with one_replica(slow) as one:
        run_id = one.enqueue(retries=1)
        one.passes(1)
        for worker in one.fleet.store._worker_rows:
            one.fleet.store._worker_rows[worker] = _expired(one, worker)
        one.fleet.oracle._told.clear()
        one.does(one.fleet.desk(lambda store: store.reap()))
        one.passes(6)

        assert one.lines[0] == "cancelled"
        assert one.heard(run_id)[:3] == ["claimed", "started", "lost"] or "lease.lost" in _names(one)
        one.passes(100)
        assert one.run_of(run_id).state is RunState.SUCCEEDED
        assert (one.run_of(run_id).attempt, one.lines) == (2, ["cancelled", "returned"])
        one.is_well()


def _expired(one: One, worker: str):
    from msgspec.structs import replace

    return replace(one.fleet.store._worker_rows[worker], lease_until=1)


def _names(one: One) -> list[str]:
    return [event.name for event in one.fleet.events]


def test_a_run_that_comes_back_here_waits_until_its_old_copy_has_cleaned_up() -> None:
    async def untidy(execution: Execution) -> None:
        try:
            await passes(30)
        finally:
            await passes(4)

    with one_replica(untidy) as one:
        run_id = one.enqueue(retries=1)
        one.passes(1)
        for worker in one.fleet.store._worker_rows:
            one.fleet.store._worker_rows[worker] = _expired(one, worker)
        one.fleet.oracle._told.clear()
        one.does(one.fleet.desk(lambda store: store.reap()))
        one.passes(60)

        assert one.run_of(run_id).state is RunState.SUCCEEDED
        first, second = one.fleet.oracle.lines
        assert (first.how, second.how) == ("cancelled", "returned")
        assert (first.ended or 0) <= second.began
        one.is_well()


# --- doubt ------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 3])
def test_a_run_in_doubt_is_stopped_and_goes_back_or_is_lost_without_retries(retries: int) -> None:
    with one_replica(slow) as one:
        run_id = one.enqueue(retries=retries)
        one.passes(7)
        one.link.cut = True
        one.passes(16)
        [line] = one.fleet.oracle.lines
        assert line.how == "cancelled"
        assert 7 * SECOND < (line.ended or 0) - line.began < 21 * SECOND
        one.link.cut = False
        one.passes(12)

        run = one.run_of(run_id)
        if retries:
            assert (run.state, run.attempt, run.given_back) == (RunState.RUNNING, 2, 1)
        else:
            assert (run.state, run.reason) == (RunState.LOST, "doubt")
            assert one.lines == ["cancelled"]
        one.is_well()


def test_on_doubt_continue_goes_on_and_a_heartbeat_revives_the_lease() -> None:
    with one_replica(slow, specs={"send": {"on_doubt": "continue"}}) as one:
        run_id = one.enqueue()
        one.passes(7)
        one.link.cut = True
        one.passes(30)
        one.link.cut = False
        one.passes(30)

        assert (one.run_of(run_id).state, one.run_of(run_id).attempt) == (RunState.SUCCEEDED, 1)
        assert one.lines == ["returned"]


def test_on_doubt_continue_is_told_when_another_has_taken_over_and_its_end_is_refused() -> None:
    async def stubborn(execution: Execution) -> str:
        await passes(100)
        return execution.run.worker or ""

    options = {"specs": {"stubborn": {"on_doubt": "continue", "encode": lambda value: f'"{value}"'}}}
    with one_replica({"stubborn": stubborn}, replicas=2, **options) as one:
        run_id = one.enqueue("stubborn")
        one.passes(1)
        holder = one.run_of(run_id).worker
        [cut] = [replica for replica in one.fleet.replicas if replica.process.name == holder]
        cut.link.cut = True
        one.passes(40)
        assert one.run_of(run_id).worker != holder
        cut.link.cut = False
        one.passes(120)

        run = one.run_of(run_id)
        assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
        assert run.result != f'"{holder}"'
        assert one.lines == ["cancelled", "returned"]
        assert "lease.lost" in _names(one)


def test_a_clock_that_jumps_voids_the_lease_and_the_run_begins_again_without_spending_an_attempt() -> None:
    """The machine may have slept: nobody here knows for how long others saw nothing of it."""
    with one_replica(slow) as one:
        run_id = one.enqueue()
        one.passes(8)
        beats = one.link.calls["heartbeat"]
        one.fleet.replicas[0].process.wall_offset += 3600 * SECOND
        one.passes(2)
        assert one.link.calls["heartbeat"] > beats, "it asks at once"
        one.passes(70)

        run = one.run_of(run_id)
        assert (run.state, run.attempt, run.given_back) == (RunState.SUCCEEDED, 2, 1)
        assert one.lines == ["cancelled", "returned"]


def test_a_clock_that_is_adjusted_by_a_second_stops_nothing() -> None:
    with one_replica(slow) as one:
        one.enqueue()
        for _ in range(5):
            one.passes(8)
            one.fleet.replicas[0].process.wall_offset -= SECOND
        one.passes(40)

        assert one.lines == ["returned"]


# --- the rhythm -------------------------------------------------------------------------------


def test_heartbeats_come_every_third_of_a_lease_while_something_is_held_and_every_twenty_seconds_otherwise() -> None:
    with one_replica(slow) as one:
        one.passes(30)
        before = one.link.calls["heartbeat"]
        one.passes(60)
        assert one.link.calls["heartbeat"] - before == 3
        one.enqueue()
        one.passes(1)
        before = one.link.calls["heartbeat"]
        one.passes(50)
        assert one.link.calls["heartbeat"] - before == 10


def test_a_replica_that_is_busy_for_moments_beats_as_one_that_is_busy_all_the_time() -> None:
    """Neither at each of these moments, nor never because there is always another one."""
    with one_replica(quick) as one:
        one.passes(30)
        before = one.link.calls["heartbeat"]
        for _ in range(60):
            one.enqueue()
            one.passes(1)
        assert len(one.lines) == 60
        assert 9 <= one.link.calls["heartbeat"] - before <= 15


def test_a_replica_that_was_idle_only_while_a_heartbeat_was_answered_beats_on() -> None:
    with one_replica(slow) as one:
        one.enqueue()
        one.passes(1)
        before = one.link.calls["heartbeat"]
        one.engine._replica._keeper._due = None  # as a heartbeat leaves it that finds nothing held
        one.passes(20)
        assert one.link.calls["heartbeat"] - before >= 3


def test_a_worker_never_holds_more_than_its_slots() -> None:
    with one_replica(slow, concurrency=3) as one:
        for _ in range(10):
            one.enqueue()
        one.passes(5)
        assert len(one.lines) == 3
        one.passes(250)
        assert one.lines == ["returned"] * 10


def test_a_slot_that_becomes_free_is_filled_at_once() -> None:
    async def second(_execution: Execution) -> None:
        await passes(1)

    with one_replica(second, concurrency=1, weather=Weather(hint_lost=1)) as one:
        for _ in range(20):
            one.enqueue()
        one.passes(30)

        assert one.lines == ["returned"] * 20
        ends = [line.ended or 0 for line in one.fleet.oracle.lines]
        assert ends[-1] - ends[0] < 20 * SECOND


def test_a_store_that_answers_none_of_the_first_calls_only_delays_the_start() -> None:
    with one_replica(quick) as one:
        replica = one.fleet.replicas[0]
        replica.kill()
        replica.link.cut = True
        replica.boot()
        one.passes(100)
        replica.link.cut = False
        one.passes(40)

        assert replica.engine.running
        one.is_well()


def test_a_run_that_waited_for_its_schedules_place_starts_when_that_is_free_without_any_hint() -> None:
    async def second(_execution: Execution) -> None:
        await passes(3)

    ticks = scheduled("each", every(seconds=2), overlap=Overlap.QUEUE)
    with one_replica(second, weather=Weather(hint_lost=1), definitions=[ticks]) as one:
        one.passes(40)

        lines = one.fleet.oracle.lines
        assert len(lines) >= 12
        assert all(after.began - (before.ended or 0) < 50_000 for before, after in pairwise(lines))
