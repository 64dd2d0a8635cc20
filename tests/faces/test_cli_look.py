"""Reading commands: `schedules`, `next`, `runs`, `show`, `check`."""

from __future__ import annotations

import re
import subprocess
import sys

UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
RUN_FIELDS = {"id", "task", "state", "schedule", "tick", "args", "due_at", "started_at", "ended_at", "attempt", "error"}


def test_schedules_tells_when_next_and_how_the_last_run_went(oncron, shop):
    told = oncron("schedules", "jobs:app")
    assert told.code == 0
    rows = {line.split()[0]: line for line in told.out.splitlines()}
    assert "every day at 02:30 (Europe/Berlin)" in rows["reindex"]
    assert re.search(r"in \d.*succeeded .* ago\s+active", rows["reindex"])
    assert "failed" in rows["broken"]
    assert re.search(r"-\s+active", rows["report-weekdays"])


def test_schedules_as_json_has_the_names_of_the_record(oncron, shop):
    found = {item["name"]: item for item in oncron("schedules", "--store", "sqlite:///shop.db", "--json").json}
    assert set(found) == {"broken", "reindex", "report-weekdays", "somebody-elses"}
    reindex = found["reindex"]
    assert reindex["trigger"] == 'cron("30 2 * * *", timezone="Europe/Berlin")'
    assert (reindex["status"], reindex["overlap"], reindex["timeout"], reindex["tags"]) == (
        "active",
        "skip",
        60,
        ["night"],
    )
    assert UTC.fullmatch(reindex["next_at"])
    assert UTC.fullmatch(reindex["cursor"])
    assert reindex["last_run"]["state"] == "succeeded"
    assert found["report-weekdays"]["args"] == {"kind": "day"}
    assert found["report-weekdays"]["last_run"] is None


def test_schedules_can_be_chosen_by_tag(oncron, shop):
    assert [item["name"] for item in oncron("schedules", "jobs", "--tag", "night", "--json").json] == ["reindex"]
    assert oncron("schedules", "jobs", "--tag", "day").out == "No schedules with the tag 'day'.\n"


def test_what_no_replica_has_declared_yet_is_mentioned_and_has_next_instants(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fresh.py").write_text(
        "from oncron import Oncron, every\napp = Oncron('sqlite:///fresh.db')\n"
        "@app.schedule(every(minutes=5))\ndef soon() -> None: ...\n"
    )
    told = oncron("schedules", "fresh")
    assert told.out == "No schedules.\n"
    assert "soon" in told.err
    assert [item["status"] for item in oncron("next", "fresh", "soon", "--json").json] == ["declared"] * 5


def test_next_tells_instants_in_utc_and_on_the_clocks_of_the_zone(oncron, shop):
    told = oncron("next", "jobs", "report-weekdays", "-n", "3")
    assert len(re.findall(r"0[67]:00:00Z  in .*(Mon|Tue|Wed|Thu|Fri) 08:00 Europe/Berlin", told.out)) == 3
    found = oncron("next", "jobs", "-n", "2", "--json").json
    assert [item["tick"] for item in found] == sorted(item["tick"] for item in found)
    assert len(found) == 8
    assert {"schedule", "tick", "local", "timezone", "status"} == set(found[0])


def test_runs_are_listed_newest_first_and_filtered(oncron, shop):
    found = oncron("runs", "jobs", "--json").json
    assert {item["schedule"] for item in found} == {"reindex", "broken"}
    assert set(found[0]) >= RUN_FIELDS
    assert all(UTC.fullmatch(item["created_at"]) for item in found)
    created = [item["created_at"] for item in found]
    assert created == sorted(created, reverse=True)
    assert {run["schedule"] for run in oncron("runs", "jobs", "--state", "failed", "--json").json} == {"broken"}
    assert {run["task"] for run in oncron("runs", "jobs", "--task", "reindex", "--json").json} == {"reindex"}
    assert oncron("runs", "jobs", "--limit", "1", "--before", found[0]["id"], "--json").json == found[1:2]
    assert oncron("runs", "jobs", "--schedule", "report-weekdays").out == "No runs.\n"


def test_show_tells_everything_about_a_run_with_its_traceback(oncron, shop):
    (run,) = oncron("runs", "jobs", "--state", "failed", "--json").json
    told = oncron("show", "jobs", run["id"])
    assert 'raise ValueError("no [red]disk[/red] \\x1b[31m left")' in told.out
    assert "ValueError: no [red]disk[/red] \\x1b[31m left" in told.out
    assert "\x1b" not in told.out
    assert re.search(r"^state +failed$", told.out, re.MULTILINE)
    assert re.search(r"^attempt +1; 1 of 1 spent$", told.out, re.MULTILINE)
    assert oncron("show", "jobs", run["id"], "--json").json == run


def test_show_tells_a_schedule_with_its_newest_runs(oncron, shop):
    told = oncron("show", "jobs", "reindex")
    assert re.search(r"^overlap +skip$", told.out, re.MULTILINE)
    assert re.search(r"^timeout +1 min$", told.out, re.MULTILINE)
    assert len(re.findall(r"02:30:00\+0\d:00 Europe/Berlin", told.out)) == 3
    assert "succeeded" in told.out.partition("Newest runs")[2]
    shown = oncron("show", "jobs", "reindex", "--json").json
    assert [run["state"] for run in shown["runs"]] == ["succeeded"]
    assert len(shown["next"]) == 3


