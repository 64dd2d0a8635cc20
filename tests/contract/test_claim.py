"""`claim`: due runs become leases, in one order, each with one holder (G4)."""

from __future__ import annotations

import pytest

from oncron._model import OutcomeKind, Overlap, RunRecord, RunState
from oncron._store import ReadableStore
from tests.contract.given import (
    LEASE,
    SECOND,
    at,
    beat,
    claim,
    claimed,
    declared,
    enqueued,
    finish,
    fired,
    picture,
    run_now,
    spec,
)


async def claimed_names(store: ReadableStore, *, now: int, **options: object) -> list[str]:
    """The `args` of what a claim takes, in its order: the tests below name their runs by it."""
    return [run.args for run in (await claim(store, now=now, **options)).runs]


async def test_a_claimed_run_is_running_and_held_by_the_worker(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))

    answer = await claim(store, "w1", claim_id="c1", now=at(1))

    [lease] = answer.runs
    assert (lease.id, lease.state, lease.worker, lease.claim_id) == (run.id, RunState.RUNNING, "w1", "c1")
    assert (lease.attempt, lease.started_at, lease.outcome) == (1, at(1), None)
    assert answer.now == at(1)
    assert await run_now(store, run.id) == lease


async def test_a_run_that_is_held_is_not_claimed_by_another(store: ReadableStore, other: ReadableStore) -> None:
    """G4."""
    await enqueued(store, now=at(0))
    await claim(store, "w1", now=at(1))

    assert (await claim(other, "w2", now=at(1))).runs == ()
    assert (await claim(other, "w2", now=at(500))).runs == (), "nor when its lease has expired, before it is reaped"


async def test_a_run_is_not_claimed_before_it_is_due(store: ReadableStore) -> None:
    await enqueued(store, due_at=at(5), now=at(0))

    assert (await claim(store, now=at(4.999999))).runs == ()
    assert len((await claim(store, now=at(5))).runs) == 1


async def test_a_replica_never_takes_a_task_that_it_does_not_have(store: ReadableStore) -> None:
    await enqueued(store, "foreign", now=at(0))
    await enqueued(store, "mine", now=at(0))

    assert [run.task for run in (await claim(store, tasks=("mine", "other"), now=at(1))).runs] == ["mine"]
    assert (await claim(store, tasks=(), now=at(1))).runs == ()


async def test_foreign_tasks_in_front_crowd_out_nobody(store: ReadableStore) -> None:
    for _ in range(30):
        await enqueued(store, "foreign", priority=9, now=at(0))
    await enqueued(store, "mine", now=at(1))

    assert [run.task for run in (await claim(store, tasks=("mine",), limit=1, now=at(1))).runs] == ["mine"]


# --- order ----------------------------------------------------------------------------------


async def test_what_is_due_longer_goes_first(store: ReadableStore) -> None:
    for name, due in (("later", 3), ("first", 1), ("second", 2)):
        await enqueued(store, args=name, due_at=at(due), now=at(0))

    assert await claimed_names(store, now=at(9)) == ["first", "second", "later"]


async def test_a_step_of_priority_weighs_as_much_as_a_minute_of_waiting(store: ReadableStore) -> None:
    """Nobody starves: what has waited long enough overtakes any priority."""
    await enqueued(store, args="low, 61 s old", due_at=at(0), now=at(0))
    await enqueued(store, args="low, 59 s old", due_at=at(2), now=at(0))
    await enqueued(store, args="high, new", priority=1, due_at=at(61), now=at(0))

    assert await claimed_names(store, now=at(61)) == ["low, 61 s old", "high, new", "low, 59 s old"]


async def test_at_the_same_weight_the_older_goes_first(store: ReadableStore) -> None:
    await enqueued(store, args="new and high", priority=1, due_at=at(60), now=at(0))
    await enqueued(store, args="old and low", priority=0, due_at=at(0), now=at(0))

    assert await claimed_names(store, now=at(60)) == ["old and low", "new and high"]


async def test_queues_are_emptied_in_the_order_given(store: ReadableStore) -> None:
    for name, queue, due in (("a1", "a", 3), ("b1", "b", 1), ("a2", "a", 4), ("c1", "c", 0)):
        await enqueued(store, args=name, queue=queue, due_at=at(due), now=at(0))

    assert await claimed_names(store, queues=("a", "b"), now=at(9), limit=3) == ["a1", "a2", "b1"]
    assert await claimed_names(store, queues=("b", "a"), now=at(9)) == []
    assert await claimed_names(store, queues=("c",), now=at(9)) == ["c1"]


async def test_without_queues_every_queue_is_one(store: ReadableStore) -> None:
    for name, queue, due in (("a1", "a", 3), ("b1", "b", 1), ("a2", "a", 2)):
        await enqueued(store, args=name, queue=queue, due_at=at(due), now=at(0))

    assert await claimed_names(store, queues=None, now=at(9)) == ["b1", "a2", "a1"]


async def test_no_more_than_the_limit_is_taken(store: ReadableStore) -> None:
    for n in range(5):
        await enqueued(store, args=str(n), due_at=at(n), now=at(0))

    assert await claimed_names(store, limit=2, now=at(9)) == ["0", "1"]
    assert await claimed_names(store, limit=0, now=at(9)) == []
    assert await claimed_names(store, limit=10, now=at(9)) == ["2", "3", "4"]


# --- attempts -------------------------------------------------------------------------------


