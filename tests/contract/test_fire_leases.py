"""`fire` with a claim: the replica that fires a tick may lease its run in the same step."""

from __future__ import annotations

from oncron._model import (
    Overlap,
    RunState,
    TickRun,
    new_id,
    tick_run_id,
)
from oncron._store import ReadableStore
from tests.contract.given import (
    at,
    declared,
    enqueued,
    fired,
    plan,
    run_of,
    seen,
    spec,
)


async def test_the_replica_that_fires_may_lease_the_run_in_the_same_step(store: ReadableStore) -> None:
    await declared(store)

    answer = await fired(store, at(1), claim=spec("w1", claim_id="c1"))

    [lease] = answer.leases
    assert (lease.state, lease.worker, lease.attempt, lease.claim_id) == (RunState.RUNNING, "w1", 1, "c1")
    assert (lease.started_at, lease.tick) == (at(1), at(1))
    assert lease.token >= at(1)
    assert answer.lease_until >= at(11)
    assert await run_of(store, at(1)) == lease
    [worker] = await store.workers()
    assert (worker.id, worker.lease_until) == ("w1", answer.lease_until)


async def test_a_lease_on_the_spot_obeys_the_filter_of_a_claim(store: ReadableStore) -> None:
    """Same rules as `claim`: own tasks, own queues, due now, at most `limit`."""
    names = ("mine", "foreign-task", "foreign-queue", "later")
    mine, task, queue, later = names
    await declared(store, mine, queue="mail")
    await declared(store, task, task="other", queue="mail")
    await declared(store, queue, queue="slow")
    row = await declared(store, later, queue="mail")
    jittered = TickRun(run_id=tick_run_id(later, at(1)), tick=at(1), due_at=at(1.5))
    plans = [plan(await seen(store, name), at(1)) for name in (mine, task, queue)]
    plans.append(plan(row, new_cursor=at(1), ticks=(jittered,)))

    answer = await store.fire(plans, spec(queues=("mail",)), fire_id=new_id(), now=at(1))

    assert [result.created for result in answer.results] == [1, 1, 1, 1]
    assert [run.schedule for run in answer.leases] == [mine]
    assert (await run_of(store, at(1), later)).state is RunState.PENDING


async def test_leases_on_the_spot_stop_at_the_limit_and_at_max_running(store: ReadableStore) -> None:
    plans = [plan(await declared(store, f"s{n}", task="scarce" if n < 3 else "send"), at(1)) for n in range(6)]
    wants = spec(tasks=("scarce", "send"), limit=3, max_running=(("scarce", 1),))

    answer = await store.fire(plans, wants, fire_id=new_id(), now=at(1))

    assert sorted(run.task for run in answer.leases) == ["scarce", "send", "send"]


async def test_a_tick_that_must_wait_for_its_place_is_not_leased(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1))

    answer = await fired(store, at(2), claim=spec())

    assert answer.leases == ()
    assert (await run_of(store, at(2))).parked


async def test_of_a_catch_up_only_the_oldest_is_leased(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)

    answer = await fired(store, at(1), at(2), at(3), claim=spec())

    assert [run.tick for run in answer.leases] == [at(1)]


async def test_only_the_new_runs_are_leased_on_the_spot(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    await declared(store)

    answer = await fired(store, at(1), claim=spec())

    assert [run.schedule for run in answer.leases] == ["report"]
