"""Commands that change something: `fire`, `pause`, `resume`, `retry`, `cancel`, `migrate`."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from oncron import Oncron, RetryIn

JOBS = """
from oncron import Oncron, every, cron
app = Oncron("sqlite:///acts.db")
app.add_schedule("nightly", cron("0 3 * * *"), "elsewhere")
app.add_schedule("hourly", every(hours=1), "elsewhere", overlap="allow", paused=True)
"""


@pytest.fixture
def acts(tmp_path, monkeypatch):
    """An app whose task is another service's: what is fired stays pending."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acts_jobs.py").write_text(JOBS)
    subprocess.run(
        [sys.executable, "-c", "from acts_jobs import app\nwith app: pass"],
        check=True, cwd=tmp_path, timeout=60, capture_output=True,
    )  # fmt: skip
    yield tmp_path
    sys.modules.pop("acts_jobs", None)


def test_fire_makes_a_run_with_its_reason(oncron, acts):
    run = oncron("fire", "acts_jobs", "nightly", "--reason", "by hand", "--json").json
    assert (run["state"], run["schedule"], run["reason"], run["tick"]) == ("pending", "nightly", "by hand", None)
    assert oncron("show", "acts_jobs", run["id"], "--json").json["id"] == run["id"]


def test_fire_obeys_the_overlap_policy_and_exits_1(oncron, acts):
    first = oncron("fire", "acts_jobs", "nightly", "--json").json
    refused = oncron("fire", "acts_jobs", "nightly")
    assert refused.code == 1
    assert first["id"] in refused.err
    assert refused.err.count("\n") == 1


def test_fire_works_on_a_paused_schedule_and_with_a_store_alone(oncron, acts):
    assert oncron("fire", "hourly", "--store", "sqlite:///acts.db").code == 0
    assert oncron("fire", "hourly", "--store", "sqlite:///acts.db").code == 0
    assert len(oncron("runs", "--store", "sqlite:///acts.db", "--schedule", "hourly", "--json").json) == 2


def test_pause_and_resume_tell_how_the_schedule_stands(oncron, acts):
    paused = oncron("pause", "acts_jobs", "nightly", "--note", "moving", "--json").json
    assert (paused["status"], paused["note"], paused["next_at"]) == ("paused", "moving", None)
    assert oncron("pause", "acts_jobs", "nightly").out == "Schedule nightly is paused (moving).\n"
    assert [item["status"] for item in oncron("next", "acts_jobs", "nightly", "-n", "1", "--json").json] == ["paused"]
    resumed = oncron("resume", "acts_jobs", "nightly", "--json").json
    assert resumed["status"] == "active"
    assert resumed["next_at"].endswith("T03:00:00Z")


def test_cancel_ends_a_pending_run_and_retry_opens_it_again(oncron, acts):
    run = oncron("fire", "acts_jobs", "nightly", "--json").json
    cancelled = oncron("cancel", "acts_jobs", run["id"])
    assert cancelled.out == f"Run {run['id']} of task elsewhere: cancelled.\n"
    again = oncron("retry", "acts_jobs", run["id"], "--json").json
    assert (again["state"], again["opening"]) == ("pending", 2)
    assert oncron("retry", "acts_jobs", run["id"]).out.endswith("was open already.\n")
    other = oncron("cancel", "acts_jobs", run["id"], "--json").json
    assert other["state"] == "cancelled"
    assert oncron("fire", "acts_jobs", "nightly").code == 0
    refused = oncron("retry", "acts_jobs", run["id"])
    assert refused.code == 1
    assert "has its place" in refused.err


def test_retry_opens_every_failed_run_again_or_those_of_a_schedule(oncron, acts):
    failing = """
from acts_jobs import app
from oncron import GiveUp

@app.task
def elsewhere(): raise GiveUp("no")

with app:
    for run in [app.sync(app.fire(name)) for name in ("nightly", "hourly", "hourly")]:
        try: app.sync(run.wait(20))
        except Exception: pass
"""
    subprocess.run([sys.executable, "-c", failing], check=True, cwd=acts, timeout=60, capture_output=True)
    assert oncron("retry", "acts_jobs", "--failed", "--schedule", "hourly", "--limit", "1").out == (
        "1 run is open again.\nThere are more than 1; call again, or raise --limit.\n"
    )
    assert len(oncron("retry", "acts_jobs", "--failed", "--schedule", "hourly", "--json").json["retried"]) == 1
    blocked = oncron("fire", "acts_jobs", "nightly", "--json").json
    told = oncron("retry", "--failed", "--store", "sqlite:///acts.db")
    assert told.code == 1
    assert told.out.startswith("0 runs are open again.\nLeft alone: run ")
    assert f"run {blocked['id']} (pending) has its place" in told.out
    oncron("cancel", "acts_jobs", blocked["id"])
    rest = oncron("retry", "acts_jobs", "--failed", "--task", "elsewhere", "--json").json
    assert (len(rest["retried"]), rest["refused"], rest["more"]) == (1, {}, False)
    assert oncron("retry", "acts_jobs", "--failed", "--json").json["retried"] == []


