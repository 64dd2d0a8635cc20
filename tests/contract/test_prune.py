"""`prune` deletes ended runs and old gaps in small batches; never a cursor, never an open run."""

from __future__ import annotations

from oncron._groups import NewBatch
from oncron._model import GapReason, OutcomeKind, Overlap, RunFilter, new_id
from oncron._store import ReadableStore
from tests.contract.given import (
    FAR_AHEAD,
    at,
    claimed,
    declared,
    enqueue,
    enqueued,
    finish,
    fired,
    gap,
    plan,
    seen,
)


async def an_ended_run(store: ReadableStore, kind: OutcomeKind = OutcomeKind.SUCCEEDED, *, end: int) -> str:
    run = await enqueued(store, now=at(0))
    await finish(store, await claimed(store, now=at(0)), kind, now=end)
    return run.id


async def left(store: ReadableStore) -> set[str]:
    return {run.id for run in await store.runs(RunFilter())}


async def test_what_ended_before_goes_and_what_ended_later_stays(store: ReadableStore) -> None:
    await an_ended_run(store, end=at(1))
    young = await an_ended_run(store, end=at(5))

    assert await store.prune(ended_before=at(5), failed_before=at(5), now=at(9)) == 1

    assert await left(store) == {young}


async def test_failed_and_lost_runs_have_their_own_age(store: ReadableStore) -> None:
    for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.SKIPPED, OutcomeKind.CANCELLED):
        await an_ended_run(store, kind, end=at(3))
    kept = {await an_ended_run(store, kind, end=at(3)) for kind in (OutcomeKind.FAILED, OutcomeKind.LOST)}

    assert await store.prune(ended_before=at(5), failed_before=at(2), now=at(9)) == 3
    assert await left(store) == kept
    assert await store.prune(ended_before=at(5), failed_before=at(4), now=at(9)) == 2
    assert await left(store) == set()


async def test_an_open_run_is_never_pruned(store: ReadableStore) -> None:
    pending = await enqueued(store, now=at(0), due_at=at(100))
    running = await enqueued(store, now=at(0))
    await claimed(store, now=at(0))
    reopened = await an_ended_run(store, OutcomeKind.FAILED, end=at(1))
    await store.retry(reopened, now=at(2))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(9)) == 0

    assert await left(store) == {pending.id, running.id, reopened}


async def test_no_more_than_the_limit_goes_at_once(store: ReadableStore) -> None:
    for _ in range(5):
        await an_ended_run(store, end=at(1))

    pruned = [await store.prune(ended_before=at(5), failed_before=at(5), limit=2, now=at(9)) for _ in range(4)]

    assert pruned == [2, 2, 1, 0]


async def test_old_gaps_go_and_young_ones_stay(store: ReadableStore) -> None:
    row = await declared(store)
    await store.fire([plan(row, new_cursor=at(1), gaps=[gap(at(1), at(1))])], fire_id=new_id(), now=at(1))
    row = await seen(store)
    young = gap(at(5), at(5), reason=GapReason.TOO_OLD)
    await store.fire([plan(row, new_cursor=at(5), gaps=[young])], fire_id=new_id(), now=at(5))

    assert await store.prune(ended_before=at(5), failed_before=at(5), now=at(9)) == 1

    assert [each.first for each in await store.gaps("report")] == [at(5)]


async def test_a_gap_that_was_recorded_late_is_kept_for_its_time(store: ReadableStore) -> None:
    """G11: a monthly schedule that was down for a quarter has passed ticks that are old already."""
    row = await declared(store)
    await store.fire([plan(row, at(3), gaps=[gap(at(1), at(2), 2)])], fire_id=new_id(), now=at(100))

    assert await store.prune(ended_before=at(100), failed_before=at(100), now=at(101)) == 0
    assert await store.prune(ended_before=at(101), failed_before=at(101), now=at(102)) == 1


async def test_a_gap_that_is_still_being_extended_is_young(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    for second in range(1, 9):
        await fired(store, at(second))

    assert await store.prune(ended_before=at(8), failed_before=at(8), now=at(9)) == 0
    assert await store.prune(ended_before=at(9), failed_before=at(9), now=at(9)) == 1


async def test_after_its_newest_gap_was_pruned_a_schedule_begins_another(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    await fired(store, at(2))
    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(2))

    await fired(store, at(3))

    [fresh] = await store.gaps("report")
    assert (fresh.first, fresh.count) == (at(3), 1)


async def test_pruning_touches_no_schedule(store: ReadableStore) -> None:
    await declared(store)
    await fired(store, at(1))
    await finish(store, await claimed(store, now=at(1)), now=at(1))
    before = await seen(store)

    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(9))

    assert await seen(store) == before


