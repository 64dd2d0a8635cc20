"""Three real replicas on one store while everything that can happen to them happens: no run too many, none too few.

The short storms run with every test, the long ones under `make fault`: at least 10 000 ticks and twenty
faults of each kind per store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault import faults
from tests.fault.disk import Quota, SmallDisk
from tests.fault.faults import Fault
from tests.fault.fleet import Fleet, Load
from tests.servers import PostgresServer

TO_REPLICAS: Sequence[tuple[str, Fault]] = (
    ("kill of a holder", faults.kill_holder),
    ("kill in a write", faults.kill_in_a_write),
    ("stop past the lease", faults.stop_past_lease),
    ("graceful restart", faults.restart_gracefully),
    ("clock +300 s", faults.restart_skewed(300)),
    ("clock -60 s", faults.restart_skewed(-60)),
)


def to_server(server: PostgresServer) -> Sequence[tuple[str, Fault]]:
    return (
        ("sessions ended", faults.end_sessions(server)),
        ("server restarted", faults.restart_server(server, "fast")),
        ("server crashed", faults.restart_server(server, "immediate")),
        ("server killed", faults.kill_server(server)),
    )


def weather(
    fleet: Fleet, kinds: Sequence[tuple[str, Fault]], *, rounds: int, seed: int, least: int, calm: float = 0
) -> None:
    """So many seconds of calm, a storm, then the sun: the findings are printed, and there must be none of what is
    wrong."""
    with fleet.running():
        time.sleep(calm)
        done = faults.storm(fleet, kinds, rounds=rounds, seed=seed)
        found = fleet.settle(within=120)
    print(f"\nseed {seed}, {sum(done.values())} faults: {done}\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.ticks >= least
    assert found.takeovers >= rounds, "the faults met nobody at work"


@pytest.mark.timeout(120)
def test_a_short_storm_on_sqlite_loses_and_doubles_nothing(tmp_path: Path):
    fleet = Fleet(f"sqlite:///{tmp_path}/oncron.db", tmp_path, Load(lease=2, skip=1, queue=1))
    kinds = [*TO_REPLICAS, ("lock held", faults.hold_lock(tmp_path / "oncron.db"))]
    weather(fleet, kinds, rounds=2, seed=1, least=100)


@pytest.mark.timeout(120)
def test_a_short_storm_on_postgresql_loses_and_doubles_nothing(own_postgres: PostgresServer, tmp_path: Path):
    fleet = Fleet(own_postgres.create_database(), tmp_path, Load(lease=2, skip=1, queue=1))
    weather(fleet, [*TO_REPLICAS, *to_server(own_postgres)], rounds=2, seed=2, least=100)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_long_storm_on_sqlite_loses_and_doubles_nothing(small_disk: SmallDisk, tmp_path: Path):
    file = small_disk.place / "oncron.db"
    fleet = Fleet(f"sqlite:///{file}", tmp_path, Load(fast=5, second=3, skip=2, queue=2, lease=3))
    kinds = [
        *TO_REPLICAS,
        ("deploy", faults.deploy),
        ("lock held", faults.hold_lock(file)),
        ("disk full", faults.fill_disk(Quota() if small_disk.refused else small_disk)),
    ]
    weather(fleet, kinds, rounds=24, seed=3, least=10_000, calm=60)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_long_storm_on_postgresql_loses_and_doubles_nothing(own_postgres: PostgresServer, tmp_path: Path):
    fleet = Fleet(own_postgres.create_database(), tmp_path, Load(fast=5, second=3, skip=2, queue=2, lease=3))
    kinds = [*TO_REPLICAS, ("deploy", faults.deploy), *to_server(own_postgres)]
    weather(fleet, kinds, rounds=20, seed=4, least=10_000, calm=60)
