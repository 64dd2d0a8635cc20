"""`fire`: each tick becomes at most one run, and the cursor passes none in silence.

This page may be read first. A *schedule* is a row with a *cursor*: every tick up to it is
settled. A replica reads the row, works out which ticks are due, and offers the store a *plan*:
"I saw the cursor there; these ticks become runs; move it here." The store compares and sets, in
one step. Any number of replicas may offer the same plan; one is FIRED, the others are STALE, and
being stale is normal.

In these tests `at(5)` is an instant five seconds after the beginning, and every step is told what
time it is. `plan(row, at(1))` is what a replica offers that saw `row` and found the tick at(1) due.
"""

from __future__ import annotations

import pytest

from oncron._model import (
    FireOutcome,
    FirePlan,
    GapReason,
    Overlap,
    RunFilter,
    RunState,
    Status,
    new_id,
    tick_run_id,
)
from oncron._store import ReadableStore
from tests.contract.given import (
    FAR_AHEAD,
    at,
    changed,
    claimed,
    declared,
    enqueued,
    finish,
    fired,
    gap,
    picture,
    plan,
    run_of,
    seen,
    spec,
)

# --- one run per tick (G1) --------------------------------------------------------------------


async def test_a_due_tick_becomes_one_pending_run_with_the_options_of_its_schedule(store: ReadableStore) -> None:
    row = await declared(
        store, task="send", args='{"to":"ops"}', queue="mail", priority=3, retries=7, retry_delay=5, timeout=9
    )

    answer = await store.fire([plan(row, at(1))], fire_id=new_id(), now=at(1))

    assert answer.now == at(1)
    assert answer.results[0].outcome is FireOutcome.FIRED
    assert answer.results[0].created == 1
    run = await run_of(store, at(1))
    assert (run.schedule, run.tick, run.state, run.due_at) == ("report", at(1), RunState.PENDING, at(1))
    assert (run.task, run.args, run.queue, run.priority) == ("send", '{"to":"ops"}', "mail", 3)
    assert (run.retries, run.retry_delay, run.timeout) == (7, 5, 9)
    assert (run.created_at, run.attempt, run.token, run.opening) == (at(1), 0, 0, 1)


async def test_the_cursor_moves_to_the_tick_and_next_at_to_what_the_plan_says(store: ReadableStore) -> None:
    before = await declared(store)

    await fired(store, at(1))

    after = await seen(store)
    assert (after.cursor, after.next_at, after.created_count) == (at(1), at(2), 1)
    assert after.revision == before.revision, "firing is no change of the definition"


async def test_of_two_replicas_that_offer_the_same_tick_the_second_is_stale_and_writes_nothing(
    store: ReadableStore, other: ReadableStore
) -> None:
    row = await declared(store)
    await store.fire([plan(row, at(1))], fire_id="replica-a", now=at(1))
    before = await picture(store)

    answer = await other.fire([plan(row, at(1))], spec("w2"), fire_id="replica-b", now=at(1))

    assert answer.results[0].outcome is FireOutcome.STALE
    assert answer.leases == ()
    assert await picture(store) == before


async def test_a_tick_is_not_fired_again_after_its_run_was_pruned(store: ReadableStore) -> None:
    """G1: a unique key that is pruned forgets; a cursor does not."""
    row = await declared(store)
    late_plan = plan(row, at(1))
    await fired(store, at(1))
    run = await claimed(store, now=at(1))
    await finish(store, run, now=at(2))
    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(3)) == 1

    answer = await store.fire([late_plan], fire_id=new_id(), now=at(3))

    assert answer.results[0].outcome is FireOutcome.STALE
    assert await store.runs(RunFilter()) == []


async def test_a_tick_that_the_cursor_has_passed_is_refused_even_by_a_plan_that_saw_the_row(
    store: ReadableStore,
) -> None:
    """G1: what lies at or before the cursor is settled, whoever asks."""
    await declared(store)
    await fired(store, at(1))
    row = await seen(store)
    before = await picture(store)

    for settled in (at(1), at(0.5)):
        answer = await store.fire([plan(row, settled, new_cursor=at(2))], fire_id=new_id(), now=at(5))
        assert answer.results[0].outcome is FireOutcome.STALE

    assert await picture(store) == before


