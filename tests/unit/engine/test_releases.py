"""The highest release that is alive has the word, whatever happened to whom in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncron.triggers import every
from tests.unit.engine.given import One, one_replica, scheduled

OLD, NEW = "every(seconds=45)", "every(seconds=90)"


@pytest.fixture
def two() -> Iterator[One]:
    """Two replicas, both of release 2."""
    with one_replica(replicas=2) as one:
        for number in (0, 1):
            deploy(one, number, 2)
        one.passes(1)
        assert stored(one) == NEW
        yield one


def deploy(one: One, number: int, release: int) -> None:
    """The replica's process dies, and the next one is of that release."""
    one.fleet.release = release
    one.fleet.definitions = [scheduled("a", every(seconds={1: 45, 2: 90}[release]), "well")]
    one.fleet.replicas[number].kill()
    one.fleet.replicas[number].boot()


def stored(one: One) -> str:
    return one.fleet.store._schedule_rows["a"].definition.trigger


def refusals(caplog: pytest.LogCaptureFixture) -> int:
    return sum("alive" in record.getMessage() for record in caplog.records)


def test_a_roll_back_after_a_crash_takes_hold_once_the_lease_of_the_last_newer_replica_is_over(
    two: One, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(two, 0, 1)
    deploy(two, 1, 1)
    two.passes(5)
    assert stored(two) == NEW, "by the store, a replica of release 2 may still be alive"
    two.passes(90)

    assert stored(two) == OLD
    assert refusals(caplog) == 2, "each of the two said so once"
    two.is_well()


def test_an_old_replica_beside_a_newer_one_is_overruled_for_good_and_says_so_once(
    two: One, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(two, 0, 1)
    two.passes(3600)

    assert stored(two) == NEW
    assert refusals(caplog) == 1
    two.is_well()


def test_a_newer_release_that_was_cut_off_has_the_word_again_when_it_is_back(two: One) -> None:
    deploy(two, 0, 1)
    two.passes(60)
    two.fleet.replicas[1].link.cut = True
    two.passes(120)
    assert stored(two) == OLD, "nobody of release 2 is alive"
    two.fleet.replicas[1].link.cut = False
    two.passes(60)

    assert stored(two) == NEW
    assert not [event for event in two.fleet.events if event.name == "schedule.flapped"], "it is meant"
    two.is_well()


def test_what_two_releases_declare_alike_is_written_once(two: One) -> None:
    before = two.fleet.store._schedule_rows["a"].revision
    two.fleet.release = 1
    two.fleet.replicas[0].kill()
    two.fleet.replicas[0].boot()
    two.passes(600)

    assert two.fleet.store._schedule_rows["a"].revision == before
    two.is_well()
