"""The oracle is shown to fail: the same small scenario, on code that was broken on purpose."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fault import faults
from tests.fault.disk import Quota, SmallDisk
from tests.fault.fleet import REPOSITORY, Fleet, Load
from tests.fault.oracle import Findings
from tests.fault.releases import earlier_release
from tests.fault.test_deploy import SECOND, fleet_of as rolling
from tests.fault.test_releases import add

pytestmark = pytest.mark.timeout(90)


def run_with(mutant: str, home: Path, *, kill: bool = False, skip: int = 0, queue: int = 0) -> Findings:
    load = Load(fast=2, second=0, skip=skip, queue=queue, long=0.8, lease=1, work="50 150", mutant=mutant)
    fleet = Fleet(f"sqlite:///{home}/oncron.db", home, load, offsets=(0, 0))
    with fleet.running():
        time.sleep(2)
        if kill:
            fleet.kill(fleet.holder())
            time.sleep(1.5)
        return fleet.settle(within=20 if mutant == "none" else 4, patient=mutant == "none")


@pytest.mark.long
def test_a_sound_store_passes_even_if_every_replica_fires_every_tick(tmp_path: Path):
    found = run_with("none", tmp_path, kill=True, skip=2)
    assert not found.all, str(found)
    assert found.ticks >= 30
    assert found.skipped >= 1
    assert found.takeovers >= 1


def test_extra_runs_show_when_the_compare_and_set_is_dropped(tmp_path: Path):
    found = run_with("compare-and-set dropped", tmp_path)
    assert any("runs:" in text for text in found.extra), str(found)


def test_missing_runs_show_when_a_tick_passes_without_one(tmp_path: Path):
    found = run_with("every tenth run dropped", tmp_path)
    assert any("never started" in text for text in found.missing), str(found)
    assert not found.extra


def test_missing_runs_show_when_a_dead_workers_runs_are_never_reaped(tmp_path: Path):
    found = run_with("never reaped", tmp_path, kill=True)
    assert any("started but never ended" in text for text in found.missing), str(found)
    assert any("on record as running" in text for text in found.disagreement), str(found)


def test_overlaps_show_when_nobody_is_ever_in_the_way(tmp_path: Path):
    found = run_with("place never taken", tmp_path, skip=2, queue=2)
    assert {text.split("-")[0] for text in found.overlaps} == {"overlap: skip", "overlap: queue"}, str(found)


@pytest.mark.long
def test_missing_records_show_when_ticks_are_skipped_in_silence(tmp_path: Path):
    found = run_with("skipped in silence", tmp_path, skip=2)
    assert any("nothing says why" in text for text in found.missing), str(found)
    assert not found.overlaps


@pytest.mark.long
def test_two_holders_show_when_a_living_workers_runs_are_reaped(tmp_path: Path):
    found = run_with("living reaped", tmp_path)
    assert any("undisturbed" in text for text in found.two_holders), str(found)
    assert any("ended the run again" in text for text in found.extra), str(found)


@pytest.mark.long
def test_second_ends_show_when_reapers_do_not_wait_after_a_full_disk(small_disk: SmallDisk, tmp_path: Path):
    url = f"sqlite:///{tmp_path if small_disk.refused else small_disk.place}/oncron.db"
    fleet = Fleet(url, tmp_path, Load(lease=1, mutant="no patience"), offsets=(0, 0, 0))
    with fleet.running():
        for _ in range(4):
            faults.fill_disk(Quota() if small_disk.refused else small_disk)(fleet, random.Random(1))
            time.sleep(1.5)
        found = fleet.settle()
    assert any("ended the run again" in text for text in found.extra), str(found)


@pytest.mark.long
def test_two_ends_show_when_a_newer_release_meets_in_tables_of_its_own(tmp_path: Path):
    fleet = Fleet(f"sqlite:///{tmp_path}/oncron.db", tmp_path, Load(second=0), offsets=())
    with fleet.running():
        add(fleet, "earlier", earlier_release(tmp_path))
        add(fleet, "newer", REPOSITORY, FAULT_NAMESPACE="apart")
        time.sleep(1)
        found = fleet.settle()
    assert any("ended the run again" in text for text in found.extra), str(found)


@pytest.mark.long
def test_early_runs_show_when_the_stores_clock_is_not_asked(tmp_path: Path):
    found = run_with("fired early", tmp_path)
    assert found.early, str(found)


def test_missing_runs_show_when_a_deploy_drops_what_the_old_trigger_owes(tmp_path: Path):
    fleet, roller = rolling(
        f"sqlite:///{tmp_path}/oncron.db", tmp_path, replicas=1, mutant="owed ticks dropped by a change"
    )
    with fleet.running():
        roller.settled()
        roller.release(2, SECOND)
        roller.recreate(fleet.terminate, lambda: time.sleep(0.5))
        found = fleet.settle(within=4, patient=False, promises=roller.promises)
    assert any(text.startswith("missing: changed") for text in found.missing), str(found)
    assert not found.extra
