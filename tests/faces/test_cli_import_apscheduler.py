"""`oncron import apscheduler`: APScheduler 3 itself is asked when it would have run, and oncron has to agree, or to say
where it does not."""

from __future__ import annotations

import ast
import importlib
import pickle
import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from hypothesis import assume, example, given, settings, strategies as st

from oncron._clock import to_us
from oncron.cli.moving import clocks, unpickled
from oncron.cli.moving.apscheduler_trigger import Reading, State, rule_of
from oncron.cli.moving.from_apscheduler import ticks
from oncron.cli.moving.moved import NoEquivalent, Rule
from oncron.triggers import parse
from tests.faces import moving
from tests.faces.conftest import Call

NOW = datetime(2026, 12, 1, 3, 4, 5, tzinfo=UTC)
JOBS = """
from datetime import datetime, timedelta
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

scheduler = BackgroundScheduler(timezone="America/New_York")

def reindex(index: str, deep: bool = False) -> None: ...
def mail() -> None: ...
def tidy(*paths: str) -> None: ...

scheduler.add_job(reindex, "cron", hour=2, minute=30, args=["main"], kwargs={"deep": True}, id="reindex")
scheduler.add_job(mail, CronTrigger.from_crontab("0 8 * * 0", timezone="America/New_York"), id="numbered",
                  max_instances=3, misfire_grace_time=None)
scheduler.add_job(mail, "cron", second="*/30", coalesce=False, jitter=3, misfire_grace_time=600)
scheduler.add_job(mail, "interval", minutes=5)
scheduler.add_job(mail, "interval", hours=5, start_date="2026-01-01 03:00:00", id="anchored", next_run_time=None)
scheduler.add_job(mail, "cron", day="1st mon", hour=0, id="first")
scheduler.add_job(mail, "cron", year="2030-2031", hour=12, id="years")
scheduler.add_job(mail, "date", run_date=datetime(2030, 1, 1), id="dated")

scheduler.add_job(mail, "cron", week="1-10", id="weeks")
scheduler.add_job(mail, "cron", day=13, day_of_week="fri", id="thirteenth")
scheduler.add_job(mail, CronTrigger(hour=4), id="host")
scheduler.add_job(lambda: 1, "cron", hour=4, id="nameless")
scheduler.add_job(tidy, "cron", hour=4, id="starred")
scheduler.add_job(mail, "date", run_date="2020-01-01", id="past")
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    import sys

    monkeypatch.chdir(tmp_path)
    (tmp_path / "oldjobs.py").write_text(JOBS)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("oldjobs", None)


def live(trigger: Any) -> State:
    return State(type(trigger).__name__, trigger.__getstate__())


def moved(trigger: Any, zone: str | None = None) -> Rule:
    return rule_of(live(trigger), Reading(zone, NOW))


# --- the same instants ------------------------------------------------------------------------

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def field(low: int, high: int, *more: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    item = st.one_of(
        number.map(str), st.just("*"), st.integers(1, high - low).map("*/{}".format),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, st.integers(1, 7)).filter(lambda drawn: drawn[0][1] - drawn[0][0] >= drawn[1])
        .map(lambda drawn: f"{drawn[0][0]}-{drawn[0][1]}/{drawn[1]}"),
        *more,
    )  # fmt: skip
    return st.lists(item, min_size=1, max_size=3).map(",".join)


NAMED_DAYS = st.just("last") | st.tuples(
    st.sampled_from(("1st", "2nd", "3rd", "4th", "5th", "last")), st.sampled_from(WEEKDAYS)
).map(" ".join)
NAMED_WEEKDAYS = st.sampled_from([*WEEKDAYS, "mon-fri", "thu-sun", "sat-sun"])
FIELDS = {
    "month": field(1, 12, st.sampled_from(("jan", "feb-apr", "dec"))), "day": field(1, 31, NAMED_DAYS),
    "day_of_week": field(0, 6, NAMED_WEEKDAYS), "hour": field(0, 23), "minute": field(0, 59), "second": field(0, 59),
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(fields=st.fixed_dictionaries({}, optional=FIELDS))
def test_a_cron_trigger_has_the_next_200_instants_that_apscheduler_has(fields: dict[str, str]) -> None:
    theirs = CronTrigger(**fields, timezone="UTC")
    try:
        rule = moved(theirs)
    except NoEquivalent as refused:
        assume("raise Skip" not in str(refused) and "never falls" not in str(refused))
        raise
    tick, expected = theirs.get_next_fire_time(None, NOW), list[datetime]()
    while len(expected) < 200 and tick is not None and tick.year < 2040:
        expected.append(tick)
        tick = theirs.get_next_fire_time(tick, tick + timedelta(seconds=1))
    assert rule.trigger.timezone == "UTC"
    found, at = list[datetime](), NOW - timedelta(microseconds=1)
    while len(found) < len(expected):
        following = rule.trigger.next_after(at)
        assert following is not None
        at = following
        found.append(at)
    assert found == expected


HOURS = st.sampled_from(("*", "0", "2", "1-3", "*/3", "23"))
SPARSE = { "minute": st.sampled_from(("0", "30", "5,45")),
    "day": st.sampled_from(("*", "1", "last", "*/7")), "day_of_week": st.sampled_from(("*", "sun", "0-4")),
}  # fmt: skip


@settings(max_examples=12, deadline=None)
@example(fields={"hour": "1-3", "minute": "0", "day_of_week": "sun", "day": "1"}, zone="Australia/Lord_Howe")
@given(
    fields=st.fixed_dictionaries({"hour": HOURS}, optional=SPARSE),
    zone=st.sampled_from(("Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Tokyo")),
)
def test_clock_changes_are_told_if_and_only_if_they_change_something(fields: dict[str, str], zone: str) -> None:
    theirs = CronTrigger(**fields, timezone=zone)
    try:
        trigger = moved(theirs).trigger
    except NoEquivalent:
        assume(False)
        raise
    start, end = to_us(NOW), to_us(NOW) + clocks.YEAR
    said = clocks.differences(trigger, lambda a, b: ticks(theirs, a, b), "APScheduler", start)
    assert bool(said) == (list(trigger.latest_in_us(start, end, 20_000)) != ticks(theirs, start, end))
    if said and "keeps what APScheduler did" in said[-1]:
        options = said[-1].rpartition("; ")[2].removesuffix(" keeps what APScheduler did")
        mended = parse(f"{str(trigger)[:-1]}, {options})")
        spans = [clocks._span(mended, jump[0] * 1_000_000, start) for jump in clocks._jumps(mended.zone, start)]  # type: ignore[attr-defined, arg-type]
        assert all(mended.latest_in_us(a, b, 2000) == ticks(theirs, a, b) for a, b in spans)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"hour": 2, "minute": 30},
            "(America/New_York, 02:00 -> 03:00) oncron ticks at 03:00-04:00, APScheduler at 03:30",
        ),
        ({"hour": 1, "minute": 30}, 'ticked at 01:30-05:00, oncron does not; fold="both" keeps what APScheduler did'),
        ({"hour": 0}, "oncron ticks at 00:00-04:00 of 2027-03-15, where APScheduler did not"),
        ({"hour": 12}, None),
        ({"minute": "*/5"}, None),
    ],
)
def test_what_a_clock_change_does_is_told_with_its_date(fields: dict[str, Any], said: str | None) -> None:
    theirs = CronTrigger(**fields, timezone="America/New_York")
    found = clocks.differences(moved(theirs).trigger, lambda a, b: ticks(theirs, a, b), "APScheduler", to_us(NOW))
    assert found == [] if said is None else any(said in text for text in found), found


@settings(max_examples=30, deadline=None)
@given(
    interval=st.integers(1, 40 * 86_400).map(lambda seconds: timedelta(seconds=seconds)),
    start=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(microsecond=0)),
)
def test_an_interval_keeps_its_phase(interval: timedelta, start: datetime) -> None:
    theirs = IntervalTrigger(seconds=interval.total_seconds(), start_date=start, timezone="Europe/Berlin")
    rule = moved(theirs)
    after = max(NOW, rule.options.get("start_at", NOW)) - timedelta(microseconds=1)
    expected = theirs.get_next_fire_time(None, NOW)
    for _ in range(5):
        found = rule.trigger.next_after(after)
        assert found is not None
        assert found == expected
        expected, after = theirs.get_next_fire_time(expected, NOW), found


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from(({"days": 1}, {"days": 3}, {"weeks": 2}, {"weeks": 1, "days": 2}, {"months": 1}, {"years": 1},
                          {"years": 1, "months": 5})),
    start=st.dates(date(2026, 12, 2), date(2028, 12, 31)), hour=st.integers(0, 23),
)  # fmt: skip
def test_a_calendar_interval_keeps_its_days_and_is_left_out_in_the_gap(
    size: dict[str, int], start: date, hour: int
) -> None:
    theirs = CalendarIntervalTrigger(**size, start_date=start, hour=hour, minute=30, timezone="Europe/Berlin")
    rule = moved(theirs)
    after, expected = rule.options["start_at"] - timedelta(seconds=1), None
    for _ in range(12):
        expected = theirs.get_next_fire_time(expected, NOW)
        found = rule.trigger.next_after(after)
        assert found == expected
        assert found is not None
        after = found


def test_weekdays_by_number_are_written_by_name_and_it_is_said() -> None:
    rule = moved(CronTrigger.from_crontab("0 8 * * 0", timezone="UTC"))
    assert str(rule.trigger) == 'cron("0 8 * * mon", timezone="UTC")'
    assert "day_of_week='0' is Monday: APScheduler counts from Monday = 0, cron from Sunday = 0" in rule.differs[0]


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        (CronTrigger(week="2", timezone="UTC"), "week='2' counts ISO weeks"),
        (CronTrigger(year="2027,2029", timezone="UTC"), "cron has no years, and these do not follow each other"),
        (CronTrigger(day="last", day_of_week="fri", timezone="UTC"), "has no equivalent; schedule the days and raise"),
        (CronTrigger(day="1st mon", day_of_week="fri", timezone="UTC"), "it has never run"),
        (CronTrigger(day="30", month="2", timezone="UTC"), "no such date ever occurs"),
        (CronTrigger(hour=1, end_date="2020-01-01", timezone="UTC"), "it has no run left"),
        (OrTrigger([CronTrigger(hour=1, timezone="UTC")]), "make one schedule for each of them"),
        (AndTrigger([CronTrigger(hour=1, timezone="UTC")]), "AndTrigger has no equivalent"),
        (CronTrigger(hour=1, timezone=timezone(timedelta(hours=5, minutes=30))), "give it an IANA zone there first"),
        (CalendarIntervalTrigger(months=1, days=1, timezone="UTC"), "months and days in one interval"),
    ],
)
def test_what_has_no_equivalent_is_refused_with_a_reason(trigger: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        moved(trigger)


# --- jobs in code -----------------------------------------------------------------------------


def test_what_is_printed_runs_and_has_the_ticks_of_the_scheduler(oncron: Call, jobs: Path) -> None:
    result = oncron("import", "apscheduler", "oldjobs:scheduler")
    assert result.code == 1, "what is refused is no success"
    declared = moving.run(result.out, jobs)
    schedules = declared["schedules"]
    assert set(schedules) == {"reindex", "numbered", "mail", "mail-2", "anchored", "first", "years", "dated"}
    assert schedules["reindex"]["args"] == {"index": "main", "deep": True}
    assert declared["tasks"]["mail"] == 13, "three at once of one job, and one of each of the ten others"
    start = datetime.now(UTC)
    end = start + timedelta(days=40)
    for job in importlib.import_module("oldjobs").scheduler.get_jobs():
        if job.id in schedules and job.id not in ("years", "dated"):
            expected = ticks(job.trigger, to_us(start), to_us(end))
            assert [to_us(at) for at in parse(schedules[job.id]["trigger"]).between(start, end)] == expected


def test_refusals_are_told_one_by_one(oncron: Call, jobs: Path) -> None:
    result = oncron("import", "apscheduler", "oldjobs:scheduler")
    refused = [line for line in result.err.splitlines() if line.startswith("refused: ")]
    assert [line.split(": ")[1] for line in refused] == ["weeks", "thirteenth", "host", "nameless", "starred", "past"]
    assert "it wants day 13 of the month and Friday at once" in refused[1]
    assert "APScheduler took the host's; oncron never does: give --timezone ZONE" in refused[2]
    assert "its function oldjobs:tidy cannot be a task as it is: task 'tidy'" in refused[4]
    assert "is over" in refused[5]


def test_with_a_zone_given_the_host_zone_is_replaced(oncron: Call, jobs: Path) -> None:
    rows = oncron("import", "apscheduler", "oldjobs:scheduler", "--timezone", "Asia/Tokyo", "--json").json["schedules"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["host"]["timezone"] == "Asia/Tokyo"
    assert by_name["first"]["timezone"] == "America/New_York"


def test_policies_become_options(oncron: Call, jobs: Path) -> None:
    found = oncron("import", "apscheduler", "oldjobs:scheduler", "--json").json
    options = {row["name"]: row["options"] for row in found["schedules"]}
    assert options["numbered"] == {"overlap": "allow", "retries": 0}
    assert options["mail"] == {"missed": "all", "missed_within": 600, "retries": 0, "jitter": 3}
    assert options["anchored"] == {"missed_within": 1, "retries": 0, "paused": True}
    assert options["years"]["start_at"] == "2030-01-01T05:00:00Z"
    assert options["years"]["end_at"] == "2032-01-01T04:59:59Z"
    assert any("misfire_grace_time is missed_within" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        ("scheduler = 1", "oldjobs:scheduler", "oldjobs:scheduler is a int and no scheduler of APScheduler 3"),
        ("1 / 0", "oldjobs:scheduler", "oldjobs cannot be imported: oldjobs.py:1: ZeroDivisionError"),
        ("import absent_one", "oldjobs:scheduler", "No module named 'absent_one'"),
        ("", "oldjobs:scheduler", "oldjobs has no 'scheduler'; write the name of its scheduler"),
        ("", "oldjobs", "write MODULE:SCHEDULER"),
        ("", "nowhere:scheduler", "no module 'nowhere' in"),
        (
            "from apscheduler.schedulers.background import *\nscheduler = BackgroundScheduler()\nscheduler.start()",
            "oldjobs:scheduler",
            "its scheduler is started while it is imported",
        ),
    ],
)
def test_code_that_cannot_be_read_is_told_in_a_sentence(
    oncron: Call, jobs: Path, text: str, target: str, said: str
) -> None:
    (jobs / "oldjobs.py").write_text(text)
    result = oncron("import", "apscheduler", target)
    assert result.code == 2
    assert said in result.err


def test_one_source_is_needed_and_only_one(oncron: Call, jobs: Path) -> None:
    for arguments in ((), ("oldjobs:scheduler", "--jobstore", "sqlite:///x"), ("oldjobs:scheduler", "--trust")):
        assert oncron("import", "apscheduler", *arguments).code == 2


# --- the job store ----------------------------------------------------------------------------


def tidy(days: int = 1, deep: bool = False) -> None: ...


class Order:
    """An argument that is no plain value."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundScheduler]:
    monkeypatch.chdir(tmp_path)
    jobstore = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/store.db")
    scheduler = BackgroundScheduler(jobstores={"default": jobstore}, timezone="Europe/Berlin")
    scheduler.start(paused=True)
    yield scheduler
    scheduler.shutdown()


