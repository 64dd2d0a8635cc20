"""Tasks in worker processes: what travels, what is killed, and what becomes of the run. Real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from oncron._clock import SECOND, boot_us, from_us, wall_us
from oncron._engine import processes
from oncron._engine.executor import Executor
from oncron._engine.spec import Execution, TaskSpec
from oncron._json import dumps, loads
from oncron._model import Outcome, OutcomeKind, RunRecord, new_run_id
from oncron.backoff import fixed
from tests.unit.engine import chores

WITHIN = 60
RELEASED, RETRY, FAILED, LOST = OutcomeKind.RELEASED, OutcomeKind.RETRY, OutcomeKind.FAILED, OutcomeKind.LOST
SUCCEEDED, CANCELLED, SKIPPED = OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.SKIPPED


class Bench:
    """An executor, and words for what a test does with it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.executor = Executor(asyncio.get_running_loop(), lambda name, *_, **__: self.said.append(name))

    def spec(self, task: str) -> TaskSpec:
        return chores.app._registry.specs[task]

    def begin(self, task: str, /, **options: Any) -> tuple[Execution, asyncio.Task[Outcome | None]]:
        args = {name: value for name, value in options.items() if name not in RunRecord.__struct_fields__}
        fields = {name: value for name, value in options.items() if name in RunRecord.__struct_fields__}
        now = wall_us()
        given = {
            "id": new_run_id(),
            "task": task,
            "args": dumps(args),
            "attempt": 1,
            "token": 5,
            "due_at": now,
        } | fields
        execution = Execution(run=RunRecord(**given), store_now=wall_us, claimed_at=now)
        return execution, asyncio.ensure_future(self.executor.run(execution, self.spec(task)))

    async def run(self, task: str, /, **options: Any) -> Outcome:
        _, ending = self.begin(task, **options)
        outcome = await asyncio.wait_for(ending, WITHIN)
        assert outcome is not None
        return outcome

    async def result(self, task: str, /, **options: Any) -> Any:
        outcome = await self.run(task, **options)
        assert outcome.kind is SUCCEEDED, outcome.error
        return None if outcome.result is None else loads(outcome.result)

    async def progress(self, execution: Execution) -> Any:
        """What it says first."""
        async with asyncio.timeout(WITHIN):
            while execution.progress is None:
                await execution.changed.wait()
                await asyncio.sleep(0)
        return loads(execution.progress)

    async def pid(self) -> int:
        return (await self.result("who"))["pid"]


async def ends(ending: Awaitable[Outcome | None]) -> Outcome:
    outcome = await asyncio.wait_for(ending, WITHIN)
    assert outcome is not None
    return outcome


