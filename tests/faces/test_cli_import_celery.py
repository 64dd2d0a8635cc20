"""`oncron import celery` and `django-celery-beat`: Celery itself is asked when beat would have run, and oncron has to
agree, or to say where it does not."""

from __future__ import annotations

import importlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import psycopg
import pytest
from celery.schedules import crontab, crontab_parser
from hypothesis import assume, given, settings, strategies as st

from oncron._clock import to_us
from oncron.cli.moving import celery_schedule, from_django
from oncron.cli.moving.moved import NoEquivalent, Rule
from oncron.errors import InvalidTrigger
from oncron.triggers import parse
from oncron.triggers.local import LocalTrigger
from tests.faces import moving
from tests.faces.conftest import Call

NOW = datetime(2026, 12, 1, 3, 4, 5, tzinfo=UTC)
STARS = dict.fromkeys(("minute", "hour", "day_of_month", "month_of_year", "day_of_week"), "*")
SIZES = {"minute": (60, 0), "hour": (24, 0), "day_of_month": (31, 1), "month_of_year": (12, 1), "day_of_week": (7, 0)}


def rule_of(fields: dict[str, str], zone: str) -> Rule:
    values = {name: celery_schedule.parse(name, text) for name, text in fields.items()}
    return celery_schedule.crontab_rule(values, fields, zone, to_us(NOW))


def beats(schedule: crontab, start: datetime, end: datetime, most: int) -> list[datetime]:
    """When beat would run it, asked as beat asks: how long from now, until it says not at all."""
    last, found, clock = start, list[datetime](), [start]
    schedule.tz = start.tzinfo
    schedule.nowfun = lambda: clock[0]
    while len(found) < most:
        clock[0] = last
        while (left := schedule.remaining_estimate(last)) > timedelta(0) or clock[0] == last:
            clock[0] = (clock[0].astimezone(UTC) + left).astimezone(start.tzinfo)
        if clock[0] > end:
            break
        last = clock[0]
        found.append(last.astimezone(UTC))
    return found


# --- the same instants ------------------------------------------------------------------------


