"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oncron import _pytest

JOBS = """
from oncron import Oncron, every

app = Oncron("sqlite:///never-made.db")

@app.schedule(every(minutes=15))
def look() -> None: ...
"""


def pytest_in(folder: Path, tests: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "shop_jobs.py").write_text(JOBS)
    (folder / "test_shop.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{ini}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_fixture_hands_out_the_app_of_the_ini_option_to_sync_and_async_tests(tmp_path: Path) -> None:
    done = pytest_in(
        tmp_path,
        """
import asyncio
from datetime import UTC, datetime, timedelta
import pytest
from shop_jobs import app, look

def test_sync(oncron_app, oncron_clock):
    assert oncron_app is app
    look.enqueue_sync()
    runs = oncron_app.sync(oncron_clock.advance(timedelta(minutes=30)))
    assert len(runs) == 3

@pytest.mark.oncron(start=datetime(2026, 3, 29, tzinfo=UTC), eager=True)
@pytest.mark.asyncio
async def test_async(oncron_app, oncron_clock):
    loops = []
    @oncron_app.task
    async def here() -> None:
        loops.append(asyncio.get_running_loop())
    assert (await here.enqueue()).state == "succeeded"
    await oncron_clock.advance(900)
    assert oncron_clock.fired("look") == [datetime(2026, 3, 29, 0, 15, tzinfo=UTC)]
    assert loops == [asyncio.get_running_loop()]

def test_afterwards():
    assert set(app._registry.tasks) == {"look"}
""",
        "oncron_app = shop_jobs:app\n",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "never-made.db").exists()


def test_without_the_option_the_app_is_a_fresh_one_and_nothing_is_loaded_unless_used(tmp_path: Path) -> None:
    done = pytest_in(
        tmp_path,
        """
import pytest, sys

def test_first():
    assert "oncron._app" not in sys.modules

def test_second(oncron_app):
    @oncron_app.task
    def mail() -> int:
        return 1
    assert mail.enqueue_sync().state == "pending"

@pytest.mark.oncron(begin=1)
def test_wrong_marker(oncron_app): ...
""",
    )
    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "takes start=, eager=, patience=, lifespan=" in done.stdout


class Ini:
    """A configuration with that one line."""

    def __init__(self, named: str) -> None:
        self.named = named

    def getini(self, _name: str) -> str:
        return self.named


@pytest.mark.parametrize(
    ("named", "says"),
    [("json", "write module:attribute"), ("json:loads", "no Oncron there"), ("no_shop:app", "No module named")],
)
def test_a_wrong_ini_option_is_said(named: str, says: str) -> None:
    with pytest.raises(pytest.UsageError, match=rf"ini option oncron_app = {named}: .*{says}"):
        _pytest._app(Ini(named))  # pyright: ignore[reportArgumentType]
