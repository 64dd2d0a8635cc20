"""`oncron exec` watched from outside: its metrics, and pings at each start and end."""

from __future__ import annotations

import re
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.faces.commands import Oncron, wait_until
from tests.faces.conftest import Call
from tests.faces.test_tracing import Ear, ear

__all__ = ["ear"]


def test_a_command_has_metrics_and_pings_at_start_success_and_failure(tmp_path: Path, ear: Ear) -> None:
    command = "test -e broken && exit 3; touch ran"
    process = Oncron(
        tmp_path, "exec", "--name", "backup", "--store", "sqlite:///jobs.db", "--every", "1s",
        "--metrics-port", "0", "--ping", f"{ear.url}/uuid", "--", "sh", "-c", command,
    )  # fmt: skip
    try:
        wait_until(lambda: "/uuid" in [path for path, _, _ in ear.heard])
        port = re.search(r"metrics at http://0\.0\.0\.0:(\d+)/metrics", process.said)
        assert port is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert re.search(r'^oncron_last_success_timestamp_seconds\{schedule="backup"\} 1\.7', text, re.MULTILINE)
        (tmp_path / "broken").touch()
        wait_until(lambda: "/uuid/fail" in [path for path, _, _ in ear.heard])
        process.tell(signal.SIGTERM)
        assert process.ends() == 0
    finally:
        process.close()
    start, success = ear.heard[:2]
    assert (start[0], success[0]) == ("/uuid/start", "/uuid")
    assert start[1] == success[1]
    failure = next(body for path, _, body in ear.heard if path == "/uuid/fail")
    assert "3" in failure


@pytest.mark.parametrize(
    ("option", "says"),
    [(("--ping", "hc-ping.com/x"), "is no URL; write https://hc-ping.com"), (("--metrics-port", "-1"), "-1")],
)
def test_a_wrong_url_and_a_wrong_port_are_said(oncron: Call, option: tuple[str, str], says: str) -> None:
    refused = oncron("exec", "--name", "x", "--every", "5min", "--store", "memory://", *option, "--", "true")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert says in refused.err
