"""What nobody's code declares goes dormant; what a live replica declares is there, and awake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncron import _defaults as limits
from oncron._engine import janitor, registrar
from oncron._model import Status
from oncron.triggers import every
from tests.simulation.world import SECOND
from tests.unit.engine.given import One, one_replica, scheduled


@pytest.fixture(autouse=True)
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DORMANT_AFTER", 600 * SECOND)
    monkeypatch.setattr(janitor, "_NOTE_EVERY", 100 * SECOND)


@contextmanager
def two_services() -> Iterator[One]:
    """The first declares "a", the second "b"."""
    with one_replica(replicas=2) as one:
        for replica, name in zip(one.fleet.replicas, ("a", "b"), strict=True):
            replica.definitions = [scheduled(name, every(seconds=60), "well")]
            replica.engine.changed()
        one.passes(1)
        assert status(one) == {"a": Status.ACTIVE, "b": Status.ACTIVE}
        yield one


def status(one: One) -> dict[str, Status]:
    return {name: row.status for name, row in one.fleet.store._schedule_rows.items()}


def told(one: One, name: str) -> list[str | None]:
    return [event.schedule for event in one.fleet.events if event.name == name]


def test_what_no_replica_declares_any_more_goes_dormant() -> None:
    with two_services() as one:
        one.fleet.replicas[1].kill()
        one.passes(600)
        assert status(one) == {"a": Status.ACTIVE, "b": Status.ACTIVE}
        one.passes(300)

        assert status(one) == {"a": Status.ACTIVE, "b": Status.DORMANT}
        one.is_well()


def test_after_an_outage_that_kept_everybody_away_nothing_goes_dormant() -> None:
    with two_services() as one:
        one.passes(700)
        for replica in one.fleet.replicas:
            replica.link.cut = True
        one.passes(900)
        one.fleet.replicas[0].link.cut = False
        one.passes(300)  # the other is still away: nobody knows yet whether it lives
        one.fleet.replicas[1].link.cut = False
        one.passes(900)

        assert told(one, "schedule.dormant") == []
        assert status(one) == {"a": Status.ACTIVE, "b": Status.ACTIVE}


def test_a_replica_that_was_away_for_long_wakes_its_schedules_at_once_and_for_good() -> None:
    with two_services() as one:
        one.fleet.replicas[1].link.cut = True
        one.passes(900)
        assert status(one) == {"a": Status.ACTIVE, "b": Status.DORMANT}
        one.fleet.replicas[1].link.cut = False
        one.passes(45)
        assert status(one) == {"a": Status.ACTIVE, "b": Status.ACTIVE}
        one.passes(2000)

        assert told(one, "schedule.dormant") == ["b"]
        assert one.fleet.oracle.passed["b"] > 10
        one.is_well()


@pytest.mark.parametrize("tells", [True, False])
def test_a_declared_schedule_whose_row_is_gone_is_declared_again(tells: bool) -> None:
    with one_replica(definitions=[scheduled("each", every(seconds=5), "well")]) as one:
        one.passes(20)
        dict.pop(one.fleet.store._schedule_rows, "each")
        one.fleet.store._version += tells
        one.passes(45 if tells else 140)

        assert status(one) == {"each": Status.ACTIVE}
        ticks = len(one.fleet.oracle.ticks_made)
        one.passes(20)
        assert len(one.fleet.oracle.ticks_made) > ticks


def test_a_schedule_that_was_removed_stays_so_though_it_is_declared() -> None:
    with one_replica(definitions=[scheduled("each", every(seconds=5), "well")]) as one:
        one.passes(20)
        one.does(one.fleet.desk(lambda store: registrar.remove(store, "each")))
        one.passes(300)

        assert status(one) == {"each": Status.REMOVED}
