"""`oncron exec`: a command on a schedule; what is kept of it, how it ends, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncron import Oncron as App, Run
from tests.faces.commands import Oncron, is_alive, wait_until
from tests.faces.conftest import Call

STORE = "sqlite:///jobs.db"
Exec = Callable[..., Oncron]
STUBBORN = (
    'trap "" TERM; echo $$ > pid; (trap "" TERM; echo $(exec sh -c "echo \\$PPID") > child; sleep 1000) & sleep 1000'
)
"""Ignores SIGTERM, and so does what it has started."""


@pytest.fixture
def execute(tmp_path: Path) -> Iterator[Exec]:
    """`execute("--every", "1s", "--", "true")`: named job, on a store in the folder."""
    started: list[Oncron] = []

    def begin(*arguments: str) -> Oncron:
        started.append(Oncron(tmp_path, "exec", "--name", "job", "--store", STORE, "--lease-for", "2s", *arguments))
        return started[-1]

    yield begin
    for each in started:
        each.close()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Callable[[], list[Run[object]]]]:
    """The oldest first."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    yield lambda: app.sync(app.runs())[::-1] if (tmp_path / "jobs.db").exists() else []
    app._life.at_exit()


Runs = Callable[[], list[Run[object]]]


def written(file: Path) -> bool:
    return file.exists() and file.read_text().endswith("\n")


def number_in(file: Path) -> int:
    wait_until(lambda: written(file))
    return int(file.read_text())


# --- what is said and kept ------------------------------------------------------------------


def test_it_prints_its_zone_and_the_next_three_instants(execute: Exec) -> None:
    process = execute("--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--", "true")
    for part in ("job: every day at 03:00 (Europe/Berlin): true", "zone Europe/Berlin", "worker.started"):
        process.hears(part)
    process.tell(signal.SIGTERM)
    assert process.ends() == 0
    assert len([line for line in process.said.splitlines() if "03:00:00+0" in line]) == 3