async def test_a_tick_whose_run_is_on_record_makes_no_second_one(store: ReadableStore) -> None:
    """G1, the second belt: the run's id is a function of schedule and instant."""
    await declared(store, overlap=Overlap.ALLOW)
    known = await enqueued(store, id=tick_run_id("report", at(1)), now=at(1))

    answer = await fired(store, at(1), at(2))

    assert answer.results[0].created == 1
    assert {run.id for run in await store.runs(RunFilter())} == {known.id, tick_run_id("report", at(2))}
    assert await run_of(store, at(1)) == known
    assert (await seen(store)).cursor == at(2)


async def test_two_schedules_with_a_tick_at_one_instant_have_a_run_each(store: ReadableStore) -> None:
    plans = [plan(await declared(store, name), at(1)) for name in ("report", "backup")]

    answer = await store.fire(plans, fire_id=new_id(), now=at(1))

    assert [result.name for result in answer.results] == ["report", "backup"], "one result per plan, in order"
    assert {run.schedule for run in await store.runs(RunFilter())} == {"report", "backup"}


# --- never early (G2) -------------------------------------------------------------------------


async def test_a_tick_later_than_the_clock_of_the_store_is_refused(store: ReadableStore) -> None:
    """G2: a replica whose own clock is 150 ms fast offers the tick early; the store's clock is the law."""
    row = await declared(store)
    before = await picture(store)

    answer = await store.fire([plan(row, at(1))], fire_id=new_id(), now=at(0.85))

    assert answer.results[0].outcome is FireOutcome.EARLY
    assert answer.now == at(0.85), "the answer tells the time, so that the replica can set itself right"
    assert await picture(store) == before


async def test_a_cursor_may_not_pass_the_clock_of_the_store_even_without_a_tick(store: ReadableStore) -> None:
    row = await declared(store)
    early = plan(row, new_cursor=at(2), gaps=[gap(at(1), at(2), 2)])

    answer = await store.fire([early], fire_id=new_id(), now=at(1.5))

    assert answer.results[0].outcome is FireOutcome.EARLY
    assert await store.gaps("report") == []


async def test_a_tick_fires_at_its_very_instant(store: ReadableStore) -> None:
    row = await declared(store)

    answer = await store.fire([plan(row, at(1))], fire_id=new_id(), now=at(1))

    assert answer.results[0].outcome is FireOutcome.FIRED


# --- none lost (G3), nothing silent (G11) -----------------------------------------------------


async def test_a_plan_made_from_another_cursor_is_stale(store: ReadableStore) -> None:
    row = await declared(store)
    await fired(store, at(1))

    skipping = plan(row, at(2))
    answer = await store.fire([skipping], fire_id=new_id(), now=at(2))

    assert answer.results[0].outcome is FireOutcome.STALE
    assert (await seen(store)).cursor == at(1)


async def test_a_plan_made_from_an_older_definition_is_stale(store: ReadableStore) -> None:
    row = await declared(store)
    await changed(store, row, now=at(0), args='{"to":"new"}')

    answer = await store.fire([plan(row, at(1))], fire_id=new_id(), now=at(1))

    assert answer.results[0].outcome is FireOutcome.STALE
    assert await store.runs(RunFilter()) == []


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DORMANT, Status.REMOVED])
async def test_only_an_active_schedule_fires(store: ReadableStore, status: Status) -> None:
    row = await declared(store)
    answer = await changed(store, row, now=at(0), status=status)
    assert answer.record is not None

    result = (await store.fire([plan(answer.record, at(1))], fire_id=new_id(), now=at(1))).results[0]

    assert result.outcome is FireOutcome.STALE
    assert await store.runs(RunFilter()) == []


async def test_a_schedule_that_does_not_exist_is_stale(store: ReadableStore) -> None:
    nobody = FirePlan(name="nobody", seen_revision=1, seen_cursor=at(0), new_cursor=at(1), next_at=None)

    answer = await store.fire([nobody], fire_id=new_id(), now=at(1))

    assert answer.results[0].outcome is FireOutcome.STALE


