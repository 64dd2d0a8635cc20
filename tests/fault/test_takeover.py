"""How long what a killed worker held waits for another: the distribution, against twice the lease."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fault import faults
from tests.fault.fleet import Fleet, Load


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_a_killed_worker_held_starts_again_within_two_leases(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
):
    """Forty workers are killed, one after the other, each with several runs at work; the next one comes at once."""
    url = f"sqlite:///{tmp_path}/oncron.db" if store == "sqlite" else request.getfixturevalue("postgres_url")
    fleet = Fleet(url, tmp_path, Load(fast=2, second=1, lease=3, work="800 1500"))
    chance = random.Random(40)
    with fleet.running():
        fleet.until(lambda: all(replica.up for replica in fleet.replicas), 30, "every replica to start")
        for _ in range(40):
            time.sleep(chance.uniform(0, 1))
            faults.kill_holder(fleet, chance)
            time.sleep(2 * fleet.load.lease)
        found = fleet.settle()
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert len(found.takeover_us) >= 40
    assert max(found.takeover_us) <= 2 * found.lease_us, found.summary()
