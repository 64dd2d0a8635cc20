"""Each kind of network and clock fault is shown to be able to hurt: what protects from it is taken out, and it is seen.

Beside each stands the same without a mutant (`none`), under `make fault`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fault import network
from tests.fault.faults import Fault
from tests.fault.fleet import Fleet, Load, machine_us
from tests.fault.network import Links
from tests.fault.pooler import leave_settings, pooled
from tests.pgbouncer import PgBouncer

pytestmark = pytest.mark.timeout(90)

LONG = pytest.mark.long
NONE = pytest.param("none", marks=LONG)


def fleet_of(url: str, home: Path, mutant: str, *, replicas: int = 1, fast: int = 3, work: str = "20 60") -> Fleet:
    return Fleet(url, home, Load(fast=fast, second=0, lease=1, work=work, mutant=mutant), offsets=(0,) * replicas)


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])


def goes_on(fleet: Fleet, within: float = 2.5) -> bool:
    """Whether a tick runs that comes after this moment."""
    since, until = machine_us(), time.monotonic() + within
    while time.monotonic() < until:
        if any(line.tick > since for line in fleet.lines()):
            return True
        time.sleep(0.05)
    return False


def hit(fleet: Fleet, fault: Fault) -> None:
    time.sleep(0.5)
    fault(fleet, random.Random(1))


def goes_on_after(fault: Callable[[Links], Fault], fleet: Fleet) -> bool:
    with network.linked(fleet, port_of(fleet.url)) as links, fleet.running():
        hit(fleet, fault(links))
        return goes_on(fleet)


def forget_for_good(links: Links) -> Fault:
    """Nobody ever tells that the connections of this moment are gone."""

    def act(fleet: Fleet, _chance: random.Random) -> None:
        links[fleet.holder().name].forget()

    return act


@pytest.mark.parametrize("mutant", [NONE, "first failure the last"])
def test_a_refused_replica_goes_on_unless_loops_end_with_their_first_failure(
    mutant: str, postgres_url: str, tmp_path: Path
):
    assert goes_on_after(network.refuse, fleet_of(postgres_url, tmp_path, mutant)) == (mutant == "none")


@LONG
@pytest.mark.parametrize("mutant", ["none", "broken connections kept"])
def test_a_cut_replica_goes_on_unless_broken_connections_are_used_again(mutant: str, postgres_url: str, tmp_path: Path):
    assert goes_on_after(network.cut, fleet_of(postgres_url, tmp_path, mutant)) == (mutant == "none")


@LONG
@pytest.mark.parametrize("mutant", ["none", "no deadline"])
def test_a_forgotten_replica_goes_on_unless_calls_have_no_deadline(mutant: str, postgres_url: str, tmp_path: Path):
    fleet = fleet_of(postgres_url, tmp_path, mutant)
    with network.linked(fleet, port_of(postgres_url)) as links, fleet.running():
        hit(fleet, forget_for_good(links))
        time.sleep(2)  # what was on its way has ended
        assert goes_on(fleet, 14) == (mutant == "none")


def cut_off(mutant: str, url: str, home: Path, *, jump: float = 0) -> list[str]:
    """What is seen of a replica that is swallowed for three leases while it executes long runs, after its clock was
    set by so many seconds."""
    fleet = fleet_of(url, home, mutant, replicas=2, fast=1, work="2500 3000")
    with network.linked(fleet, port_of(url)) as links, fleet.running():
        time.sleep(1)
        replica = fleet.holder()
        if jump:
            network.jump(replica, jump)
            time.sleep(0.5)
            replica = replica if fleet.held_by(replica.pid) else fleet.holder()
        links[replica.name].swallow()
        time.sleep(3)
        links[replica.name].heal()
        time.sleep(1)
    return network.two_at_once(fleet)


@pytest.mark.parametrize("mutant", [NONE, "lease never doubted"])
def test_two_at_once_show_when_a_lease_is_never_doubted(mutant: str, postgres_url: str, tmp_path: Path):
    assert bool(cut_off(mutant, postgres_url, tmp_path)) == (mutant != "none")


@pytest.mark.parametrize("mutant", [NONE, "time by the wall"])
def test_two_at_once_show_when_leases_are_measured_on_a_clock_that_was_set_back(
    mutant: str, postgres_url: str, tmp_path: Path
):
    assert bool(cut_off(mutant, postgres_url, tmp_path, jump=-3600)) == (mutant != "none")


def unstarted(fleet: Fleet) -> list[str]:
    """Runs that a replica has held for over a second and no task of which has begun under that token."""
    begun = {(line.run, line.token) for line in fleet.lines()}
    held = fleet.held_by(fleet.replicas[0].pid)
    return [run.id for run in held if (run.id, run.token) not in begun and run.token < machine_us() - 1_000_000]


@pytest.mark.parametrize("mutant", [NONE, "strays ignored"])
def test_what_was_claimed_by_a_question_that_came_late_is_started_unless_strays_are_ignored(
    mutant: str, postgres_url: str, tmp_path: Path
):
    """Questions swallowed: the claim arrives when nobody counts on its answer any more."""
    fleet = fleet_of(postgres_url, tmp_path, mutant)
    with network.linked(fleet, port_of(postgres_url)) as links, fleet.running():
        time.sleep(0.5)
        link = links[fleet.holder().name]
        link.swallow("up")
        time.sleep(2)
        link.heal()
        time.sleep(2.5)
        assert bool(unstarted(fleet)) == (mutant != "none")


@LONG
@pytest.mark.parametrize("mutant", ["none", "late answers believed"])
def test_an_answer_that_was_swallowed_for_long_starts_nothing_unless_it_is_believed(
    mutant: str, postgres_url: str, tmp_path: Path
):
    """Answers swallowed: the claim was committed, and its answer comes when others have taken the runs over."""
    fleet = fleet_of(postgres_url, tmp_path, mutant, replicas=2)
    with network.linked(fleet, port_of(postgres_url)) as links, fleet.running():
        fleet.until(lambda: all(replica.up for replica in fleet.replicas), 20, "both replicas")
        time.sleep(1)
        for link in links.values():
            link.swallow("down")
            time.sleep(0.3)
            link.swallow("up")
            time.sleep(2.5)
            link.heal()
            time.sleep(1)
    assert bool(network.two_at_once(fleet)) == (mutant != "none")


@pytest.mark.parametrize("mutant", [NONE, "settings of the session"])
def test_no_step_fails_behind_a_pooler_unless_replicas_rely_on_their_sessions(
    mutant: str,
    pgbouncer: PgBouncer,
    postgres_url: str,
    postgres_errors: Callable[[], Sequence[str]],
    tmp_path: Path,
):
    """Other clients of the pooler leave their settings in its sessions."""
    fleet = pooled(fleet_of(postgres_url, tmp_path, mutant), pgbouncer, listens=False)
    with fleet.running():
        hit(fleet, leave_settings(pgbouncer))
        time.sleep(1)
        assert mutant != "none" or goes_on(fleet)
    assert any("does not exist" in error for error in postgres_errors()) == (mutant != "none"), postgres_errors()
