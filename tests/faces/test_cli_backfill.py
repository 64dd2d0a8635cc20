"""`backfill` and `why`: the past of a schedule, asked for by instants as people write them."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from oncron.cli.instants import read_duration, read_instant

JOBS = """
from oncron import Oncron, cron, every
app = Oncron("sqlite:///past.db", timezone="Europe/Berlin")
app.add_schedule("nightly", cron("30 2 * * *"), "elsewhere")
app.add_schedule("hourly", every(hours=1), "elsewhere")
app.add_schedule("often", every(seconds=10), "elsewhere", paused=True)
"""


@pytest.fixture(scope="module")
def _past(tmp_path_factory):
    folder = tmp_path_factory.mktemp("past")
    (folder / "past_jobs.py").write_text(JOBS)
    subprocess.run(
        [sys.executable, "-c", "from past_jobs import app\nwith app: pass"],
        check=True, cwd=folder, timeout=60, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def past(_past, tmp_path, monkeypatch):
    """Schedules that were declared just now, of another service's task."""
    shutil.copytree(_past, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("past_jobs", None)


# --- backfill ---------------------------------------------------------------------------------


def test_backfill_makes_a_run_for_every_tick_once(oncron, past):
    stretch = ("--from", "2026-03-01", "--to", "2026-03-05")
    first = oncron("backfill", "past_jobs", "nightly", *stretch, "--yes", "--json").json
    assert (first["ticks"], first["created"], first["on_record"]) == (4, 4, 0)
    assert (first["first"], first["last"]) == ("2026-03-01T01:30:00Z", "2026-03-04T01:30:00Z")
    again = oncron("backfill", "past_jobs", "nightly", *stretch, "--yes", "--json").json
    assert (again["created"], again["on_record"]) == (0, 4)
    assert [item["run"] for item in again["refused"]] == first["runs"]
    assert {item["id"] for item in oncron("runs", "past_jobs", "--json").json} == set(first["runs"])
    shown = oncron("show", "past_jobs", first["runs"][0])
    assert re.search(r"^backfill +first$", shown.out, re.MULTILINE)


def test_a_dry_run_says_what_would_happen_and_writes_nothing(oncron, past):
    told = oncron(
        "backfill", "nightly", "--from", "2026-03-01", "--to", "2026-03-05", "--dry-run", "--store", "sqlite:///past.db"
    )
    assert told.code == 0
    assert told.out == ("4 ticks of 'nightly' from 2026-03-01T01:30:00Z to 2026-03-04T01:30:00Z: 4 would be created.\n")
    assert oncron("runs", "past_jobs").out == "No runs.\n"


def test_what_was_left_alone_is_listed(oncron, past):
    oncron("backfill", "past_jobs", "nightly", "--from", "2026-03-01", "--to", "2026-03-20", "--yes")
    told = oncron("backfill", "past_jobs", "nightly", "--from", "2026-03-01", "--to", "2026-03-22", "--yes")
    assert "2 created, 19 have a run on record" in told.out
    assert len(re.findall(r"on_record +[0-9a-f-]{36}$", told.out, re.MULTILINE)) == 10
    assert told.out.endswith("... and 9 more.\n")


def test_without_yes_somebody_has_to_be_there(oncron, past):
    told = oncron("backfill", "past_jobs", "nightly", "--from", "2026-03-01", "--to", "2026-03-05")
    assert told.code == 2
    assert "add --yes" in told.err
    assert oncron("runs", "past_jobs").out == "No runs.\n"


@pytest.mark.parametrize(("answer", "code", "runs"), [("y", 0, 4), ("n", 1, 0)])
def test_somebody_who_is_there_is_asked(oncron, past, monkeypatch, answer, code, runs):
    monkeypatch.setattr("sys.stdin", Terminal(answer + "\n"))
    told = oncron("backfill", "past_jobs", "nightly", "--from", "2026-03-01", "--to", "2026-03-05")
    assert told.code == code
    assert "4 would be created" in told.out
    assert "Create 4 runs?" in told.err
    assert len(oncron("runs", "past_jobs", "--json").json) == runs


class Terminal:
    def __init__(self, text):
        self.text = text

    def readline(self, *_):
        line, self.text = self.text, ""
        return line

    def isatty(self):
        return True


def test_the_end_is_now_unless_given_and_the_rate_spaces_due_times(oncron, past):
    start = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    done = oncron("backfill", "past_jobs", "hourly", "--from", start, "--rate", "0.5", "--yes", "--json").json
    assert done["created"] == 3
    due = sorted(datetime.fromisoformat(run["due_at"]) for run in oncron("runs", "past_jobs", "--json").json)
    assert [b - a for a, b in itertools.pairwise(due)] == [timedelta(seconds=2)] * 2


def test_with_a_policy_runs_wait_for_one_another_and_again_makes_new_ones(oncron, past):
    stretch = ("--from", "2026-03-01", "--to", "2026-03-03")
    oncron("backfill", "past_jobs", "nightly", *stretch, "--yes", "--overlap", "queue")
    again = oncron("backfill", "past_jobs", "nightly", *stretch, "--yes", "--again", "--json").json
    assert (again["created"], again["on_record"]) == (2, 0)
    parked = [run["parked"] for run in oncron("runs", "past_jobs", "--json").json if run["serial"]]
    assert sorted(parked) == [False, True]


WRONG = [
    ("backfill past_jobs nightly", "Missing option '--from'"),
    ("backfill past_jobs nightly --from yesterday --yes", "--from 'yesterday' is no instant"),
    ("backfill past_jobs nightly --from 0001-01-01T00:00+14:00 --yes", "outside of the years 2 to 9998"),
    ("backfill past_jobs nightly --from 2026-03-05 --to 2026-03-01 --yes", "start lies after end"),
    ("backfill past_jobs nightly --from 2026-03-05 --to 2999-03-01 --yes", "lies in the future"),
    ("backfill past_jobs often --from 2024-01-01 --to 2026-03-01 --yes", "more than 100000 ticks of 'often'"),
    ("backfill past_jobs nothing --from 2026-03-05 --yes", "no schedule 'nothing'"),
    ("backfill past_jobs nightly --from 2026-03-05 --rate 0 --yes", "runs per second"),
    ("backfill past_jobs nightly --from 2026-03-05 --overlap never --yes", "'never' is not one of"),
    ("why past_jobs nightly", "INSTANT is missing after the target 'past_jobs'"),
    ("why past_jobs nightly soon", "INSTANT 'soon' is no instant"),
    ("why past_jobs nothing 2026-03-05", "no schedule 'nothing'"),
    ("retry past_jobs", "RUN_ID is missing"),
    ("retry past_jobs --task x", "RUN_ID is missing"),
    ("retry past_jobs r1 --task x", "add --failed"),
    ("retry past_jobs r1 --failed", "'r1' is one word too many"),
    ("enqueue past_jobs elsewhere --args {", "is no JSON"),
    ("enqueue past_jobs elsewhere --args [1]", "give an object, arguments by name"),
    ("enqueue past_jobs elsewhere --delay soon", "--delay 'soon' is no duration"),
]


@pytest.mark.parametrize(("command", "told"), WRONG, ids=[command for command, _ in WRONG])
def test_wrong_use_is_one_clear_line_and_exit_code_2(oncron, past, command, told):
    result = oncron(*command.split())
    assert result.code == 2
    assert told in result.err
    assert result.err.strip().count("\n") == 0


# --- why --------------------------------------------------------------------------------------


def test_why_tells_what_became_of_an_instant(oncron, past):
    before = oncron("why", "past_jobs", "nightly", "2026-03-01T01:30Z").out
    assert before.startswith("2026-03-01T01:30:00Z of 'nightly': the schedule was declared later, at 20")
    assert before.endswith("Z.\n(2026-03-01 02:30:00+01:00 in Europe/Berlin)\n")
    told = oncron("why", "nightly", "2099-03-01T03:00", "--store", "sqlite:///past.db", "--json").json
    assert (told["verdict"], told["run"], told["instant"]) == ("not_a_tick", None, "2099-03-01T02:00:00Z")
    assert told["local"] == "2099-03-01T03:00:00+01:00"
    assert oncron("why", "past_jobs", "nightly", "2099-03-01T02:30", "--json").json["verdict"] == "not_yet"


def test_why_names_the_backfilled_run(oncron, past):
    (run,) = oncron(
        "backfill", "past_jobs", "nightly", "--from", "2026-03-01", "--to", "2026-03-02", "--yes", "--json"
    ).json["runs"]
    told = oncron("why", "past_jobs", "nightly", "2026-03-01 02:30")
    assert f"backfilled: its run {run} waits for a worker" in told.out
    assert "(2026-03-01 02:30:00+01:00 in Europe/Berlin)" in told.out
    assert f"`oncron show {run}`" in told.out


def test_why_says_how_it_took_a_local_time_that_comes_twice(oncron, past):
    told = oncron("why", "past_jobs", "nightly", "2027-10-31T02:30")
    assert "of 'nightly': not yet" in told.out
    assert "taken as 2027-10-31 02:30:00+02:00; the second one is 2027-10-31 02:30:00+01:00" in told.err
    second = oncron("why", "past_jobs", "nightly", "2027-10-31T02:30+01:00")
    assert (second.err, "is no tick of" in second.out) == ("", True)


# --- instants ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "instant", "note"),
    [
        ("2027-03-28T02:30Z", "Europe/Berlin", "2027-03-28T02:30:00+00:00", ""),
        ("2027-03-28T02:30:00.25-05:00", "UTC", "2027-03-28T07:30:00.250000+00:00", ""),
        ("2027-07-01", "Europe/Berlin", "2027-06-30T22:00:00+00:00", ""),
        ("2027-07-01 03:00:00.5", "Asia/Kolkata", "2027-06-30T21:30:00.500000+00:00", ""),
        ("2027-03-28T02:30", "Europe/Berlin", "2027-03-28T01:00:00+00:00", "02:30:00 does not exist in Europe/Berlin"),
        ("2027-10-31T02:30", "Europe/Berlin", "2027-10-31T00:30:00+00:00", "comes twice in Europe/Berlin"),
        ("2027-04-04T01:45", "Australia/Lord_Howe", "2027-04-03T14:45:00+00:00", "comes twice"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-30T10:00:00+00:00", "does not exist in Pacific/Apia"),
        ("2300-07-01T12:00", "America/New_York", "2300-07-01T16:00:00+00:00", ""),
    ],
)
def test_an_instant_is_read_with_its_offset_or_on_the_clocks_of_the_zone(text, zone, instant, note):
    found = read_instant(text, zone, "INSTANT")
    assert found.moment.isoformat() == instant
    assert note in found.note
    assert bool(note) == bool(found.note)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("10min", 600), ("5m", 300), ("2h", 7200), ("1d", 86400)]
)
def test_a_duration_is_seconds_or_has_a_unit(text, seconds):
    assert read_duration(text, "--delay") == seconds
