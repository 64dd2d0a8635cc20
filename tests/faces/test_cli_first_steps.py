"""What somebody meets who tries the command line for the first time."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from oncron import cron, daily
from oncron._clock import to_us
from oncron.triggers import surprises
from tests.faces.test_cli import on_terminal

JOBS = """
from datetime import UTC, datetime, timedelta
from oncron import Oncron, every, once
app = Oncron("sqlite:///{folder}/first.db")
@app.task(timeout=60)
def work() -> None: ...
app.add_schedule("lim", every(seconds=1), work, limit=2)
app.add_schedule("single", once(datetime.now(UTC) - timedelta(minutes=30)), work)
app.add_schedule("hourly", every(hours=1), work)
"""

RUN = """
from first_jobs import app
from oncron import every
with app:
    app.sync(app.put_schedule("put", every(hours=3), "work"))
    app.sync(app.put_schedule("put", every(hours=2), "work"))
    for name in ("lim", "single"):
        while sum(run.schedule == name for run in app.sync(app.runs(state="succeeded"))) < (2 if name == "lim" else 1):
            pass
"""


@pytest.fixture(scope="module")
def _first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    (folder / "first_jobs.py").write_text(JOBS.format(folder=folder))
    subprocess.run([sys.executable, "-c", RUN], check=True, cwd=folder, timeout=60, capture_output=True)
    return folder


@pytest.fixture
def first(_first, monkeypatch):
    """A folder whose store has a schedule that reached its limit and one that ticked once; both ran."""
    monkeypatch.chdir(_first)
    yield _first
    sys.modules.pop("first_jobs", None)


@pytest.fixture
def by_environment(oncron, first, monkeypatch):
    """`oncron` without TARGET."""
    monkeypatch.setenv("ONCRON_STORE", f"sqlite:///{first}/first.db")
    return oncron


# --- which word is TARGET ---------------------------------------------------------------------


def test_with_a_store_in_the_environment_every_command_takes_its_arguments_without_target(by_environment):
    assert by_environment("next", "hourly", "-n", "1", "--json").json[0]["schedule"] == "hourly"
    assert by_environment("next", "--namespace", "oncron", "hourly", "-n", "1").code == 0
    assert by_environment("show", "hourly").code == 0
    assert by_environment("next", "-n", "1").code == 0


def test_a_target_may_be_given_all_the_same(by_environment):
    assert by_environment("next", "first_jobs:app", "-n", "1", "--json").code == 0
    assert by_environment("next", "first_jobs", "hourly", "-n", "1").code == 0
    assert by_environment("show", "first_jobs", "hourly").code == 0
    assert by_environment("runs", "first_jobs").code == 0


# --- names that nobody knows ------------------------------------------------------------------


def test_runs_of_an_unknown_schedule_are_wrong_use(oncron, first):
    told = oncron("runs", "first_jobs", "--schedule", "TYPO")
    assert (told.code, told.out) == (2, "")
    assert told.err == "oncron: no schedule 'TYPO'; `oncron schedules` lists them\n"


def test_runs_of_an_unknown_task_are_none_and_that_is_said(oncron, first):
    told = oncron("runs", "first_jobs", "--task", "TYPO")
    assert told.code == 0
    assert told.out == "No runs: no task 'TYPO' is known, by code, a schedule or a run.\n"
    as_json = oncron("runs", "--store", "sqlite:///first.db", "--task", "TYPO", "--json")
    assert (as_json.json, "no task 'TYPO'" in as_json.err) == ([], True)
    assert oncron("runs", "first_jobs", "--task", "work", "--state", "lost").out == "No runs.\n"


@pytest.mark.parametrize("command", ["fire", "pause", "show", "runs --schedule"])
def test_what_only_the_code_declares_is_told_apart_from_what_nobody_knows(oncron, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backups.py").write_text(
        "from oncron import *\napp = Oncron('sqlite:///b.db')\n"
        "@app.schedule(every(hours=1))\ndef backup() -> None: ...\n"
    )
    word, *option = command.split()
    told = oncron(word, "backups", *option, "backup")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "'backup' is declared in code, but not in the store yet" in told.err
    assert "oncron run backups" in told.err
    sys.modules.pop("backups", None)


# --- schedules that are done ------------------------------------------------------------------


def test_a_schedule_that_is_done_says_so_and_has_no_next_tick(oncron, first):
    for name, why in (("lim", "limit reached"), ("single", "no further tick")):
        assert re.search(rf"^{name} .*done \({why}\)$", oncron("schedules", "first_jobs").out, re.MULTILINE)
        told = oncron("show", "first_jobs", name)
        assert re.search(rf"^status +done \({why}\)$", told.out, re.MULTILINE)
        assert "\nNext\n" not in told.out
        shown = oncron("show", "first_jobs", name, "--json").json
        assert (shown["next"], shown["done"]) == ([], why)
        assert oncron("next", "first_jobs", name, "--json").json == []
    assert {item["name"]: item["done"] for item in oncron("schedules", "first_jobs", "--json").json}["hourly"] is None


def test_a_limit_bounds_the_next_ticks_that_are_listed(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.py").write_text(
        "from oncron import *\napp = Oncron('sqlite:///few.db')\n"
        "app.add_schedule('few', every(hours=1), 'x', limit=3)\n"
    )
    assert len(oncron("next", "few", "few", "-n", "9", "--json").json) == 3


def test_a_cursor_that_was_moved_is_no_tick_without_a_run(oncron, first):
    assert "Ticks without a run" not in oncron("show", "first_jobs", "put").out
    assert oncron("show", "first_jobs", "put", "--json").json["gaps"][0]["reason"] == "changed"


# --- tables on a terminal ---------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_ids_of_runs_never_break(oncron, first, columns):
    ids = [run["id"] for run in oncron("runs", "first_jobs", "--json").json]
    shown = on_terminal(columns, "runs", "first_jobs", cwd=first, NO_COLOR="1")
    assert all(run in re.sub(r"\x1b\[[0-9;]*m", "", shown) for run in ids)


def test_at_80_columns_words_of_a_schedule_have_room(first):
    shown = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(80, "schedules", "first_jobs", cwd=first, NO_COLOR="1"))
    heading = shown.splitlines()[0]
    assert heading.index("NEXT") - heading.index("WHEN") >= 14
    assert "every second" in shown


# --- check and clock changes ------------------------------------------------------------------


def test_only_coming_clock_changes_are_told():
    after_spring = to_us(datetime(2027, 5, 1, tzinfo=UTC))
    trigger = daily("02:30", timezone="Europe/Berlin")
    said = surprises.coming(trigger, after_spring)
    assert [re.search(r"on (\d{4}-\d\d-\d\d)", sentence)[1] for sentence in said] == ["2027-10-31", "2028-03-26"]
    uneven = cron("*/45 2 * * *", timezone="Europe/Berlin")
    assert "starts anew" in surprises.coming(uneven, after_spring)[0]


@pytest.mark.parametrize(("option", "code"), [("", 1), (", gap='skip'", 0), (", fold='second'", 0)])
def test_who_says_what_a_clock_change_shall_do_is_not_warned(oncron, tmp_path, monkeypatch, option, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "berlin.py").write_text(
        "from oncron import *\napp = Oncron('sqlite:///x.db')\n"
        f"@app.schedule(daily('02:30', timezone='Europe/Berlin'{option}), timeout=9)\ndef night() -> None: ...\n"
    )
    told = oncron("check", "berlin", "--strict")
    assert (told.code, "does not exist" in told.out) == (code, code == 1)
    assert told.out.startswith("berlin: 1 schedule, 1 task\n")
    sys.modules.pop("berlin", None)


# --- a script that starts itself --------------------------------------------------------------

STARTS = {
    "run": "app.run()",
    "serve": "import asyncio\nasyncio.run(app.serve())",
    "with": "with app: pass",
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("command", ["check", "schedules", "run"])
def test_a_script_that_starts_its_app_when_it_is_imported_is_refused(oncron, tmp_path, monkeypatch, command, start):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "norun.py").write_text(f"from oncron import Oncron\napp = Oncron('memory://')\n{STARTS[start]}\n")
    told = oncron(command, "norun")
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert 'put the call under `if __name__ == "__main__":`' in told.err
    assert "norun.py:" in told.err
    sys.modules.pop("norun", None)


def test_an_expression_that_the_shell_took_apart_is_to_be_quoted(oncron):
    told = oncron("explain", "0", "3", "*", "*", "*")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "quote the expression" in told.err
