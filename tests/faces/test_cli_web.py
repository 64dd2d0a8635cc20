"""`oncron web`: where it listens, whom it asks, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest


@contextmanager
def served(*options: str, cwd: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """The command in a process of its own, and a client of the address that it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "oncron", "web", *options, "--port", "0"],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, said + process.stdout.read()
        with httpx.Client(base_url=found[0], timeout=20) as web:
            yield web, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_serves_a_target_until_a_signal_and_ends_open_streams(shop):
    with served("jobs:app", cwd=shop) as (web, process):
        assert "reindex" in web.get("schedules").text
        assert web.get("healthz").json() == {"status": "ok"}
        assert web.get("schedules", headers={"host": "evil.test"}).status_code == 421
        with web.stream("GET", "events") as answer:
            lines = answer.iter_lines()
            assert next(lines) == "retry: 1000"
            process.send_signal(signal.SIGTERM)
            assert "data" in "".join(lines) or process.wait(10) == 0
        assert process.wait(10) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_with_a_token_it_asks_who_comes_and_says_who_paused(shop, monkeypatch):
    monkeypatch.setenv("ONCRON_WEB_TOKEN", "s3cret")
    with served("--store", f"sqlite:///{shop}/shop.db", "--prefix", "/ops", "--host", "0.0.0.0", cwd=shop) as (web, _):
        assert web.base_url.path == "/ops/"
        assert web.get("schedules").status_code == 401
        assert web.get("schedules", auth=("ada", "wrong")).status_code == 401
        bare = str(web.base_url).removesuffix("ops/") + "schedules"  # a proxy took the prefix off
        assert httpx.get(bare, auth=("ada", "s3cret")).status_code == 200
        for address, body in (("pause", {"name": "reindex", "note": "n"}), ("resume", {"name": "reindex"})):
            answer = web.post(f"api/schedule/{address}", json=body, auth=("ada", "s3cret"))
            assert answer.status_code == 200
            assert answer.json()["note"] == ("n (ada)" if address == "pause" else "")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_beyond_this_machine_it_does_not_listen_without_asking(oncron, shop, host):
    told = oncron("web", "jobs:app", "--host", host)
    assert told.code == 2
    assert told.err == (
        f"oncron web: --host {host} is reached from other machines: set --token or $ONCRON_WEB_TOKEN, "
        "or say --insecure\n"
    )


def test_it_may_be_told_to_listen_everywhere_all_the_same(shop):
    with served("jobs:app", "--host", "0.0.0.0", "--insecure", "--read-only", cwd=shop) as (web, _):
        assert "read-only" in web.get("schedules").text


def test_a_port_in_use_is_told(oncron, shop):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = oncron("web", "jobs:app", "--port", str(taken.getsockname()[1]))
    assert told.code == 2
    assert re.fullmatch(r"oncron web: cannot listen at 127.0.0.1:\d+: .* in use; give another --port, .*\n", told.err)


def test_a_prefix_that_is_none_is_told(oncron, shop):
    told = oncron("web", "jobs:app", "--prefix", "ops/")
    assert (told.code, told.err) == (2, "oncron web: --prefix ops/: write it as /oncron or /ops/jobs\n")


def test_an_empty_token_is_none(oncron, shop):
    told = oncron("web", "jobs:app", "--token", " ")
    assert (told.code, told.err) == (2, "oncron: the token is empty; give one, or leave it out\n")


def test_a_store_that_is_not_there_is_told(oncron, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = oncron("web", "--store", "sqlite:///nope.db")
    assert told.code == 2
    assert "there is no file 'nope.db'" in told.err
