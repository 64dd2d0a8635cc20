"""`oncron put`: a schedule in the store, created, changed, or left as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.conftest import Call

STORE = ("--store", "sqlite:///put.db")
JOBS = """
from oncron import Oncron, daily
app = Oncron("sqlite:///put.db", timezone="Europe/Berlin")
@app.task(queue="sync", retries=5)
def sync_tenant(tenant: int, full: bool = False) -> None: ...
@app.schedule(daily("03:00"))
def reindex() -> None: ...
"""


@pytest.fixture(autouse=True)
def jobs(oncron: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "put_jobs.py").write_text(JOBS)
    assert oncron("migrate", *STORE).code == 0
    yield tmp_path
    sys.modules.pop("put_jobs", None)


def test_it_says_created_unchanged_and_changed_with_the_next_instants(oncron: Call) -> None:
    put = ("put", "tenant-7", *STORE, "--task", "sync_tenant", "--args", '{"tenant": 7}', "--timezone", "Asia/Tokyo")
    told = oncron(*put, "--daily", "03:00")
    first, *rest = told.out.splitlines()
    assert first == "Schedule tenant-7 is created: every day at 03:00 (Asia/Tokyo), task sync_tenant."
    assert len(rest) == 3
    assert all("03:00:00+09:00 in Asia/Tokyo), in " in line for line in rest)
    assert told.err == "Note: nobody would take its runs now: no worker is alive\n"
    assert "is unchanged: " in oncron(*put, "--daily", "03:00").out
    changed = oncron(*put, "--daily", "04:00", "--json").json
    assert (changed["what"], changed["revision"], changed["origin"]) == ("changed", 2, "api")
    assert len(changed["next"]) == 3
    assert oncron("remove", "tenant-7", *STORE).code == 0
    assert oncron(*put, "--daily", "04:00", "--json").json["what"] == "created"


@pytest.mark.parametrize(
    ("when", "trigger"),
    [
        (("--cron", "*/15 * * * *"), 'cron("*/15 * * * *", timezone="UTC")'),
        (("--cron", "30 0 3 * * *", "--seconds"), 'cron("30 0 3 * * *", seconds=True, timezone="UTC")'),
        (("--every", "90s"), "every(seconds=90)"),
        (("--daily", "03:00", "--daily", "15:00"), 'daily(["03:00", "15:00"], timezone="UTC")'),
        (("--weekly", "mon-fri 08:00"), 'weekly(["mon", "tue", "wed", "thu", "fri"], "08:00", timezone="UTC")'),
        (("--weekly", "mon, thu 08:00"), 'weekly(["mon", "thu"], "08:00", timezone="UTC")'),
        (("--once", "2099-03-28T03:00+01:00", "--once", "2099-04-01"),
         'once("2099-03-28T02:00:00Z", "2099-04-01T00:00:00Z")'),
        (("--trigger", 'monthly(-1, "18:00")'), 'monthly(-1, "18:00", timezone="UTC")'),
        (("--trigger", 'monthly(-1, "18:00")', "--timezone", "Asia/Tokyo"),
         'monthly(-1, "18:00", timezone="Asia/Tokyo")'),
        (("--trigger", 'daily("18:00", timezone="Asia/Tokyo")'), 'daily("18:00", timezone="Asia/Tokyo")'),
    ],
)  # fmt: skip
def test_when_is_said_by_one_of_many_options(oncron: Call, when: tuple[str, ...], trigger: str) -> None:
    assert oncron("put", "job", *STORE, "--task", "t", *when, "--json").json["trigger"] == trigger


def test_all_options_of_a_schedule_are_kept(oncron: Call) -> None:
    row = oncron(
        "put", "job", *STORE, "--task", "t", "--every", "1h", "--queue", "q", "--priority", "3", "--retries", "0",
        "--timeout", "10min", "--overlap", "queue", "--missed", "all", "--missed-within", "2h", "--missed-limit", "7",
        "--jitter", "30s", "--start-at", "2099-01-01", "--end-at", "2099-02-01T00:00Z", "--limit", "9", "--unique", "k",
        "--tag", "a", "--tag", "b", "--paused", "--json",
    ).json  # fmt: skip
    kept = {
        "queue": "q", "priority": 3, "retries": 0, "timeout": 600, "overlap": "queue", "missed": "all",
        "missed_within": 7200, "missed_limit": 7, "jitter": 30, "start_at": "2099-01-01T00:00:00Z",
        "end_at": "2099-02-01T00:00:00Z", "limit": 9, "tags": ["a", "b"], "status": "paused",
    }  # fmt: skip
    assert {name: row[name] for name in kept} == kept
    assert row["unique"].endswith("k")
    assert "paused: `oncron resume job` lets it tick" in oncron(
        "put", "job", *STORE, "--task", "t", "--every", "2h"
    ).out  # fmt: skip


def test_with_a_target_its_tasks_its_options_and_its_zone_hold(oncron: Call) -> None:
    put = ("put", "put_jobs", "tenant-7", "--once", "2099-07-01T12:00", "--task", "sync_tenant")
    row = oncron(*put, "--args", '{"tenant": 7}', "--json").json
    assert (row["queue"], row["retries"], row["args"]["tenant"]) == ("sync", 5, 7)
    assert row["next"] == ["2099-07-01T10:00:00Z"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("put_jobs", "x", "--task", "sync_tennant", "--every", "1h"), "did you mean 'sync_tenant'?"),
        (("put_jobs", "x", "--task", "nobody", "--every", "1h"), "has no task 'nobody'; name the store alone"),
        (("put_jobs", "x", "--task", "sync_tenant", "--every", "1h"), "needs 'tenant'"),
        (("put_jobs", "x", "--task", "sync_tenant", "--every", "1h", "--args", '{"tenant": "a"}'), "tenant"),
        (("put_jobs", "reindex", "--task", "reindex", "--every", "1h"), "declares schedule 'reindex' in code"),
        ((*STORE, "x", "--every", "1h"), "--task"),
        ((*STORE, "x", "--task", "t"), "say when by one of --cron, --every, --daily, --weekly, --once and --trigger"),
        ((*STORE, "x", "--task", "t", "--every", "1h", "--daily", "03:00"), "say when by one of"),
        ((*STORE, "x", "--task", "t", "--cron", "61 * * * *"), "minute"),
        ((*STORE, "x", "--task", "t", "--weekly", "08:00"), "give days and a time of day"),
        ((*STORE, "x", "--task", "t", "--weekly", "someday 08:00"), "someday"),
        ((*STORE, "x", "--task", "t", "--once", "soon"), "--once 'soon' is no instant"),
        ((*STORE, "x", "--task", "t", "--once", "2001-01-01"), "ago"),
        ((*STORE, "x", "--task", "t", "--trigger", "hourly()"), "hourly"),
        ((*STORE, "x", "--task", "t", "--trigger", "every(hours=1)", "--timezone", "UTC"), "has no zone"),
        ((*STORE, "x", "--task", "t", "--trigger", 'daily("03:00", timezone="UTC")', "--timezone", "UTC"), "its own"),
        ((*STORE, "x", "--task", "t", "--daily", "03:00", "--timezone", "Mars/Base"), "Mars/Base"),
        ((*STORE, "x", "--task", "t", "--every", "1h", "--args", "[1]"), "give an object"),
        ((*STORE, "x", "--task", "t", "--every", "1h", "--overlap", "both"), "'both'"),
        ((*STORE, "x", "--task", "t", "--every", "1h", "--timeout", "x"), "--timeout 'x' is no duration"),
        ((*STORE, "x", "--task", "t", "--every", "1h", "--start-at", "x"), "--start-at 'x' is no instant"),
        ((*STORE, "a\nb", "--task", "t", "--every", "1h"), "control character"),
    ],
)
def test_what_cannot_be_put_is_told_in_one_line_and_nothing_is_written(
    oncron: Call, arguments: tuple[str, ...], says: str
) -> None:
    told = oncron("put", *arguments)
    assert (told.code, told.out) == (2, "")
    assert len(told.err.splitlines()) == 1
    assert says in told.err
    assert oncron("schedules", *STORE, "--json").json == []
