"""`oncron import`: a crontab, and what can be done with any source: print it, write it, read it as JSON."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from oncron import Oncron
from oncron.cli.moving import fields, source
from oncron.cli.moving.moved import NoEquivalent
from oncron.triggers import cron, parse
from tests.faces import moving
from tests.faces.conftest import Call

TABLE = """\
CRON_TZ=Europe/Berlin
MAILTO=ops@example.org
GREETING='hello there'
# oncron: name=backup timeout=30min overlap=wait
30 2 * * * echo "$GREETING, it's" > first
*/5 * * * * cat > second%one%two
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crontab").write_text(TABLE)
    return tmp_path


@pytest.fixture
def store(oncron: Call, folder: Path) -> str:
    url = f"sqlite:///{folder}/jobs.db"
    assert oncron("migrate", "--store", url).code == 0
    return url


def schedules(url: str) -> dict[str, tuple[int, str, str]]:
    app = Oncron(url)
    found = app.sync(app.schedules())
    app._life.at_exit()
    return {each.name: (each.revision, each.task, each.trigger) for each in found}


def test_what_is_printed_runs_and_has_the_ticks_of_the_crontab(oncron: Call, folder: Path) -> None:
    result = oncron("import", "crontab", "crontab")
    assert result.code == 0
    assert result.err.startswith("2 schedules from the crontab crontab")
    declared = moving.run(result.out, folder)["schedules"]
    (other,) = set(declared) - {"backup"}
    start, end = datetime(2027, 3, 27, tzinfo=UTC), datetime(2027, 3, 29, tzinfo=UTC)
    for name, expression in (("backup", "30 2 * * *"), (other, "*/5 * * * *")):
        expected = cron(expression, timezone="Europe/Berlin")
        assert parse(declared[name]["trigger"]).between(start, end) == expected.between(start, end)
    assert "MAILTO is ignored" in result.out


def test_a_printed_command_does_what_cron_would_have_done(
    oncron: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "printed_commands.py").write_text(oncron("import", "crontab", "crontab").out)
    monkeypatch.syspath_prepend(folder)
    printed = __import__("printed_commands")
    try:
        for task in printed.app._registry.tasks.values():
            task.fn()
    finally:
        del sys.modules["printed_commands"]
    assert (folder / "first").read_text() == "hello there, it's\n"
    assert (folder / "second").read_text() == "one\ntwo\n"