def test_a_job_store_is_read_without_unpickling(oncron: Call, store: BackgroundScheduler, tmp_path: Path) -> None:
    store.add_job(tidy, "cron", hour="*/6", day_of_week="mon-fri", kwargs={"days": 2}, id="a")
    store.add_job(tidy, "interval", hours=7, id="b", next_run_time=None)
    store.add_job(tidy, "date", run_date="2031-05-01 08:00:00", id="c")
    store.add_job(tidy, CronTrigger(day="last sun", hour=3, timezone="Asia/Tokyo"), id="d")
    triggers = {job.id: job.trigger for job in store.get_jobs()}
    result = oncron("import", "apscheduler", "--jobstore", f"sqlite:///{tmp_path}/store.db", "--json")
    rows = {row["name"]: row for row in result.json["schedules"]}
    assert result.code == 0, result.out
    assert set(rows) == set("abcd")
    start = datetime.now(UTC)
    for name, row in rows.items():
        expected = ticks(triggers[name], to_us(start), to_us(start) + 40 * 86_400 * 10**6)
        found = parse(row["trigger"]).between(start, start + timedelta(days=40))
        assert [to_us(at) for at in found] == expected or name == "c"
    assert rows["a"]["options"]["args"] == {"days": 2}
    assert rows["b"]["options"]["paused"] is True
    assert rows["c"]["trigger"] == 'once("2031-05-01T06:00:00Z")'


