"""A replica that is told to leave: code 0, in time, with nothing left claimed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncron._model import RunState
from tests.fault import faults
from tests.fault.fleet import Fleet, Load, Replica

pytestmark = pytest.mark.timeout(90)
LIMIT = 2.0
"""stop_within of these replicas, seconds."""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        server.command("FLUSHALL")
        return server.url()
    return f"sqlite:///{tmp_path}/oncron.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    load = Load(fast=0, second=0, lease=3, stop=LIMIT)
    with Fleet(url, tmp_path, load, offsets=()).running() as fleet:
        yield fleet


def test_sigterm_ends_a_replica_in_time_whatever_it_is_doing(fleet: Fleet):
    """B147, with 0 and 1 running job, in a coroutine and in a thread, that end in time and that do not."""
    app = fleet.app

    def busy_with(task: str, seconds: float) -> tuple[Replica, str]:
        replica = fleet.add(f"{task}-{seconds}")
        run = app.sync(app.enqueue(task, args={"seconds": seconds}))
        fleet.until(lambda: any(line.run == run.id for line in fleet.lines()), 10, f"{task} to start", every=0.02)
        return replica, run.id

    def leaves(replica: Replica, *, signals: int = 1) -> float:
        began = time.monotonic()
        for number in range(signals):
            replica.signal(signal.SIGTERM)
            time.sleep(0.7 * (number < signals - 1))  # what comes within half a second is one signal
        assert replica.wait(LIMIT + 5) == 0, replica.log.read_text()
        return time.monotonic() - began

    def state(run_id: str) -> RunState:
        return app.sync(app.get_run(run_id)).state

    idle = fleet.add("idle")
    fleet.until(lambda: idle.up, 10, "its start")
    assert leaves(idle) < 1

    for task in ("nap", "nap_in_thread"):
        replica, run_id = busy_with(task, 1.0)
        assert leaves(replica) < LIMIT, "the job ends first"
        assert state(run_id) is RunState.SUCCEEDED

    replica, run_id = busy_with("nap", 20)
    assert LIMIT <= leaves(replica) < LIMIT + 1
    assert state(run_id) is RunState.PENDING, "given back"
    app.sync(app.cancel(run_id))

    replica, run_id = busy_with("nap_in_thread", 20)
    assert LIMIT <= leaves(replica) < LIMIT + 1, "nobody waits for a thread"
    assert state(run_id) is RunState.RUNNING, "what has not stopped is not given back: its lease runs out"
    app.sync(app.cancel(run_id))

    replica, run_id = busy_with("nap", 20)
    assert leaves(replica, signals=2) < 0.7 + 1, "the second signal waits for nothing"
    assert state(run_id) is RunState.PENDING


@pytest.mark.long
@pytest.mark.timeout(300)
def test_sigterm_at_fifty_random_moments_leaves_nothing_claimed(url: str, tmp_path: Path):
    """B149: `restart_gracefully` looks into the store after each one."""
    fleet = Fleet(url, tmp_path, Load(fast=6, second=0, work="5 60", lease=15))
    chance = random.Random(149)
    with fleet.running():
        for _ in range(50):
            faults.restart_gracefully(fleet, chance)
            time.sleep(chance.uniform(0.3, 0.6))
        found = fleet.settle()
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.takeovers == 0, "a graceful stop makes nobody wait for a lease"
