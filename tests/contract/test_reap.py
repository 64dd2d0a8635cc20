"""`reap`: what a dead worker held is pending again, or lost, at any replica's next call (G8)."""

from __future__ import annotations

import pytest

from oncron import _defaults as limits
from oncron._model import OutcomeKind, Report, RunState
from oncron._store import ReadableStore
from tests.contract.given import (
    LEASE,
    SECOND,
    at,
    beat,
    claim,
    claimed,
    enqueue,
    enqueued,
    finish,
    picture,
    run_now,
)

EXPIRED = at(1) + LEASE


async def test_a_lease_lives_until_its_very_end(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))
    before = await picture(store)

    answer = await store.reap(now=EXPIRED - 1)

    assert (answer.runs, answer.workers) == ((), ())
    assert await picture(store) == before
    assert [taken.id for taken in (await store.reap(now=EXPIRED)).runs] == [run.id]


async def test_a_run_with_an_attempt_left_is_pending_again_after_its_retry_delay(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retries=1, retry_delay=4 * SECOND)
    run = await claimed(store, now=at(1))

    [taken] = (await store.reap(now=EXPIRED)).runs

    assert (taken.state, taken.due_at, taken.ended_at) == (RunState.PENDING, EXPIRED + 4 * SECOND, None)
    assert (taken.attempt, taken.attempts_spent, taken.worker) == (1, 1, None)
    assert (taken.token, taken.outcome) == (run.token, "reaped")
    assert await run_now(store, run.id) == taken


async def test_each_take_over_doubles_the_wait_up_to_an_hour(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0), retries=99, retry_delay=1600 * SECOND)
    now, waits = at(1), []
    for _ in range(3):
        await claimed(store, now=now)
        now += LEASE
        [taken] = (await store.reap(now=now)).runs
        waits.append(taken.due_at - now)
        now = taken.due_at

    assert waits == [1600 * SECOND, 3200 * SECOND, limits.RETRY_DELAY_CAP]
    assert (await run_now(store, run.id)).retry_delay == limits.RETRY_DELAY_CAP


async def test_a_run_without_an_attempt_left_is_lost_and_never_repeated(store: ReadableStore) -> None:
    """At most once: `retries=0`."""
    await enqueued(store, now=at(0), retries=0)
    run = await claimed(store, now=at(1))

    [taken] = (await store.reap(now=EXPIRED)).runs

    assert (taken.state, taken.ended_at, taken.worker) == (RunState.LOST, EXPIRED, "w1")
    assert (await claim(store, now=at(10_000))).runs == ()
    assert await run_now(store, run.id) == taken


async def test_a_dead_worker_spends_an_attempt_as_an_error_does(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retries=1, retry_delay=0)
    await finish(store, await claimed(store, now=at(0)), OutcomeKind.RETRY, now=at(0), retry_delay=0)
    await claimed(store, now=at(1))

    [taken] = (await store.reap(now=EXPIRED)).runs

    assert taken.state is RunState.LOST


async def test_attempts_that_were_given_back_are_not_spent(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retries=1, retry_delay=0)
    for _ in range(5):
        await finish(store, await claimed(store, now=at(0)), OutcomeKind.RELEASED, now=at(0))
    await claimed(store, now=at(1))

    [taken] = (await store.reap(now=EXPIRED)).runs

    assert (taken.state, taken.attempt, taken.attempts_spent, taken.releases) == (RunState.PENDING, 6, 1, 0)


async def test_a_run_that_was_asked_to_cancel_ends_as_cancelled(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retries=9)
    run = await claimed(store, now=at(1))
    await store.cancel(run.id, now=at(2))

    [taken] = (await store.reap(now=EXPIRED)).runs

    assert (taken.state, taken.ended_at) == (RunState.CANCELLED, EXPIRED)