def test_positional_arguments_get_names_only_from_a_trusted_function(
    oncron: Call, store: BackgroundScheduler, tmp_path: Path
) -> None:
    (tmp_path / "trusted_code.py").write_text("def tidy(days, deep=False): ...\n")
    import sys

    sys.path.insert(0, str(tmp_path))
    try:
        store.add_job("trusted_code:tidy", "cron", hour=3, args=[2], id="a")
        url = f"sqlite:///{tmp_path}/store.db"
        assert "its positional arguments (2) have no names" in oncron("import", "apscheduler", "--jobstore", url).err
        (row,) = oncron("import", "apscheduler", "--jobstore", url, "--trust", "--json").json["schedules"]
        assert row["options"]["args"] == {"days": 2}
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("trusted_code", None)


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.write_text, (Path("exploded"), "it ran"))


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(
    oncron: Call, store: BackgroundScheduler, tmp_path: Path
) -> None:
    store.add_job(tidy, "cron", hour=3, id="good")
    store.add_job(tidy, "cron", hour=3, kwargs={"days": Order()}, id="order")
    with sqlite3.connect(tmp_path / "store.db") as connection:
        rows = [
            ("bomb", pickle.dumps({"trigger": Bomb()})),
            ("broken", b"\x80\x05nothing"),
            ("other", pickle.dumps([1])),
        ]
        connection.executemany("insert into apscheduler_jobs (id, job_state) values (?, ?)", rows)
    result = oncron("import", "apscheduler", "--jobstore", f"sqlite:///{tmp_path}/store.db")
    assert result.code == 1
    assert not Path("exploded").exists()
    refused = {line.split(": ")[1]: line for line in result.err.splitlines() if line.startswith("refused: ")}
    assert set(refused) == {"bomb", "broken", "order", "other"}
    assert "which is not loaded, as that would run code" in refused["bomb"]
    assert "cannot be read" in refused["broken"]
    assert "none of an APScheduler 3 job" in refused["other"]
    assert 'app.add_schedule("good"' in result.out.replace("\n    ", "")


