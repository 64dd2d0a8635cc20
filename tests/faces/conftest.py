"""A shop with a history, and the command line as a user calls it.

oncron      call it: a command in this process, with its exit code, output and errors
shop        a folder with `jobs.py` (an app on SQLite) and runs on record; it is the current directory
in_process  call it: a command in a process of its own
start       call it: a script with an app, in a process of its own
reader      an app on that script's store
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncron import Oncron
from oncron.cli import main
from tests.faces.script import Process, Start

JOBS = """
from oncron import Oncron, RunContext, cron, daily, every, weekly

app = Oncron("sqlite:///{folder}/shop.db", timezone="Europe/Berlin")

@app.schedule(cron("30 2 * * *"), tags=["night"], timeout=60)
async def reindex() -> str:
    return "done"

@app.schedule(daily("03:00"), retries=0)
def broken() -> None:
    raise ValueError("no [red]disk[/red] \\x1b[31m left")

@app.schedule(weekly("mon-fri", "08:00"), name="report-weekdays", args={{"kind": "day"}})
@app.task(queue="reports")
def report(ctx: RunContext, kind: str) -> str:
    return kind

app.add_schedule("somebody-elses", every(hours=1), "unknown", overlap="skip")
"""

SEED = """
from jobs import app
from oncron._model import Change, Gap, GapReason
from oncron.errors import RunFailed

with app:
    for name in ("reindex", "broken"):
        try:
            app.sync(app.sync(app.fire(name, reason="by hand")).wait(20))
        except RunFailed:
            pass

async def leave_a_gap():
    # As a fleet that was down for a day of ticks would.
    row = (await app._desk.ask(lambda store: store.schedules(["somebody-elses"])))[0]
    day = Gap(schedule=row.name, first=row.cursor - 23 * HOUR, last=row.cursor, count=24, reason=GapReason.MISSED)
    change = Change(
        name=row.name, definition=row.definition, status=row.status, new_cursor=row.cursor, next_at=row.next_at,
        seen_revision=row.revision, seen_cursor=row.cursor, gaps=(day,),
    )
    assert (await app._desk.ask(lambda store: store.declare([change])))[0].changed

HOUR = 3600 * 1_000_000
app.sync(leave_a_gap())
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


Call = Callable[..., Result]


@pytest.fixture(scope="session")
def _shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "jobs.py").write_text(JOBS.format(folder=folder))
    subprocess.run([sys.executable, "-c", SEED], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture
def shop(_shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(_shop)
    yield _shop
    sys.modules.pop("jobs", None)


@pytest.fixture
def oncron(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.delenv("ONCRON_STORE", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        captured = capsys.readouterr()
        code = left.value.code
        return Result(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


@pytest.fixture
def in_process() -> Call:
    def call(*arguments: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "oncron", *arguments],
            cwd=cwd, env=os.environ | (environment or {}), capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def begin(body: str, *options: str, stop_within: float = 10) -> Process:
        processes.append(Process(tmp_path, body, stop_within, *options))
        return processes[-1]

    yield begin
    for process in processes:
        process.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Oncron]:
    app = Oncron(f"sqlite:///{tmp_path}/jobs.db")
    yield app
    app._life.at_exit()
