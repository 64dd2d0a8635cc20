"""Deploys while ticks flow: each definition's ticks run while it holds, exactly, and nothing else does."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from oncron._model import RunFilter
from tests.fault.deploys import Deployed, Roller
from tests.fault.fleet import Fleet

FIRST = {"changed": (200, 1000), "tried": (200, 1000), "left": (250, 1000), "same": (200, 1000)}
SECOND = {"changed": (300, 1000), "tried": (200, 1001), "added": (200, 1000), "same": (200, 1000)}
THIRD = {"changed": (250, 1000), "tried": (200, 1002), "added": (300, 1000), "same": (200, 1000)}


def fleet_of(url: str, home: Path, *, replicas: int, mutant: str | None = None) -> tuple[Fleet, Roller]:
    load = Deployed(lease=2, work="10 60", mutant=mutant)
    fleet = Fleet(url, home, load, offsets=(0, 300, -60)[:replicas])
    roller = Roller(fleet, load)
    roller.release(1, FIRST)
    return fleet, roller


def retries_of(fleet: Fleet, schedule: str) -> list[int]:
    """What its runs were given, by tick; each stretch of equal values once."""
    runs = fleet.store(lambda store: store.runs(RunFilter(schedule=schedule, limit=100_000)))
    ordered = sorted(runs, key=lambda run: run.tick or 0)
    return [value for value, _ in itertools.groupby(ordered, key=lambda run: run.retries)]


@pytest.mark.timeout(90)
def test_a_deploy_that_changes_schedules_and_its_roll_back_run_each_definitions_ticks_exactly(tmp_path: Path):
    fleet, roller = fleet_of(f"sqlite:///{tmp_path}/oncron.db", tmp_path, replicas=2)
    with fleet.running():
        roller.settled()
        roller.release(2, SECOND)
        roller.roll()
        roller.release(1, FIRST)
        roller.recreate(fleet.terminate, lambda: time.sleep(0.5))
        found = fleet.settle(promises=roller.promises)
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert roller.periods("changed") == [200, 300, 200]
    assert roller.periods("left") == [250], "what no code declares any more goes on for an hour"
    assert retries_of(fleet, "tried") == [1000, 1001, 1000]
    assert found.ticks >= 60


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_many_deploys_with_crashes_run_each_definitions_ticks_exactly(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
):
    url = f"sqlite:///{tmp_path}/oncron.db" if store == "sqlite" else request.getfixturevalue("postgres_url")
    fleet, roller = fleet_of(url, tmp_path, replicas=3)
    with fleet.running():
        roller.settled()
        for first in (2, 5, 8):
            roller.release(first, SECOND)
            roller.roll()
            roller.release(first + 1, THIRD)
            roller.roll(stop=fleet.kill)
            roller.release(first - 1, FIRST)
            roller.roll()
            roller.until("changed", 200, within=90)
            # As if release `first + 1` had crashed for good: while its leases last, nothing is rolled back.
            roller.release(first + 2, THIRD)
            roller.recreate(fleet.kill, lambda: time.sleep(1))
            roller.release(first - 1, FIRST)
            roller.recreate(fleet.kill, lambda: time.sleep(0))
            assert roller.periods("changed")[-1] == 250
            roller.until("changed", 200, within=90)
        fleet.app.sync(fleet.app.remove_schedule("added"))
        roller.settled()
        roller.release(20, SECOND)
        roller.roll()
        found = fleet.settle(promises=roller.promises)
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert roller.periods("changed") == [200, *[300, 250, 200, 250, 200] * 3, 300]
    assert roller.periods("added")[-2:] == [300, 200], "a higher release brings back what was removed"
    assert found.takeovers
