"""The earlier release's replicas and this one's on one store at once, as in every rolling upgrade."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fault import faults
from tests.fault.fleet import REPOSITORY, Fleet, Load, Replica
from tests.fault.releases import earlier_release

EARLIER_FIRST = ("earlier", "earlier", "newer", "newer")
NEWER_FIRST = ("newer", "newer", "earlier", "earlier")


def upgrade(url: str, home: Path, order: tuple[str, ...], *, rounds: int, seed: int) -> None:
    """Replicas of two releases, started one after the other in that order; then kills and restarts of both."""
    trees = {"earlier": earlier_release(home), "newer": REPOSITORY}
    fleet = Fleet(url, home, Load(lease=2, work="20 100"), offsets=())
    chance = random.Random(seed)
    with fleet.running():
        for number, release in enumerate(order):
            add(fleet, f"{release}-{number}", trees[release])
            time.sleep(0.5)
        for _ in range(rounds):
            for replica in chance.sample(fleet.replicas, len(fleet.replicas)):
                chance.choice((fleet.kill, fleet.terminate))(replica)
                replica.start()
                fleet.until(lambda replica=replica: replica.up, 30, f"{replica.name} to start")
            faults.kill_holder(fleet, chance)
        found = fleet.settle()
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    workers = {line.worker.split("-")[0] for line in fleet.lines()}
    assert workers == {"earlier", "newer"}, "both have executed"


def add(fleet: Fleet, name: str, tree: Path, **environment: str) -> None:
    """One more replica, at work, of the release in `tree`."""
    replica = Replica(fleet, name, 0)
    replica.code, replica.environment = tree, environment
    fleet.replicas.append(replica)
    replica.start()
    fleet.until(lambda: replica.up, 30, f"{name} to start")


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.long), "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/oncron.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.mark.timeout(120)
def test_an_upgrade_and_a_return_to_the_earlier_release_run_each_tick_once(url: str, tmp_path: Path):
    upgrade(url, tmp_path, ("earlier", "newer"), rounds=1, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", [EARLIER_FIRST, NEWER_FIRST], ids=["earlier first", "newer first"])
def test_two_releases_side_by_side_with_kills_run_each_tick_once(url: str, tmp_path: Path, order: tuple[str, ...]):
    upgrade(url, tmp_path, order, rounds=6, seed=2)
