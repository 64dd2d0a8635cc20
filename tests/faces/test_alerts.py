"""The alert rules and the dashboard name what exists; and a job that does not run at all is seen."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from oncron import Oncron, every, metrics
from tests.docs.test_reference import REFERENCE, rows

PROMETHEUS = REFERENCE.parent / "prometheus"
RULES = (PROMETHEUS / "oncron-alerts.yml").read_text()
EXPRESSIONS = dict(re.findall(r"- alert: (\w+)\n +expr: (.*)\n", RULES))

NOT_FIRED = "time() - max by (schedule) (oncron_schedule_next_tick_timestamp_seconds) > 300"
NOT_SUCCEEDING = (
    "time() - max by (schedule) "
    "(oncron_last_success_timestamp_seconds > oncron_schedule_expected_since_timestamp_seconds "
    "or oncron_schedule_expected_since_timestamp_seconds) "
    "> 2 * max by (schedule) (oncron_schedule_interval_seconds) + 600"
)

JOBS = """
from oncron import Oncron, every

app = Oncron("sqlite:///jobs.db", lease_for=2)

@app.schedule(every(seconds=1))
def look() -> None: ...
"""


# --- names ------------------------------------------------------------------------------


def exposed() -> dict[str, tuple[str, set[str]]]:
    """Each metric by its name, with its kind and labels."""
    app = Oncron("memory://")

    @app.schedule(every(minutes=5))
    def look() -> None: ...

    registry = CollectorRegistry()
    collector = metrics.register(app, registry)
    found: dict[str, tuple[str, set[str]]] = {}
    with app:
        for counted in collector._counted():
            name = counted._name + ("_total" if counted._type == "counter" else "")
            found[name] = counted._type, set(counted._labelnames)
        app.sync(app.enqueue("elsewhere", args={}))
        for family in registry.collect():
            if family.type == "gauge":
                found[family.name] = "gauge", {label for sample in family.samples for label in sample.labels}
    return found


def test_the_reference_lists_every_metric_with_its_kind_and_labels() -> None:
    said = {
        cells[0].strip("`"): (cells[2], set(re.findall(r"`(\w+)`", cells[1])))
        for cells in rows(REFERENCE / "metrics.md")
        if cells[0].startswith("`oncron")
    }
    assert said == exposed()


def named(expression: str) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\boncron_\w+", expression)}


def test_every_alert_and_every_panel_names_metrics_that_exist() -> None:
    dashboard = json.loads((PROMETHEUS / "oncron-dashboard.json").read_text())
    expressions = [*EXPRESSIONS.values(), *(t["expr"] for panel in dashboard["panels"] for t in panel["targets"])]
    names = set().union(*map(named, expressions))
    assert len(EXPRESSIONS) == RULES.count("- alert:")
    assert names - set(exposed()) == set()
    assert {"oncron_last_success_timestamp_seconds", "oncron_schedules_overdue", "oncron_runs_total"} <= names


def test_the_page_says_what_each_alert_means() -> None:
    page = (REFERENCE.parent / "how-to" / "alerts.md").read_text()
    assert [name for name in EXPRESSIONS if f"`{name}`" not in page] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_promtool_accepts_the_rules_and_their_tests_pass() -> None:
    for command in (["check", "rules", "oncron-alerts.yml"], ["test", "rules", "oncron-alerts.test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# --- a job that does not run at all -----------------------------------------------------


class Replicas:
    def __init__(self, folder: Path) -> None:
        self.folder, self.all = folder, list[subprocess.Popen[str]]()
        (folder / "silent_jobs.py").write_text(JOBS)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "oncron", "run", "silent_jobs:app", *options]
        self.all.append(subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True))
        return self.all[-1]


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path)
    yield replicas
    for process in replicas.all:
        process.kill()
        process.communicate()


def metrics_port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"metrics at http://0\.0\.0\.0:(\d+)/metrics", line):
            return int(found[1])
    raise AssertionError("it never said where its metrics are")


def scraped(port: int) -> dict[str, float]:
    """By name, of the one schedule."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.name.startswith("onc")
        }


def read_anew(worker: subprocess.Popen[str], port: int, before: dict[str, float]) -> dict[str, float]:
    """Scrapes until the store was read again, which it is every five seconds at most."""
    while True:
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(0.5)
        values = scraped(port)
        if values["oncron_store_read_timestamp_seconds"] > before["oncron_store_read_timestamp_seconds"]:
            return values


def is_not_fired(values: dict[str, float], time: float) -> bool:
    return time - values["oncron_schedule_next_tick_timestamp_seconds"] > 300


def is_not_succeeding(values: dict[str, float], time: float) -> bool:
    success = values["oncron_last_success_timestamp_seconds"]
    since = max(success, values["oncron_schedule_expected_since_timestamp_seconds"])
    return time - since > 2 * values["oncron_schedule_interval_seconds"] + 600


def test_when_all_schedulers_are_killed_the_alerts_of_silence_become_true(replicas: Replicas) -> None:
    """A replica that only executes runs goes on reporting; what it reads stands still."""
    assert (EXPRESSIONS["OncronScheduleNotFired"], EXPRESSIONS["OncronScheduleNotSucceeding"]) == (
        NOT_FIRED, NOT_SUCCEEDING,
    )  # fmt: skip
    schedulers = [replicas.start("--only", "scheduler", "--metrics-port", "0") for _ in range(2)]
    for scheduler in schedulers:
        metrics_port(scheduler)
    worker = replicas.start("--only", "worker", "--metrics-port", "0")
    port = metrics_port(worker)
    alive = scraped(port)
    while not alive["oncron_last_success_timestamp_seconds"]:
        alive = read_anew(worker, port, alive)
    now = alive["oncron_store_read_timestamp_seconds"]
    assert not is_not_fired(alive, now)
    assert not is_not_succeeding(alive, now)

    for scheduler in schedulers:
        scheduler.send_signal(signal.SIGKILL)
    first = read_anew(worker, port, alive)
    second = read_anew(worker, port, first)

    assert second["oncron_store_up"] == 1
    for name in ("oncron_schedule_next_tick_timestamp_seconds", "oncron_last_success_timestamp_seconds"):
        assert second[name] == first[name], "nobody fires, so it stands still"
    due = second["oncron_schedule_next_tick_timestamp_seconds"]
    assert due < second["oncron_store_read_timestamp_seconds"]
    assert not is_not_fired(second, due + 300)
    assert is_not_fired(second, due + 301)
    assert is_not_succeeding(second, second["oncron_last_success_timestamp_seconds"] + 603)


def test_a_port_in_use_ends_the_replica_with_one_sentence(tmp_path: Path, in_process: Any) -> None:
    (tmp_path / "silent_jobs.py").write_text(JOBS)
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        refused = in_process("run", "silent_jobs:app", "--metrics-port", str(port), cwd=tmp_path)
    assert refused.code == 2
    assert refused.err == (
        f"oncron: metrics port {port} is in use by another process; give another, or 0 for any free one\n"
    )
    assert in_process("run", "silent_jobs:app", "--metrics-port", "99999", cwd=tmp_path).code == 2
