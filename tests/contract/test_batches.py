"""Batches: runs that belong together, and the three runs that are enqueued once for what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from oncron._groups import BatchRecord, NewBatch
from oncron._model import NewRun, OutcomeKind, RunFilter, RunRecord, RunState, new_id
from oncron._store import ReadableStore
from oncron.errors import NotFound
from tests.contract.conftest import Connect
from tests.contract.given import FAR_AHEAD, LEASE, at, claim, claimed, enqueue, enqueued, finish, new_run, run_now

HANDLERS = ("completed", "succeeded", "died")


def callback(task: str) -> NewRun:
    return new_run(task, queue="callbacks")


def new_batch(**options: Any) -> NewBatch:
    calls = {"on_complete": callback("completed"), "on_success": callback("succeeded"), "on_death": callback("died")}
    return NewBatch(**({"id": new_id()} | calls | options))


async def opened(store: ReadableStore, *, now: int = at(0), **options: Any) -> NewBatch:
    batch = new_batch(**options)
    await store.open_batch(batch, now=now)
    return batch


async def settled(store: ReadableStore, batch: NewBatch, *, now: int) -> BatchRecord:
    [record] = await store.settle_batches([batch.id], now=now)
    return record


async def seen(store: ReadableStore, batch: NewBatch) -> BatchRecord:
    record = await store.get_batch(batch.id)
    assert record is not None
    return record


async def ended(
    store: ReadableStore, batch: NewBatch, kind: OutcomeKind = OutcomeKind.SUCCEEDED, *, now: int, **fields: Any
) -> RunRecord:
    """A run of the batch, enqueued, claimed and ended; the batch is not settled yet."""
    run = await enqueued(store, batch=batch.id, now=now)
    await finish(store, await claimed(store, now=now), kind, now=now, **fields)
    return run


async def called(store: ReadableStore) -> list[str]:
    """The callbacks that were enqueued."""
    return sorted(run.task for run in await store.runs(RunFilter(queue="callbacks")))


# --- opening ----------------------------------------------------------------------------------


async def test_an_opened_batch_is_on_record_as_it_was_given(store: ReadableStore) -> None:
    batch = new_batch(data='{"who": "ß"}')

    record = await store.open_batch(batch, now=at(1))

    assert record == BatchRecord(
        id=batch.id,
        data='{"who": "ß"}',
        created_at=at(1),
        on_complete=batch.on_complete,
        on_success=batch.on_success,
        on_death=batch.on_death,
    )
    assert await seen(store, batch) == record
    assert await store.get_batch("unknown") is None


async def test_opening_a_batch_again_changes_nothing(store: ReadableStore) -> None:
    """G7."""
    batch = await opened(store, data="1")
    await enqueued(store, batch=batch.id, now=at(1))

    again = await store.open_batch(NewBatch(id=batch.id, data="2"), now=at(5))

    assert (again.data, again.created_at, again.on_death) == ("1", at(0), batch.on_death)
    assert again.total == 1


async def test_a_run_is_enqueued_only_in_a_batch_that_is_there(store: ReadableStore) -> None:
    good = new_run()

    with pytest.raises(NotFound, match="batch 'nowhere' does not exist"):
        await store.enqueue([good, new_run(batch="nowhere")], now=at(0))

    assert await store.get_run(good.id) is None


async def test_runs_are_counted_by_state(store: ReadableStore) -> None:
    batch = await opened(store)
    await ended(store, batch, now=at(1))
    await ended(store, batch, OutcomeKind.FAILED, now=at(1))
    await enqueued(store, batch=batch.id, now=at(2))
    await claimed(store, now=at(2))
    await enqueued(store, batch=batch.id, now=at(2))
    await enqueued(store, now=at(2))

    record = await seen(store, batch)

    counted = {state: count for state, count in record.runs.items() if count}
    assert counted == {"succeeded": 1, "failed": 1, "running": 1, "pending": 1}
    assert (record.total, record.pending) == (4, 2)


async def test_a_run_knows_its_batch_and_is_found_by_it(store: ReadableStore) -> None:
    one, two = await opened(store), await opened(store)
    first = await enqueued(store, batch=one.id, now=at(1))
    second = await enqueued(store, batch=one.id, now=at(2))
    await enqueued(store, batch=two.id, now=at(3))
    await enqueued(store, now=at(4))

    assert first.batch == one.id
    assert [run.id for run in await store.runs(RunFilter(batch=one.id))] == [second.id, first.id]
    assert [run.id for run in await store.runs(RunFilter(batch=one.id, before=second.id))] == [first.id]
    assert [run.id for run in await store.runs(RunFilter(batch=one.id, limit=1))] == [second.id]
    assert await store.runs(RunFilter(batch=one.id, state=RunState.RUNNING)) == []


# --- completing -------------------------------------------------------------------------------


async def test_an_open_batch_never_completes(store: ReadableStore) -> None:
    batch = await opened(store)
    await ended(store, batch, now=at(1))

    record = await settled(store, batch, now=at(2))

    assert (record.closed, record.completed_at, record.succeeded_at) == (False, None, None)
    assert await called(store) == []


async def test_a_batch_without_runs_has_succeeded_when_it_is_closed(store: ReadableStore) -> None:
    batch = await opened(store)

    record = await store.close_batch(batch.id, now=at(5))

    assert (record.closed, record.completed_at, record.succeeded_at, record.died_at) == (True, at(5), at(5), None)
    assert await called(store) == ["completed", "succeeded"]


async def test_a_closed_batch_completes_with_its_last_run(store: ReadableStore) -> None:
    batch = await opened(store)
    for _ in range(2):
        await enqueued(store, batch=batch.id, now=at(0))
    first, second = (await claim(store, now=at(0))).runs
    assert (await store.close_batch(batch.id, now=at(1))).completed_at is None

    await finish(store, first, now=at(2))
    assert (await settled(store, batch, now=at(2))).completed_at is None
    assert await called(store) == []
    await finish(store, second, now=at(3))

    record = await settled(store, batch, now=at(4))
    assert (record.completed_at, record.succeeded_at) == (at(4), at(4))
    assert await called(store) == ["completed", "succeeded"]


async def test_a_batch_closed_after_its_last_run_ended_completes_at_once(store: ReadableStore) -> None:
    batch = await opened(store)
    await ended(store, batch, now=at(1))
    await settled(store, batch, now=at(1))

    assert (await store.close_batch(batch.id, now=at(9))).succeeded_at == at(9)

    assert await called(store) == ["completed", "succeeded"]


async def test_a_run_that_waits_for_a_retry_keeps_its_batch_open(store: ReadableStore) -> None:
    batch = await opened(store)
    await enqueued(store, batch=batch.id, now=at(0))
    await store.close_batch(batch.id, now=at(0))
    await finish(store, await claimed(store, now=at(0)), OutcomeKind.RETRY, delay=LEASE, now=at(1))

    record = await settled(store, batch, now=at(2))

    assert (record.completed_at, record.died_at, record.pending) == (None, None, 1)


async def test_settling_again_calls_nobody_again(store: ReadableStore) -> None:
    batch = await opened(store)
    await ended(store, batch, OutcomeKind.FAILED, now=at(1))
    first = await store.close_batch(batch.id, now=at(2))

    again = [await settled(store, batch, now=at(3)), await store.close_batch(batch.id, now=at(4))]

    assert again == [first, first]
    assert await called(store) == ["completed", "died"]


async def test_callbacks_are_written_as_they_were_given_and_due_from_then_on(store: ReadableStore) -> None:
    on_success = new_run("thanks", args='{"n": 1}', queue="callbacks", priority=3, delay=LEASE, retries=7)
    batch = await opened(store, on_complete=None, on_success=on_success, on_death=None)

    await store.close_batch(batch.id, now=at(5))

    [run] = await store.runs(RunFilter())
    assert (run.id, run.task, run.args, run.priority, run.retries) == (on_success.id, "thanks", '{"n": 1}', 3, 7)
    assert (run.state, run.created_at, run.due_at, run.batch) == (RunState.PENDING, at(5), at(5) + LEASE, None)


async def test_a_callback_that_cannot_be_written_is_dropped(store: ReadableStore) -> None:
    batch = await opened(store, on_complete=callback("completed"), on_success=new_run("x", schedule="nowhere"))

    assert (await store.close_batch(batch.id, now=at(5))).succeeded_at == at(5)

    assert [run.task for run in await store.runs(RunFilter())] == ["completed"]


async def test_nothing_is_added_to_a_complete_batch(store: ReadableStore) -> None:
    batch = await opened(store)
    known = new_run(batch=batch.id)
    await store.enqueue([known], now=at(0))
    await finish(store, await claimed(store, now=at(0)), now=at(1))
    await store.close_batch(batch.id, now=at(1))
    refused = new_run(batch=batch.id)

    with pytest.raises(NotFound, match=f"batch '{batch.id}' does not exist or is complete"):
        await store.enqueue([refused], now=at(2))
    [again] = await store.enqueue([known], now=at(2))

    assert await store.get_run(refused.id) is None
    assert (again.is_new, again.run.state) == (True, RunState.SUCCEEDED)


async def test_what_names_no_batch_that_is_there_cannot_be_closed_or_marked(store: ReadableStore) -> None:
    with pytest.raises(NotFound, match="batch 'nowhere' does not exist"):
        await store.close_batch("nowhere", now=at(0))
    with pytest.raises(NotFound, match="batch 'nowhere' does not exist"):
        await store.invalidate_batch("nowhere", now=at(0))

    assert await store.settle_batches(["nowhere"], now=at(0)) == []


async def test_an_invalid_batch_is_marked_and_goes_on(store: ReadableStore) -> None:
    batch = await opened(store)
    await enqueued(store, batch=batch.id, now=at(0))

    first = await store.invalidate_batch(batch.id, now=at(1))
    again = await store.invalidate_batch(batch.id, now=at(2))

    assert (first.invalid, again) == (True, first)
    await finish(store, await claimed(store, now=at(2)), OutcomeKind.SKIPPED, now=at(2))
    assert (await store.close_batch(batch.id, now=at(3))).succeeded_at == at(3)


# --- what is added from inside ----------------------------------------------------------------


async def test_a_run_adds_to_its_batch_in_the_step_in_which_it_ends(store: ReadableStore) -> None:
    """Closed, and its only run is at its end: what that adds keeps the batch from completing."""
    batch = await opened(store)
    await enqueued(store, batch=batch.id, now=at(0))
    await store.close_batch(batch.id, now=at(0))
    child = new_run("send", batch=batch.id)

    await finish(store, await claimed(store, now=at(1)), enqueue=(child,), now=at(1))

    record = await settled(store, batch, now=at(1))
    assert (record.completed_at, record.total, record.pending) == (None, 2, 1)
    await finish(store, await claimed(store, now=at(2)), now=at(2))
    assert (await settled(store, batch, now=at(2))).succeeded_at == at(2)


async def test_a_chain_goes_on_within_the_batch(store: ReadableStore) -> None:
    batch = await opened(store)
    await enqueued(store, batch=batch.id, now=at(0))
    await store.close_batch(batch.id, now=at(0))
    after = new_run("send", batch=batch.id)

    await finish(store, await claimed(store, now=at(1)), OutcomeKind.FAILED, then=after, now=at(1))

    assert (await settled(store, batch, now=at(1))).completed_at is None
    assert (await run_now(store, after.id)).batch == batch.id


async def test_what_an_ending_run_would_add_to_a_complete_batch_is_dropped(store: ReadableStore) -> None:
    batch = await opened(store)
    await store.close_batch(batch.id, now=at(0))
    late, good, then = new_run(batch=batch.id), new_run("other"), new_run(batch="nowhere")
    await enqueued(store, now=at(1))

    answer = await finish(store, await claimed(store, now=at(1)), enqueue=(late, good), then=then, now=at(1))

    assert answer.state is RunState.SUCCEEDED
    assert await store.get_runs([late.id, then.id]) == []
    assert (await run_now(store, good.id)).task == "other"


# --- death and success ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.LOST])
async def test_the_first_death_is_told_at_once_and_once(store: ReadableStore, kind: OutcomeKind) -> None:
    """While the batch is open and others still run."""
    batch = await opened(store)
    await ended(store, batch, kind, now=at(1))
    await enqueued(store, batch=batch.id, now=at(1))

    record = await settled(store, batch, now=at(2))
    assert (record.died_at, record.completed_at) == (at(2), None)
    assert await called(store) == ["died"]
    await finish(store, await claimed(store, now=at(3)), kind, now=at(3))

    assert (await store.close_batch(batch.id, now=at(3))).died_at == at(2)
    assert await called(store) == ["completed", "died"]


async def test_a_run_lost_with_its_worker_is_a_death(store: ReadableStore) -> None:
    batch = await opened(store)
    await enqueued(store, batch=batch.id, retries=0, now=at(0))
    await store.close_batch(batch.id, now=at(0))
    await claimed(store, now=at(0))
    await store.reap(now=at(0) + LEASE)

    record = await settled(store, batch, now=at(20))

    assert (record.died_at, record.completed_at, record.succeeded_at) == (at(20), at(20), None)
    assert await called(store) == ["completed", "died"]


async def test_a_cancelled_run_is_no_death_and_no_success(store: ReadableStore) -> None:
    batch = await opened(store)
    run = await enqueued(store, batch=batch.id, now=at(0))
    await store.cancel(run.id, now=at(1))

    record = await store.close_batch(batch.id, now=at(2))

    assert (record.completed_at, record.succeeded_at, record.died_at) == (at(2), None, None)
    assert await called(store) == ["completed"]


async def test_a_skipped_run_does_not_keep_its_batch_from_success(store: ReadableStore) -> None:
    batch = await opened(store)
    await ended(store, batch, OutcomeKind.SKIPPED, now=at(1))

    assert (await store.close_batch(batch.id, now=at(2))).succeeded_at == at(2)


async def test_a_dead_run_that_succeeds_when_retried_makes_the_batch_succeed(store: ReadableStore) -> None:
    batch = await opened(store)
    run = await ended(store, batch, OutcomeKind.FAILED, now=at(1))
    await store.close_batch(batch.id, now=at(1))

    await store.retry(run.id, now=at(2))
    assert [record.id for record in await store.settle_batches(None, now=at(2))] == [batch.id]
    assert (await seen(store, batch)).succeeded_at is None
    await finish(store, await claimed(store, now=at(3)), now=at(3))
    record = await settled(store, batch, now=at(3))

    assert (record.died_at, record.completed_at, record.succeeded_at) == (at(1), at(1), at(3))
    assert await called(store) == ["completed", "died", "succeeded"]
    assert await store.settle_batches(None, now=at(4)) == []


async def test_a_dead_run_that_fails_again_calls_nobody_again(store: ReadableStore) -> None:
    batch = await opened(store)
    run = await ended(store, batch, OutcomeKind.FAILED, now=at(1))
    await store.close_batch(batch.id, now=at(1))
    await store.retry(run.id, now=at(2))
    await finish(store, await claimed(store, now=at(3)), OutcomeKind.FAILED, now=at(3))

    assert (await settled(store, batch, now=at(3))).died_at == at(1)
    assert await called(store) == ["completed", "died"]
    assert await store.settle_batches(None, now=at(4)) == []


async def test_of_a_batch_that_has_succeeded_nothing_changes_any_more(store: ReadableStore) -> None:
    batch = await opened(store)
    run = await ended(store, batch, now=at(1))
    before = await store.close_batch(batch.id, now=at(1))
    await store.retry(run.id, now=at(2))
    await finish(store, await claimed(store, now=at(2)), OutcomeKind.FAILED, now=at(2))

    record = await settled(store, batch, now=at(3))

    assert (record.died_at, record.succeeded_at) == (None, before.succeeded_at)
    assert await called(store) == ["completed", "succeeded"]
    assert await store.settle_batches(None, now=at(3)) == []


# --- batches in batches -----------------------------------------------------------------------


async def test_a_batch_completes_after_the_batches_in_it(store: ReadableStore) -> None:
    parent = await opened(store)
    child = await opened(store, parent=parent.id, on_complete=None, on_success=None)
    await enqueued(store, batch=child.id, now=at(0))
    assert (await store.close_batch(parent.id, now=at(1))).completed_at is None
    await store.close_batch(child.id, now=at(1))
    assert (await seen(store, parent)).children == 1
    await finish(store, await claimed(store, now=at(2)), now=at(2))

    assert (await settled(store, child, now=at(3))).succeeded_at == at(3)

    above = await seen(store, parent)
    assert (above.children, above.completed_at, above.succeeded_at) == (0, at(3), at(3))
    assert await called(store) == ["completed", "succeeded"]


async def test_completion_goes_up_through_every_level(store: ReadableStore) -> None:
    levels = [await opened(store)]
    for _ in range(5):
        levels.append(await opened(store, parent=levels[-1].id))
    for level in levels[:-1]:
        assert (await store.close_batch(level.id, now=at(1))).completed_at is None

    await store.close_batch(levels[-1].id, now=at(2))

    for level in levels:
        assert (await seen(store, level)).succeeded_at == at(2)
    assert await called(store) == ["completed"] * 6 + ["succeeded"] * 6


async def test_a_death_in_a_batch_keeps_the_one_around_it_from_success_until_it_is_made_good(
    store: ReadableStore,
) -> None:
    parent = await opened(store)
    child = await opened(store, parent=parent.id, on_complete=None, on_success=None, on_death=None)
    run = await ended(store, child, OutcomeKind.FAILED, now=at(1))
    await store.close_batch(parent.id, now=at(1))
    await store.close_batch(child.id, now=at(1))

    above = await seen(store, parent)
    assert (above.completed_at, above.succeeded_at, above.died_at) == (at(1), None, None)
    await store.retry(run.id, now=at(2))
    await finish(store, await claimed(store, now=at(2)), now=at(2))
    await settled(store, child, now=at(2))

    assert (await seen(store, parent)).succeeded_at == at(2)
    assert await called(store) == ["completed", "succeeded"]


async def test_a_batch_is_opened_only_in_one_that_takes_more(store: ReadableStore) -> None:
    parent = await opened(store)
    await store.close_batch(parent.id, now=at(0))

    for missing in (parent.id, "nowhere"):
        with pytest.raises(NotFound, match=f"batch '{missing}' does not exist or is complete"):
            await store.open_batch(new_batch(parent=missing), now=at(1))

    assert len(await store.batches()) == 1


async def test_opening_a_batch_again_after_its_parent_completed_answers_as_before(store: ReadableStore) -> None:
    parent = await opened(store)
    child = await opened(store, parent=parent.id)
    await store.close_batch(parent.id, now=at(1))
    await store.close_batch(child.id, now=at(1))

    assert (await store.open_batch(child, now=at(2))).completed_at == at(1)


# --- finding them -----------------------------------------------------------------------------


async def test_batches_are_listed_newest_first_and_by_pages(store: ReadableStore) -> None:
    batches = [await opened(store, id=f"b{n}", now=at(n // 2)) for n in range(5)]
    await ended(store, batches[1], OutcomeKind.FAILED, now=at(9))
    await settled(store, batches[1], now=at(9))

    assert [record.id for record in await store.batches()] == ["b4", "b3", "b2", "b1", "b0"]
    assert [record.id for record in await store.batches(limit=2)] == ["b4", "b3"]
    assert [record.id for record in await store.batches(limit=2, before="b3")] == ["b2", "b1"]
    assert [record.id for record in await store.batches(before="b0")] == []
    assert [record.id for record in await store.batches(before="unknown")] == []
    [dead] = await store.batches(dead=True)
    assert dead == await seen(store, batches[1])


async def test_what_a_crash_left_between_the_last_ending_and_settling_is_found(
    connect: Connect, store: ReadableStore
) -> None:
    batch = await opened(store)
    await enqueued(store, batch=batch.id, now=at(0))
    await store.close_batch(batch.id, now=at(0))
    await finish(store, await claimed(store, now=at(1)), now=at(1))
    await store.close()
    fresh = connect()
    await fresh.open()

    [record] = await fresh.settle_batches(None, now=at(2))

    assert (record.id, record.succeeded_at) == (batch.id, at(2))
    assert await called(fresh) == ["completed", "succeeded"]
    assert await fresh.settle_batches(None, now=at(3)) == []
    await fresh.close()


async def test_all_that_are_not_complete_are_looked_at_page_by_page(store: ReadableStore) -> None:
    for n in range(5):
        await opened(store, id=f"b{n}")
    await store.close_batch("b3", now=at(1))

    first = await store.settle_batches(None, limit=2, now=at(2))
    second = await store.settle_batches(None, after=first[-1].id, limit=2, now=at(2))
    third = await store.settle_batches(None, after=second[-1].id, limit=2, now=at(2))

    assert [[record.id for record in page] for page in (first, second, third)] == [["b0", "b1"], ["b2", "b4"], []]


async def test_those_named_are_looked_at_once_each_in_order(store: ReadableStore) -> None:
    for n in range(3):
        await opened(store, id=f"b{n}")

    found = await store.settle_batches(["b2", "b0", "b2", "nowhere"], now=at(1))

    assert [record.id for record in found] == ["b0", "b2"]


async def test_a_run_with_a_taken_unique_key_is_not_in_the_batch(store: ReadableStore) -> None:
    batch = await opened(store)
    holder = await enqueued(store, unique="key", now=at(0))

    answer = await enqueue(store, unique="key", batch=batch.id, now=at(0))

    assert (answer.is_new, answer.run.id) == (False, holder.id)
    assert (await store.close_batch(batch.id, now=at(1))).succeeded_at == at(1)


# --- pruning ----------------------------------------------------------------------------------


async def test_no_run_of_a_batch_on_record_is_pruned(store: ReadableStore) -> None:
    batch = await opened(store)
    kept = await ended(store, batch, now=at(1))
    gone = await enqueued(store, now=at(1))
    await finish(store, await claimed(store, now=at(1)), now=at(1))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(9)) == 1

    assert await store.get_run(gone.id) is None
    assert (await seen(store, batch)).total == 1
    assert (await run_now(store, kept.id)).batch == batch.id


async def test_a_batch_goes_when_it_completed_before_and_its_runs_after_it(store: ReadableStore) -> None:
    old, young = await opened(store, on_complete=None, on_success=None), await opened(store)
    runs = {batch.id: await ended(store, batch, now=at(1)) for batch in (old, young)}
    await store.close_batch(old.id, now=at(2))
    await store.close_batch(young.id, now=at(8))

    pruned = await store.prune(ended_before=at(5), failed_before=at(5), now=at(9))
    pruned += await store.prune(ended_before=at(5), failed_before=at(5), now=at(9))

    assert pruned == 2
    assert await store.get_batch(old.id) is None
    assert await store.get_run(runs[old.id].id) is None
    assert (await seen(store, young)).total == 1


async def test_an_incomplete_batch_is_never_pruned(store: ReadableStore) -> None:
    batch = await opened(store, now=at(0))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=FAR_AHEAD) == 0

    assert (await seen(store, batch)).id == batch.id


async def test_a_batch_of_which_a_run_was_re_opened_is_not_pruned(store: ReadableStore) -> None:
    batch = await opened(store, on_complete=None, on_death=None)
    run = await ended(store, batch, OutcomeKind.FAILED, now=at(1))
    await store.close_batch(batch.id, now=at(1))
    await store.retry(run.id, now=at(2))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(3)) == 0

    assert (await seen(store, batch)).pending == 1


async def test_a_batch_is_not_pruned_from_under_the_one_around_it(store: ReadableStore) -> None:
    """Else the one around it would forget that something in it died, and succeed."""
    parent = await opened(store)
    child = await opened(store, parent=parent.id, on_complete=None, on_success=None, on_death=None)
    await ended(store, child, OutcomeKind.FAILED, now=at(1))
    await store.close_batch(child.id, now=at(1))

    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(9))
    record = await store.close_batch(parent.id, now=at(10))

    assert (record.completed_at, record.succeeded_at) == (at(10), None)


async def test_no_more_batches_and_runs_go_at_once_than_the_limit(store: ReadableStore) -> None:
    for n in range(3):
        batch = await opened(store, id=f"b{n}", on_complete=None, on_success=None)
        await ended(store, batch, now=at(1))
        await store.close_batch(batch.id, now=at(1))

    pruned = [await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, limit=2, now=at(9)) for _ in range(5)]

    assert max(pruned) == 2
    assert sum(pruned) == 6
    assert await store.batches() == []
    assert await store.runs(RunFilter()) == []


# --- deleting ---------------------------------------------------------------------------------


async def test_s56_a_deleted_batch_calls_nobody_and_its_runs_go_on(store: ReadableStore) -> None:
    batch = await opened(store)
    run = await enqueued(store, batch=batch.id, now=at(0))
    await store.close_batch(batch.id, now=at(0))

    assert await store.delete_batch(batch.id, now=at(1))
    assert not await store.delete_batch(batch.id, now=at(2))

    assert await store.get_batch(batch.id) is None
    assert await store.batches() == []
    await finish(store, await claimed(store, now=at(3)), now=at(3))
    assert await store.settle_batches(now=at(4)) == []
    assert await called(store) == []
    [kept] = await store.runs(RunFilter(batch=batch.id))
    assert (kept.id, kept.state) == (run.id, RunState.SUCCEEDED)
    with pytest.raises(NotFound, match="nothing can be added"):
        await enqueued(store, batch=batch.id, now=at(5))


async def test_what_a_deleted_batch_was_in_does_not_wait_for_it(store: ReadableStore) -> None:
    parent = await opened(store)
    child = await opened(store, parent=parent.id, on_complete=None, on_success=None, on_death=None)
    await ended(store, child, OutcomeKind.FAILED, now=at(1))
    assert (await store.close_batch(parent.id, now=at(2))).completed_at is None

    await store.delete_batch(child.id, now=at(3))

    record = await seen(store, parent)
    assert (record.completed_at, record.succeeded_at, record.children) == (at(3), at(3), 0)
    assert await called(store) == ["completed", "succeeded"]


async def test_batches_in_a_deleted_one_go_on_by_themselves(store: ReadableStore) -> None:
    parent = await opened(store)
    child = await opened(store, parent=parent.id)
    await store.delete_batch(parent.id, now=at(1))

    assert (await store.close_batch(child.id, now=at(2))).succeeded_at == at(2)

    assert await called(store) == ["completed", "succeeded"]
    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(3))
    assert await store.batches() == []


async def test_the_runs_of_a_deleted_batch_are_pruned_as_others_are(store: ReadableStore) -> None:
    batch = await opened(store)
    await ended(store, batch, OutcomeKind.FAILED, now=at(1))
    await store.delete_batch(batch.id, now=at(2))

    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(9)) == 1
    assert await store.runs(RunFilter()) == []


async def test_without_a_now_the_clock_of_the_store_counts(store: ReadableStore) -> None:
    before = await store.now()
    batch = new_batch()
    record = await store.open_batch(batch)
    await store.invalidate_batch(batch.id)
    closed = await store.close_batch(batch.id)

    assert closed.completed_at is not None
    assert before <= record.created_at <= closed.completed_at
    assert await store.settle_batches() == []