def test_every_broken_line_is_told_and_the_others_come_along(oncron: Call, folder: Path) -> None:
    (folder / "crontab").write_text("61 * * * * x\n@daily fine\n@reboot y\nCRON_TZ=UTC\n@hourly good\n")
    result = oncron("import", "crontab", "crontab")
    assert result.code == 1
    assert "refused: line 1: minute: 61 is outside 0-59" in result.err
    assert "refused: line 2: its zone is the host's, which oncron never takes: give --timezone ZONE" in result.err
    assert "refused: line 3: @reboot is refused" in result.err
    assert [name[:5] for name in moving.run(result.out, folder)["schedules"]] == ["good-"]
    assert "# Not moved:" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("crontab", "absent"), "absent cannot be read: No such file or directory"),
        (("crontab", "crontab", "--timezone", "Berlin"), "did you mean Europe/Berlin?"),
        (("crontab", "crontab", "--yes"), "go with --write"),
        (("crontab", "crontab", "--print", "--write"), "--print and --write exclude each other"),
        (("crontab", "crontab", "--write"), "--write needs --store URL, or $ONCRON_STORE"),
        (("crontab", "crontab", "--write", "--store", "sqlite:///jobs.db"), "there is no file 'jobs.db'"),
        (("crontab", "crontab", "--write", "--store", "x", "--task-map", "a"), "--task-map 'a': write OLD=NEW"),
        (("luigi", "x"), "No such command 'luigi'"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(oncron: Call, folder: Path, arguments: tuple[str, ...], said: str) -> None:
    result = oncron("import", *arguments)
    assert result.code == 2
    assert said in result.err
    assert result.out == ""


def test_writing_begins_with_a_dry_run_and_repeating_it_changes_nothing(oncron: Call, folder: Path, store: str) -> None:
    arguments = ("import", "crontab", "crontab", "--write", "--store", store, "--task-map", "backup=save")
    dry = oncron(*arguments)
    assert dry.code == 0
    assert dry.out.count("created") == 2
    assert "nothing is written. Add --yes" in dry.out
    assert schedules(store) == {}

    assert oncron(*arguments, "--yes").code == 0
    written = schedules(store)
    assert written["backup"] == (1, "save", 'cron("30 2 * * *", timezone="Europe/Berlin")')
    assert len(written) == 2

    again = oncron(*arguments, "--yes")
    assert again.out.count("as it is") == 2
    assert "nothing is written" not in again.out
    assert schedules(store) == written

    (folder / "crontab").write_text(TABLE.replace("30 2", "45 2"))
    changed = oncron(*arguments, "--yes")
    assert "backup: trigger: every day at 02:30 (Europe/Berlin) -> every day at 02:45 (Europe/Berlin)" in changed.out
    assert schedules(store)["backup"][0] == 2


def test_a_schedule_that_code_declares_is_not_written_over(oncron: Call, folder: Path, store: str) -> None:
    app = Oncron(store)
    app.add_schedule("backup", cron("@daily"), "backup")
    with app:
        pass
    result = oncron("import", "crontab", "crontab", "--write", "--store", store, "--yes")
    assert "backup: code declares a schedule of this name; rename one of them" in result.out
    assert schedules(store)["backup"][2] == 'cron("@daily", timezone="UTC")'
    assert result.code == 1


def test_an_unknown_task_cannot_be_renamed(oncron: Call, folder: Path, store: str) -> None:
    result = oncron("import", "crontab", "crontab", "--write", "--store", store, "--task-map", "bakup=x")
    assert result.code == 2
    assert "no imported schedule has the task 'bakup'" in result.err


def test_as_json_each_schedule_has_what_it_was_and_what_differs(oncron: Call, folder: Path, store: str) -> None:
    found = oncron("import", "crontab", "crontab", "--json").json
    first = found["schedules"][0]
    assert first["name"] == "backup"
    assert first["words"] == "every day at 02:30 (Europe/Berlin)"
    assert first["options"] == {"timeout": 1800, "overlap": "wait", "retries": 0}
    assert first["was"].startswith("line 5: echo")
    assert found["refused"] == []
    rows = oncron("import", "crontab", "crontab", "--json", "--write", "--store", store).json["schedules"]
    assert [(row["what"], row["written"]) for row in rows] == [("created", False)] * 2


# --- fields -----------------------------------------------------------------------------------

NUMBERS = st.frozensets(st.integers(1, 31), min_size=1)
WEEKDAYS = st.frozensets(st.integers(0, 6), min_size=1)


@pytest.fixture(scope="module")
def dates() -> list[datetime]:
    return [datetime.fromordinal(datetime(2026, 1, 1).toordinal() + day).replace(tzinfo=UTC) for day in range(1500)]


@settings(max_examples=60, deadline=None)
@given(days=NUMBERS, chosen=WEEKDAYS)
def test_a_day_and_a_weekday_at_once_are_written_so_that_cron_wants_both(
    dates: list[datetime], days: frozenset[int], chosen: frozenset[int]
) -> None:
    written = fields.listed(days, 1, 31)
    if fields.weeks_of(days) is None and 1 not in days and 0 not in chosen:
        with pytest.raises(NoEquivalent, match="raise Skip in the task"):
            fields.both(days, chosen, written)
        return
    day, weekday = fields.both(days, chosen, written)
    expected = [at for at in dates if at.day in days and at.isoweekday() % 7 in chosen]
    found = cron(f"0 0 {day} * {weekday}").between(datetime(2025, 12, 31, 1, tzinfo=UTC), dates[-1])
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(minutes=st.frozensets(st.integers(0, 59), min_size=1))
def test_a_set_of_minutes_is_written_as_a_field_of_the_same_minutes(minutes: frozenset[int]) -> None:
    written = fields.listed(minutes, 0, 59)
    assert cron(f"{written} * * * *").fields.minute.values == tuple(sorted(minutes))
    assert written.startswith("*") == (len(minutes) == 60)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(value=VALUES)
def test_a_written_value_reads_back_as_it_was(value: object) -> None:
    assert eval(source.written(value)) == value
