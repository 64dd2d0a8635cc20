"""Progress and checkpoints travel with the heartbeat, which the leases must not depend on them for."""

from __future__ import annotations

from typing import Any

import pytest

from oncron import RunContext
from oncron._engine.spec import Execution
from oncron._model import RunRecord, RunState
from oncron.errors import InvalidArguments, StoreError, StoreUnavailable
from tests.simulation.world import passes
from tests.unit.engine.given import one_replica


def context() -> RunContext[None]:
    return RunContext(Execution(run=RunRecord(id="r", task="send"), store_now=lambda: 0), {}, None)


def test_a_checkpoint_or_a_note_that_is_too_large_is_refused_where_it_is_given_and_the_last_one_stays() -> None:
    ctx = context()
    ctx.checkpoint("x" * 65_000)
    with pytest.raises(InvalidArguments, match=r"checkpoint takes 70,002 bytes of JSON, more than 65,536"):
        ctx.checkpoint("y" * 70_000)
    with pytest.raises(InvalidArguments, match=r"progress takes .* more than 1,024"):
        ctx.progress(1, note="ä" * 600)
    ctx.progress(1, 2, note="ä" * 400)

    assert ctx.last_checkpoint == "x" * 65_000


@pytest.mark.parametrize("error", [StoreUnavailable("memory: too much at once"), StoreError("memory: no such value")])
def test_reports_that_no_heartbeat_gets_through_with_cost_no_lease_and_come_with_the_end(error: StoreError) -> None:
    async def send(execution: Execution) -> None:
        execution.checkpoint, execution.reported = '"here"', False
        await passes(90)

    with one_replica(send) as one:
        heartbeat = one.fleet.store.heartbeat

        async def picky(*args: Any, **options: Any) -> Any:
            if any(args[3]):
                raise error
            return await heartbeat(*args, **options)

        one.fleet.store.heartbeat = picky
        run_id = one.enqueue(retries=0)
        one.passes(100)

        run = one.run_of(run_id)
        assert (run.state, run.attempt, run.checkpoint) == (RunState.SUCCEEDED, 1, '"here"')
        assert "lease.lost" not in {event.name for event in one.fleet.events}
