"""One end that cannot be written holds up no other."""

from __future__ import annotations

from typing import Any

from oncron._engine.spec import Execution
from oncron._model import RunState
from oncron.errors import StoreError, StoreUnavailable
from tests.simulation.world import passes
from tests.unit.engine.given import One, one_replica


async def quick(_execution: Execution) -> None:
    await passes(0.01)


def refuses(one: One, run_id: str, error: StoreError) -> dict[str, bool]:
    """The store takes no batch with a success of that run, while `on` says so."""
    finish, state = one.fleet.store.finish, {"on": True}

    async def picky(outcomes: Any, **options: Any) -> Any:
        if state["on"] and any(o.run_id == run_id and o.kind == "succeeded" for o in outcomes):
            raise error
        return await finish(outcomes, **options)

    one.fleet.store.finish = picky
    return state


def test_a_run_whose_row_is_locked_for_long_holds_up_no_other_end() -> None:
    with one_replica(quick, concurrency=20) as one:
        locked = one.enqueue(delay=1_000_000)
        row = refuses(one, locked, StoreUnavailable("memory: the row is locked"))
        others = [one.enqueue(delay=1_000_000) for _ in range(12)]
        one.passes(5)
        later = [one.enqueue() for _ in range(5)]
        one.passes(2)

        assert {one.run_of(run_id).state for run_id in others + later} == {RunState.SUCCEEDED}
        assert one.run_of(locked).state is RunState.RUNNING
        one.passes(60)
        assert one.run_of(locked).attempt == 1
        row["on"] = False
        one.passes(11)
        assert one.run_of(locked).state is RunState.SUCCEEDED, "it was kept, and written once the row was free"
        one.is_well()


def test_an_end_that_the_store_refuses_is_written_as_failed_and_the_others_as_they_are() -> None:
    with one_replica(quick, concurrency=20) as one:
        bad = one.enqueue(delay=1_000_000)
        refuses(one, bad, StoreError("memory: value out of range"))
        others = [one.enqueue(delay=1_000_000) for _ in range(12)]
        one.passes(5)

        assert {one.run_of(run_id).state for run_id in others} == {RunState.SUCCEEDED}
        assert one.run_of(bad).state is RunState.FAILED
        assert "value out of range" in (one.run_of(bad).error or "")
        assert "store.lost" not in {event.name for event in one.fleet.events}, "a store that refuses is there"
        one.is_well()
