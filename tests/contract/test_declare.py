"""`declare`: schedules come, change, pause, resume and go by the same compare-and-set as `fire`."""

from __future__ import annotations

import msgspec
import pytest

from oncron._model import Change, FireOutcome, GapReason, Missed, Overlap, RunFilter, Status, new_id
from oncron._store import ReadableStore
from tests.contract.given import (
    FAR_AHEAD,
    at,
    change_of,
    changed,
    declared,
    definition,
    fired,
    gap,
    picture,
    plan,
    run_of,
    seen,
)


def a_new(name: str = "report", *, cursor: int = at(0)) -> Change:
    return Change(
        name=name, definition=definition(name), status=Status.ACTIVE, new_cursor=cursor, next_at=cursor + 1_000_000
    )


async def test_a_new_schedule_starts_with_revision_1_and_the_cursor_it_was_given(store: ReadableStore) -> None:
    [answer] = await store.declare([a_new()], now=at(0))

    assert answer.changed
    row = await seen(store)
    assert answer.record == row
    assert (row.revision, row.cursor, row.next_at, row.status) == (1, at(0), at(1), Status.ACTIVE)
    assert (row.last_token, row.created_count, row.created_at, row.changed_at) == (0, 0, at(0), at(0))


async def test_every_field_of_a_definition_comes_back_as_it_was_declared(store: ReadableStore) -> None:
    whole = definition(
        "whole",
        trigger="0 9 * * MON-FRI tz=Europe/Berlin",
        task="billing.close",
        args='{"text":"a\\u0000b \\ud83d\\ude00","n":[1,2.5,null]}',
        missed=Missed.ALL,
        missed_within=86_400_000_000,
        missed_limit=7,
        overlap=Overlap.CANCEL,
        jitter=1_000,
        start_at=at(5),
        end_at=at(5_000_000),
        limit=99,
        tags=("money", "a b", "é"),
        queue="slow",
        priority=-3,
        retries=0,
        retry_delay=123_456_789,
        timeout=3_600_000_000,
        unique="close",
        origin="api",
        release=42,
        tzdata="2025b",
    )
    await store.declare(
        [Change(name="whole", definition=whole, status=Status.ACTIVE, new_cursor=at(0), next_at=at(9), note="by hand")],
        now=at(0),
    )

    row = await seen(store, "whole")

    assert row.definition == whole
    assert row.definition.digest() == whole.digest()
    assert row.note == "by hand"


async def test_a_change_that_saw_the_row_as_it_is_raises_the_revision_by_one(store: ReadableStore) -> None:
    row = await declared(store)

    answer = await changed(store, row, now=at(1), retries=9)

    assert answer.changed
    after = await seen(store)
    assert answer.record == after
    assert (after.revision, after.definition.retries, after.cursor) == (2, 9, at(0))
    assert (after.created_at, after.changed_at) == (at(0), at(1))


async def test_a_change_that_saw_an_older_revision_is_refused_with_the_row_as_it_is(store: ReadableStore) -> None:
    """G3: two replicas declare at once; the second reads again and finds nothing to do."""
    row = await declared(store)
    await changed(store, row, now=at(1), retries=9)
    before = await picture(store)

    answer = await changed(store, row, now=at(1), retries=5)

    assert not answer.changed
    assert answer.record == await seen(store)
    assert await picture(store) == before


async def test_a_change_that_saw_an_older_cursor_is_refused(store: ReadableStore) -> None:
    """G3: a tick fired meanwhile; what the change would have recorded as passed is not true any more."""
    row = await declared(store)
    await fired(store, at(1))

    answer = await changed(store, row, now=at(2), cursor=at(2), trigger="every 5s", gaps=[gap(at(1), at(2), 2)])

    assert not answer.changed
    assert (await seen(store)).cursor == at(1)
    assert await store.gaps("report") == []


