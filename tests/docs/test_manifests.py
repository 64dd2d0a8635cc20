"""The files for operators that pages show: Kubernetes' manifests and systemd's unit say what oncron understands."""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client import CollectorRegistry

from oncron import Oncron, _defaults as limits, metrics
from oncron.cli import cli
from tests.docs.snippets import REPOSITORY, blocks, pages, write_files

HOW_TO = REPOSITORY / "docs" / "how-to"
TO_LEAVE = 15
"""Seconds from the end of `stop_within` to the end of the process, as deploy.md says."""


def manifests(page: str) -> Iterator[dict[str, Any]]:
    for block in blocks(HOW_TO / page):
        if block.language == "yaml":
            yield from yaml.safe_load_all(block.text)


def of_kind(page: str, kind: str) -> dict[str, Any]:
    (found,) = (manifest for manifest in manifests(page) if manifest["kind"] == kind)
    return found


@pytest.fixture(scope="module")
def deployment() -> dict[str, Any]:
    return of_kind("kubernetes.md", "Deployment")["spec"]


@pytest.fixture(scope="module")
def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (found,) = deployment["template"]["spec"]["containers"]
    return found


def parsed(command: list[str]) -> dict[str, Any]:
    """What is said to an oncron command, by the names of its parameters; unknown options raise."""
    oncron, name, *words = command
    assert oncron == "oncron"
    context = click.Context(cli)
    known = cli.get_command(context, name)
    assert known is not None
    said, left, _ = known.make_parser(click.Context(known, parent=context)).parse_args(words)
    assert left == []
    return said


def test_every_yaml_of_a_page_can_be_read() -> None:
    texts = [block.text for page in pages() for block in blocks(page) if block.language == "yaml"]
    assert len(texts) >= 4
    for text in texts:
        assert all(isinstance(found, dict) for found in yaml.safe_load_all(text)), text


def test_the_commands_of_the_manifests_are_understood(container: dict[str, Any]) -> None:
    assert parsed(container["command"])["metrics_port"] == str(container["ports"][0]["containerPort"])
    (job,) = of_kind("migrations.md", "Job")["spec"]["template"]["spec"]["containers"]
    parsed(job["command"])
    assert job["command"][-1] == f"$({job['env'][0]['name']})"


def test_a_pod_has_time_to_stop(deployment: dict[str, Any]) -> None:
    grace = deployment["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= limits.STOP_WITHIN // limits.SECOND + TO_LEAVE


def test_the_budget_is_of_these_pods_and_lets_one_go(deployment: dict[str, Any]) -> None:
    budget = of_kind("kubernetes.md", "PodDisruptionBudget")["spec"]
    assert budget["selector"] == deployment["selector"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert 0 < budget["minAvailable"] < deployment["replicas"]


async def test_the_probes_are_answered_by_a_replica(container: dict[str, Any]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    paths = set[str]()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in ports
        assert container[probe]["timeoutSeconds"] > 2, "a replica whose loop is stuck says so after two seconds"
        paths.add(asked["path"])
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez", "the store is no reason to restart a replica"

    app = Oncron("memory://")
    server = metrics.serve(app, 0, host="127.0.0.1", registry=CollectorRegistry())
    try:
        async with app:
            assert {path: answered(server.port, path) for path in paths} == dict.fromkeys(paths, b'{"status": "ok"}')
    finally:
        server.close()


def answered(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read()


# --- systemd ----------------------------------------------------------------------------


def unit() -> dict[str, str]:
    (text,) = (block.text for block in blocks(HOW_TO / "systemd.md") if block.file is not None)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_the_unit_starts_a_replica_and_gives_it_time_to_stop() -> None:
    said = unit()
    parsed(["oncron", *said["ExecStart"].split()[1:]])
    assert int(said["TimeoutStopSec"]) >= limits.STOP_WITHIN // limits.SECOND + TO_LEAVE
    assert said["KillMode"] == "mixed"


def test_every_command_that_systemd_is_to_start_is_understood() -> None:
    text = (HOW_TO / "systemd.md").read_text(encoding="utf-8")
    started = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert len(started) == 2
    for line in started:
        parsed(["oncron", *line.split()[1:]])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd to ask")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    write_files(HOW_TO / "systemd.md", tmp_path)
    file = tmp_path / "shop-jobs@.service"
    said = file.read_text(encoding="utf-8")
    here = said.replace("/srv/shop/.venv/bin/oncron", str(Path(sys.executable).with_name("oncron")))
    file.write_text(here.replace("User=shop", f"User={getpass.getuser()}"), encoding="utf-8")
    started = tmp_path / "shop-jobs@1.service"
    started.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(started)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stdout.splitlines() if "shop-jobs" in line]
    assert (done.returncode, complaints) == (0, []), done.stdout