def field(low: int, high: int, *more: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    item = st.one_of(
        number.map(str), st.just("*"), st.integers(1, high).map("*/{}".format),
        st.tuples(number, number).map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(number, number, st.integers(1, 9)).map(lambda drawn: f"{drawn[0]}-{drawn[1]}/{drawn[2]}"),
        *more,
    )  # fmt: skip
    return st.lists(item, min_size=1, max_size=3).map(",".join)


FIELDS = {
    "minute": field(0, 59),
    "hour": field(0, 23),
    "day_of_month": field(1, 31),
    "month_of_year": field(1, 12, st.sampled_from(("jan", "December"))),
    "day_of_week": field(0, 6, st.sampled_from(("mon", "Sunday", "fri-mon"))),
}


@settings(max_examples=50, deadline=None)
@given(fields=st.fixed_dictionaries(FIELDS))
def test_a_crontab_has_the_next_200_instants_that_beat_has(fields: dict[str, str]) -> None:
    for name, text in fields.items():
        assert celery_schedule.parse(name, text) == crontab_parser(*SIZES[name]).parse(text)
    try:
        trigger = rule_of(fields, "UTC").trigger
    except (NoEquivalent, InvalidTrigger) as refused:
        assume("raise Skip" not in str(refused) and "no such date" not in str(refused))
        raise
    expected = beats(crontab(**fields), NOW.astimezone(ZoneInfo("UTC")), NOW + timedelta(days=4000), 200)
    found, at = list[datetime](), NOW
    while len(found) < len(expected):
        following = trigger.next_after(at)
        assert following is not None
        at = following
        found.append(at)
    assert found == expected


NEAR = {
    "minute": st.sampled_from(("0", "30", "*/30", "5,45")), "hour": st.sampled_from(("*", "0", "1,2", "*/3", "2-4")),
    "day_of_week": st.sampled_from(("*", "sun", "0-4")),
}  # fmt: skip
CHANGES = {
    "Europe/Berlin": ((2027, 3, 28), (2027, 10, 31)),
    "America/Santiago": ((2027, 4, 4), (2027, 9, 5)),
    "Asia/Tokyo": ((2027, 4, 4), (2027, 9, 5)),
}


@settings(max_examples=20, deadline=None)
@given(fields=st.fixed_dictionaries(NEAR), zone=st.sampled_from(sorted(CHANGES)))
def test_clock_changes_are_told_if_and_only_if_beat_runs_at_other_instants(fields: dict[str, str], zone: str) -> None:
    rule = rule_of(STARS | fields, zone)
    assert isinstance(rule.trigger, LocalTrigger)
    differ = False
    for day in CHANGES[zone]:
        start = datetime(*day, 0, 0, 1, tzinfo=ZoneInfo(zone)) - timedelta(days=2)
        end = start + timedelta(days=4)
        expected = beats(crontab(**STARS | fields), start, end, 10_000)
        model = celery_schedule.ticks(rule.trigger, to_us(start), to_us(end))
        assert model == [to_us(at) for at in expected]
        differ = differ or rule.trigger.between(start, end) != expected
    said = [text for text in rule.differs if text.startswith("on 2027-")]
    assert bool(said) == differ, said


def test_what_a_clock_change_does_is_told_with_its_date() -> None:
    (said,) = rule_of(STARS | {"minute": "30", "hour": "2"}, "Europe/Berlin").differs
    assert said == (
        "on 2027-03-28 (Europe/Berlin, 02:00 -> 03:00) oncron ticks at 03:00+02:00, Celery at 03:30+02:00; "
        'gap="shift" keeps what Celery did'
    )
    (said,) = rule_of(STARS | {"minute": "*/20"}, "Europe/Berlin").differs
    assert "on 2027-10-31 (Europe/Berlin, 03:00 -> 02:00) oncron ticks at 02:00+01:00, 02:20+01:00" in said
    assert "where Celery did not" in said
    assert rule_of(STARS | {"minute": "30", "hour": "12"}, "Europe/Berlin").differs == []


@pytest.mark.parametrize("text", ["60", "x", "5/2", "1-", "", "*/0", "1..3", "-1"])
def test_a_field_that_celery_refuses_is_refused(text: str) -> None:
    with pytest.raises(NoEquivalent, match="Celery"):
        celery_schedule.parse("minute", text)
    with pytest.raises((ValueError, crontab_parser.ParseException, IndexError)):
        crontab_parser(60).parse(text)


def test_relative_intervals_are_on_whole_units() -> None:
    assert str(celery_schedule.relative_rule(timedelta(days=2), "Asia/Tokyo").trigger) == (
        'daily("00:00", days=2, timezone="Asia/Tokyo")'
    )
    assert str(celery_schedule.relative_rule(timedelta(hours=3), "UTC").trigger) == "every(hours=3)"
    for uneven in (timedelta(minutes=90), timedelta(seconds=30)):
        with pytest.raises(NoEquivalent, match="relative=True cuts"):
            celery_schedule.relative_rule(uneven, "UTC")


# --- an app -----------------------------------------------------------------------------------

TASKS = """
from celery import shared_task

@shared_task
def add(x: int, y: int = 1) -> int:
    return x + y

@shared_task(bind=True, name="mail", autoretry_for=(ValueError,), time_limit=30)
def mail(self, to: str) -> None: ...
"""
APP = """
from datetime import datetime, timedelta
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule

class Own(BaseSchedule): ...

app = Celery("oldproj", include=["oldproj.tasks"], broker="memory://", set_as_current=False)
app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {
    "add": {"task": "oldproj.tasks.add", "schedule": 30.0, "args": (1, 2)},
    "night": {"task": "oldproj.tasks.add", "schedule": crontab(minute=30, hour=2), "args": (1,), "kwargs": {"y": 5},
              "options": {"queue": "slow", "priority": 3, "expires": 10, "routing_key": "q"}},
    "often": {"task": "mail", "schedule": crontab(minute=[0, 20, 40]), "args": ("a",)},
    "first": {"task": "mail", "schedule": crontab(minute=0, hour="22-2", day_of_month="1-7", day_of_week="monday"),
              "args": ("a",)},
    "hours": {"task": "elsewhere", "schedule": schedule(timedelta(hours=3)), "relative": True},
    "own": {"task": "mail", "schedule": Own()},
    "clock": {"task": "mail", "schedule": crontab(hour=3, nowfun=datetime.now)},
    "unnamed": {"task": "elsewhere", "schedule": 5, "args": (1,)},
    "misfit": {"task": "oldproj.tasks.add", "schedule": 5, "args": (1, 2, 3)},
    "lazy": {"task": "mail", "schedule": 5, "args": (object(),)},
    "thirteenth": {"task": "mail", "schedule": crontab(0, 0, day_of_month="13", day_of_week="fri"), "args": ("a",)},
    "never": {"task": "mail", "schedule": crontab(0, 0, day_of_month="30", month_of_year="2"), "args": ("a",)},
    "taskless": {"schedule": 5},
    "listless": {"task": "mail", "schedule": 5, "args": 5},
    "urgent": {"task": "mail", "schedule": 5, "args": ("a",), "options": {"priority": 10**12}},
}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "oldproj"
    package.mkdir()
    for name, text in (("__init__", ""), ("tasks", TASKS), ("celery", APP)):
        (package / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "oldproj"]:
        del sys.modules[name]


def test_what_is_printed_runs_and_has_the_ticks_of_beat(oncron: Call, project: Path) -> None:
    result = oncron("import", "celery", "oldproj.celery:app")
    declared = moving.run(result.out, project)
    schedules = declared["schedules"]
    assert set(schedules) == {"add", "night", "often", "first", "hours"}
    assert set(declared["tasks"]) == {"oldproj.tasks.add", "mail"}
    assert schedules["night"]["args"] == {"x": 1, "y": 5}
    assert schedules["often"]["args"] == {"to": "a"}
    zone, start = ZoneInfo("Europe/Berlin"), datetime(2026, 12, 1, tzinfo=UTC)
    entries = importlib.import_module("oldproj.celery").app.conf.beat_schedule
    for name in ("night", "often", "first"):
        expected = beats(entries[name]["schedule"], start.astimezone(zone), start + timedelta(days=60), 100)
        found = parse(schedules[name]["trigger"]).between(start, expected[-1])
        assert found == expected


def test_what_differs_and_what_is_refused_is_told_for_each(oncron: Call, project: Path) -> None:
    found = oncron("import", "celery", "oldproj.celery:app", "--json").json
    rows = {row["name"]: row for row in found["schedules"]}
    assert rows["night"]["options"] == {"args": {"x": 1, "y": 5}, "queue": "slow", "priority": 3, "retries": 0}
    said = " ".join(rows["night"]["differs"])
    assert "if the broker was Redis, where 0 is the first, turn its sign" in said
    assert "expires=10 has no equivalent" in said
    assert "not taken over: routing_key='q'" in said
    assert "written as '* mon#1'" in " ".join(rows["first"]["differs"])
    assert rows["often"]["task_options"] == {"timeout": 30}
    assert "autoretry_for= is not taken over" in " ".join(rows["often"]["differs"])
    refused = {row["name"]: row["why"] for row in found["refused"]}
    expected = {"own", "clock", "unnamed", "misfit", "lazy", "thirteenth", "never", "taskless", "listless", "urgent"}
    assert set(refused) == expected
    assert "its args are no list" in refused["listless"]
    assert "priority=1000000000000: give a number from" in refused["urgent"]
    assert "its schedule is a oldproj.celery.Own, which is code" in refused["own"]
    assert "its nowfun= is a clock of its own" in refused["clock"]
    assert "its positional arguments (1) have no names" in refused["unnamed"]
    assert "too many positional arguments" in refused["misfit"]
    assert "its argument 'to' is a object; arguments are kept as JSON" in refused["lazy"]
    assert "it wants day 13 of the month and Friday at once" in refused["thirteenth"]
    assert "no such date ever occurs" in refused["never"]


def test_solar_schedules_are_refused_with_a_reason(oncron: Call, project: Path) -> None:
    # As celery makes them where ephem, an astronomer's package, is installed.
    text = "from celery.schedules import solar\nsunset = solar.__new__(solar)\n"
    entry = 'app.conf.beat_schedule = {"dusk": {"task": "mail", "schedule": sunset}}\n'
    (project / "oldproj" / "celery.py").write_text(APP + text + entry)
    result = oncron("import", "celery", "oldproj.celery:app")
    assert result.code == 1
    assert "refused: dusk: it follows the sun, which no trigger does" in result.err


def test_the_zone_is_celerys_own_or_has_to_be_given(oncron: Call, project: Path) -> None:
    file = project / "oldproj" / "celery.py"
    file.write_text(APP.replace('app.conf.timezone = "Europe/Berlin"', "app.conf.enable_utc = False"))
    refused = oncron("import", "celery", "oldproj.celery:app")
    assert refused.code == 2
    assert "beat counts on the host's clock, which oncron never does: give --timezone ZONE" in refused.err
    given = oncron("import", "celery", "oldproj.celery:app", "--timezone", "Asia/Tokyo", "--json").json
    assert {row["timezone"] for row in given["schedules"]} == {"Asia/Tokyo", None}


def test_without_a_zone_celery_has_utc(oncron: Call, project: Path) -> None:
    (project / "oldproj" / "celery.py").write_text(APP.replace('app.conf.timezone = "Europe/Berlin"', ""))
    rows = oncron("import", "celery", "oldproj.celery:app", "--json").json["schedules"]
    assert {row["timezone"] for row in rows} == {"UTC", None}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("oldproj.celery:nothing", "oldproj.celery has no 'nothing'; write the name of its Celery app"),
        ("oldproj.celery:Own", "is a type and no Celery app"),
        ("oldproj.tasks/celery.py", "write MODULE:APP"),
        ("nowhere", "no module 'nowhere' in"),
        ("broken", "broken cannot be imported: broken.py:1: ZeroDivisionError"),
    ],
)
def test_code_that_cannot_be_read_is_told_in_a_sentence(oncron: Call, project: Path, target: str, said: str) -> None:
    (project / "broken.py").write_text("1 / 0\n")
    result = oncron("import", "celery", target)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


# --- django-celery-beat -----------------------------------------------------------------------

FILL = """
import json, sys
from datetime import datetime, timezone
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}}, USE_TZ=True,
    INSTALLED_APPS=["django_celery_beat"], DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)
