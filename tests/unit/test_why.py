"""Every answer to "what became of this tick?", from what is on record."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from oncron._clock import SECOND, to_us
from oncron._model import (
    Definition,
    FirePlan,
    Gap,
    GapReason,
    Overlap,
    RunRecord,
    RunState,
    ScheduleRecord,
    Status,
    TickRun,
    new_id,
    tick_run_id,
)
from oncron._plan import first_plan
from oncron._why import Why, explain, why
from oncron.errors import NotFound
from oncron.stores.memory import MemoryStore
from oncron.triggers import every, parse

MINUTE = 60 * SECOND
START = to_us(datetime(2026, 11, 30, 12, tzinfo=UTC))
TRIGGER = str(every(minutes=1).bind("poll", "UTC"))


def row(**fields: object) -> ScheduleRecord:
    known: dict[str, object] = {
        "definition": Definition(name="poll", trigger=TRIGGER, task="poll"),
        "revision": 1,
        "cursor": START,
        "next_at": START + MINUTE,
        "created_at": START - 60 * MINUTE,
        "changed_at": START - 60 * MINUTE,
    }
    return ScheduleRecord(**(known | fields))  # type: ignore[arg-type]


def gap(reason: GapReason, first: int, last: int, count: int = 1, **fields: object) -> Gap:
    known: dict[str, object] = {"created_at": START}
    return Gap(schedule="poll", first=first, last=last, count=count, reason=reason, **(known | fields))  # type: ignore[arg-type]


def run(state: RunState, **fields: object) -> RunRecord:
    known: dict[str, object] = {"id": tick_run_id("poll", START), "task": "poll", "schedule": "poll", "tick": START}
    return RunRecord(state=state, **(known | fields))  # type: ignore[arg-type]


def ask(
    instant: int, *, on: ScheduleRecord | None = None, ran: RunRecord | None = None, gaps: tuple[Gap, ...] = ()
) -> Why:
    return explain(on or row(), instant, ran, gaps, START + 30 * SECOND)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (RunState.SUCCEEDED, "succeeded"),
        (RunState.FAILED, "failed"),
        (RunState.LOST, "was lost"),
        (RunState.CANCELLED, "was cancelled"),
        (RunState.SKIPPED, "was skipped"),
        (RunState.RUNNING, "is running"),
        (RunState.PENDING, "waits for a worker"),
    ],
)
def test_a_tick_with_a_run_is_told_by_the_runs_state(state: RunState, says: str) -> None:
    answer = ask(START, ran=run(state, attempt=0 if state is RunState.PENDING else 1))
    assert answer.verdict == "run"
    assert answer.run == tick_run_id("poll", START)
    assert says in str(answer)


@pytest.mark.parametrize("reason", list(GapReason))
def test_a_tick_that_was_passed_names_the_reason(reason: GapReason) -> None:
    answer = ask(START, gaps=(gap(reason, START, START),))
    assert (answer.verdict, answer.reason) == ("gap", reason.value)


def test_a_gap_of_many_ticks_tells_its_stretch() -> None:
    answer = ask(START, gaps=(gap(GapReason.MISSED, START - 5 * MINUTE, START, 6, at_least=True),))
    assert "at least 6 ticks from 2026-11-30T11:55:00Z to 2026-11-30T12:00:00Z" in str(answer)


def test_an_instant_between_two_ticks_is_none_and_tells_its_neighbours() -> None:
    answer = ask(START + 5 * SECOND)
    assert answer.verdict == "not_a_tick"
    assert "the one before is 2026-11-30T12:00:00Z" in str(answer)
    assert "the next one is 2026-11-30T12:01:00Z" in str(answer)


def test_a_gap_that_spans_an_instant_does_not_make_it_a_tick() -> None:
    answer = ask(START - 90 * SECOND, gaps=(gap(GapReason.OVERLAP, START - 2 * MINUTE, START, 3),))
    assert answer.verdict == "not_a_tick"


def test_the_future_is_not_yet_and_the_present_is_owed() -> None:
    assert ask(START + MINUTE).verdict == "not_yet"
    assert ask(START, on=row(cursor=START - MINUTE)).verdict == "owed"


def test_a_pause_a_removal_and_dormancy_are_told_with_the_note() -> None:
    for status, verdict in ((Status.PAUSED, "paused"), (Status.REMOVED, "removed"), (Status.DORMANT, "dormant")):
        answer = ask(START + MINUTE, on=row(status=status, note="moving the database", next_at=None))
        assert answer.verdict == verdict
    assert "moving the database" in str(ask(START + MINUTE, on=row(status=Status.PAUSED, note="moving the database")))


def test_what_lies_before_the_declaration_was_never_owed() -> None:
    assert ask(START - 120 * MINUTE).verdict == "before"


def test_a_settled_tick_without_a_record_was_pruned() -> None:
    assert ask(START - MINUTE).verdict == "pruned"


async def test_the_store_is_asked_for_the_run_and_the_gaps() -> None:
    now = START
    store = MemoryStore(clock=lambda: now)
    definition = Definition(name="poll", trigger=TRIGGER, task="poll", overlap=Overlap.SKIP)
    await store.declare([first_plan(definition, parse(TRIGGER), now)])
    seen = START
    for tick in (START + MINUTE, START + 2 * MINUTE):
        now = tick
        plan = FirePlan(
            name="poll",
            seen_revision=1,
            seen_cursor=seen,
            new_cursor=tick,
            next_at=tick + MINUTE,
            ticks=(TickRun(run_id=tick_run_id("poll", tick), tick=tick, due_at=tick),),
        )
        await store.fire([plan], fire_id=new_id())
        seen = tick
    assert (await why(store, "poll", START + MINUTE)).verdict == "run"
    refused = await why(store, "poll", START + 2 * MINUTE)
    assert (refused.verdict, refused.reason) == ("gap", "overlap")
    with pytest.raises(NotFound, match="no schedule 'nope'"):
        await why(store, "nope", START)