async def test_a_schedule_that_exists_is_not_created_again(store: ReadableStore) -> None:
    await declared(store)
    await fired(store, at(1))
    before = await picture(store)

    [answer] = await store.declare([a_new(cursor=at(0))], now=at(2))

    assert not answer.changed
    assert answer.record == await seen(store)
    assert await picture(store) == before


async def test_a_change_of_a_schedule_that_does_not_exist_is_refused(store: ReadableStore) -> None:
    row = await declared(store, "model")
    ghost = msgspec.structs.replace(change_of(row), name="ghost")

    [answer] = await store.declare([ghost], now=at(0))

    assert (answer.changed, answer.record) == (False, None)
    assert await store.schedules(["ghost"]) == []


async def test_repeating_a_declaration_answers_unchanged_with_the_row_it_made(store: ReadableStore) -> None:
    """G7: the answer was lost after the commit."""
    [first] = await store.declare([a_new()], now=at(0))
    [again] = await store.declare([a_new()], now=at(0))
    change = change_of(await seen(store), retries=9)
    [third] = await store.declare([change], now=at(1))
    [fourth] = await store.declare([change], now=at(1))

    assert (again.changed, again.record) == (False, first.record)
    assert (fourth.changed, fourth.record) == (False, third.record)
    assert (await seen(store)).revision == 2


async def test_a_batch_has_an_answer_per_change_and_one_refusal_fails_no_other(store: ReadableStore) -> None:
    await declared(store, "b")

    answers = await store.declare([a_new("a"), a_new("b"), a_new("c")], now=at(0))

    assert [(answer.name, answer.changed) for answer in answers] == [("a", True), ("b", False), ("c", True)]
    assert [row.name for row in await store.schedules()] == ["a", "b", "c"]


# --- the cursor -----------------------------------------------------------------------------


async def test_the_cursor_never_goes_back(store: ReadableStore) -> None:
    await declared(store)
    await fired(store, at(5))

    answer = await changed(store, await seen(store), now=at(6), cursor=at(1))

    assert answer.changed
    assert (await seen(store)).cursor == at(5)


async def test_a_cursor_is_not_moved_past_the_clock_of_the_store(store: ReadableStore) -> None:
    """G2: the ticks in between would be settled before they exist."""
    row = await declared(store)
    before = await picture(store)

    moved = await changed(store, row, now=at(1), cursor=at(2))
    [born] = await store.declare([a_new("born-late", cursor=at(2))], now=at(1))

    assert not moved.changed
    assert (born.changed, born.record) == (False, None)
    assert await picture(store) == before


async def test_a_schedule_whose_cursor_is_ahead_of_the_clock_can_still_be_paused(store: ReadableStore) -> None:
    """After a clock stepped back an operator must be able to act; the cursor stays where it is."""
    row = await declared(store, now=at(100))

    answer = await changed(store, row, now=at(1), status=Status.PAUSED)

    assert answer.changed
    assert (await seen(store)).cursor == at(100)


async def test_what_a_change_passes_is_recorded_in_the_same_step(store: ReadableStore) -> None:
    """G3, G11: a changed trigger moves the cursor to now."""
    row = await declared(store)
    passed = gap(at(1), at(7), 0, GapReason.CHANGED, detail="every 1s -> every 5s")

    await changed(store, row, now=at(7), cursor=at(7), trigger="every 5s", gaps=[passed])

    [recorded] = await store.gaps("report")
    assert (recorded.first, recorded.last, recorded.count) == (at(1), at(7), 0)
    assert (recorded.reason, recorded.detail) == (GapReason.CHANGED, "every 1s -> every 5s")
    assert recorded.created_at == at(7)
    assert (await seen(store)).cursor == at(7)


async def test_a_gap_of_a_change_extends_the_newest_one_as_in_fire(store: ReadableStore) -> None:
    row = await declared(store)
    await changed(store, row, now=at(2), cursor=at(2), gaps=[gap(at(1), at(2), 2, GapReason.PAUSED)])
    await changed(store, await seen(store), now=at(4), cursor=at(4), gaps=[gap(at(3), at(4), 2, GapReason.PAUSED)])

    [recorded] = await store.gaps("report")

    assert (recorded.first, recorded.last, recorded.count) == (at(1), at(4), 4)


