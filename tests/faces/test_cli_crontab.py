"""`oncron crontab`: what is said before anything runs, and what a command finds."""

from __future__ import annotations

import getpass
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncron import Oncron as App
from tests.faces.commands import Oncron, wait_until
from tests.faces.conftest import Call

NEVER = "0 0 29 2 *"
"""No tick of it comes while a test runs: its runs are fired by hand."""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "crontab"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app._life.at_exit()


def test_every_schedule_is_told_with_its_zone_and_its_next_instants(oncron: Call, table: Path) -> None:
    table.write_text("MAILTO=ops\n@daily first\nCRON_TZ=Asia/Tokyo\n# oncron: name=second\n30 4 * * mon second --x\n")
    result = oncron("crontab", "crontab", "--timezone", "Europe/Berlin", "--check")
    assert result.code == 0
    assert "first-" in result.out
    assert "zone Europe/Berlin" in result.out
    assert "second: on Mondays at 04:30 (Asia/Tokyo): second --x" in result.out
    assert result.out.count("  next ") == 6
    assert result.err.startswith("crontab:1: note: MAILTO is ignored")
    assert not Path("oncron.db").exists()


def test_what_the_file_means_as_json(oncron: Call, table: Path) -> None:
    table.write_text("A=1\n# oncron: name=first timeout=90 overlap=wait\n30 4 * * mon cat%one\n")
    (found,) = oncron("crontab", "crontab", "--timezone", "Asia/Tokyo", "--json").json
    assert len(found.pop("next")) == 3
    assert found == {
        "line": 3,
        "schedule": "first",
        "trigger": 'cron("30 4 * * mon", timezone="Asia/Tokyo")',
        "words": "on Mondays at 04:30 (Asia/Tokyo)",
        "timezone": "Asia/Tokyo",
        "command": "cat",
        "options": {"timeout": 90.0, "overlap": "wait", "retries": 0},
        "stdin": "one\n",
        "user": None,
        "environment": {"A": "1"},
    }


def test_without_a_zone_nothing_starts(oncron: Call, table: Path) -> None:
    table.write_text("@daily first\nCRON_TZ=UTC\n@daily second\n@daily third\n")
    result = oncron("crontab", "crontab", "--store", "sqlite:///jobs.db")
    assert result.code == 2
    assert "no zone is known for line 1 of crontab: give --timezone ZONE, or CRON_TZ=ZONE above" in result.err
    assert result.out == ""


def test_all_broken_lines_are_told_with_numbers_and_none_runs(oncron: Call, table: Path) -> None:
    table.write_text(
        "@reboot start\n* * * * * fine\n61 * * * * x\n"
        "# oncron: overlap=both\n@daily y\n# oncron: retries=-1\n@daily z\n"
    )
    result = oncron("crontab", "crontab", "--timezone", "UTC", "--store", "sqlite:///jobs.db")
    assert result.code == 2
    assert [line.split(": ")[0] for line in result.err.splitlines()[:-1]] == [f"crontab:{n}" for n in (1, 3, 5, 7)]
    assert "4 broken lines in crontab: nothing runs" in result.err
    assert result.out == ""
    assert not Path("jobs.db").exists()


def test_a_broken_line_does_not_hide_that_others_have_no_zone(oncron: Call, table: Path) -> None:
    table.write_text("61 * * * * x\n@daily fine\n")
    result = oncron("crontab", "crontab", "--check", "--store", "sqlite:///jobs.db")
    assert result.code == 2
    assert "crontab:1: minute" in result.err
    assert "1 broken line in crontab: nothing runs; and no zone is known for line 2 of crontab: give" in result.err


def test_a_user_column_that_is_not_followed_is_told(oncron: Call, table: Path) -> None:
    table.write_text(f"@daily nobody true\n@daily {getpass.getuser()} true\n")
    result = oncron("crontab", "crontab", "--system", "--timezone", "UTC", "--check")
    assert result.code == 0
    assert [line for line in result.err.splitlines() if "user column" in line] == [
        f"crontab:1: note: the user column says 'nobody'; it runs as '{getpass.getuser()}', who runs oncron"
    ]


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        (None, (), "crontab cannot be read: No such file"),
        ("# nothing\n", ("--timezone", "UTC"), "crontab runs nothing"),
        ("@daily x\n", ("--timezone", "Mars"), "Mars"),
        ("@daily x\n", ("--timezone", "UTC", "--overlap", "both"), "--overlap 'both'"),
        ("@daily x\n", ("--timezone", "UTC", "--timeout", "x"), "--timeout"),
    ],
)
def test_wrong_use_says_what_to_do(
    oncron: Call, table: Path, text: str | None, arguments: tuple[str, ...], says: str
) -> None:
    if text is not None:
        table.write_text(text)
    result = oncron("crontab", "crontab", *arguments)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert says in result.err


def test_a_command_runs_as_cron_would_run_it(table: Path, tmp_path: Path, app: App) -> None:
    table.write_text(
        f"SHELL=/bin/bash\nHOME={tmp_path}\nGREETING=hello  \n"
        "# oncron: name=talk timeout=1min\n"
        f'{NEVER} [[ -n $BASH ]] && echo "$GREETING $ONCRON_SCHEDULE $(pwd) $SHELL" > said; '
        "cat >> said%one%two \\% %\n"
    )
    process = Oncron(tmp_path, "crontab", "crontab", "--timezone", "UTC", "--store", "sqlite:///jobs.db")
    try:
        process.hears("worker.started")
        run = app.sync(app.fire("talk"))
        app.sync(run.wait(20))
        assert (tmp_path / "said").read_text() == f"hello talk {tmp_path} /bin/bash\none\ntwo % \n"
        assert run.record.timeout == 60_000_000
        process.tell(signal.SIGTERM)
        assert process.ends() == 0
    finally:
        process.close()


def test_two_hosts_with_one_crontab_share_its_schedules(table: Path, tmp_path: Path, app: App) -> None:
    table.write_text(f"# oncron: name=who\n{NEVER} echo $HOST >> ran\n")
    hosts = [
        Oncron(tmp_path, "crontab", "crontab", "--timezone", "UTC", "--store", "sqlite:///jobs.db",
               environment={"HOST": name, "HOME": str(tmp_path)})
        for name in ("one", "other")
    ]  # fmt: skip
    try:
        for host in hosts:
            host.hears("worker.started")
        assert [schedule.name for schedule in app.sync(app.schedules())] == ["who"]
        app.sync(app.sync(app.fire("who")).wait(20))
        hosts[0].tell(signal.SIGTERM)
        assert hosts[0].ends() == 0
        app.sync(app.sync(app.fire("who")).wait(20))
        wait_until(lambda: (tmp_path / "ran").read_text().endswith("other\n"))
        assert len((tmp_path / "ran").read_text().splitlines()) == 2
    finally:
        for host in hosts:
            host.close()
