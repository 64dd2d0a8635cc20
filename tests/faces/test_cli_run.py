"""`oncron run`: a replica in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncron import Oncron, every
from oncron.cli.run import _outlook, read_queues
from oncron.cli.target import Target

JOBS = """
from oncron import Oncron, RunContext, every

app = Oncron("sqlite:///run.db", stop_within=5)

@app.schedule(every(seconds=0.1), overlap="allow")
def often(ctx: RunContext) -> None:
    print("ran", ctx.task, flush=True)

@app.schedule(every(seconds=0.1), overlap="allow", queue="mail")
def mailed(ctx: RunContext) -> None:
    print("ran", ctx.task, flush=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "run_jobs.py").write_text(JOBS)
    started: list[subprocess.Popen[str]] = []

    def call(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncron", "run", "run_jobs:app", *options],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], stream: str, pattern: str) -> str:
    """Read until a line matches."""
    for line in getattr(process, stream):
        if re.search(pattern, line):
            return line
    raise AssertionError(f"{stream} ended without {pattern!r}; {process.stderr.read() if process.stderr else ''}")


def test_it_says_who_it_is_and_runs_until_sigterm(start):
    replica = start()
    line = until(replica, "stderr", "replica")
    assert re.search(
        r"Z INFO +oncron: oncron \d\S+, replica \S+:\d+:\w+ of run_jobs:app on sqlite:///run.db: "
        r"2 schedules, 2 tasks here; next tick: \w+ .*\d{4}-\d\d-\d\d ",
        line,
    )
    until(replica, "stdout", "ran often")
    until(replica, "stdout", "ran mailed")
    replica.send_signal(signal.SIGTERM)
    assert replica.wait(20) == 0


def test_the_next_tick_that_it_names_is_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = Oncron("sqlite:///shared.db")
    app.add_schedule("mine", every(hours=1), "mine")
    with app:
        app.sync(app.put_schedule("theirs", every(seconds=1), "elsewhere"))
    known, tick = app.sync(_outlook(Target(app, "app", in_code=True)))
    assert known == "2 schedules"
    assert tick.startswith("mine at ")
    app._life.at_exit()


def test_it_logs_json_on_request(start):
    replica = start("--log-format", "json")
    line = json.loads(until(replica, "stderr", "replica"))
    assert set(line) >= {"at", "level", "logger", "message", "event", "worker"}
    assert line["event"] == "worker.started"
    replica.send_signal(signal.SIGINT)
    _, err = replica.communicate(timeout=20)
    assert replica.returncode == 0
    assert all(json.loads(line)["level"] for line in err.splitlines())


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_tasks_own_logger_says_carries_the_run(tmp_path, start, form):
    logs = "from oncron import current_run\nimport logging\n"
    often = 'print("ran", ctx.task, flush=True)'
    logged = 'logging.getLogger("shop").warning("low on %s", current_run().run_id)'
    (tmp_path / "run_jobs.py").write_text(logs + JOBS.replace(often, logged, 1))
    replica = start("--log-format", form)
    line = until(replica, "stderr", "low on")
    if form == "json":
        said = json.loads(line)
        assert (said["task"], said["schedule"], said["attempt"], said["logger"]) == ("often", "often", 1, "shop")
        assert said["message"] == f"low on {said['run']}"
    else:
        assert re.search(r"WARNING shop: low on (\S+) \[often \1\]$", line)
    replica.terminate()
    assert replica.wait(20) == 0


def test_it_serves_the_queues_that_it_is_told_to(start):
    replica = start("--queues", "mail", "--concurrency", "2")
    for _ in range(5):
        assert "ran mailed" in until(replica, "stdout", "ran")
    replica.terminate()
    assert replica.wait(20) == 0


def test_a_scheduler_alone_fires_and_a_worker_alone_executes(start):
    scheduler = start("--only", "scheduler")
    until(scheduler, "stderr", "replica")
    worker = start("--only", "worker")
    until(worker, "stdout", "ran often")
    scheduler.terminate()
    out, _ = scheduler.communicate(timeout=20)
    assert out == ""
    worker.terminate()
    assert worker.wait(20) == 0


def test_a_store_that_cannot_be_used_ends_it_with_one_line(tmp_path, in_process):
    (tmp_path / "lost.py").write_text("from oncron import Oncron\napp = Oncron('sqlite:////nowhere/at/all.db')\n")
    refused = in_process("run", "lost", cwd=tmp_path)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "/nowhere/at" in refused.err


@pytest.mark.parametrize(
    ("text", "queues"),
    [("a", ("a",)), ("a, b", ("a", "b")), ("critical=10,default=5", {"critical": 10, "default": 5})],
)
def test_queues_are_a_strict_order_or_weights(text, queues):
    assert read_queues(text) == queues