def test_no_text_of_a_job_store_becomes_code(oncron: Call, store: BackgroundScheduler, tmp_path: Path) -> None:
    state = store.add_job(tidy, "cron", hour=3, id="good").__getstate__()
    hostile = "x\nimport os; os.mkdir('made')\r\u2028\x00" + '"' * 3 + "'" * 3
    rows = [
        (hostile, pickle.dumps(state | {"id": hostile})),
        ("spoken", pickle.dumps(state | {"id": "spoken", "kwargs": {"days": hostile, hostile: 1}})),
        ("place", pickle.dumps(state | {"id": "place", "func": "os;os:mkdir"})),
        ("word", pickle.dumps(state | {"id": "word", "func": "os:import"})),
        ("lacking", pickle.dumps({name: value for name, value in state.items() if name != "coalesce"})),
        ("odd", pickle.dumps(state | {"id": "odd", "misfire_grace_time": "soon"})),
    ]
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.executemany("insert into apscheduler_jobs (id, job_state) values (?, ?)", rows)
    result = oncron("import", "apscheduler", "--jobstore", f"sqlite:///{tmp_path}/store.db")
    refused = {line.split(": ")[1]: line for line in result.err.splitlines() if line.startswith("refused: ")}
    assert "has no place that can be imported" in refused["place"]
    assert "has no place that can be imported" in refused["word"]
    assert "its state lacks 'coalesce'" in refused["lacking"]
    assert "it is not as APScheduler 3.11 makes it" in refused["odd"]
    assert len(refused) == 5, "a name with control characters is none"
    nodes = list(ast.walk(ast.parse(result.out)))
    imported = {name.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names}
    assert imported == {"Oncron", "cron", __name__}
    assert hostile in {node.value for node in nodes if isinstance(node, ast.Constant)}


