"""`heartbeat` and `leave`: one lease a worker, and what the store has to tell it (G8)."""

from __future__ import annotations

from oncron._model import OutcomeKind, Report, RunState, WorkerRecord
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


async def test_a_heartbeat_writes_the_worker_and_extends_its_lease(store: ReadableStore) -> None:
    worker = WorkerRecord(
        id="w1",
        host="host-1",
        pid=4711,
        started_at=at(-5),
        release=7,
        tzdata="2025b",
        version="0.1.0",
        roles=("scheduler", "worker"),
        skew=-250_000,
    )

    pulse = await store.heartbeat(worker, LEASE, now=at(1))

    assert (pulse.now, pulse.lease_until) == (at(1), at(1) + LEASE)
    assert (pulse.lost, pulse.cancel, pulse.strays) == ((), (), ())
    [row] = await store.workers()
    assert (row.id, row.host, row.pid, row.started_at) == ("w1", "host-1", 4711, at(-5))
    assert (row.release, row.tzdata, row.version, row.roles) == (7, "2025b", "0.1.0", ("scheduler", "worker"))
    assert (row.lease_until, row.skew) == (at(1) + LEASE, -250_000)
    await store.heartbeat(WorkerRecord(id="w1", skew=3), LEASE, now=at(2))
    assert [row.skew for row in await store.workers()] == [3]


async def test_one_heartbeat_extends_every_run_that_the_worker_holds(store: ReadableStore) -> None:
    for _ in range(3):
        await enqueued(store, now=at(0))
    held = (await claim(store, "w1", now=at(1))).runs

    for second in (6, 12, 18, 24):
        await beat(store, "w1", held, now=at(second))

    assert (await store.reap(now=at(24) + LEASE - 1)).runs == ()
    assert len((await store.reap(now=at(24) + LEASE)).runs) == 3


async def test_a_heartbeat_revives_a_lease_that_expired_and_was_not_reaped(store: ReadableStore) -> None:
    """G8: after an outage of the store nobody has to lose what nobody took."""
    await enqueued(store, now=at(0))
    run = await claimed(store, "w1", now=at(1))

    pulse = await beat(store, "w1", [run], now=at(100))

    assert pulse.lost == ()
    assert (await store.reap(now=at(101))).runs == ()
    assert (await run_now(store, run.id)).state is RunState.RUNNING


async def test_a_worker_is_told_what_it_has_lost(store: ReadableStore) -> None:
    for _ in range(3):
        await enqueued(store, now=at(0), retry_delay=0)
    reaped, finished, kept = (await claim(store, "w1", now=at(1))).runs
    await finish(store, finished, now=at(2))
    await store.reap(limit=1000, now=at(60))
    [_, retaken] = (await claim(store, "w2", now=at(60))).runs

    pulse = await beat(store, "w1", [reaped, finished, kept], now=at(61))

    assert set(pulse.lost) == {reaped.id, finished.id, kept.id}
    assert pulse.strays == ()
    assert (await run_now(store, retaken.id)).worker == "w2"


async def test_a_run_that_came_back_to_the_same_worker_is_lost_under_its_old_token_and_a_stray_under_the_new(
    store: ReadableStore,
) -> None:
    await enqueued(store, now=at(0), retry_delay=0)
    old = await claimed(store, "w1", now=at(1))
    await store.reap(now=at(60))
    new = await claimed(store, "w1", now=at(60))

    pulse = await beat(store, "w1", [old], now=at(61))

    assert pulse.lost == (old.id,)
    assert pulse.strays == (new,)


