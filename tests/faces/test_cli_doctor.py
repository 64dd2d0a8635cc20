"""`doctor`: says nothing of a store that is well, and finds each thing that was broken by hand."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncron import Oncron, cron, every
from oncron._clock import SECOND, machine_us
from oncron._model import (
    ClaimSpec,
    Definition,
    NewRun,
    Overlap,
    ScheduleRecord,
    Status,
    WorkerRecord,
    new_id,
    new_run_id,
    sortable_version,
)
from oncron._store import ReadableStore
from oncron.cli.findings import Facts, examine
from oncron.stores.sqlite import SQLiteStore
from oncron.triggers import tzdata_version

URL = "sqlite:///well.db"
HOUR = 3600 * SECOND

JOBS = """
from oncron import Oncron, cron, every
app = Oncron("sqlite:///well.db", timezone="Europe/Berlin")
@app.task
def work() -> None: ...
app.add_schedule("yearly", cron("0 0 1 1 *"), work, overlap="queue")
app.add_schedule("leap", cron("30 2 29 2 *"), work)
app.add_schedule("resting", every(hours=1), work, paused=True)
"""


def replica(name: str, **options) -> WorkerRecord:
    known = {"host": "one", "pid": 7, "roles": ("scheduler", "worker"), "tzdata": sortable_version(tzdata_version())}
    return WorkerRecord(id=name, **(known | options))


async def put_in_order(store: ReadableStore, app: Oncron) -> None:
    """Three schedules, a replica with a lease of an hour, which holds a run of `yearly`; another one waits."""
    await app.put_schedule("yearly", cron("0 0 1 1 *"), "work", overlap="queue")
    await app.put_schedule("leap", cron("30 2 29 2 *"), "work")
    await app.put_schedule("resting", every(hours=1), "work", paused=True)
    await store.open()
    await store.heartbeat(replica("alive"), HOUR)
    await store.enqueue([NewRun(id=new_run_id(), task="work", schedule="yearly") for _ in range(2)])
    spec = ClaimSpec(claim_id=new_id(), worker="alive", limit=5, lease_for=HOUR, tasks=("work",))
    assert len((await store.claim(spec)).runs) == 1
    await store.close()


@pytest.fixture(scope="module")
def _well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("well")
    app = Oncron(f"sqlite:///{folder}/well.db", timezone="Europe/Berlin")
    asyncio.run(put_in_order(SQLiteStore(folder / "well.db"), app))
    app._life.at_exit()
    (folder / "well_jobs.py").write_text(JOBS)
    return folder


@pytest.fixture
def well(_well, tmp_path, monkeypatch):
    shutil.copytree(_well, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("well_jobs", None)


def found(oncron, *arguments: str) -> dict[str, bool]:
    """Name of each finding, and whether it is wrong; the exit code says the same."""
    told = oncron("doctor", *(arguments or ("--store", URL)), "--json")
    names = {item["name"]: item["wrong"] for item in told.json["findings"]}
    assert told.code == int(any(names.values()))
    assert told.json["healthy"] == (told.code == 0)
    return names


def test_a_store_that_is_well_has_no_findings(oncron, well):
    told = oncron("doctor", "--store", URL)
    assert told.code == 0
    assert told.out.startswith("sqlite:///well.db at 20")
    assert told.out.endswith(": 2 active schedules, 2 open runs, 1 replica\nNothing is wrong.\n")
    assert found(oncron) == {}


def ago(duration: int) -> int:
    return machine_us() - duration


BROKEN = {
    "overdue": ("update oncron_cursors set next_at = :minutes_ago where name = 'yearly'", {"overdue": True}),
    "next tick moved": (
        "update oncron_cursors set next_at = next_at + 1 where name = 'leap'",
        {"wrong_next_tick": True},
    ),
    "next tick lost": (
        "update oncron_cursors set next_at = null where name = 'leap'",
        {"wrong_next_tick": True},
    ),
    "a paused one with a next tick": (
        "update oncron_cursors set next_at = cursor + 1 where name = 'resting'",
        {"wrong_next_tick": True},
    ),
    "cursor in the future": (
        "update oncron_cursors set cursor = :in_an_hour where name = 'resting'",
        {"cursor_ahead": True},
    ),
    "a trigger of a newer release": (
        "update oncron_schedules set definition = replace(definition, 'cron(', 'lunar(') where name = 'leap'",
        {"unreadable_trigger": True},
    ),
    "dormant": (
        "update oncron_cursors set status = 'dormant', next_at = null where name = 'leap'",
        {"dormant": False},
    ),
    "no scheduler": ("""update oncron_workers set roles = '["worker"]'""", {"no_scheduler": True}),
    "no worker": ("""update oncron_workers set roles = '["scheduler"]'""", {"no_worker": True}),
    "a worker died": (
        "update oncron_workers set lease_until = :minutes_ago",
        {"no_scheduler": True, "no_worker": True, "left_behind": True},
    ),
    "a worker left, its runs did not": (
        "delete from oncron_workers; update oncron_runs set token = :minutes_ago where state = 'running'",
        {"no_scheduler": True, "no_worker": True, "left_behind": True},
    ),
    "nobody has the place": ("update oncron_runs set parked = 1", {"no_head": True}),
    "two have the place": ("update oncron_runs set parked = 0", {"several_heads": True}),
    "nobody alive has a task": (
        (
            """update oncron_workers set tasks = '["work"]'; """
            "update oncron_runs set task = 'wrok', due_at = :moments_ago, schedule = null, parked = 0 where parked = 1"
        ),
        {"unclaimable": True},
    ),
    "nobody alive serves a queue": (
        (
            """update oncron_workers set tasks = '["work"]', queues = '["default"]'; """
            "update oncron_runs set queue = 'mail', due_at = :moments_ago, schedule = null, parked = 0 where parked = 1"
        ),
        {"unclaimable": True},
    ),
    "nobody alive has the task of a schedule": (
        """update oncron_workers set tasks = '["other"]'""",
        {"unattended": False},
    ),
    "a queue is paused": (
        (
            "insert into oncron_queues (name, paused, note, changed_at) values ('mail', 1, 'provider is down', 0); "
            "update oncron_runs set queue = 'mail', due_at = :minutes_ago, schedule = null, parked = 0 where parked = 1"
        ),
        {"paused_queue": False},
    ),
    "nobody takes what they could": (
        "update oncron_runs set task = 'wrok', due_at = :minutes_ago, schedule = null, parked = 0 where parked = 1",
        {"unclaimed": True},
    ),
    "a replica's clock is behind": ("update oncron_workers set skew = -1700000", {"replica_skew": False}),
    "old zone data": ("update oncron_workers set tzdata = '2019.01'", {"old_zone_data": False}),
    "an old schema": ("update oncron_meta set schema_minor = 0", {"schema": True}),
    "a schema of a newer major release": ("update oncron_meta set schema_major = 99", {"schema": True}),
    "no schema": ("drop table oncron_meta", {"schema": True}),
    "the store's clock is a little ahead": (
        "update oncron_meta set now_at = :in_ten_seconds",
        {"clock_skew": False},
    ),
    "the store's clock is far ahead": ("update oncron_meta set now_at = :in_an_hour", {"unavailable": True}),
    "another machine": ("update oncron_meta set boot_id = 'elsewhere'", {"unsafe": True}),
    "no database": (None, {"unsafe": True}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_found_and_nothing_else(oncron, well, case):
    statements, findings = BROKEN[case]
    if statements is None:
        Path("well.db").write_bytes(b"This is no database, whatever its name says. " * 100)
        for rest in ("well.db-wal", "well.db-shm"):
            Path(rest).unlink(missing_ok=True)
    else:
        instants = {
            "minutes_ago": ago(20 * 60 * SECOND),
            "moments_ago": ago(SECOND),
            "in_an_hour": ago(-HOUR),
            "in_ten_seconds": ago(-10 * SECOND),
        }
        with closing(sqlite3.connect("well.db", isolation_level=None)) as connection:
            for statement in statements.split("; "):
                used = {name: at for name, at in instants.items() if f":{name}" in statement}
                connection.execute(statement, used)
    assert found(oncron) == findings
    told = oncron("doctor", "--store", URL)
    for name, wrong in findings.items():
        (line,) = [line for line in told.out.splitlines() if f": {name}: " in line]
        assert line.startswith("wrong: " if wrong else "note: ")
    strict = oncron("doctor", "--store", URL, "--strict")
    assert strict.code == 1


def test_several_hosts_on_one_file_are_worth_knowing(oncron, well):
    async def join() -> None:
        store = SQLiteStore(well / "well.db")
        await store.heartbeat(replica("second", host="two"), HOUR)
        await store.close()

    asyncio.run(join())
    assert found(oncron) == {"several_hosts": False}


def test_with_code_what_is_not_in_the_store_and_tasks_it_lacks_are_worth_knowing(oncron, well):
    assert found(oncron, "well_jobs") == {}
    sys.modules.pop("well_jobs")
    text = JOBS.replace("def work()", "def other()").replace(", work", ", 'work'")
    Path("well_jobs.py").write_text(text + "app.add_schedule('fresh', every(hours=1), 'work')\n")
    assert found(oncron, "well_jobs") == {"undeclared": False, "foreign_task": False}


def test_it_changes_nothing_and_makes_no_schema(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty_jobs.py").write_text("from oncron import Oncron\napp = Oncron('sqlite:///fresh.db')\n")
    for _ in range(2):
        assert found(oncron, "empty_jobs") == {"schema": True}
    with closing(sqlite3.connect("fresh.db")) as connection:
        assert connection.execute("select count(*) from sqlite_master").fetchone() == (0,)


def test_a_line_names_the_first_few_and_counts_the_rest():
    rule = Definition(name="", trigger=str(cron("0 3 * * *").bind("x", "UTC")), task="t")
    rows = [
        ScheduleRecord(
            definition=replace(rule, name=f"x{k}"), status=Status.DORMANT, revision=1, cursor=0, next_at=None
        )
        for k in range(9)
    ]
    facts = Facts(
        url="memory://", now=HOUR, skew=0, schedules=rows, workers=(), open_runs=(), expired=False, lease_for=SECOND,
        tzdata="2026.01",
    )  # fmt: skip
    (finding,) = examine(facts)
    assert finding.what.startswith("9 schedules (x0, x1, x2 and 6 more) dormant: no replica's code declares them")
    assert len(finding.which) == 9


def test_a_busy_replica_is_never_found_ill(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = Oncron("sqlite:///busy.db")

    @app.task
    async def work() -> None: ...

    for k, overlap in enumerate(("queue", "wait", "cancel", "skip", "allow")):
        app.add_schedule(f"s{k}", every(seconds=0.05), work, overlap=overlap, missed="all")  # type: ignore[arg-type]
    with app:
        for _ in range(8):
            told = oncron("doctor", "--store", "sqlite:///busy.db")
            assert told.code == 0, told.out


def test_postgresql_is_examined_alike(oncron, postgres_url):
    app = Oncron(postgres_url)

    async def seed() -> None:
        await app.put_schedule("yearly", cron("0 0 1 1 *"), "work", overlap=Overlap.QUEUE.value)
        await app._desk.ask(lambda store: store.heartbeat(replica("alive"), HOUR))
        for _ in range(2):
            await app.fire("yearly")

    app.sync(seed())
    app._life.at_exit()
    assert found(oncron, "--store", postgres_url) == {}
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("update oncron.runs set parked = true")
        connection.execute("update oncron.cursors set next_at = 7200000000")
    assert found(oncron, "--store", postgres_url) == {"no_head": True, "overdue": True}
