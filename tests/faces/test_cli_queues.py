"""`queues`, `queue pause|resume`, and the commands that take `--tag`."""

from __future__ import annotations

import subprocess
import sys

import pytest

JOBS = """
from oncron import Oncron, every
app = Oncron("sqlite:///queues.db")
@app.task(queue="mail")
def send(to: str) -> None: ...
app.add_schedule("nightly", every(hours=24), "elsewhere", tags=["night"])
app.add_schedule("weekly", every(hours=168), "elsewhere", tags=["night", "rare"])
app.add_schedule("hourly", every(hours=1), "elsewhere")
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue_jobs.py").write_text(JOBS)
    subprocess.run(
        [sys.executable, "-c", "from queue_jobs import app\nwith app: pass"],
        check=True, cwd=tmp_path, timeout=60, capture_output=True,
    )  # fmt: skip
    yield tmp_path
    sys.modules.pop("queue_jobs", None)


def test_queues_lists_what_waits_and_since_when(oncron, jobs):
    for _ in range(3):
        assert oncron("enqueue", "queue_jobs", "send", "--args", '{"to": "a"}').code == 0
    oncron("enqueue", "queue_jobs", "send", "--args", '{"to": "a"}', "--delay", "1h")
    [mail] = oncron("queues", "queue_jobs", "--json").json
    assert (mail["name"], mail["ready"], mail["waiting"], mail["running"], mail["paused"]) == ("mail", 3, 1, 0, False)
    assert mail["oldest_due_at"].endswith("Z")
    assert "mail" in oncron("queues", "queue_jobs").out


def test_a_queue_is_paused_with_a_note_and_resumed(oncron, jobs):
    oncron("enqueue", "queue_jobs", "send", "--args", '{"to": "a"}')
    told = oncron("queue", "pause", "queue_jobs", "mail", "--note", "provider is down")
    assert told.out == "Queue mail is paused (provider is down); 1 run ready.\n"
    assert "paused (provider is down)" in oncron("queues", "queue_jobs").out
    assert oncron("queue", "resume", "mail", "--store", "sqlite:///queues.db", "--json").json["paused"] is False


def test_a_queue_that_nobody_names_is_wrong_use(oncron, jobs):
    told = oncron("queue", "pause", "queue_jobs", "mial")
    assert told.code == 2
    assert "no queue 'mial'" in told.err
    assert "'mail'" in told.err


def test_a_tag_stands_for_all_schedules_that_carry_it(oncron, jobs):
    assert oncron("pause", "queue_jobs", "--tag", "night", "--json").json == ["nightly", "weekly"]
    states = {row["name"]: row["status"] for row in oncron("schedules", "queue_jobs", "--json").json}
    assert states == {"hourly": "active", "nightly": "paused", "weekly": "paused"}
    assert oncron("resume", "queue_jobs", "--tag", "rare").out == "Schedule weekly is active.\n"
    assert oncron("remove", "queue_jobs", "--tag", "night").out.splitlines() == [
        "Schedule nightly is removed.",
        "Schedule weekly is removed.",
    ]
    assert oncron("pause", "queue_jobs", "--tag", "nothing").out == "No schedule carries the tag 'nothing'.\n"


def test_remove_takes_one_schedule_and_knows_what_it_does_not(oncron, jobs):
    assert oncron("remove", "queue_jobs", "hourly").out == "Schedule hourly is removed.\n"
    told = oncron("remove", "queue_jobs", "hourly")
    assert told.code == 2
    assert "no schedule 'hourly'" in told.err