def test_enqueue_makes_a_run_of_a_task_by_its_name(oncron, acts):
    run = oncron(
        "enqueue", "elsewhere", "--args", '{"n": 3}', "--delay", "10min", "--queue", "slow", "--priority", "2",
        "--unique", "k", "--store", "sqlite:///acts.db", "--json",
    ).json  # fmt: skip
    assert (run["task"], run["args"], run["queue"], run["priority"]) == ("elsewhere", {"n": 3}, "slow", 2)
    assert run["state"] == "pending"
    told = oncron("enqueue", "acts_jobs", "elsewhere", "--unique", "k")
    assert told.out == f"Run {run['id']} of task elsewhere: was there already, with this key.\n"
    assert "acts_jobs has no task 'elsewhere'" in told.err


def test_enqueue_says_at_once_if_no_live_worker_would_take_the_run(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = Oncron("sqlite:///mail.db", queues=["mail"])

    @app.task(queue="mail")
    def send(to: str) -> None: ...

    with app:
        astray = oncron("enqueue", "send", "--args", '{"to": "x"}', "--store", "sqlite:///mail.db")
        served = oncron("enqueue", "send", "--args", '{"to": "x"}', "--queue", "mail", "--store", "sqlite:///mail.db")

    assert (astray.code, served.code, served.err) == (0, 0, "")
    assert astray.err == (
        "Note: nobody would take it now: no live worker that has task 'send' serves queue 'default'; "
        "its queue is 'default': without TARGET only --queue names another\n"
    )


def test_a_run_that_waits_for_its_next_attempt_is_not_said_to_go_on(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app, waits = Oncron("sqlite:///late.db"), threading.Event()

    @app.task
    def later() -> None:
        raise RetryIn(3600)

    app.on("run.retried")(lambda _: waits.set())
    with app:
        later.enqueue_sync()
        assert waits.wait(10)

    line = oncron("runs", "--store", "sqlite:///late.db").out.splitlines()[1]
    assert "pending" in line
    assert "so far" not in line


def test_enqueue_checks_the_arguments_of_a_task_that_the_target_has(oncron, shop):
    misfit = oncron("enqueue", "jobs", "report", "--args", '{"kind": 3}')
    assert misfit.code == 2
    assert "$.kind" in misfit.err
    unknown = oncron("enqueue", "jobs", "reprot", "--store", "carrot://x")
    assert unknown.code == 2


def test_migrate_is_safe_to_repeat(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        done = oncron("migrate", "--store", "sqlite:///new.db", "--json")
        assert done.json == {"store": "sqlite:///new.db", "migrated": True}


def test_the_same_commands_work_on_postgresql(oncron, postgres_url, monkeypatch):
    assert oncron("schedules", "--store", postgres_url).code == 2
    assert oncron("migrate", "--store", postgres_url).code == 0
    assert oncron("schedules", "--store", postgres_url).out == "No schedules.\n"
    assert oncron("runs", "--store", postgres_url, "--json").json == []


def test_what_the_app_imports_at_its_start_is_known_to_commands_too(oncron, acts):
    (acts / "acts_jobs.py").write_text(JOBS.replace('acts.db")', 'acts.db", imports=["acts_more"])'))
    (acts / "acts_more.py").write_text(
        "from acts_jobs import app\nfrom oncron import daily\n"
        "@app.schedule(daily('04:00'), queue='mail')\ndef letters(to: str = 'all') -> None: ...\n"
    )
    try:
        told = oncron("enqueue", "acts_jobs", "letters", "--json")
        assert told.json["queue"] == "mail"
        assert oncron("enqueue", "acts_jobs", "letters", "--args", '{"from": "me"}').code == 2
        assert "has no task" not in told.err
        assert "letters" in {row["schedule"] for row in oncron("next", "acts_jobs", "--json").json}
        assert "not in the store until a replica starts: letters" in oncron("schedules", "acts_jobs").err
    finally:
        sys.modules.pop("acts_more", None)