async def test_the_attempt_is_counted_at_the_claim_and_the_first_start_is_kept(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    first = await claimed(store, now=at(1))
    await finish(store, first, OutcomeKind.RETRY, delay=SECOND, now=at(2))

    second = await claimed(store, now=at(3))

    assert (second.attempt, second.attempts_spent, second.started_at) == (2, 2, at(1))
    assert second.outcome is None


async def test_a_cancelled_run_is_not_claimed(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))
    await store.cancel(run.id, now=at(0))

    assert (await claim(store, now=at(1))).runs == ()


# --- the lease of the worker ----------------------------------------------------------------


async def test_a_claim_gives_a_worker_without_a_row_its_lease(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))

    answer = await claim(store, "w1", now=at(1))

    assert answer.lease_until == at(1) + LEASE
    [worker] = await store.workers()
    assert (worker.id, worker.lease_until) == ("w1", at(1) + LEASE)


async def test_s91_a_worker_that_has_sent_no_heartbeat_yet_is_not_taken_for_dead(
    store: ReadableStore, other: ReadableStore
) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, "new", now=at(1))

    assert (await other.reap(now=at(1) + LEASE - 1)).runs == ()

    assert await run_now(other, run.id) == run


async def test_a_claim_extends_a_lease_that_has_little_left(store: ReadableStore) -> None:
    """A run claimed just before the worker's lease ends would be reaped at once."""
    await beat(store, "w1", now=at(0))
    await enqueued(store, now=at(0))

    answer = await claim(store, "w1", now=at(14))

    assert answer.lease_until >= at(14) + LEASE * 2 // 3
    assert (await store.workers())[0].lease_until == answer.lease_until
    assert (await store.workers())[0].roles == ("scheduler", "worker"), "the rest of its row stays"
    assert (await store.reap(now=at(15.5))).runs == ()


async def test_a_claim_does_not_shorten_a_lease(store: ReadableStore) -> None:
    await beat(store, "w1", now=at(0))
    await enqueued(store, now=at(0))

    answer = await claim(store, "w1", lease_for=3 * SECOND, now=at(1))

    assert answer.lease_until == at(0) + LEASE


# --- next_due_at ----------------------------------------------------------------------------


async def test_a_claim_tells_when_the_next_run_is_due(store: ReadableStore) -> None:
    await enqueued(store, due_at=at(30), now=at(0))
    await enqueued(store, due_at=at(20), now=at(0))
    await enqueued(store, "foreign", due_at=at(10), now=at(0))
    await enqueued(store, queue="slow", due_at=at(5), now=at(0))

    answer = await claim(store, queues=("default",), now=at(1))

    assert (answer.runs, answer.next_due_at) == ((), at(20))
    assert (await claim(store, queues=None, now=at(1))).next_due_at == at(5)


async def test_a_claim_that_stopped_at_its_limit_tells_that_more_is_due_already(store: ReadableStore) -> None:
    for second in (1, 2, 3):
        await enqueued(store, due_at=at(second), now=at(0))

    assert (await claim(store, limit=2, now=at(9))).next_due_at == at(3)


async def test_what_is_blocked_is_not_announced(store: ReadableStore) -> None:
    """Parked behind another run, or of a full task: an end, not an instant, makes it claimable."""
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1), at(2))
    for _ in range(2):
        await enqueued(store, "scarce", due_at=at(1), now=at(0))

    answer = await store.claim(spec(tasks=("send", "scarce"), max_running=(("scarce", 1),)), now=at(9))

    assert len(answer.runs) == 2
    assert answer.next_due_at is None


async def test_nothing_left_is_none(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))

    assert (await claim(store, now=at(1))).next_due_at is None


# --- repeatable (G7) ------------------------------------------------------------------------


async def test_repeating_a_claim_returns_its_leases_and_takes_no_more(store: ReadableStore) -> None:
    """G7: the answer was lost after the commit. A second helping would be held by nobody."""
    for _ in range(5):
        await enqueued(store, now=at(0))
    once = spec("w1", limit=2)
    first = await store.claim(once, now=at(1))
    before = (await picture(store))["runs"]

    again = await store.claim(once, now=at(2))

    assert _by_id(again.runs) == _by_id(first.runs)
    assert len(again.runs) == 2
    assert (await picture(store))["runs"] == before


async def test_a_repeated_claim_returns_only_what_is_still_held(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueued(store, now=at(0))
    once = spec("w1", limit=2)
    [done, held] = (await store.claim(once, now=at(1))).runs
    await finish(store, done, now=at(2))

    assert (await store.claim(once, now=at(2))).runs == (held,)


async def test_a_repeated_claim_does_not_return_what_was_reaped(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retry_delay=3600 * SECOND)
    once = spec("w1")
    await store.claim(once, now=at(1))
    await store.reap(now=at(60))

    assert (await store.claim(once, now=at(61))).runs == ()


def _by_id(runs: tuple[RunRecord, ...]) -> dict[str, RunRecord]:
    return {run.id: run for run in runs}


@pytest.mark.parametrize("priority", [-100, 100])
async def test_the_range_of_priorities_fits_far_dates(store: ReadableStore, priority: int) -> None:
    due = 253_402_300_799 * SECOND
    await enqueued(store, priority=priority, due_at=due, now=at(0))

    assert (await claim(store, now=due)).runs[0].order_key == due - 60 * SECOND * priority