def test_show_tells_which_ticks_have_no_run_and_why(oncron, shop):
    told = oncron("show", "jobs", "somebody-elses").out.partition("Ticks without a run")[2]
    assert re.search(r" 24 +missed", told)
    (gap,) = oncron("show", "jobs", "somebody-elses", "--json").json["gaps"]
    assert (gap["reason"], gap["count"]) == ("missed", 24)
    assert UTC.fullmatch(gap["first"])


# --- check ------------------------------------------------------------------------------------


def test_check_lists_definitions_and_what_may_surprise(oncron, shop):
    told = oncron("check", "jobs")
    assert told.code == 0
    assert "warning: broken: no timeout" in told.out
    assert "warning: reindex: no timeout" not in told.out
    assert "warning: reindex: 02:30 does not exist" in told.out
    assert "warning: somebody-elses: task 'unknown' is not defined here" in told.out
    found = oncron("check", "jobs", "--json").json
    assert found["tasks"] == ["broken", "reindex", "report"]
    assert [item["name"] for item in found["schedules"]] == ["broken", "reindex", "report-weekdays", "somebody-elses"]
    assert found["wrong"] == 0
    assert found["warnings"] == sum(len(item["warnings"]) for item in found["schedules"])


def test_check_can_be_strict(oncron, shop):
    assert oncron("check", "jobs", "--strict").code == 1


def test_check_fails_for_what_is_wrong(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = "from datetime import *\nfrom oncron import *\napp = Oncron('memory://')\n"
    modules = {
        "over": "app.add_schedule('over', every(hours=1), 'x', end_at=datetime(2020, 1, 1, tzinfo=UTC))\n",
        "refused_there": "app.add_schedule('x', cron('61 * * * *'), 'x')\n",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(start + text)
    over = oncron("check", "over")
    assert over.code == 1
    assert "wrong: over: it never ticks again" in over.out
    refused = oncron("check", "refused_there")
    assert refused.code == 1
    assert "refused_there.py:4: '61 * * * *' (minute)" in refused.err
    assert refused.err.count("\n") == 1


def test_check_names_crowds_at_one_instant(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crowd.py").write_text(
        "from oncron import *\napp = Oncron('memory://')\n@app.task(timeout=1)\ndef fn() -> None: ...\n"
        "for n in range(12): app.add_schedule(f'tenant-{n}', cron('0 0 * * *'), fn)\n"
        "for n in range(12): app.add_schedule(f'spread-{n}', cron('H 1 * * *'), fn)\n"
    )
    told = oncron("check", "crowd")
    assert "12 schedules tick at" in told.out
    assert "00:00:00Z (tenant-0, tenant-1, tenant-10, ...)" in told.out
    assert oncron("check", "crowd", "--json").json["warnings"] == 1


def test_check_warns_of_a_next_tick_that_is_years_away(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rare.py").write_text(
        "from datetime import *\nfrom oncron import *\napp = Oncron('memory://')\n"
        "@app.task(timeout=1)\ndef fn() -> None: ...\n"
        "app.add_schedule('never-soon', once(datetime(2099, 1, 1, tzinfo=UTC)), fn)\n"
        "app.add_schedule('often', every(hours=1), fn)\n"
    )
    told = oncron("check", "rare").out
    assert "warning: never-soon: its next tick is more than a year away, at 2099-01-01 00:00:00Z" in told
    assert told.count("warning: ") == 1


def test_check_says_who_sees_the_store(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, url in (
        ("file", "'sqlite:///x.db'"),
        ("default", ""),
        ("memory", "'memory://'"),
        ("server", "'postgresql://db/x'"),
    ):
        (tmp_path / f"stores_{name}.py").write_text(f"from oncron import Oncron\napp = Oncron({url})\n")
    found = {name: oncron("check", f"stores_{name}", "--json").json for name in ("file", "default", "memory", "server")}
    assert "x.db is a file: replicas on other hosts do not see it" in found["file"]["notes"][0]
    assert found["file"]["warnings"] == 0
    assert "no store was given: sqlite:///oncron.db is a file" in found["default"]["store"][0]
    assert found["default"]["warnings"] == 1
    assert "lives in one process" in found["memory"]["notes"][0]
    assert (found["server"]["notes"], found["server"]["store"]) == ([], [])
    assert "note: sqlite:///x.db is a file" in oncron("check", "stores_file").out
    assert "warning: all: no store was given" in oncron("check", "stores_default").out


def test_what_is_encrypted_is_said_to_be_so_without_the_key(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret_jobs.py").write_text(
        "from oncron import Oncron, every\n"
        "app = Oncron('sqlite:///secret.db', encryption={'k': '11' * 32})\n"
        "@app.schedule(every(hours=1), args={'card': '4111'})\n"
        "def pay(card: str) -> None: ...\n"
    )
    subprocess.run(
        [sys.executable, "-c", "from secret_jobs import app\nwith app: app.sync(app.fire('pay'))"],
        check=True, cwd=tmp_path, timeout=60, capture_output=True,
    )  # fmt: skip
    store = "sqlite:///secret.db"
    (run,) = oncron("runs", "--store", store, "--json").json
    assert run["args"] == "<encrypted>"
    assert re.search(r"arguments +<encrypted>", oncron("show", run["id"], "--store", store).out)
    assert re.search(r"arguments +<encrypted>", oncron("show", "pay", "--store", store).out)
    assert oncron("show", "secret_jobs:app", run["id"], "--json").json["args"] == {"card": "4111"}
    assert ": 1 as they are" in oncron("plan", "secret_jobs:app").out, "the same, though it lies there otherwise"
    sys.modules.pop("secret_jobs", None)
