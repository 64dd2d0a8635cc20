"""`dead list|retry|prune`, and runs that nobody would take."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

JOBS = """
from oncron import Oncron
app = Oncron("sqlite:///dead.db")
@app.task(retries=0)
def broken(number: int) -> None:
    raise ValueError(f"no shop {number}")
@app.task(retries=0, name="other")
def other() -> None:
    raise KeyError("shelf")
"""
DIE = """
from dead_jobs import app, broken, other
async def wait(run):
    try:
        await run.wait(30)
    except Exception:
        pass
with app:
    for number in range(3):
        app.sync(wait(broken.enqueue_sync(number)))
    app.sync(wait(other.enqueue_sync()))
"""
STORE = "sqlite:///dead.db"


@pytest.fixture(scope="module")
def graveyard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graveyard")
    (folder / "dead_jobs.py").write_text(JOBS)
    subprocess.run([sys.executable, "-c", DIE], check=True, cwd=folder, timeout=60, capture_output=True)
    return folder


@pytest.fixture
def graves(graveyard, tmp_path, monkeypatch):
    """Three dead runs of one task, then one of another."""
    monkeypatch.chdir(tmp_path)
    for file in graveyard.glob("dead*"):
        shutil.copy(file, tmp_path)
    yield tmp_path
    sys.modules.pop("dead_jobs", None)


def test_S34_dead_runs_are_listed_newest_first_with_the_reason(oncron, graves):
    for words in (["dead", "dead_jobs"], ["dead", "list", "--store", STORE]):
        lines = oncron(*words).out.splitlines()
        assert [line.split()[1] for line in lines[1:]] == ["other", "broken", "broken", "broken"]
        assert lines[0].split() == ["ID", "TASK", "STATE", "ENDED", "ATTEMPTS", "REASON"]
        assert "ValueError: no shop 2" in lines[2]
    assert [run["state"] for run in oncron("dead", "dead_jobs", "--json").json] == ["failed"] * 4


def test_S34_dead_runs_are_filtered_by_task_age_and_number(oncron, graves):
    assert len(oncron("dead", "dead_jobs", "--task", "broken", "--json").json) == 3
    assert len(oncron("dead", "dead_jobs", "--limit", "2", "--json").json) == 2
    assert oncron("dead", "dead_jobs", "--older-than", "1h").out == "No run is dead.\n"
    assert len(oncron("dead", "dead_jobs", "--older-than", "0s", "--json").json) == 4
    assert oncron("dead", "dead_jobs", "--schedule", "nightly", "--json").json == []


def test_S34_dead_runs_are_opened_again_in_bulk(oncron, graves):
    told = oncron("dead", "retry", "dead_jobs", "--task", "broken")
    assert (told.code, told.out) == (0, "3 runs are open again.\n")
    assert [run["task"] for run in oncron("dead", "dead_jobs", "--json").json] == ["other"]
    assert len(oncron("runs", "dead_jobs", "--state", "pending", "--json").json) == 3
    told = oncron("dead", "retry", "dead_jobs", "--json").json
    assert (len(told["retried"]), told["refused"], told["more"]) == (1, {}, False)


def test_S34_as_many_as_asked_for_are_opened_oldest_first(oncron, graves):
    oldest = oncron("dead", "dead_jobs", "--json").json[-1]["id"]
    told = oncron("dead", "retry", "dead_jobs", "--limit", "1", "--json").json
    assert (told["retried"], told["more"]) == ([oldest], True)


def test_S34_dead_runs_are_dropped_by_age_or_number(oncron, graves):
    newest = oncron("dead", "dead_jobs", "--json").json[0]["id"]
    assert oncron("dead", "prune", "dead_jobs", "--older-than", "1h").out == "0 runs dropped.\n"
    assert oncron("dead", "prune", "dead_jobs", "--keep", "1").out == "3 runs dropped.\n"
    assert [run["id"] for run in oncron("dead", "dead_jobs", "--json").json] == [newest]
    assert oncron("dead", "prune", "dead_jobs", "--older-than", "0s", "--json").json == {"dropped": 1}


def test_prune_says_what_is_missing_and_durations_what_is_wrong(oncron, graves):
    told = oncron("dead", "prune", "dead_jobs")
    assert (told.code, told.err) == (
        2, "oncron dead prune: say which: --older-than DURATION, --keep N, or both\n",
    )  # fmt: skip
    told = oncron("dead", "dead_jobs", "--older-than", "soon")
    assert told.code == 2
    assert "--older-than 'soon' is no duration" in told.err
    assert oncron("dead", "prune", "dead_jobs", "--keep", "-1").code == 2


def test_dead_without_a_target_says_so_like_every_command(oncron, graves, monkeypatch):
    monkeypatch.delenv("ONCRON_STORE", raising=False)
    told = oncron("dead")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "give a TARGET" in told.err
    assert "retry" in oncron("dead", "--help").out


def test_S23_a_run_of_a_task_that_nobody_has_is_shown_as_unclaimable_and_never_dropped(oncron, graves):
    run = oncron("enqueue", "ghost", "--store", STORE, "--json").json
    assert "no worker is alive" in oncron("runs", "dead_jobs", "--state", "pending").out
    script = (
        "import time, subprocess, sys\nfrom dead_jobs import app\n"
        "with app:\n    print(subprocess.run([sys.executable, '-m', 'oncron', 'show', 'dead_jobs', sys.argv[1]],"
        " capture_output=True, text=True).stdout)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, run["id"]], check=True, cwd=graves, timeout=60, capture_output=True, text=True
    )
    assert "unclaimable  no live worker has task 'ghost'" in told.stdout
    (still,) = oncron("runs", "dead_jobs", "--task", "ghost", "--json").json
    assert (still["state"], still["attempt"], still["unclaimable"]) == ("pending", 0, "no worker is alive")