async def test_one_stale_plan_does_not_hold_up_the_others(store: ReadableStore) -> None:
    plans = [plan(await declared(store, name), at(1)) for name in ("a", "b", "c")]
    await store.fire([plans[1]], fire_id=new_id(), now=at(1))
    plans.append(plan(await declared(store, "d"), at(9)))

    answer = await store.fire(plans, fire_id=new_id(), now=at(1))

    assert [(result.name, result.outcome) for result in answer.results] == [
        ("a", FireOutcome.FIRED),
        ("b", FireOutcome.STALE),
        ("c", FireOutcome.FIRED),
        ("d", FireOutcome.EARLY),
    ]


async def test_ticks_that_are_passed_without_a_run_are_recorded_as_a_gap(store: ReadableStore) -> None:
    row = await declared(store)

    await store.fire([plan(row, at(5), gaps=[gap(at(1), at(4), 4)])], fire_id=new_id(), now=at(5))

    [recorded] = await store.gaps("report")
    assert (recorded.schedule, recorded.first, recorded.last, recorded.count) == ("report", at(1), at(4), 4)
    assert (recorded.reason, recorded.at_least, recorded.created_at) == (GapReason.MISSED, False, at(5))


async def test_a_gap_outside_of_what_the_plan_passes_makes_it_stale(store: ReadableStore) -> None:
    """G3: a record may speak only of (seen_cursor, new_cursor]."""
    row = await declared(store)

    for first, last in ((at(0), at(1)), (at(1), at(3))):
        crooked = plan(row, at(2), gaps=[gap(first, last)])
        answer = await store.fire([crooked], fire_id=new_id(), now=at(5))
        assert answer.results[0].outcome is FireOutcome.STALE

    assert await store.gaps("report") == []
    assert (await seen(store)).cursor == at(0)


async def test_a_gap_that_goes_on_for_the_same_reason_extends_the_newest_one(store: ReadableStore) -> None:
    """G11: a schedule of one second that is occupied for an hour leaves one row, not 3,600."""
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))

    for second in (2, 3, 4):
        answer = await fired(store, at(second))
        assert (answer.results[0].created, answer.results[0].skipped) == (0, 1)
        assert answer.results[0].reason is GapReason.OVERLAP

    [recorded] = await store.gaps("report")
    assert (recorded.first, recorded.last, recorded.count) == (at(2), at(4), 3)


async def test_a_gap_with_another_reason_or_after_a_run_is_a_row_of_its_own(store: ReadableStore) -> None:
    row = await declared(store)
    await store.fire([plan(row, new_cursor=at(1), gaps=[gap(at(1), at(1))])], fire_id=new_id(), now=at(1))
    row = await seen(store)
    too_old = gap(at(2), at(2), reason=GapReason.TOO_OLD)
    await store.fire([plan(row, new_cursor=at(2), gaps=[too_old])], fire_id=new_id(), now=at(2))
    await fired(store, at(3))
    row = await seen(store)
    again = gap(at(4), at(4), reason=GapReason.TOO_OLD)
    await store.fire([plan(row, new_cursor=at(4), gaps=[again])], fire_id=new_id(), now=at(4))

    recorded = await store.gaps("report")

    assert [(each.first, each.reason) for each in recorded] == [
        (at(4), GapReason.TOO_OLD),
        (at(2), GapReason.TOO_OLD),
        (at(1), GapReason.MISSED),
    ], "newest first"


async def test_a_count_that_was_cut_short_stays_at_least_when_the_gap_is_extended(store: ReadableStore) -> None:
    row = await declared(store)
    cut = gap(at(1), at(2), 10_000, at_least=True)
    await store.fire([plan(row, new_cursor=at(2), gaps=[cut])], fire_id=new_id(), now=at(2))
    row = await seen(store)
    await store.fire([plan(row, new_cursor=at(3), gaps=[gap(at(3), at(3))])], fire_id=new_id(), now=at(3))

    [recorded] = await store.gaps("report")

    assert (recorded.count, recorded.at_least, recorded.last) == (10_001, True, at(3))


