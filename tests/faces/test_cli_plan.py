"""`plan`: what a deploy would change, told before it does."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from oncron._clock import SECOND, to_us
from oncron._load import MINUTE, Load
from oncron._model import Definition, ScheduleRecord, Status, WorkerRecord
from oncron.cli.plan import compare, loads
from oncron.triggers import cron, every

NOW = to_us(datetime(2027, 3, 1, 12, tzinfo=UTC))
HOUR = 3600 * SECOND


def definition(name: str, expression: str = "0 * * * *", **options) -> Definition:
    return Definition(name=name, trigger=str(cron(expression).bind(name, "UTC")), task="t", **options)


def row(rule: Definition, status: Status = Status.ACTIVE) -> ScheduleRecord:
    return ScheduleRecord(definition=rule, status=status, revision=1, cursor=NOW, next_at=None)


def planned(declared: list[Definition], rows: list[ScheduleRecord], workers: list[WorkerRecord] | None = None):
    return {item.name: item for item in compare({rule.name: rule for rule in declared}, rows, workers or [], NOW)}


# --- what becomes of each ---------------------------------------------------------------------


def test_each_schedule_is_new_changed_gone_or_as_it_is():
    old = [definition("same"), definition("moved"), definition("gone"), definition("put", origin="api")]
    new = [definition("same"), definition("moved", "30 * * * *"), definition("fresh"), definition("put")]
    found = planned(new, [row(rule) for rule in old])
    assert {name: item.what for name, item in found.items()} == {
        "same": "unchanged", "moved": "changed", "gone": "dormant", "fresh": "added", "put": "refused",
    }  # fmt: skip


def test_what_code_does_not_own_is_not_mentioned():
    rows = [row(definition("tenant", origin="api")), row(definition("asleep"), Status.DORMANT)]
    assert planned([], rows) == {}


@pytest.mark.parametrize(
    ("theirs", "what"),
    [
        (("t", "u"), "elsewhere"),
        (("t", "ours"), "dormant"),  # an older release of this code
        (("u",), "dormant"),
        ((), "dormant"),  # too many to tell
    ],
)
def test_what_another_app_of_the_namespace_declares_is_not_called_gone(theirs, what):
    peer = WorkerRecord(id="w", host="b", pid=7, lease_until=NOW + SECOND, tasks=theirs)
    rows = [row(definition("theirs", "0 3 * * *"))]
    found = compare({}, rows, [peer], NOW, tasks={"ours"})
    assert [item.what for item in found] == [what]
    assert compare({}, rows, [replace(peer, lease_until=NOW - HOUR)], NOW, tasks={"ours"})[0].what == "dormant"
    after = loads(found, rows, NOW)[1]
    assert after.at((NOW + 15 * HOUR) // MINUTE) == (1 if what == "elsewhere" else 0)


@pytest.mark.parametrize(
    ("stored", "declared", "what"),
    [(None, None, "refused"), (3, 3, "refused"), (3, 4, "revived"), (None, 1, "revived")],
)
def test_a_removed_schedule_comes_back_by_a_higher_release_only(stored, declared, what):
    found = planned([definition("r", release=declared)], [row(definition("r", release=stored), Status.REMOVED)])
    assert found["r"].what == what


def test_a_dormant_schedule_is_revived():
    assert planned([definition("d")], [row(definition("d"), Status.DORMANT)])["d"].what == "revived"


def test_a_change_waits_while_a_replica_of_a_higher_release_lives():
    rows = [row(definition("c"))]
    for lease, what in ((NOW + SECOND, "waits"), (NOW - HOUR, "changed")):
        worker = WorkerRecord(id="w", release=7, lease_until=lease)
        assert planned([definition("c", "1 * * * *", release=6)], rows, [worker])["c"].what == what
        assert planned([definition("c", "1 * * * *")], rows, [worker])["c"].what == "changed"


def test_a_change_tells_each_field_as_people_read_it():
    before = definition("c", timeout=None, tags=("a", "b"))
    after = definition("c", "30 * * * *", timeout=90 * SECOND, end_at=NOW, retries=5, release=9, tzdata="2027a")
    found = planned([after], [row(before)])["c"]
    assert found.differences == [
        ("trigger", "every hour (UTC)", "every hour at minute 30 (UTC)"),
        ("end_at", "none", "2027-03-01 12:00:00Z"),
        ("tags", "a, b", "none"),
        ("retries", "3", "5"),
        ("timeout", "none", "1 min 30 s"),
    ]


def test_ticks_that_move_in_the_coming_day_are_told_apart():
    found = planned([definition("c", "0 3 * * *")], [row(definition("c", "0 3,4 * * *"))])["c"]
    assert found.moved(NOW) == ([NOW + 16 * HOUR], [])
    found = planned([definition("c", "0 5 * * *", retries=9)], [row(definition("c", "0 5 * * *"))])["c"]
    assert found.moved(NOW) == ([], [])


def test_schedules_of_many_ticks_are_not_told_apart_tick_by_tick():
    fast = replace(definition("f"), trigger=str(every(seconds=1).bind("f", "UTC")))
    assert planned([definition("f")], [row(fast)])["f"].moved(NOW) is None
    assert planned([replace(fast, retries=9)], [row(fast)])["f"].moved(NOW) == ([], [])


# --- load -------------------------------------------------------------------------------------


def test_the_load_of_a_minute_is_counted_before_and_after():
    rows = [row(definition(f"old-{k}", "0 3 * * *")) for k in range(3)]
    rows.append(row(definition("paused", "0 3 * * *"), Status.PAUSED))
    declared = [definition(f"new-{k}", "0 3 * * *") for k in range(5)]
    declared += [definition("paused", "0 3 * * *"), definition("later", "0 3 * * *", paused=True)]
    before, after = loads(compare({rule.name: rule for rule in declared}, rows, [], NOW), rows, NOW)
    three = (NOW + 15 * HOUR) // MINUTE
    assert (before.at(three), after.at(three)) == (3, 5)
    assert after.busiest(1) == [three]


def test_what_ticks_more_than_once_a_minute_counts_in_every_minute():
    fast = replace(definition("f"), trigger=str(every(seconds=10).bind("f", "UTC")))
    load = Load(NOW).add([fast, definition("h")])
    assert load.at(NOW // MINUTE + 60) == 7
    assert load.at(NOW // MINUTE + 61) == 6


def test_a_trigger_of_a_newer_release_has_no_load():
    assert Load(NOW).add([replace(definition("n"), trigger="lunar(phase='full')")]).busiest(1) == []


# --- the command ------------------------------------------------------------------------------

JOBS = """
from oncron import Oncron, cron, every
app = Oncron("sqlite:///deploy.db")
@app.task(timeout=60)
def work() -> None: ...
app.add_schedule("hourly", every(hours=1), work)
"""


@pytest.fixture
def deployed(tmp_path, monkeypatch):
    """A store that knows `hourly`, `nightly` and `gone`; the code knows `hourly` and another `nightly`."""
    monkeypatch.chdir(tmp_path)
    old = (
        JOBS + "app.add_schedule('nightly', cron('0 3 * * *'), work)\napp.add_schedule('gone', cron('H 4 * * *'), work)"
    )
    (tmp_path / "deploy_jobs.py").write_text(old)
    subprocess.run(
        [sys.executable, "-c", "from deploy_jobs import app\nwith app: pass"],
        check=True, cwd=tmp_path, timeout=60, capture_output=True,
    )  # fmt: skip
    new = JOBS + "app.add_schedule('nightly', cron('30 3 * * *'), work, timeout=90)\n"
    (tmp_path / "deploy_jobs.py").write_text(new)
    yield tmp_path
    sys.modules.pop("deploy_jobs", None)


def test_plan_tells_what_a_deploy_would_change_and_changes_nothing(oncron, deployed):
    before = oncron("schedules", "--store", "sqlite:///deploy.db", "--json").json
    told = oncron("plan", "deploy_jobs")
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0] == "deploy_jobs on sqlite:///deploy.db: 1 changed, 1 gone from the code, 1 as they are"
    assert "~ nightly: every day at 03:30 (UTC)" in lines
    assert "    trigger: every day at 03:00 (UTC) -> every day at 03:30 (UTC)" in lines
    assert "    timeout: 1 min -> 1 min 30 s" in lines
    assert any(
        re.match(r"    in the coming day 1 tick falls away \(.*03:00:00Z\), 1 is new \(.*03:30", line) for line in lines
    )
    assert any(line.startswith("- gone: ") for line in lines)
    assert "Busiest minutes" in told.out
    assert oncron("schedules", "--store", "sqlite:///deploy.db", "--json").json == before


def test_plan_as_json(oncron, deployed):
    found = oncron("plan", "deploy_jobs", "--json").json
    assert found["unchanged"] == 1
    nightly = next(item for item in found["schedules"] if item["name"] == "nightly")
    assert nightly["what"] == "changed"
    assert {item["field"] for item in nightly["differences"]} == {"trigger", "timeout"}
    assert [tick[11:] for tick in nightly["ticks_new"]] == ["03:30:00Z"]
    assert found["load"][0].keys() == {"minute", "before", "after"}


def test_on_a_store_without_a_schema_everything_is_new_and_no_schema_is_made(oncron, deployed):
    (deployed / "deploy_jobs.py").write_text(JOBS.replace("deploy.db", "fresh.db"))
    for _ in range(2):
        told = oncron("plan", "deploy_jobs")
        assert told.out.startswith("deploy_jobs on sqlite:///fresh.db: 1 new\n! ")
        assert "run `oncron migrate`, or let the first replica do it" in told.out
        assert "+ hourly: every hour" in told.out
        sys.modules.pop("deploy_jobs", None)


def test_plan_needs_code(oncron, tmp_path):
    assert oncron("plan").code == 2
    told = oncron("plan", "sqlite:///x.db")
    assert (told.code, "is a store's URL" in told.err) == (2, True)
