"""A store that comes and goes is told of, and does not flood the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncron._clock import SECOND
from oncron._engine.door import Door
from oncron._engine.spec import Execution
from oncron.errors import StoreUnavailable
from oncron.triggers import every
from tests.simulation.oracle import Violation
from tests.simulation.world import passes
from tests.unit.engine.given import One, one_replica, scheduled


async def quick(_execution: Execution) -> None:
    await passes(0.01)


def told(one: One) -> list[str]:
    return [event.name for event in one.fleet.events if event.name.startswith("store.")]


@contextmanager
def full_disk(one: One) -> Iterator[None]:
    """Nothing is written inside; reads are answered."""
    store, kept = one.fleet.store, {}

    async def full(*_args: Any, **_options: Any) -> Any:
        raise StoreUnavailable("memory: the disk is full")

    for name in ("fire", "claim", "finish", "heartbeat", "enqueue", "reap"):
        kept[name] = getattr(store, name)
        setattr(store, name, full)
    yield
    for name, method in kept.items():
        setattr(store, name, method)


def test_a_full_disk_that_still_answers_reads_is_told_a_few_times_and_its_end_once() -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=1))]) as one:
        one.passes(3)
        with full_disk(one):
            one.passes(600)
            assert told(one)[-1] == "store.lost"
            assert len(told(one)) <= 5

        one.passes(60)
        assert told(one)[-1] == "store.back"
        assert len(told(one)) <= 6


@pytest.mark.parametrize("seconds", [14, 15, 16, 25, 60])
def test_what_was_held_when_the_disk_was_full_for_longer_than_a_lease_is_taken_from_nobody(seconds: int) -> None:
    async def long(_execution: Execution) -> None:
        await passes(120)

    options = {
        "specs": {"send": {"on_doubt": "continue"}},
        "definitions": [scheduled("each", every(seconds=1), "well")],
    }
    with one_replica(long, replicas=3, **options) as one:
        run_id = one.enqueue()
        one.passes(20)
        with full_disk(one):
            one.passes(seconds)
        one.passes(120)

        assert one.heard(run_id) == ["claimed", "started", "succeeded"]
        assert one.run_of(run_id).attempt == 1
        one.is_well()


def attempts_with_all_kept_from_writing(seconds: float, phase: float = 0) -> int:
    """Of a run that one of three replicas holds meanwhile. Writes wait and succeed in the end: a replica that had
    nothing to write has noticed nothing."""

    async def long(_execution: Execution) -> None:
        await passes(120)

    with one_replica(long, replicas=3, specs={"send": {"on_doubt": "continue"}}) as one:
        run_id = one.enqueue()
        one.passes(20 + phase)
        for replica in one.fleet.replicas:
            replica.link.locked = True
        one.passes(seconds)
        for replica in one.fleet.replicas:
            replica.link.locked = False
        one.passes(120)
        one.is_well()
        return one.run_of(run_id).attempt


@pytest.mark.parametrize("phase", range(0, 50, 7))
@pytest.mark.parametrize("seconds", [11, 14, 15, 16, 25])
def test_what_was_held_while_somebody_kept_all_from_writing_is_taken_from_nobody(seconds: int, phase: int) -> None:
    assert attempts_with_all_kept_from_writing(seconds, phase / 10) == 1


def test_a_reaper_that_does_not_ask_whether_writes_get_through_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "writes_for", lambda _self: 3600 * SECOND)
    with pytest.raises(Violation, match="one at a time"):
        [attempts_with_all_kept_from_writing(15, phase / 10) for phase in range(0, 50, 7)]


def test_two_outages_far_apart_are_told_at_once_and_so_are_their_ends() -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=1))]) as one:
        for _ in range(2):
            one.passes(60)
            one.link.cut = True
            one.passes(30)
            one.link.cut = False
            one.passes(5)
        assert told(one) == ["store.lost", "store.back"] * 2