async def test_a_plan_without_ticks_only_puts_next_at_right(store: ReadableStore) -> None:
    row = await declared(store)

    await store.fire([plan(row, next_at=at(30))], fire_id=new_id(), now=at(1))

    after = await seen(store)
    assert (after.cursor, after.next_at) == (at(0), at(30))


async def test_a_schedule_without_a_further_tick_has_no_next_at(store: ReadableStore) -> None:
    row = await declared(store)

    await store.fire([plan(row, at(1), next_at=None)], fire_id=new_id(), now=at(1))

    assert (await seen(store)).next_at is None
    assert await store.due(FAR_AHEAD) == []


# --- repeatable (G7) --------------------------------------------------------------------------


async def test_the_same_fire_id_answers_fired_again_with_its_leases_while_they_are_held(store: ReadableStore) -> None:
    """G7: the answer was lost after the commit. Told "stale", the replica would let its lease expire."""
    row = await declared(store)
    claim = spec("w1")
    first = await store.fire([plan(row, at(1))], claim, fire_id="f1", now=at(1))
    before = await picture(store)

    again = await store.fire([plan(row, at(1))], claim, fire_id="f1", now=at(2))

    assert again.results[0].outcome is FireOutcome.FIRED
    assert (again.results[0].created, again.results[0].skipped) == (1, 0)
    assert again.leases == first.leases
    after = await picture(store)
    assert (after["runs"], after["schedules"]) == (before["runs"], before["schedules"])


async def test_a_repeated_fire_returns_no_lease_that_has_ended(store: ReadableStore) -> None:
    row = await declared(store)
    claim = spec("w1")
    first = await store.fire([plan(row, at(1))], claim, fire_id="f1", now=at(1))
    await finish(store, first.leases[0], now=at(2))

    again = await store.fire([plan(row, at(1))], claim, fire_id="f1", now=at(3))

    assert again.results[0].outcome is FireOutcome.FIRED
    assert again.leases == ()
    assert len(await store.runs(RunFilter())) == 1


async def test_a_repeated_fire_answers_what_was_refused_the_first_time(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    row = await seen(store)
    await store.fire([plan(row, at(2))], fire_id="f2", now=at(2))

    again = await store.fire([plan(row, at(2))], fire_id="f2", now=at(2))

    assert again.results[0].outcome is FireOutcome.FIRED
    assert (again.results[0].created, again.results[0].skipped) == (0, 1)
    [recorded] = await store.gaps("report")
    assert recorded.count == 1, "a repetition records nothing twice"


async def test_a_repetition_after_something_else_happened_is_stale(store: ReadableStore) -> None:
    """G7 ends where a later fire or a change of the schedule begins."""
    row = await declared(store, overlap=Overlap.ALLOW)
    await store.fire([plan(row, at(1))], fire_id="f1", now=at(1))
    await fired(store, at(2))

    after_a_fire = await store.fire([plan(row, at(1))], fire_id="f1", now=at(3))
    row = await seen(store)
    await store.fire([plan(row, at(3))], fire_id="f3", now=at(3))
    await changed(store, await seen(store), now=at(3), args="[]")
    after_a_change = await store.fire([plan(row, at(3))], fire_id="f3", now=at(3))

    assert after_a_fire.results[0].outcome is FireOutcome.STALE
    assert after_a_change.results[0].outcome is FireOutcome.STALE
    assert len(await store.runs(RunFilter())) == 3


async def test_a_batch_may_be_repeated_as_a_whole(store: ReadableStore) -> None:
    rows = [await declared(store, f"s{n}") for n in range(5)]
    plans, claim = [plan(row, at(1)) for row in rows], spec(limit=3)
    first = await store.fire(plans, claim, fire_id="f1", now=at(1))

    again = await store.fire(plans, claim, fire_id="f1", now=at(1))

    assert [result.outcome for result in again.results] == [FireOutcome.FIRED] * 5
    assert {run.id: run for run in again.leases} == {run.id: run for run in first.leases}
    assert len(again.leases) == 3, "a repetition leases no more than the first time"
    assert len(await store.runs(RunFilter())) == 5