def test_jobs_without_an_id_get_names_that_no_other_job_has(oncron: Call, jobs: Path) -> None:
    extra = 'scheduler.add_job(mail, "cron", hour=1, id="mail")\nscheduler.add_job(mail, "cron", hour=2, id="mail-3")\n'
    (jobs / "oldjobs.py").write_text(JOBS + extra)
    names = {row["name"] for row in oncron("import", "apscheduler", "oldjobs:scheduler", "--json").json["schedules"]}
    assert {"mail", "mail-2", "mail-3", "mail-4"} <= names


def test_attributes_cannot_be_asked_for_through_the_pickle() -> None:
    chain = b"cbuiltins\ngetattr\n(cdatetime\ndatetime\nS'__subclasses__'\ntR."
    with pytest.raises(NoEquivalent, match="it asks for an attribute"):
        unpickled.job_state(chain)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sqlite:///absent.db",), "there is no file 'absent.db'; an absolute one has four slashes"),
        (("sqlite:///store.db", "--table", "jobs"), "no such table: jobs; give its name with --table"),
        (("sqlite:///store.db", "--table", "jobs; drop"), "is no name of a table"),
        (("sqlite:///text.db",), "'text.db' cannot be read: file is not a database"),
    ],
)
def test_a_job_store_that_cannot_be_read_is_told(
    oncron: Call, store: BackgroundScheduler, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "text.db").write_text("this is no database\n" * 100)
    result = oncron("import", "apscheduler", "--jobstore", *arguments)
    assert result.code == 2
    assert said in result.err


def test_a_job_store_in_postgresql_is_read(oncron: Call, store: BackgroundScheduler, postgres_url: str) -> None:
    state = store.add_job(tidy, "cron", hour=3, id="nightly").__getstate__()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table apscheduler_jobs (id text primary key, next_run_time float8, job_state bytea)")
        connection.execute("insert into apscheduler_jobs values ('nightly', 1, %s)", [pickle.dumps(state)])
    url = postgres_url.replace("postgresql://", "postgresql+psycopg2://")
    (row,) = oncron("import", "apscheduler", "--jobstore", url, "--json").json["schedules"]
    assert row["trigger"] == 'cron("0 3 * * *", timezone="Europe/Berlin")'
    absent = oncron("import", "apscheduler", "--jobstore", url, "--table", "absent")
    assert (absent.code, 'relation "absent" does not exist' in absent.err) == (2, True)
    nobody = oncron("import", "apscheduler", "--jobstore", "postgresql://127.0.0.1:9/nothing")
    assert (nobody.code, "the database cannot be read" in nobody.err) == (2, True)