def is_alive(pid: int) -> bool:
    """A process whose end nobody has taken note of yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bench() -> AsyncIterator[Bench]:
    """Shared, so that a process is started only where the last one was killed."""
    made = Bench()
    yield made
    await made.executor.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- what travels -----------------------------------------------------------------------------


async def test_arguments_and_results_travel_as_the_json_that_is_stored(bench: Bench) -> None:
    assert await bench.result("mirror", point=chores.Point(1, 2)) == {"x": 2, "y": 1}


async def test_a_process_of_its_own_leads_a_group_of_its_own_and_imports_the_module_itself(bench: Bench) -> None:
    who = await bench.result("who")
    assert who["pid"] == who["group"] == who["imported_by"] != os.getpid()
    assert who["parent"] == os.getpid()


async def test_one_process_runs_many_runs_and_runs_at_once_have_one_each(bench: Bench) -> None:
    assert await bench.pid() == await bench.pid()
    first, second = bench.begin("tell_and_wait"), bench.begin("tell_and_wait")
    pids = {(await bench.progress(execution))["note"] for execution, _ in (first, second)}
    assert len(pids) == 2
    for execution, ending in (first, second):
        execution.ask_to_come_to_an_end()
        assert (await ends(ending)).kind is SUCCEEDED


async def test_the_context_tells_what_it_tells_everywhere(bench: Bench) -> None:
    tick = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * SECOND
    run_id = new_run_id()
    told = await bench.result(
        "facts", id=run_id, schedule="daily", tick=tick, due_at=tick, attempt=3, given_back=1, retries=1, token=77,
        is_catchup=True, missed_count=4, timeout=600 * SECOND, checkpoint='{"page":7}',
    )  # fmt: skip
    late_by, deadline = told.pop("late_by"), datetime.fromisoformat(told.pop("deadline"))
    assert told == {
        "run_id": run_id, "task": "facts", "schedule": "daily", "tick": "2026-03-01T00:00:00+00:00",
        "due_at": "2026-03-01T00:00:00+00:00", "attempt": 3, "is_last_attempt": True, "token": 77, "is_catchup": True,
        "missed_count": 4, "args": {}, "stopping": False, "last_checkpoint": {"page": 7}, "is_current": True,
    }  # fmt: skip
    assert late_by.startswith("P")
    assert abs(deadline - from_us(wall_us() + 600 * SECOND)) < timedelta(seconds=WITHIN)


async def test_an_async_function_has_a_loop_on_the_main_thread(bench: Bench) -> None:
    assert await bench.result("on_a_loop") == "MainThread"


async def test_a_plain_function_that_returns_a_coroutine_has_failed(bench: Bench) -> None:
    outcome = await bench.run("promise")
    assert outcome.kind is FAILED
    assert "returned a coroutine, which nobody would run" in (outcome.reason or "")


async def test_progress_and_checkpoints_come_while_the_run_goes_on(bench: Bench) -> None:
    execution, ending = bench.begin("tell_and_wait")
    assert (await bench.progress(execution))["done"] == 1
    report = execution.report()
    assert report is not None
    assert execution.report() is None
    execution.ask_to_come_to_an_end()
    outcome = await ends(ending)
    assert (outcome.result, outcome.checkpoint) == ('"stopped nicely"', '{"page":7}')


async def test_what_is_said_too_often_is_told_now_and_then_and_the_last_word_is_told(bench: Bench) -> None:
    outcome = await bench.run("chatter", times=20_000)
    assert loads(outcome.progress or "")["done"] == 20_000
    assert outcome.checkpoint == "19999"


async def test_a_checkpoint_is_told_before_the_process_can_die(bench: Bench) -> None:
    outcome = await bench.run("checkpoint_and_die")
    assert (outcome.kind, outcome.checkpoint) == (RETRY, '"before"')


async def test_a_thread_that_a_run_left_behind_does_not_speak_for_the_next(bench: Bench) -> None:
    assert (await bench.run("leave_a_thread")).kind is SUCCEEDED
    later = [await bench.run("who") for _ in range(20)]
    assert {outcome.progress for outcome in later} == {None}


async def test_the_outbox_goes_with_a_success_and_with_nothing_else(bench: Bench) -> None:
    sent = (await bench.run("fan_out", fail=False)).enqueue
    assert [(new.task, loads(new.args)) for new in sent] == [("mirror", {"point": {"x": i, "y": 0}}) for i in range(3)]
    failed = await bench.run("fan_out", fail=True)
    assert (failed.kind, failed.enqueue) == (RETRY, ())


async def test_large_arguments_pass_and_a_large_result_is_shortened(bench: Bench) -> None:
    assert await bench.result("measure", word="ü\n" * 80_000) == 160_000
    shortened = await bench.result("large", size=5_000_000)
    assert shortened.startswith("'xxx")
    assert len(shortened) < 2100
    assert (await bench.result("not_json")).startswith("<unlocked _thread.lock")


async def test_arguments_that_do_not_fit_are_given_back_for_a_newer_replica(bench: Bench) -> None:
    outcome = await bench.run("mirror", place=3)
    assert (outcome.kind, outcome.delay) == (RELEASED, 30 * SECOND)


async def test_a_process_has_none_of_the_files_and_sockets_of_its_replica(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        bench.executor.processes._idle.clear()  # a process is started now
        assert await bench.result("open_sockets") == 1, "the line to the replica"


@pytest.mark.parametrize("task", ["wants_state", "wants_transaction", "wants_store"])
async def test_what_only_the_replica_has_is_refused_with_the_mend(bench: Bench, task: str) -> None:
    outcome = await bench.run(task)
    assert outcome.kind is RETRY
    assert re.match(r"DefinitionError: .* (needs|belongs to|lives in) the replica's process; .* ", outcome.reason or "")


# --- errors -----------------------------------------------------------------------------------


async def test_an_error_comes_as_its_text_and_is_judged_by_the_names_of_its_kinds(bench: Bench) -> None:
    outcome = await bench.run("odd")
    assert (outcome.kind, outcome.reason) == (RETRY, "Odd: 3 is odd")
    text = outcome.error or ""
    assert "in odd\n" in text
    assert 'raise Odd(3, why="it is")' in text
    assert "tests.unit.engine.chores.Odd: 3 is odd" in text
    assert "_child.py" not in text


async def test_an_error_outside_of_retry_on_fails_at_once(bench: Bench) -> None:
    outcome = await bench.run("odd_is_not_repeated")
    assert (outcome.kind, outcome.reason) == (FAILED, "not repeated: Odd: 3 is odd")


async def test_the_last_attempt_fails(bench: Bench) -> None:
    assert (await bench.run("odd", attempt=4, retries=3)).kind is FAILED


async def test_an_error_without_words_is_an_error_all_the_same(bench: Bench) -> None:
    outcome = await bench.run("mute")
    assert (outcome.kind, outcome.reason) == (RETRY, "Mute: (its text could not be made)")


async def test_retry_in_give_up_and_skip_mean_what_they_mean_everywhere(bench: Bench) -> None:
    again = await bench.run("raise_control", kind="RetryIn")
    assert (again.kind, again.delay, again.spend_attempt) == (RETRY, 7_500_000, False)
    assert "retry in 7.5" in (again.error or "")
    gave_up = await bench.run("raise_control", kind="GiveUp")
    assert (gave_up.kind, gave_up.reason) == (FAILED, "no use")
    skipped = await bench.run("raise_control", kind="Skip")
    assert (skipped.kind, skipped.reason, skipped.error) == (SKIPPED, "nothing to do", None)


async def test_a_wait_that_is_no_duration_is_an_error_of_the_task(bench: Bench) -> None:
    outcome = await bench.run("misused_control")
    assert outcome.kind is RETRY
    assert "InvalidOption: RetryIn(" in (outcome.reason or "")


async def test_sys_exit_ends_the_run_and_not_the_process(bench: Bench) -> None:
    before = await bench.pid()
    outcome = await bench.run("leave")
    assert (outcome.kind, outcome.reason) == (RETRY, "SystemExit: bye")
    assert await bench.pid() == before


# --- a process that dies ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("abort", "signal 6 (SIGABRT)"),
        ("exit", "it left with exit code 3"),
        ("kill", "signal 9 (SIGKILL); killed from outside, or for lack of memory"),
        ("segfault", "signal 11 (SIGSEGV)"),
    ],
)
async def test_a_process_that_dies_costs_its_run_an_attempt(bench: Bench, how: str, told: str) -> None:
    outcome = await bench.run("die", how=how)
    assert (outcome.kind, outcome.reason) == (RETRY, f"ProcessDied: the process died: {told}")
    assert (await bench.run("die", how=how, retries=0)).kind is FAILED


async def test_a_process_killed_from_outside_is_replaced(bench: Bench) -> None:
    execution, ending = bench.begin("spin")
    pid = int((await bench.progress(execution))["note"])
    os.kill(pid, signal.SIGKILL)
    assert "signal 9" in ((await ends(ending)).reason or "")
    assert await bench.pid() != pid


async def test_a_process_that_died_idle_costs_no_attempt(bench: Bench) -> None:
    pid = await bench.pid()
    os.kill(pid, signal.SIGKILL)
    assert await bench.pid() != pid


async def test_a_signal_of_the_terminal_is_the_replicas_matter(bench: Bench) -> None:
    assert await bench.result("deaf") == "still here"


# --- a run that has to end --------------------------------------------------------------------


@pytest.mark.parametrize("task", ["spin", "block_the_interpreter"])
async def test_a_run_is_killed_at_its_timeout_whatever_it_does(bench: Bench, task: str) -> None:
    before = boot_us()
    execution, ending = bench.begin(task, timeout=SECOND // 2)
    outcome = await ends(ending)
    assert outcome.kind is RETRY
    assert "took longer than its timeout of 0.5 s" in (outcome.reason or "")
    assert execution.deadline is not None
    assert SECOND // 2 <= boot_us() - before < WITHIN * SECOND
    assert (outcome.progress or "").startswith('{"done":0')
    assert (await bench.run(task, timeout=SECOND // 2, retries=0)).kind is FAILED


async def test_what_the_task_has_started_is_killed_with_it(bench: Bench) -> None:
    execution, ending = bench.begin("spawn_and_wait", timeout=SECOND)
    pid = int((await bench.progress(execution))["note"])
    assert is_alive(pid)
    assert "timeout" in ((await ends(ending)).reason or "")
    async with asyncio.timeout(WITHIN):
        while is_alive(pid):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


async def test_a_cancelled_run_may_clean_up(bench: Bench) -> None:
    execution, ending = bench.begin("tell_and_wait")
    await bench.progress(execution)
    execution.ask_to_stop("cancelled")
    outcome = await ends(ending)
    assert (outcome.kind, outcome.result) == (SUCCEEDED, '"stopped nicely"'), "the store knows that it was cancelled"


async def test_a_cancelled_coroutine_is_cancelled(bench: Bench) -> None:
    execution, ending = bench.begin("clean_up")
    await bench.progress(execution)
    execution.ask_to_stop("cancelled")
    outcome = await ends(ending)
    assert (outcome.kind, outcome.checkpoint) == (CANCELLED, '"clean"')


async def test_a_cancelled_run_that_does_not_listen_is_killed_after_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_CANCEL_GRACE", SECOND // 5)
    execution, ending = bench.begin("spin")
    await bench.progress(execution)
    execution.ask_to_stop("cancelled")
    assert (await ends(ending)).kind is CANCELLED


async def test_the_deadline_and_a_stop_end_the_grace_of_a_cancelled_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_CANCEL_GRACE", 1000 * SECOND)
    for timeout in (SECOND, None):
        execution, ending = bench.begin("spin", timeout=timeout)
        await bench.progress(execution)
        execution.ask_to_stop("cancelled")
        if timeout is None:
            execution.ask_to_stop("stopped")
        assert (await ends(ending)).kind is CANCELLED


async def test_a_run_whose_lease_is_lost_is_killed_and_nothing_is_recorded(bench: Bench) -> None:
    execution, ending = bench.begin("spin")
    pid = int((await bench.progress(execution))["note"])
    execution.ask_to_stop("lease lost")
    assert await asyncio.wait_for(ending, WITHIN) is None
    assert not is_alive(pid)


@pytest.mark.parametrize("reason", ["stopped", "doubt"])
async def test_a_run_that_is_stopped_is_given_back_or_lost(bench: Bench, reason: Any) -> None:
    for retries, kind in ((3, RELEASED), (0, LOST)):
        execution, ending = bench.begin("spin", retries=retries)
        await bench.progress(execution)
        execution.ask_to_stop(reason)
        assert (await ends(ending)).kind is kind


async def test_a_run_that_was_stopped_before_it_began_is_given_back(bench: Bench) -> None:
    execution, ending = bench.begin("spin", retries=0)
    execution.ask_to_stop("stopped")
    assert (await ends(ending)).kind is RELEASED


async def test_a_process_that_hears_of_no_renewal_lets_go_by_itself(bench: Bench) -> None:
    await bench.pid()
    bench.executor.processes.trust(boot_us() + SECOND)
    try:
        execution, ending = bench.begin("spin")
        outcome = await ends(ending)
        assert (execution.stop_reason, outcome.kind) == ("doubt", RELEASED)
    finally:
        bench.executor.processes._trusted_until = None


async def test_a_process_that_hears_of_a_renewal_goes_on(bench: Bench) -> None:
    await bench.pid()
    bench.executor.processes.trust(boot_us() + 2 * SECOND)
    try:
        execution, ending = bench.begin("tell_and_wait")
        await asyncio.sleep(0)  # it is on its way
        bench.executor.processes.trust(boot_us() + 3600 * SECOND)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ending), 2.5)
        execution.ask_to_come_to_an_end()
        assert (await ends(ending)).kind is SUCCEEDED
    finally:
        bench.executor.processes._trusted_until = None


async def test_fenced_work_goes_on_whatever_becomes_of_the_lease(bench: Bench) -> None:
    trusted = bench.executor.processes
    trusted.trust(boot_us())
    try:
        execution, ending = bench.begin("fenced")
        await bench.progress(execution)
        execution.ask_to_come_to_an_end()
        assert (await ends(ending)).result == '"went on"'
    finally:
        trusted._trusted_until = None


# --- the pool ---------------------------------------------------------------------------------


async def test_a_warm_pool_has_a_process_before_a_run_needs_one_and_after_one_was_killed() -> None:
    bench = Bench()
    try:
        bench.executor.warm(chores.app._registry.specs.values())
        assert len(bench.executor.processes._idle) == 1
        execution, ending = bench.begin("spin")
        await bench.progress(execution)
        assert bench.executor.processes._idle == []
        execution.ask_to_stop("lease lost")
        await ending
        assert len(bench.executor.processes._idle) == 1
    finally:
        await bench.executor.close()


async def test_processes_that_have_nothing_to_do_are_let_go_but_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    try:
        begun = [bench.begin("tell_and_wait") for _ in range(3)]
        for execution, ending in begun:
            await bench.progress(execution)
            execution.ask_to_come_to_an_end()
            await ends(ending)
        pool = bench.executor.processes
        assert len(pool._idle) == 3
        monkeypatch.setattr(processes, "_IDLE_FOR", -1)
        pool._trim()
        assert len(pool._idle) == 1
        async with asyncio.timeout(WITHIN):
            for process in pool._all - set(pool._idle):
                await process.gone.wait()
    finally:
        await bench.executor.close()


async def test_nothing_is_left_of_a_pool_that_was_closed() -> None:
    bench = Bench()
    execution, ending = bench.begin("spin")
    busy = int((await bench.progress(execution))["note"])
    idle = await bench.pid()
    await bench.executor.close()
    assert [is_alive(pid) for pid in (busy, idle)] == [False, False]
    assert (await ends(ending)).kind is RETRY


async def test_a_run_is_given_back_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.spawn._python_exe", "/nowhere/python")
    bench = Bench()
    outcome = await bench.run("who")
    assert (outcome.kind, outcome.delay) == (RELEASED, 5 * SECOND)
    assert "could not be started" in (outcome.reason or "")
    assert "/nowhere/python" in (outcome.reason or "")
    await bench.executor.close()


async def test_the_tasks_own_backoff_is_drawn_for_a_death_and_for_a_timeout(bench: Bench) -> None:
    spec = bench.spec("spin")
    patient = replace(spec, backoff=fixed(77).draw_us)
    execution = Execution(run=RunRecord(id=new_run_id(), task="spin", attempt=1, timeout=1000), store_now=wall_us)
    outcome = await bench.executor.run(execution, patient)
    assert outcome is not None
    assert outcome.delay == 77 * SECOND
