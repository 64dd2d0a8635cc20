"""Ways to PostgreSQL that are cut, swallowed, narrowed and closed; clocks that jump while their replicas hold runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault import faults, network
from tests.fault.faults import Fault
from tests.fault.fleet import Fleet, Load
from tests.fault.oracle import Findings
from tests.fault.test_storm import TO_REPLICAS, to_server
from tests.servers import PostgresServer


def weather(fleet: Fleet, port: int, more: Sequence[tuple[str, Fault]], *, rounds: int, seed: int) -> Findings:
    """A storm of every fault of network and clocks, and `more`."""
    with network.linked(fleet, port) as links, fleet.running():
        kinds = [*network.to_network(links), *network.CLOCK_JUMPS, *more]
        done = faults.storm(fleet, kinds, rounds=rounds, seed=seed)
        found = fleet.settle(within=120)
    print(f"\nseed {seed}, {sum(done.values())} faults: {done}\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert not network.two_at_once(fleet), f"{network.two_at_once(fleet)}\n{fleet.logs()}"
    assert found.takeovers >= rounds, "the faults met nobody at work"
    return found


@pytest.mark.timeout(120)
def test_a_short_storm_in_network_and_clocks_loses_and_doubles_nothing(postgres_url: str, tmp_path: Path):
    fleet = Fleet(postgres_url, tmp_path, Load(fast=4, second=0, skip=1, queue=1, lease=2))
    port = int(postgres_url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])
    assert weather(fleet, port, [], rounds=1, seed=5).ticks >= 100


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_long_storm_in_network_and_clocks_loses_and_doubles_nothing(own_postgres: PostgresServer, tmp_path: Path):
    fleet = Fleet(own_postgres.create_database(), tmp_path, Load(fast=5, second=3, skip=2, queue=2, lease=3))
    more = [*TO_REPLICAS, ("deploy", faults.deploy), *to_server(own_postgres)]
    assert weather(fleet, own_postgres.port, more, rounds=10, seed=6).ticks >= 10_000