django.setup()
from django.db import connection
from django_celery_beat.models import *

with connection.schema_editor() as editor:
    for model in (SolarSchedule, IntervalSchedule, ClockedSchedule, CrontabSchedule, PeriodicTasks, PeriodicTask):
        editor.create_model(model)

def at(*when):
    return datetime(*when, tzinfo=timezone.utc)

def cron(zone, **fields):
    return CrontabSchedule.objects.create(timezone=zone, **fields)

def put(name, **more):
    PeriodicTask.objects.create(**{"name": name, "task": "oldproj.tasks.add", **more})

ten = IntervalSchedule.objects.create(every=10, period="minutes")
night = cron("America/New_York", minute="30", hour="2")
put("night", crontab=night, kwargs='{"x": 1}', queue="slow", expires=at(2040, 1, 1), start_time=at(2035, 1, 1))
put("weekly", crontab=cron("UTC", minute="0", hour="8, 9", day_of_week="mon-fri"), one_off=True, priority=2)
put("tenth", interval=ten, last_run_at=at(2026, 5, 1, 0, 3, 7))
put("off", interval=ten, enabled=False)
put("dated", clocked=ClockedSchedule.objects.create(clocked_time=at(2040, 2, 3, 4)), one_off=True)
put("celery.backend_cleanup", task="celery.backend_cleanup", crontab=night)
put("positional", crontab=night, args="[1, 2]")
put("expired", crontab=night, expires=at(2020, 1, 1))
put("done", crontab=night, one_off=True, total_run_count=1)
put("past", clocked=ClockedSchedule.objects.create(clocked_time=at(2020, 2, 3, 4)), one_off=True)
put("dusk", solar=SolarSchedule.objects.create(event="sunset", latitude=1, longitude=1))
put("both", crontab=night)
PeriodicTask.objects.filter(name="both").update(interval=ten)
put("junk", crontab=night)
PeriodicTask.objects.filter(name="junk").update(kwargs="{")
put("sunday", crontab=cron("UTC", day_of_week="7"))
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("django") / "db.sqlite3"
    subprocess.run([sys.executable, "-c", FILL, str(file)], check=True, timeout=60)
    return file


