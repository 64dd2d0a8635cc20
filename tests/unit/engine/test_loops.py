"""No failure ends a loop: whatever a call does, the next tick comes."""

from __future__ import annotations

import logging

import pytest

from oncron._engine import janitor
from oncron._engine.spec import Execution
from oncron._model import ClaimSpec, RunState, new_id
from oncron.triggers import every
from tests.simulation.network import METHODS
from tests.simulation.world import SECOND, passes
from tests.unit.engine.given import One, one_replica, scheduled

USED = sorted(set(METHODS) - {"cancel", "retry", "enqueue", "get_run", "get_runs", "runs", "gaps", "stats", "workers"})


async def quick(_execution: Execution) -> None:
    await passes(0.01)


def ticks_go_on(one: One, seconds: int) -> bool:
    before = sum(line.run.schedule == "each" for line in one.fleet.oracle.lines)
    one.passes(seconds)
    return sum(line.run.schedule == "each" for line in one.fleet.oracle.lines) >= before + seconds // 5 - 1


@pytest.mark.parametrize("method", USED)
@pytest.mark.parametrize("fate", ["bug", "lost", "late 60"])
def test_B081_a_call_that_fails_in_whatever_way_stops_no_loop(
    method: str, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "_PRUNE_EVERY", 10 * SECOND)
    with one_replica(quick, definitions=[scheduled("each", every(seconds=5))]) as one:
        one.passes(3)
        one.link.fates[method] = [fate] * 3
        for _ in range(3):
            one.enqueue()
            one.passes(25)

        assert ticks_go_on(one, 30)
        assert one.executed().state is RunState.SUCCEEDED
        if method in ("heartbeat", "poll", "fire", "claim", "finish", "due", "prune"):
            assert one.link.fates[method] == [], "the calls were made, and failed"


def test_B081_every_call_failing_for_a_minute_is_survived() -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=5))]) as one:
        one.passes(3)
        one.link.cut = True
        one.passes(60)
        one.link.cut = False
        one.passes(15)

        assert ticks_go_on(one, 30)
        assert [name for name in (event.name for event in one.fleet.events) if name.startswith("store.")] == [
            "store.lost",
            "store.back",
        ]
        one.fleet.oracle.verdict(one.fleet.store, drained=False)


def test_a_store_that_refuses_to_reap_is_not_asked_without_a_pause() -> None:
    ghost = ClaimSpec(claim_id=new_id(), worker="ghost", limit=1, lease_for=SECOND, tasks=("send",))
    with one_replica(quick) as one:
        run_id = one.enqueue(delay=5 * SECOND)
        due_at = one.run_of(run_id).due_at
        one.does(one.fleet.desk(lambda store: store.claim(ghost, now=due_at)))
        one.link.fates["reap"] = ["refused"] * 10_000
        one.passes(60)

        assert 5 < one.link.calls["reap"] < 300
        one.link.fates["reap"] = []
        one.passes(30)
        assert one.run_of(run_id).state is RunState.SUCCEEDED


def test_one_row_that_cannot_be_read_stops_no_other() -> None:
    bad = scheduled("bad", every(seconds=5))
    with one_replica(quick, definitions=[scheduled("each", every(seconds=5)), bad]) as one:
        one.passes(3)
        from msgspec.structs import replace

        row = one.fleet.store._schedule_rows["bad"]
        dict.__setitem__(
            one.fleet.store._schedule_rows,
            "bad",
            replace(row, definition=replace(row.definition, trigger="lunar(phase=3)"), revision=row.revision + 1),
        )
        one.fleet.store._version += 1
        one.passes(10)

        assert ticks_go_on(one, 30)
        row = one.fleet.store._schedule_rows["bad"]
        assert row.definition.trigger == "lunar(phase=3)", "it is left alone, for a release that can read it"


def test_a_run_of_a_task_that_nobody_has_is_left_alone_and_crowds_nothing_out() -> None:
    with one_replica(quick, concurrency=2) as one:
        strange = [one.enqueue("of another service") for _ in range(50)]
        assert one.executed().state is RunState.SUCCEEDED
        one.passes(60)

        assert {one.run_of(run_id).state for run_id in strange} == {RunState.PENDING}


def test_an_expected_outage_is_no_traceback_in_the_log() -> None:
    logger = logging.getLogger("oncron")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        with one_replica(quick, definitions=[scheduled("each", every(seconds=5))]) as one:
            one.passes(3)
            one.link.cut = True
            one.passes(30)
            one.link.cut = False
            one.passes(10)
    finally:
        logger.removeHandler(handler)

    assert [record for record in seen if record.exc_info] == []
    assert len([record for record in seen if record.levelno >= logging.WARNING]) <= 4


def test_a_clock_of_the_store_that_is_set_back_or_forward_stops_nothing() -> None:
    with one_replica(quick, definitions=[scheduled("each", every(seconds=5))]) as one:
        one.passes(3)
        store = one.fleet.store
        clock = store._clock
        store._clock = lambda: clock() + 7 * SECOND
        one.fleet.oracle.now = store._clock
        assert ticks_go_on(one, 30)
        store._clock = clock  # a step back is ignored: the store's clock stands still for seven seconds
        one.passes(7.5)
        assert ticks_go_on(one, 30)
