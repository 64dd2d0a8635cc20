"""What a task does, and what is written of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from oncron._engine.spec import Execution
from oncron._lifecycle import GiveUp, RetryIn, Skip
from oncron._model import NewRun, Overlap, RunState, new_run_id
from oncron.errors import InvalidArguments
from oncron.triggers import every
from tests.simulation.world import SECOND, passes
from tests.unit.engine.given import one_replica, scheduled


async def hangs(_execution: Execution) -> None:
    await passes(10_000)


def raising(error: BaseException) -> Callable[[Execution], Any]:
    async def task(_execution: Execution) -> None:
        await passes(0.01)
        raise error

    return task


# --- ticks ------------------------------------------------------------------------------------


def test_the_ticks_that_are_told_as_fired_are_those_that_became_runs() -> None:
    each = scheduled("each", every(seconds=5), missed="all", limit=3)
    with one_replica(hangs, definitions=[each]) as one:
        one.link.cut = True
        one.passes(33)
        one.link.cut = False
        one.passes(10)

        created = {run.id for run in one.fleet.store._run_rows.values() if run.schedule == "each"}
        assert len(created) == 3
        assert {event.run for event in one.fleet.events if event.name == "tick.fired"} == created
        assert "tick.skipped" in {event.name for event in one.fleet.events}


# --- ends -------------------------------------------------------------------------------------


def test_a_task_that_returns_has_succeeded_with_its_result() -> None:
    async def send(execution: Execution) -> str:
        return f"sent by {execution.run.attempt}"

    with one_replica(send, specs={"send": {"encode": lambda value: f'"{value}"'}}) as one:
        run = one.executed()

        assert (run.state, run.result, run.attempt, run.error) == (RunState.SUCCEEDED, '"sent by 1"', 1, None)
        assert one.heard(run) == ["claimed", "started", "succeeded"]
        one.is_well()


def test_a_task_that_raises_is_repeated_until_its_attempts_are_spent_and_its_traceback_is_kept() -> None:
    with one_replica(raising(ValueError("no such street"))) as one:
        run = one.executed(retries=2)

        assert (run.state, run.attempt) == (RunState.FAILED, 3)
        assert "no such street" in (run.error or "")
        assert one.heard(run) == [*["claimed", "started", "retried"] * 2, "claimed", "started", "failed"]
        began = [line.began for line in one.fleet.oracle.lines]
        assert [round((b - a) / SECOND) for a, b in pairwise(began)] == [1, 2], "by the backoff"
        one.is_well()


def test_a_task_that_raises_and_then_returns_has_succeeded() -> None:
    async def send(execution: Execution) -> None:
        if execution.run.attempt < 3:
            raise OSError("not yet")

    with one_replica(send) as one:
        run = one.executed()

        assert (run.state, run.attempt) == (RunState.SUCCEEDED, 3)


def test_retry_on_of_nothing_fails_at_the_first_error() -> None:
    with one_replica(raising(OSError("gone")), specs={"send": {"retry_on": ()}}) as one:
        run = one.executed(retries=5)

        assert (run.state, run.attempt) == (RunState.FAILED, 1)


def test_retry_in_waits_as_long_as_it_says() -> None:
    with one_replica(raising(RetryIn(40))) as one:
        run = one.executed(retries=1)

        first, second = (line.began for line in one.fleet.oracle.lines)
        assert (run.state, run.attempt) == (RunState.FAILED, 2)
        assert 40 * SECOND <= second - first < 41 * SECOND


def test_retry_in_that_spends_no_attempt_may_go_on_for_ever() -> None:
    async def send(execution: Execution) -> None:
        if execution.run.attempt < 30:
            raise RetryIn(1, spend_attempt=False)

    with one_replica(send) as one:
        run = one.executed(retries=1)

        assert (run.state, run.attempt, run.given_back) == (RunState.SUCCEEDED, 30, 29)


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [(GiveUp("no such user"), RunState.FAILED, "no such user"), (Skip("a holiday"), RunState.SKIPPED, "a holiday")],
)
def test_a_task_may_end_its_run_itself(error: Exception, state: RunState, reason: str) -> None:
    with one_replica(raising(error)) as one:
        run = one.executed(retries=5)

        assert (run.state, run.attempt, run.reason) == (state, 1, reason)


BASE = [
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    BaseException("bare"),
    ExceptionGroup("several", [ValueError("one"), OSError("two")]),
    BaseExceptionGroup("worse", [KeyboardInterrupt(), ValueError()]),
    StopIteration(1),
    StopAsyncIteration(),
    TimeoutError("its own"),
    MemoryError(),
    RecursionError(),
]


@pytest.mark.parametrize("error", BASE, ids=lambda error: type(error).__name__)
def test_B151_B087_whatever_is_raised_is_recorded_and_the_worker_lives_on(error: BaseException) -> None:
    ticks = scheduled("each", every(seconds=10), retries=0)
    with one_replica(raising(error), definitions=[ticks]) as one:
        run = one.executed(retries=1)

        assert (run.state, run.attempt) == (RunState.FAILED, 2)
        named = "RuntimeError" if isinstance(error, StopIteration) else type(error).__name__
        assert named in (run.error or "")
        one.passes(60)
        assert one.fleet.oracle.in_gaps["each"] == 0, "the next tick of the job ran each time"
        assert one.fleet.oracle.passed["each"] >= 6
        one.is_well()


# --- timeouts ---------------------------------------------------------------------------------


def test_an_async_task_is_cancelled_at_its_timeout_and_repeated() -> None:
    with one_replica(hangs) as one:
        run = one.executed(timeout=3 * SECOND, retries=1)

        assert (run.state, run.attempt) == (RunState.FAILED, 2)
        assert "took longer than its timeout of 3 s" in (run.reason or "")
        assert one.lines == ["cancelled", "cancelled"]
        assert all(3 * SECOND <= (line.ended or 0) - line.began < 3.2 * SECOND for line in one.fleet.oracle.lines)
        one.is_well()


def test_the_retry_after_a_timeout_waits_by_the_tasks_own_backoff() -> None:
    with one_replica(hangs, specs={"send": {"backoff": lambda _attempt, _seed: 77 * SECOND}}) as one:
        one.executed(timeout=3 * SECOND, retries=1)

        first, second = one.fleet.oracle.lines
        assert 77 * SECOND <= second.began - (first.ended or 0) < 78 * SECOND


def test_a_task_that_takes_its_time_to_clean_up_keeps_its_place_until_it_is_through() -> None:
    async def send(_execution: Execution) -> None:
        try:
            await passes(10_000)
        finally:
            await passes(40)

    with one_replica(send, replicas=3) as one:
        run = one.executed(timeout=2 * SECOND, retries=0)

        [line] = one.fleet.oracle.lines
        assert 42 * SECOND <= (line.ended or 0) - line.began < 43 * SECOND
        assert (run.state, run.attempt) == (RunState.FAILED, 1)
        one.is_well()


def test_a_task_that_swallows_its_cancellation_has_timed_out_all_the_same() -> None:
    async def send(_execution: Execution) -> str:
        try:
            await passes(10_000)
        except asyncio.CancelledError:
            pass
        return "done"

    with one_replica(send) as one:
        run = one.executed(timeout=2 * SECOND, retries=0)

        assert run.state is RunState.FAILED
        assert "timeout of 2 s" in (run.reason or "")


def test_B141_a_singleton_that_hangs_is_cancelled_and_its_next_tick_runs() -> None:
    ticks = scheduled("each", every(seconds=60), overlap=Overlap.SKIP, timeout=100 * SECOND, retries=0)
    with one_replica(hangs, definitions=[ticks]) as one:
        one.passes(10 * 60)

        assert one.lines.count("cancelled") >= 4
        assert one.fleet.oracle.in_gaps["each"] >= 4
        one.is_well()


# --- cancelling -------------------------------------------------------------------------------


def test_a_running_task_that_is_cancelled_is_told_with_the_next_heartbeat() -> None:
    with one_replica(hangs) as one:
        run_id = one.enqueue()
        one.passes(1)
        one.does(one.fleet.desk(lambda store: store.cancel(run_id)))
        one.passes(5.1)

        run = one.run_of(run_id)
        assert (run.state, run.attempt) == (RunState.CANCELLED, 1)
        assert one.heard(run_id) == ["claimed", "started", "cancelled"]
        assert one.lines == ["cancelled"]
        one.is_well()


def test_B167_a_cancelled_run_whose_task_fails_meanwhile_is_not_repeated() -> None:
    async def send(_execution: Execution) -> None:
        await passes(2)
        raise ValueError

    with one_replica(send) as one:
        run_id = one.enqueue(retries=9)
        one.passes(1)
        one.does(one.fleet.desk(lambda store: store.cancel(run_id)))
        one.passes(30)

        assert (one.run_of(run_id).state, one.run_of(run_id).attempt) == (RunState.CANCELLED, 1)


def test_success_stays_success_though_it_was_to_be_cancelled() -> None:
    async def send(_execution: Execution) -> None:
        await passes(2)

    with one_replica(send) as one:
        run_id = one.enqueue()
        one.passes(1)
        one.does(one.fleet.desk(lambda store: store.cancel(run_id)))
        one.passes(3)

        assert one.run_of(run_id).state is RunState.SUCCEEDED


# --- arguments that do not fit ----------------------------------------------------------------


def misfit(execution: Execution) -> Any:
    raise InvalidArguments("user.age: expected an int", path="user.age")


def test_arguments_that_no_longer_fit_are_given_back_with_a_delay_and_fail_after_ten_claims() -> None:
    with one_replica(hangs, specs={"send": {"prepare": misfit}}) as one:
        run_id = one.enqueue(retries=0)
        one.passes(40)
        assert one.run_of(run_id).state is RunState.PENDING
        one.passes(400)

        run = one.run_of(run_id)
        assert (run.state, run.attempt) == (RunState.FAILED, 10)
        assert "user.age" in (run.reason or "")
        assert one.lines == []
        one.is_well()


def test_a_decoder_that_raises_anything_at_all_fails_its_run_alone() -> None:
    def explodes(_execution: Execution) -> Any:
        raise ZeroDivisionError("in a converter")

    with one_replica(hangs, specs={"send": {"prepare": explodes}}) as one:
        run = one.executed(retries=1)

        assert (run.state, run.attempt) == (RunState.FAILED, 2)
        assert "ZeroDivisionError" in (run.error or "")
        one.fleet.oracle.violations.clear()
        assert one.executed("well").state is RunState.SUCCEEDED


# --- what travels -----------------------------------------------------------------------------


def test_progress_and_checkpoints_travel_with_the_heartbeat_and_the_end() -> None:
    async def send(execution: Execution) -> None:
        for step in (1, 2):
            with execution.lock:
                execution.progress, execution.checkpoint, execution.reported = f"{step}/2", f'"{step}"', False
            await passes(7)

    with one_replica(send) as one:
        run_id = one.enqueue()
        one.passes(6)
        assert (one.run_of(run_id).progress, one.run_of(run_id).checkpoint) == ("1/2", '"1"')
        one.passes(10)
        assert (one.run_of(run_id).progress, one.run_of(run_id).checkpoint) == ("2/2", '"2"')


def test_a_report_whose_heartbeat_failed_travels_with_a_later_one() -> None:
    async def send(execution: Execution) -> None:
        await passes(1)
        with execution.lock:
            execution.progress, execution.reported = "1/2", False
        await passes(100)

    with one_replica(send) as one:
        run_id = one.enqueue()
        one.passes(2)
        one.link.fates["heartbeat"] = ["refused"]
        one.passes(12)
        assert one.run_of(run_id).progress == "1/2"


def test_what_a_run_enqueues_is_written_with_its_success_and_dropped_with_its_failure() -> None:
    async def send(execution: Execution) -> None:
        execution.outbox.append(NewRun(id=new_run_id(), task="well"))
        if execution.run.attempt == 1:
            raise ValueError

    with one_replica(send) as one:
        one.executed(retries=1)
        one.passes(2)

        assert [run.state for run in one.fleet.store._run_rows.values() if run.task == "well"] == [RunState.SUCCEEDED]


def test_attempts_count_claims_and_never_go_down() -> None:
    seen: list[tuple[int, int, bool]] = []

    async def send(execution: Execution) -> None:
        run = execution.run
        seen.append((run.attempt, run.attempts_spent, run.is_last_attempt))
        raise RetryIn(1, spend_attempt=run.attempt > 2)

    with one_replica(send) as one:
        one.executed(retries=1)

    assert seen == [(1, 1, False), (2, 1, False), (3, 1, False), (4, 2, True)]


def test_a_store_whose_clock_is_set_a_day_ahead_times_nothing_out() -> None:
    async def send(_execution: Execution) -> None:
        await passes(20)

    with one_replica(send) as one:
        run_id = one.enqueue(timeout=30 * SECOND, retries=0)
        one.passes(5)
        clock = one.fleet.store._clock
        one.fleet.store._clock = one.fleet.oracle.now = lambda: clock() + 86_400 * SECOND
        one.passes(20)

        assert one.run_of(run_id).state is RunState.SUCCEEDED
