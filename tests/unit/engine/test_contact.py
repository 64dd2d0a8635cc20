"""A store that comes and goes is told of, and does not flood the log."""

from __future__ import annotations

from typing import Any

from oncron._engine.spec import Execution
from oncron.errors import StoreUnavailable
from oncron.triggers import every
from tests.simulation.world import passes
from tests.unit.engine.given import One, one_replica, scheduled


async def quick(_execution: Execution) -> None:
    await passes(0.01)


def told(one: One) -> list[str]:
    return [event.name for event in one.fleet.events if event.name.startswith("store.")]


def test_a_full_disk_that_still_answers_reads_is_told_a_few_times_and_its_end_once() -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=1))]) as one:
        one.passes(3)
        store, kept = one.fleet.store, {}

        async def full(*_args: Any, **_options: Any) -> Any:
            raise StoreUnavailable("memory: the disk is full")

        for name in ("fire", "claim", "finish", "heartbeat", "enqueue"):
            kept[name] = getattr(store, name)
            setattr(store, name, full)
        one.passes(600)
        assert told(one)[-1] == "store.lost"
        assert len(told(one)) <= 5

        for name, method in kept.items():
            setattr(store, name, method)
        one.passes(60)
        assert told(one)[-1] == "store.back"
        assert len(told(one)) <= 6


def test_two_outages_far_apart_are_told_at_once_and_so_are_their_ends() -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=1))]) as one:
        for _ in range(2):
            one.passes(60)
            one.link.cut = True
            one.passes(30)
            one.link.cut = False
            one.passes(5)
        assert told(one) == ["store.lost", "store.back"] * 2