def test_the_zone_is_utc_unless_given_never_the_hosts(oncron: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    result = oncron("exec", "--name", "x", "--daily", "03:00", "--store", "sqlite:////nowhere/at/all.db", "--", "true")
    assert "zone UTC" in result.out
    assert result.code == 2
    assert "/nowhere" in result.err


def test_a_command_finds_which_tick_it_is(execute: Exec, runs: Runs, tmp_path: Path) -> None:
    execute("--every", "1s", "--", "sh", "-c", "env > seen; echo >> seen; sleep 1000")
    seen = tmp_path / "seen"
    wait_until(lambda: seen.exists() and seen.read_text().endswith("\n\n"))
    found = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    (run,) = runs()
    assert run.tick is not None
    assert found["ONCRON_SCHEDULE"] == "job"
    assert found["ONCRON_TICK"] == run.tick.isoformat().replace("+00:00", "Z")
    assert found["ONCRON_RUN_ID"] == run.id
    assert found["ONCRON_ATTEMPT"] == "1"
    assert int(found["ONCRON_TOKEN"]) == run.record.token


def test_what_a_command_prints_is_passed_on_and_its_end_kept_with_the_run(execute: Exec, runs: Runs) -> None:
    script = "import sys; print('x' * 20000); print('the end'); print('\\x00\\xff', file=sys.stderr)"
    process = execute("--every", "1s", "--", sys.executable, "-c", script)
    wait_until(lambda: [run for run in runs() if run.state == "succeeded"])
    result = runs()[0].result
    assert isinstance(result, dict)
    assert result["exit_code"] == 0
    assert result["stdout"].startswith("... 11817 bytes before ...\nxxx")
    assert result["stdout"].endswith("x\nthe end\n")
    assert "ÿ" in result["stderr"]
    assert "the end" in process.said


def test_another_exit_code_than_0_is_a_failure_that_keeps_what_was_printed(execute: Exec, runs: Runs) -> None:
    execute("--every", "1s", "--", "sh", "-c", "echo half; echo no disk >&2; exit 3")
    wait_until(lambda: [run for run in runs() if run.state == "failed"])
    run = runs()[0]
    assert run.reason is not None
    assert run.reason.startswith("sh -c 'echo half")
    assert run.reason.endswith("it ended with exit code 3")
    assert run.error is not None
    assert run.error.splitlines()[1:] == ["--- stdout ---", "half", "", "--- stderr ---", "no disk"]
    assert "Traceback" not in run.error
    assert run.attempt == 1


def test_a_command_that_fails_is_run_again_if_that_was_asked_for(execute: Exec, runs: Runs) -> None:
    execute("--every", "1s", "--retries", "1", "--", "sh", "-c", "test $ONCRON_ATTEMPT = 2")
    wait_until(lambda: [run for run in runs() if run.state == "succeeded"])
    assert next(run.attempt for run in runs() if run.state == "succeeded") == 2


def test_a_signal_that_ends_a_command_is_named(execute: Exec, runs: Runs) -> None:
    execute("--every", "1s", "--", "sh", "-c", "kill -SEGV $$")
    wait_until(lambda: [run for run in runs() if run.state == "failed"])
    assert "signal 11 (SIGSEGV)" in (runs()[0].reason or "")


def test_a_command_that_cannot_be_run_says_why(execute: Exec, runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "no-script").write_text("true\n")
    (tmp_path / "no-script").chmod(0o755)
    execute("--every", "1s", "--", "./no-script")
    wait_until(lambda: [run for run in runs() if run.state == "failed"])
    assert runs()[0].reason == "./no-script: it could not be run: Exec format error"


def test_what_a_command_leaves_in_the_background_does_not_hold_up_its_end(execute: Exec, runs: Runs) -> None:
    execute("--every", "1s", "--", "sh", "-c", "sleep 30 & echo started")
    wait_until(lambda: [run for run in runs() if run.state == "succeeded"], within=8)


# --- ends -----------------------------------------------------------------------------------


def test_at_the_timeout_a_command_is_terminated_and_then_killed_with_all_it_started(
    execute: Exec, runs: Runs, tmp_path: Path
) -> None:
    execute("--every", "1s", "--timeout", "0.5s", "--kill-after", "0.5s", "--", "sh", "-c", f"echo began; {STUBBORN}")
    pid, child = number_in(tmp_path / "pid"), number_in(tmp_path / "child")
    assert is_alive(pid)
    wait_until(lambda: [run for run in runs() if run.state == "failed"])
    run = runs()[0]
    assert "timeout of 0.5 s" in (run.error or "")
    assert run.record.checkpoint is not None
    assert "began" in run.record.checkpoint
    wait_until(lambda: not is_alive(pid) and not is_alive(child))


def test_a_command_that_ends_at_sigterm_is_not_killed(execute: Exec, runs: Runs, tmp_path: Path) -> None:
    script = 'trap "echo cleaned > cleaned; exit 0" TERM; while :; do sleep 0.05; done'
    execute("--every", "1s", "--timeout", "0.5s", "--kill-after", "20s", "--", "sh", "-c", script)
    wait_until(lambda: [run for run in runs() if run.state == "failed"])
    assert (tmp_path / "cleaned").read_text() == "cleaned\n"


def test_the_first_signal_lets_a_command_come_to_its_end(execute: Exec, runs: Runs) -> None:
    process = execute("--every", "1s", "--", "sh", "-c", "echo beg''an; sleep 1; echo end''ed")
    process.hears("began")
    process.tell(signal.SIGTERM)
    assert process.ends() == 0
    assert "ended" in process.said
    assert {run.state for run in runs()} == {"succeeded"}


@pytest.mark.parametrize(("retries", "state"), [("0", "failed"), ("1", "pending")])
def test_a_command_that_takes_longer_is_terminated_before_the_process_leaves(
    execute: Exec, runs: Runs, retries: str, state: str
) -> None:
    process = execute(
        "--every", "1s", "--retries", retries, "--stop-within", "3s", "--kill-after", "2s", "--", "sh", "-c",
        "echo beg''an; sleep 1000",
    )  # fmt: skip
    process.hears("began")
    process.tell(signal.SIGTERM)
    assert process.ends() == 0
    last = runs()[-1]
    assert (last.state, last.record.attempts_spent) == (state, 1 - int(retries))
    if retries == "0":
        assert "SIGTERM), as oncron was told to stop" in (last.reason or "")


def test_the_second_signal_waits_no_longer(execute: Exec, tmp_path: Path) -> None:
    process = execute("--every", "1s", "--", "sh", "-c", STUBBORN)
    pid, child = number_in(tmp_path / "pid"), number_in(tmp_path / "child")
    process.tell(signal.SIGTERM)
    process.hears("once more to stop at once")
    threading.Event().wait(0.7)  # a signal right after the first one is the same one
    process.tell(signal.SIGTERM)
    assert process.ends() == 0
    wait_until(lambda: not is_alive(pid) and not is_alive(child))


def test_other_signals_are_handed_on(execute: Exec, tmp_path: Path) -> None:
    script = 'trap "echo again > heard" HUP; echo $$ > pid; while :; do sleep 0.05; done'
    process = execute("--every", "1s", "--", "sh", "-c", script)
    number_in(tmp_path / "pid")
    process.tell(signal.SIGHUP)
    wait_until(lambda: written(tmp_path / "heard"))
    assert process.process.poll() is None


def test_a_command_is_stopped_when_the_lease_is_in_doubt(execute: Exec, tmp_path: Path) -> None:
    execute("--every", "1s", "--", "sh", "-c", STUBBORN)
    pid, child = number_in(tmp_path / "pid"), number_in(tmp_path / "child")
    with sqlite3.connect(tmp_path / "jobs.db", isolation_level=None) as nobody_else_writes:
        nobody_else_writes.execute("begin immediate")
        wait_until(lambda: not is_alive(pid) and not is_alive(child))
    nobody_else_writes.close()


def test_a_command_does_not_go_on_beside_an_exec_that_is_stopped_longer_than_its_lease(
    execute: Exec, runs: Runs, tmp_path: Path
) -> None:
    process = execute("--every", "1s", "--", "sh", "-c", STUBBORN)
    pid, child = number_in(tmp_path / "pid"), number_in(tmp_path / "child")
    process.tell(signal.SIGSTOP)
    wait_until(lambda: not is_alive(pid) and not is_alive(child), within=8)
    process.tell(signal.SIGCONT)
    wait_until(lambda: not runs()[0].state.is_open)
    assert runs()[0].state in ("failed", "lost")


def test_a_killed_exec_leaves_no_command_behind(execute: Exec, tmp_path: Path) -> None:
    process = execute("--every", "1s", "--", "sh", "-c", STUBBORN)
    pid, child = number_in(tmp_path / "pid"), number_in(tmp_path / "child")
    process.tell(signal.SIGKILL)
    process.ends()
    wait_until(lambda: not is_alive(pid) and not is_alive(child), within=8)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_command_does_not_outlive_a_killed_warden(execute: Exec, runs: Runs, tmp_path: Path) -> None:
    execute("--every", "1s", "--", "sh", "-c", "echo $PPID > warden; echo $$ > pid; exec sleep 1000")
    pid, warden = number_in(tmp_path / "pid"), number_in(tmp_path / "warden")
    os.kill(warden, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    wait_until(lambda: runs()[0].state == "failed")
    assert (runs()[0].reason or "").endswith("sleep 1000': it was killed together with the process that watched it")


# --- wrong use ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "one of --cron, --every, --daily, --weekly, --once and --trigger"),
        (("--cron", "* * * * *", "--every", "5s"), "one of --cron, --every, --daily, --weekly, --once and --trigger"),
        (("--cron", "61 * * * *"), "minute"),
        (("--cron", "* * * * *", "--timezone", "Mars/Base"), "Mars/Base"),
        (("--every", "soon"), "no duration"),
        (("--every", "5s", "--timezone", "UTC"), "no zone"),
        (("--every", "5s", "--seconds"), "--seconds goes with --cron"),
        (("--daily", "25:00"), "25:00"),
        (("--every", "5s", "--overlap", "both"), "--overlap 'both'"),
        (("--every", "5s", "--missed", "some"), "--missed 'some'"),
        (("--every", "5s", "--retries", "-1"), "--retries"),
        (("--every", "5s", "--timeout", "x"), "--timeout"),
        (("--every", "5s", "--stop-within", "x"), "--stop-within"),
        (("--every", "5s", "--store", "mysql://x"), "unknown scheme"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_do(oncron: Call, arguments: tuple[str, ...], says: str) -> None:
    result = oncron("exec", "--name", "job", *arguments, "--", "true")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert says in result.err


def test_a_command_that_is_not_there_is_told_at_once(oncron: Call) -> None:
    result = oncron("exec", "--name", "job", "--every", "5s", "--store", STORE, "--", "./backpu.sh", "--fast")
    assert result.code == 2
    assert "no command './backpu.sh'" in result.err


def test_a_name_and_a_command_have_to_be_given(oncron: Call) -> None:
    assert "--name" in oncron("exec", "--every", "5s", "--", "true").err
    assert "COMMAND" in oncron("exec", "--name", "job", "--every", "5s").err