async def test_a_pruned_run_is_gone_for_every_reader(store: ReadableStore) -> None:
    run_id = await an_ended_run(store, end=at(1))

    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(9))

    assert await store.get_run(run_id) is None
    assert await store.get_runs([run_id]) == []
    assert (await enqueue(store, now=at(9))).is_new


# --- no more than so many failed ones -------------------------------------------------------


async def failed_runs(store: ReadableStore, *kinds: OutcomeKind) -> list[str]:
    """One a second, from the first; all end at the tenth."""
    ids: list[str] = []
    for second, kind in enumerate(kinds):
        run = await enqueued(store, now=at(second))
        await finish(store, await claimed(store, now=at(second)), kind, now=at(10))
        ids.append(run.id)
    return ids


async def test_of_the_failed_and_lost_only_the_newest_are_kept_however_young(store: ReadableStore) -> None:
    ids = await failed_runs(store, *(OutcomeKind.FAILED, OutcomeKind.LOST) * 3)

    assert await store.prune(ended_before=at(0), failed_before=at(0), keep_failed=2, now=at(11)) == 4

    assert await left(store) == set(ids[4:])


async def test_what_did_not_fail_counts_for_nothing_and_is_kept(store: ReadableStore) -> None:
    fine = (OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.SKIPPED)
    ids = await failed_runs(store, OutcomeKind.FAILED, *fine, OutcomeKind.FAILED, *fine)
    open_ones = {(await enqueued(store, now=at(20), delay=at(0))).id, (await enqueued(store, now=at(20))).id}
    await claimed(store, now=at(20))

    assert await store.prune(ended_before=at(0), failed_before=at(0), keep_failed=1, now=at(21)) == 1

    assert await left(store) == {*ids[1:], *open_ones}


async def test_a_failed_run_that_was_opened_again_is_not_surplus(store: ReadableStore) -> None:
    ids = await failed_runs(store, *(OutcomeKind.FAILED,) * 3)
    await store.retry(ids[0], now=at(11))

    assert await store.prune(ended_before=at(0), failed_before=at(0), keep_failed=1, now=at(12)) == 1

    assert await left(store) == {ids[0], ids[2]}


async def test_age_and_number_are_limits_both(store: ReadableStore) -> None:
    ids = await failed_runs(store, *(OutcomeKind.FAILED,) * 4)
    young = await enqueued(store, now=at(5))
    await finish(store, await claimed(store, now=at(5)), OutcomeKind.LOST, now=at(50))

    assert await store.prune(ended_before=at(0), failed_before=at(20), keep_failed=2, now=at(51)) == 4

    assert await left(store) == {young.id}
    assert ids[3] not in await left(store)


async def test_none_may_be_kept_and_without_a_number_all_are(store: ReadableStore) -> None:
    await failed_runs(store, *(OutcomeKind.FAILED,) * 3)

    assert await store.prune(ended_before=at(0), failed_before=at(0), now=at(11)) == 0
    assert await store.prune(ended_before=at(0), failed_before=at(0), keep_failed=0, now=at(11)) == 3
    assert await left(store) == set()


async def test_surplus_goes_in_small_batches_too(store: ReadableStore) -> None:
    await failed_runs(store, *(OutcomeKind.FAILED,) * 6)

    pruned = [
        await store.prune(ended_before=at(0), failed_before=at(0), keep_failed=1, limit=2, now=at(11)) for _ in range(4)
    ]

    assert pruned == [2, 2, 1, 0]


# --- of a batch -----------------------------------------------------------------------------


async def test_no_run_of_a_batch_on_record_is_pruned(store: ReadableStore) -> None:
    batch = new_id()
    await store.open_batch(NewBatch(id=batch), now=at(0))
    for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.FAILED):
        await enqueued(store, now=at(0), batch=batch)
        await finish(store, await claimed(store, now=at(0)), kind, now=at(1))
    await store.close_batch(batch, now=at(1))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=at(1), keep_failed=0, now=at(2)) == 0
    assert len(await left(store)) == 2


async def test_runs_go_with_their_batch(store: ReadableStore) -> None:
    batch = new_id()
    await store.open_batch(NewBatch(id=batch), now=at(0))
    for _ in range(2):
        await enqueued(store, now=at(0), batch=batch)
        await finish(store, await claimed(store, now=at(0)), now=at(1))
    await store.close_batch(batch, now=at(1))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=at(2), now=at(3)) == 3
    assert await store.get_batch(batch) is None
    assert await left(store) == set()