async def test_a_worker_is_told_what_shall_stop(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueued(store, now=at(0))
    first, second = (await claim(store, "w1", now=at(1))).runs
    await store.cancel(second.id, now=at(2))

    pulse = await beat(store, "w1", [first, second], now=at(3))

    assert (pulse.cancel, pulse.lost) == ((second.id,), ())
    assert (await beat(store, "w1", [first, second], now=at(4))).cancel == (second.id,), "until it has stopped"


async def test_a_worker_is_told_of_strays_that_a_lost_answer_would_have_brought(store: ReadableStore) -> None:
    """G7: else they would wait until the worker's lease expires, and it lives as long as the worker."""
    await enqueued(store, now=at(0))
    [stray] = (await claim(store, "w1", now=at(1))).runs
    await declared(store)
    [known] = (await fired(store, at(1), claim=spec("w1"))).leases

    pulse = await beat(store, "w1", [known], now=at(2))

    assert pulse.strays == (stray,)
    assert pulse.lost == ()
    assert (await finish(store, stray, OutcomeKind.RELEASED, now=at(2))).state is RunState.PENDING


async def test_the_runs_of_another_worker_are_no_strays(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    await claim(store, "w1", now=at(1))

    assert (await beat(store, "w2", now=at(2))).strays == ()


async def test_claiming_to_hold_the_run_of_another_worker_is_told_lost(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, "w1", now=at(1))

    assert (await beat(store, "w2", [run], now=at(2))).lost == (run.id,)
    assert (await run_now(store, run.id)).worker == "w1"


# --- reports --------------------------------------------------------------------------------


async def test_reports_are_stored_while_their_token_is_current(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueued(store, now=at(0), retry_delay=0)
    first, second = (await claim(store, "w1", now=at(1))).runs
    await finish(store, second, OutcomeKind.RETRY, now=at(2))
    reports = [
        Report(run_id=first.id, token=first.token, progress="7/9", checkpoint='{"at":7}', log="one"),
        Report(run_id=second.id, token=second.token, progress="too late"),
        Report(run_id=first.id.replace("0", "1"), token=1, progress="of nobody"),
    ]

    await beat(store, "w1", [first], reports=reports, now=at(3))

    told = await run_now(store, first.id)
    assert (told.progress, told.checkpoint, told.log) == ("7/9", '{"at":7}', "one")
    assert (await run_now(store, second.id)).progress is None


async def test_a_report_without_a_checkpoint_or_a_log_keeps_the_last_one(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, "w1", now=at(1))
    await beat(
        store, reports=[Report(run_id=run.id, token=run.token, checkpoint="1", log="one")], held=[run], now=at(2)
    )

    await beat(store, reports=[Report(run_id=run.id, token=run.token, progress="half")], held=[run], now=at(3))

    told = await run_now(store, run.id)
    assert (told.progress, told.checkpoint, told.log) == ("half", "1", "one")


async def test_a_report_under_a_stale_token_changes_nothing(store: ReadableStore) -> None:
    """G5."""
    await enqueued(store, now=at(0), retry_delay=0)
    old = await claimed(store, "w1", now=at(1))
    await store.reap(now=at(60))
    await claimed(store, "w1", now=at(60))
    before = (await picture(store))["runs"]

    await beat(store, "w1", reports=[Report(run_id=old.id, token=old.token, progress="old")], now=at(61))

    assert (await picture(store))["runs"] == before


# --- leaving --------------------------------------------------------------------------------


async def test_a_worker_that_left_is_forgotten(store: ReadableStore) -> None:
    await beat(store, "w1", now=await store.now())

    await store.leave("w1")

    assert await store.workers() == []
    assert (await store.poll([], None)).workers == ()
    await store.leave("w1")
    await store.leave("never-seen")


async def test_what_a_worker_that_left_still_holds_expires_by_its_old_lease(store: ReadableStore) -> None:
    """A thread that cannot be stopped may still be at work when its process leaves."""
    now = await store.now()
    await enqueued(store, now=now)
    run = await claimed(store, "w1", now=now)

    await store.leave("w1")

    assert await store.workers() == []
    assert (await store.reap(now=now + LEASE - SECOND)).runs == ()
    [taken] = (await store.reap(now=now + LEASE)).runs
    assert (taken.id, taken.state) == (run.id, RunState.PENDING)


async def test_a_run_of_a_worker_that_left_may_still_be_finished(store: ReadableStore) -> None:
    now = await store.now()
    await enqueued(store, now=now)
    run = await claimed(store, "w1", now=now)
    await store.leave("w1")

    assert (await finish(store, run, now=now + SECOND)).state is RunState.SUCCEEDED
    assert await store.workers() == []