async def test_only_the_runs_of_expired_workers_are_taken(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueued(store, now=at(0))
    dead = await claimed(store, "dead", limit=1, now=at(1))
    alive = await claimed(store, "alive", limit=1, now=at(1))
    await beat(store, "alive", [alive], now=at(10))

    answer = await store.reap(now=EXPIRED)

    assert [taken.id for taken in answer.runs] == [dead.id]
    assert (await run_now(store, alive.id)).state is RunState.RUNNING


async def test_any_replica_may_reap_and_the_second_finds_nothing(store: ReadableStore, other: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    await claimed(store, now=at(1))

    assert len((await other.reap(now=EXPIRED)).runs) == 1
    assert (await store.reap(now=EXPIRED)).runs == ()


async def test_no_more_than_the_limit_is_taken_at_once(store: ReadableStore) -> None:
    for _ in range(5):
        await enqueued(store, now=at(0), retry_delay=3600 * SECOND)
    await claim(store, now=at(1))

    assert [len((await store.reap(2, now=EXPIRED)).runs) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_lost_run_frees_its_unique_key(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retries=0, unique="k")
    await claimed(store, now=at(1))
    assert not (await enqueue(store, unique="k", now=at(2))).is_new

    await store.reap(now=EXPIRED)

    assert (await enqueue(store, unique="k", now=EXPIRED)).is_new


async def test_a_taken_run_keeps_its_progress_checkpoint_and_log(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retry_delay=0)
    run = await claimed(store, now=at(1))
    report = Report(run_id=run.id, token=run.token, progress="half", checkpoint="5", log="one")
    await beat(store, held=[run], reports=[report], now=at(1))

    await store.reap(now=EXPIRED)
    again = await claimed(store, "w2", now=EXPIRED)

    assert (again.progress, again.checkpoint, again.log) == ("half", "5", "one")
    assert (again.attempt, again.token > run.token) == (2, True)


# --- workers --------------------------------------------------------------------------------


async def test_a_worker_without_runs_is_dropped_a_minute_after_its_lease(store: ReadableStore) -> None:
    await beat(store, "w1", now=at(0))
    end = at(0) + LEASE

    assert (await store.reap(now=end + 59 * SECOND)).workers == ()
    assert [worker.id for worker in await store.workers()] == ["w1"]
    assert (await store.reap(now=end + 61 * SECOND)).workers == ("w1",)
    assert await store.workers() == []


async def test_a_worker_is_not_dropped_while_something_of_its_is_left(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueued(store, now=at(0), retry_delay=3600 * SECOND)
    await claim(store, now=at(1))

    first = await store.reap(1, now=at(500))
    second = await store.reap(1, now=at(500))

    assert (len(first.runs), first.workers) == (1, ())
    assert (len(second.runs), second.workers) == (1, ("w1",))


async def test_a_dropped_worker_comes_back_with_its_next_heartbeat(store: ReadableStore) -> None:
    await beat(store, "w1", now=at(0))
    await store.reap(now=at(500))

    await beat(store, "w1", now=at(501))

    assert [worker.id for worker in await store.workers()] == ["w1"]


@pytest.mark.parametrize("left", [False, True])
async def test_poll_tells_whether_there_is_something_to_reap(store: ReadableStore, left: bool) -> None:
    now = await store.now()
    await enqueued(store, now=now, retries=0)
    await claimed(store, "w1", now=now)
    if left:
        await store.leave("w1")

    assert not (await store.poll([], None, now=now + LEASE - 1)).expired
    assert (await store.poll([], None, now=now + LEASE)).expired
    await store.reap(now=now + LEASE)
    assert not (await store.poll([], None, now=now + LEASE)).expired


async def test_a_worker_that_left_and_holds_nothing_any_more_begins_anew(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))
    held = await claimed(store, "w2", now=at(0))
    await store.leave("w2")
    await finish(store, held, now=at(1))
    await store.reap(now=at(1))
    await enqueued(store, now=at(2))
    again = await claim(store, "w2", now=at(2))
    assert held.id == run.id
    assert again.lease_until == at(2) + LEASE, "its old lease is forgotten"
