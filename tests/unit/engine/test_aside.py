"""A schedule that cannot be fired holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from oncron._engine.spec import Execution
from oncron.errors import StoreUnavailable
from oncron.triggers import every
from tests.simulation.world import passes
from tests.unit.engine.given import One, one_replica, scheduled


async def quick(_execution: Execution) -> None:
    await passes(0.01)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the scheduler logs."""
    logger, lines, handler = logging.getLogger("oncron.scheduler"), [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def ticks(one: One, name: str) -> int:
    return sum(line.run.schedule == name for line in one.fleet.oracle.lines)


@pytest.mark.parametrize("seconds", [5, 7], ids=["with the others", "at times of its own"])
def test_a_schedule_whose_row_is_locked_for_long_holds_up_no_other(seconds: int, said: list[str]) -> None:
    names = [f"each-{n}" for n in range(20)]
    definitions = [scheduled(name, every(seconds=5)) for name in names]
    with one_replica(
        quick, definitions=[*definitions, scheduled("locked", every(seconds=seconds))], concurrency=30
    ) as one:
        one.passes(3)
        fire, locked = one.fleet.store.fire, [True]

        async def blocked(plans: Any, *args: Any, **options: Any) -> Any:
            if locked[0] and any(plan.name == "locked" for plan in plans):
                raise StoreUnavailable("memory: the row is locked")
            return await fire(plans, *args, **options)

        one.fleet.store.fire = blocked
        before = {name: ticks(one, name) for name in names}
        was = ticks(one, "locked")
        one.passes(60)
        assert [name for name in names if ticks(one, name) - before[name] < 12] == []
        assert ticks(one, "locked") == was
        assert len([line for line in said if "'locked' could not be fired" in line]) == 1

        locked[0] = False
        one.passes(30)
        assert ticks(one, "locked") > was, "it is tried again"
        one.fleet.oracle.verdict(one.fleet.store, drained=False)
