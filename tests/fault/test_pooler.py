"""Replicas that reach PostgreSQL through PgBouncer in transaction mode, some with a direct way for notifications."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from tests.fault import faults, pooler
from tests.fault.fleet import Fleet, Load
from tests.fault.pooler import pooled
from tests.pgbouncer import PgBouncer

pytestmark = pytest.mark.timeout(180)


LONG = pytest.mark.long


@pytest.mark.parametrize(("rounds", "listens"), [(1, False), pytest.param(3, True, marks=LONG)])
def test_a_fleet_behind_pgbouncer_loses_and_doubles_nothing(
    rounds: int, listens: bool, pgbouncer: PgBouncer, postgres_url: str, tmp_path: Path
):
    fleet = pooled(Fleet(postgres_url, tmp_path, Load(lease=2, skip=1, queue=1)), pgbouncer, listens=listens)
    kinds = [
        ("kill of a holder", faults.kill_holder),
        ("stop past the lease", faults.stop_past_lease),
        ("graceful restart", faults.restart_gracefully),
        ("pooler restarted", pooler.restart(pgbouncer)),
        ("settings left in its sessions", pooler.leave_settings(pgbouncer)),
    ]
    with fleet.running():
        faults.storm(fleet, kinds, rounds=rounds, seed=7)
        found = fleet.settle()
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.ticks >= 40 * rounds


@LONG
@pytest.mark.parametrize(("listens", "within"), [(True, 1.0), (False, 5.5)])
def test_work_is_seen_at_once_by_a_direct_way_and_by_the_poll_without(
    listens: bool, within: float, pgbouncer: PgBouncer, postgres_url: str, tmp_path: Path
):
    fleet = Fleet(postgres_url, tmp_path, Load(fast=0, second=0, lease=30), offsets=(0,))
    with pooled(fleet, pgbouncer, listens=listens).running():
        fleet.until(lambda: fleet.replicas[0].up, 20, "its start")
        took: list[float] = []
        for number in range(1, 4):
            time.sleep(1.3)
            began = time.monotonic()
            fleet.app.sync(fleet.app.enqueue("nap", args={"seconds": 0}))
            fleet.until(lambda number=number: len(fleet.lines()) >= 2 * number, 15, "the run", every=0.01)
            took.append(time.monotonic() - began)
    print(f"\nlistens {listens}: {took}")
    assert statistics.median(took) <= within