# --- status ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DORMANT, Status.REMOVED])
async def test_a_schedule_that_is_not_active_has_no_next_at_and_is_never_due(
    store: ReadableStore, status: Status
) -> None:
    row = await declared(store)

    await changed(store, row, now=at(0), status=status)

    after = await seen(store)
    assert (after.status, after.next_at) == (status, None)
    assert await store.due(FAR_AHEAD) == []


async def test_pausing_beats_a_fire_that_saw_the_schedule_active(store: ReadableStore) -> None:
    row = await declared(store)
    await changed(store, row, now=at(0), status=Status.PAUSED)

    answer = await store.fire([plan(row, at(1))], fire_id=new_id(), now=at(1))

    assert answer.results[0].outcome is FireOutcome.STALE


async def test_a_resumed_schedule_goes_on_from_its_cursor(store: ReadableStore) -> None:
    row = await declared(store)
    await changed(store, row, now=at(0), status=Status.PAUSED)
    paused = await seen(store)
    resume = change_of(
        paused, status=Status.ACTIVE, cursor=at(9), next_at=at(10), gaps=[gap(at(1), at(9), 9, GapReason.PAUSED)]
    )

    [answer] = await store.declare([resume], now=at(9))

    assert answer.changed
    await fired(store, at(10))
    assert (await run_of(store, at(10))).tick == at(10)


async def test_a_removed_schedule_keeps_its_cursor_and_comes_back_behind_it(store: ReadableStore) -> None:
    """G1: forgetting the cursor would let a late replica fire old ticks again."""
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(5))
    await changed(store, await seen(store), now=at(6), status=Status.REMOVED)
    removed = await seen(store)
    assert (removed.status, removed.cursor) == (Status.REMOVED, at(5))

    [again] = await store.declare([a_new(cursor=at(0))], now=at(7))
    assert not again.changed, "its name is taken by the tombstone"
    await changed(store, removed, now=at(7), status=Status.ACTIVE, cursor=at(7))

    row = await seen(store)
    assert (row.cursor, row.created_count) == (at(7), 1)
    result = (await store.fire([plan(row, at(5), new_cursor=at(8))], fire_id=new_id(), now=at(8))).results[0]
    assert result.outcome is FireOutcome.STALE
    assert len(await store.runs(RunFilter())) == 1


async def test_a_change_of_the_definition_leaves_the_runs_of_older_ticks_as_they_were(store: ReadableStore) -> None:
    await declared(store, args='{"v":1}', overlap=Overlap.ALLOW)
    await fired(store, at(1))

    await changed(store, await seen(store), now=at(1), args='{"v":2}')
    await fired(store, at(2))

    assert (await run_of(store, at(1))).args == '{"v":1}'
    assert (await run_of(store, at(2))).args == '{"v":2}'


# --- names (any that `checked_name` accepts are equal to themselves and to nothing else) -----

NAMES = [
    "naïve-café",
    "日報",
    "🦉 night",
    "a.b",
    "a:b",
    "a/b",
    "a b",
    "A B",
    "O'Brien; --",
    "100%_of\\it",
    '"quoted"',
    "{tag}",
    "$1",
    "?",
    "x" * 200,
    "x" * 199 + "y",
    "é" * 200,
    " lead",
    "lead",
]


async def test_names_are_kept_apart_and_come_back_as_they_were(store: ReadableStore) -> None:
    await store.declare([a_new(name) for name in NAMES], now=at(0))
    for name in NAMES:
        await fired(store, at(1), name=name)

    assert {row.name for row in await store.schedules()} == set(NAMES)
    for name in NAMES:
        [row] = await store.schedules([name])
        assert (row.name, row.definition.name, row.created_count) == (name, name, 1)
        assert (await run_of(store, at(1), name)).schedule == name
    assert {due.name for due in await store.due(at(9))} == set(NAMES)
