"""oncron in a Django project. Settings belong to a process, so what holds inside is asked in one of its own."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from oncron import Oncron
from tests.faces.hosted import EXAMPLES, Program, call

INSIDE = Path(__file__).with_name("inside_django.py")
PROJECT = EXAMPLES / "django_project"
REPOSITORY = EXAMPLES.parent

pytest.importorskip("django", reason="the integration: pip install 'oncron[django]'")


def names() -> list[str]:
    body = ast.parse(INSIDE.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONCRON", "PYTEST", "COV"))}
    return {**kept, "SHOP_FOLDER": str(folder), "PYTHONPATH": os.pathsep.join([str(PROJECT), str(REPOSITORY)])}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What went wrong in each test of the file, by its name; nothing if it passed."""
    folder = tmp_path_factory.mktemp("project")
    report = folder / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(INSIDE), f"--junitxml={report}", "-q", "-p", "no:cacheprovider"],
        cwd=REPOSITORY, env=environment(folder), capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.attrib["name"].partition("[")[0]
        wrong = "".join(each.text or "" for each in case if each.tag in {"failure", "error", "skipped"})
        found[name] = found.get(name, "") + wrong
    return found


@pytest.mark.parametrize("name", names())
def test_inside_of_a_project(judged: Mapping[str, str], name: str) -> None:
    assert judged.get(name, "it did not run") == ""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Call it: manage.py of a copy of the project."""
    shutil.copytree(PROJECT, tmp_path / "copy")
    started: list[Program] = []
    surroundings = environment(tmp_path) | {"PYTHONPATH": str(REPOSITORY)}

    def manage(*arguments: str, **settings: str) -> Program:
        started.append(Program(["manage.py", *arguments], tmp_path / "copy", surroundings | settings))
        return started[-1]

    migrated = manage("migrate", "-v0")
    assert migrated.ended() == 0, migrated.said
    yield manage
    for program in started:
        program.close()


async def look(folder: Path, work: Callable[[Oncron], Awaitable[Any]]) -> Any:
    app = Oncron(f"sqlite:///{folder}/shop.sqlite3")
    try:
        return await work(app)
    finally:
        app._life.at_exit()


async def test_a_web_process_enqueues_and_the_replica_beside_it_runs(
    project: Callable[..., Program], tmp_path: Path
) -> None:
    replica, web = project("oncron", "run"), project("runserver", "--noreload", str(port := free_port()))
    web.until("Starting development server")
    at = f"http://127.0.0.1:{port}"
    run_id = call(f"{at}/orders/lamp", "POST")["run"]
    assert await look(tmp_path, lambda app: ended(app, run_id)) == "lamp"
    assert call(f"{at}/runs/{run_id}") == {"state": "succeeded", "result": "lamp"}
    replica.until("heartbeat: 0 to pack")
    workers = await look(tmp_path, lambda app: app.stats())
    assert [worker.pid for worker in workers.workers] == [replica.process.pid], (
        "RUNSERVER is off unless it is asked for"
    )
    assert (replica.stop(), web.stop(signal.SIGINT)) == (0, 0), replica.said + web.said
    assert await look(tmp_path, lambda app: app.runs(state="running")) == []


async def test_in_runserver_the_process_that_watches_runs_nothing_and_a_reload_begins_anew(
    project: Callable[..., Program], tmp_path: Path
) -> None:
    web = project("runserver", str(free_port()), SHOP_RUNS_JOBS="1")
    web.until("heartbeat: 0 to pack")
    first = {worker.pid for worker in (await look(tmp_path, lambda app: app.stats())).workers}
    tasks = tmp_path / "copy" / "shop" / "tasks.py"
    tasks.write_text(tasks.read_text().replace("heartbeat: ", "a new heartbeat: "))
    web.until("a new heartbeat: 0 to pack")
    second = {worker.pid for worker in (await look(tmp_path, lambda app: app.stats())).workers} - first
    assert (len(first), len(second)) == (1, 1)
    assert web.process.pid not in first | second
    web.stop(signal.SIGINT)


ON_POSTGRES = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.db import connection, transaction
from oncron.contrib.django import app
from shop.models import Order
from shop.tasks import pack

from django.test.runner import DiscoverRunner

runner = DiscoverRunner(verbosity=0, interactive=False)
before = runner.setup_databases()
with transaction.atomic():
    pack.options(connection=connection, delay=60).enqueue_sync(1)
print(connection.settings_dict["NAME"], len(app.sync(app.runs())))
app._life.forget_engine()
runner.teardown_databases(before)
print(len(app.sync(app.runs())))

with app:
    with transaction.atomic():
        run = pack.options(connection=connection).enqueue_sync(Order.objects.create(item="lamp").id)
    print(app.sync(run.wait(20)), Order.objects.get().packed, app)
"""


def test_djangos_postgresql_is_the_store_whose_transactions_are_joined(tmp_path: Path, postgres_url: str) -> None:
    given = conninfo_to_dict(postgres_url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given.get("user", "")}
    database |= {
        "HOST": given.get("host", ""),
        "PORT": str(given.get("port", "")),
        "PASSWORD": given.get("password", ""),
    }
    settings = f"from project.settings import *\nDATABASES = {{'default': {database!r}}}\n"
    (tmp_path / "on_postgres.py").write_text(settings)
    surroundings = environment(tmp_path) | {"DJANGO_SETTINGS_MODULE": "on_postgres"}
    done = subprocess.run(
        [sys.executable, "-c", ON_POSTGRES],
        cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # Django's test runner gives the database another name: the store is there then, and only then.
    assert done.stdout.splitlines()[:2] == [f"test_{given['dbname']} 1", "0"], done.stdout + done.stderr
    assert done.stdout.splitlines()[2].startswith("lamp True <Oncron postgresql://"), done.stdout + done.stderr


async def ended(app: Oncron, run_id: str) -> Any:
    return await (await app.get_run(run_id)).wait(within=20)


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]