def test_the_tables_of_django_celery_beat_become_schedules(oncron: Call, filled: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{filled}"
    found = oncron("import", "django-celery-beat", "--database", url, "--json").json
    rows = {row["name"]: row for row in found["schedules"]}
    assert {name: row["trigger"] for name, row in rows.items()} == {
        "night": 'cron("30 2 * * *", timezone="America/New_York")',
        "weekly": 'cron("0 8,9 * * mon-fri", timezone="UTC")',
        "tenth": 'every(minutes=10, anchor="2026-05-01T00:03:07Z")',
        "off": "every(minutes=10)",
        "dated": 'once("2040-02-03T04:00:00Z")',
    }
    assert rows["night"]["options"] == {
        "args": {"x": 1}, "queue": "slow", "retries": 0, "start_at": "2035-01-01T00:00:00Z",
        "end_at": "2040-01-01T00:00:00Z",
    }  # fmt: skip
    assert rows["weekly"]["options"] == {"priority": 2, "retries": 0, "limit": 1}
    assert rows["off"]["options"]["paused"] is True
    assert any("celery.backend_cleanup is Celery's own" in note for note in found["notes"])
    printed = oncron("import", "django-celery-beat", "--database", url).out
    assert set(moving.run(printed, tmp_path)["schedules"]) == set(rows)


def test_rows_that_cannot_come_along_are_told_one_by_one(oncron: Call, filled: Path) -> None:
    result = oncron("import", "django-celery-beat", "--database", f"sqlite:///{filled}")
    assert result.code == 1
    refused = dict(line.split(": ", 2)[1:] for line in result.err.splitlines() if line.startswith("refused: "))
    assert {name: why.partition(":")[0][:45] for name, why in refused.items()} == {
        "both": "it has 2 schedules instead of one; beat does ",
        "done": "it is one_off and has run",
        "dusk": "it follows the sun, which no trigger does",
        "expired": "it expired at 2020-01-01T00",
        "junk": "its kwargs are no JSON (Expecting property na",
        "past": "its time, 2020-02-03T04",
        "positional": "its positional arguments (1, 2) have no names",
        "sunday": "day_of_week='7'",
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [(datetime(2026, 1, 1), "start_time 2026-01-01 00:00:00 has no zone"), ("noon", "start_time 'noon' is no instant")],
)
def test_an_instant_without_a_zone_is_refused(value: object, said: str) -> None:
    with pytest.raises(NoEquivalent, match=said):
        from_django.instant(value, "start_time")
    assert from_django.instant("2026-01-01 05:00:00", "start_time") == datetime(2026, 1, 1, 5, tzinfo=UTC)


def test_a_celery_app_gives_names_to_positional_arguments(oncron: Call, filled: Path, project: Path) -> None:
    arguments = ("--database", f"sqlite:///{filled}", "--app", "oldproj.celery:app", "--json")
    rows = oncron("import", "django-celery-beat", *arguments).json["schedules"]
    assert {row["name"]: row["options"].get("args") for row in rows}["positional"] == {"x": 1, "y": 2}


def test_a_dry_run_and_a_second_run_write_nothing(oncron: Call, filled: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    oncron("migrate", "--store", store)
    arguments = ("import", "django-celery-beat", "--database", f"sqlite:///{filled}", "--write", "--store", store)
    assert oncron(*arguments).out.count("created") == 5
    assert json.loads(oncron("schedules", "--store", store, "--json").out) == []
    renamed = (*arguments, "--task-map", "oldproj.tasks.add=add", "--yes")
    assert oncron(*renamed).out.count("created") == 5
    assert oncron(*renamed).out.count("as it is") == 5
    rows = msgspec.json.decode(oncron("schedules", "--store", store, "--json").out)
    assert {row["task"] for row in rows} == {"add"}
    assert {row["name"]: row["status"] for row in rows}["off"] == "paused"


def test_a_database_without_the_tables_is_told(oncron: Call, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    for file, said in (
        ("empty.db", "no such table: django_celery_beat_periodictask"),
        ("absent.db", "there is no file"),
    ):
        result = oncron("import", "django-celery-beat", "--database", f"sqlite:///{tmp_path}/{file}")
        assert result.code == 2
        assert said in result.err
    other = oncron("import", "django-celery-beat", "--database", "nosuch://x")
    assert other.code == 2
    assert "--database: the database cannot be read" in other.err


def test_postgresql_gives_aware_instants(oncron: Call, postgres_url: str) -> None:
    columns: dict[str, Any] = {
        "name": "tenth", "task": "t", "args": "[]", "kwargs": "{}", "enabled": True, "one_off": False,
        "total_run_count": 0,
    }  # fmt: skip
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "create table django_celery_beat_periodictask (name text, task text, args text, kwargs text, enabled bool, "
            "one_off bool, total_run_count int, interval_id int, crontab_id int, solar_id int, clocked_id int, "
            "last_run_at timestamptz)"
        )
        connection.execute(
            "insert into django_celery_beat_periodictask values (%(name)s, %(task)s, %(args)s, %(kwargs)s, "
            "%(enabled)s, %(one_off)s, %(total_run_count)s, 1, null, null, null, '2026-05-01 02:03:07.5+02')",
            columns,
        )
        connection.execute(
            "create table django_celery_beat_intervalschedule as select 1 as id, 10 as every, 'minutes' as period"
        )
        for name in ("crontab", "clocked", "solar"):
            connection.execute(f"create table django_celery_beat_{name}schedule (id int)".encode())
    (row,) = oncron("import", "django-celery-beat", "--database", postgres_url, "--json").json["schedules"]
    assert row["trigger"] == 'every(minutes=10, anchor="2026-05-01T00:03:07Z")'
