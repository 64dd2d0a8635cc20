"""The examples, started as their users start them: a run is seen, and they stop gracefully."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncron import Oncron
from tests.faces.hosted import EXAMPLES, WITHIN, Program, call

Start = Callable[..., Program]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/oncron.db"


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    started: list[Program] = []

    def begin(*arguments: str, folder: Path | None = None, **environment: str) -> Program:
        started.append(Program(arguments, folder or tmp_path, {"ONCRON_STORE": url, **environment}))
        return started[-1]

    yield begin
    for program in started:
        program.close()


async def ended(store: str, run_id: str) -> Any:
    app = Oncron(store)
    try:
        return await (await app.get_run(run_id)).wait(within=WITHIN)
    finally:
        app._life.at_exit()


async def still_held(store: str) -> list[str]:
    app = Oncron(store)
    try:
        return [run.id for run in await app.runs(state="running")]
    finally:
        app._life.at_exit()


def test_every_example_is_in_the_list() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    there = [path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "_")) and path.suffix != ".md"]
    assert [name for name in there if f"| `{name}" not in text] == []


async def test_the_script_ticks_and_stops(start: Start, url: str) -> None:
    script = start(str(EXAMPLES / "plain_script.py"))
    script.until(r"tick \d\d:\d\d:\d\d\n(.*\n)*hello from")
    assert script.stop() == 0, script.said
    assert await still_held(url) == []


async def test_the_fastapi_service_enqueues_and_runs_and_gives_back_when_uvicorn_stops(start: Start, url: str) -> None:
    service = start("-m", "uvicorn", "fastapi_app:web", "--port", "0")
    at = service.until(r"running on (http://\S+)")[1]
    run_id = call(f"{at}/mails?to=ann", "POST")["run"]
    assert await ended(url, run_id) == "sent to ann"
    assert call(f"{at}/runs/{run_id}") == {"state": "succeeded", "result": "sent to ann"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        call(f"{at}/runs/nobodys")
    assert service.stop(signal.SIGINT) == 0, service.said
    assert "shutdown complete" in service.said
    assert await still_held(url) == []


async def test_the_flask_app_enqueues_and_its_replica_runs_in_its_context(start: Start, url: str) -> None:
    flask = ("-m", "flask", "--app", "flask_app")
    replica = start(*flask, "oncron", "run")
    web = start(*flask, "run", "--port", "0")
    at = web.until(r"Running on (http://\S+)")[1]
    run_id = call(f"{at}/mails/ann", "POST")["run"]
    assert await ended(url, run_id) == "sent to ann by shop@example.org"
    assert call(f"{at}/runs/{run_id}")["state"] == "succeeded"
    replica.until("heartbeat of flask_app")
    assert (web.stop(signal.SIGINT), replica.stop()) == (0, 0), web.said + replica.said
    assert await still_held(url) == []


def test_the_order_and_its_run_commit_together(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "sqlalchemy_app.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()) == (
        0, ["packed lamp", "the chair was not paid: neither order nor run", "1 run in all"],
    ), done.stderr  # fmt: skip
