"""`enqueue`: a run is written once per id, and at most one open one per unique key."""

from __future__ import annotations

import pytest

from oncron._model import RunFilter, RunState, new_run_id
from oncron._store import ReadableStore
from oncron.errors import NotFound
from tests.contract.given import (
    SECOND,
    at,
    claim,
    claimed,
    declared,
    enqueue,
    enqueued,
    finish,
    new_run,
    picture,
    run_now,
)


async def test_a_run_is_written_with_all_that_it_was_given(store: ReadableStore) -> None:
    new = new_run(
        "billing.close",
        args='{"n":1}',
        queue="slow",
        priority=-2,
        due_at=at(99),
        retries=0,
        retry_delay=7,
        timeout=8,
        unique="k",
        reason="by hand",
    )

    [answer] = await store.enqueue([new], now=at(1))

    assert (answer.is_new, answer.occupied) == (True, False)
    run = answer.run
    assert run == await run_now(store, new.id)
    assert (run.id, run.task, run.args, run.queue, run.priority) == (new.id, "billing.close", '{"n":1}', "slow", -2)
    assert (run.state, run.due_at, run.created_at) == (RunState.PENDING, at(99), at(1))
    assert (run.retries, run.retry_delay, run.timeout, run.unique, run.reason) == (0, 7, 8, "k", "by hand")
    assert (run.schedule, run.tick, run.serial, run.parked, run.opening) == (None, None, False, False, 1)


async def test_without_an_instant_a_run_is_due_by_the_clock_of_the_store(store: ReadableStore) -> None:
    assert (await enqueued(store, now=at(1))).due_at == at(1)
    assert (await enqueued(store, delay=5 * SECOND, now=at(1))).due_at == at(6)


async def test_an_id_that_exists_returns_its_run_and_writes_nothing(store: ReadableStore) -> None:
    """G7: the answer was lost after the commit."""
    new = new_run(unique="k")
    [first] = await store.enqueue([new], now=at(1))
    before = await picture(store)

    [again] = await store.enqueue([new], now=at(2))

    assert (again.run, again.is_new) == (first.run, True)
    assert await picture(store) == before


async def test_repeating_an_enqueue_whose_run_has_ended_does_not_run_it_again(store: ReadableStore) -> None:
    new = new_run()
    await store.enqueue([new], now=at(1))
    await finish(store, await claimed(store, now=at(1)), now=at(2))

    [again] = await store.enqueue([new], now=at(3))

    assert again.run.state is RunState.SUCCEEDED
    assert (await claim(store, now=at(4))).runs == ()


async def test_an_open_run_with_the_same_unique_key_is_returned_instead(store: ReadableStore) -> None:
    holder = await enqueued(store, unique="k", now=at(1))
    before = await picture(store)

    answer = await enqueue(store, "other", unique="k", now=at(2))

    assert (answer.run, answer.is_new, answer.occupied) == (holder, False, False)
    assert await picture(store) == before


async def test_unique_keys_are_kept_apart_to_the_letter(store: ReadableStore) -> None:
    for key in ("k", "K", "k ", " k", "k\u0301", "", "%", "k'"):
        assert (await enqueue(store, unique=key, now=at(1))).is_new, key


async def test_runs_without_a_unique_key_do_not_meet(store: ReadableStore) -> None:
    for _ in range(3):
        assert (await enqueue(store, now=at(1))).is_new


async def test_a_batch_is_answered_in_order_and_sees_its_own_keys(store: ReadableStore) -> None:
    a, b, c = new_run(unique="k"), new_run(unique="k"), new_run()

    answers = await store.enqueue([a, b, c, a], now=at(1))

    assert [answer.run.id for answer in answers] == [a.id, a.id, c.id, a.id]
    assert [answer.is_new for answer in answers] == [True, False, True, True]
    assert len(await store.runs(RunFilter())) == 2


async def test_a_schedule_that_does_not_exist_is_an_error_before_anything_is_written(store: ReadableStore) -> None:
    with pytest.raises(NotFound, match="ghost"):
        await store.enqueue([new_run(), new_run(schedule="ghost")], now=at(1))

    assert await store.runs(RunFilter()) == []


async def test_a_run_of_a_schedule_is_listed_with_it(store: ReadableStore) -> None:
    await declared(store)

    answer = await enqueue(store, schedule="report", tick=at(-9), backfill="b1", now=at(1))

    assert (answer.run.schedule, answer.run.tick, answer.run.backfill) == ("report", at(-9), "b1")
    assert [run.id for run in await store.runs(RunFilter(schedule="report"))] == [answer.run.id]


async def test_ten_thousand_runs_are_written_in_one_call(store: ReadableStore) -> None:
    many = [new_run(id=new_run_id()) for _ in range(10_000)]

    answers = await store.enqueue(many, now=at(1))

    assert [answer.run.id for answer in answers] == [new.id for new in many]
    assert (await store.stats(now=at(1))).runs["pending"] == 10_000


async def test_an_empty_batch_is_an_empty_answer(store: ReadableStore) -> None:
    assert await store.enqueue([], now=at(1)) == []
    assert await store.finish([], now=at(1)) == []
    assert await store.declare([], now=at(1)) == []
    assert (await store.fire([], fire_id="f", now=at(1))).results == ()
