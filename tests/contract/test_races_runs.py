"""Two replicas at the same instant, about a run: real sessions, let go at a barrier, again and again.

Each test states what must hold whoever comes first.
"""

from __future__ import annotations

import asyncio

from oncron._model import (
    FinishStatus,
    Outcome,
    OutcomeKind,
    Overlap,
    RunFilter,
    RunState,
    new_id,
)
from oncron._store import ReadableStore
from tests.contract.given import (
    LEASE,
    at,
    beat,
    claim,
    claimed,
    declared,
    enqueue,
    enqueued,
    finish,
    fired,
    new_run,
    outcome,
    plan,
    run_now,
    seen,
    spec,
)
from tests.contract.race import ROUNDS, Racers, assert_one_head, rounds

# --- claim ------------------------------------------------------------------------------------


async def test_each_run_is_claimed_by_one(store: ReadableStore, racers: Racers) -> None:
    """G4."""
    for n, head_start in rounds():
        task = f"t{n}"
        await store.enqueue([new_run(task) for _ in range(12)], now=at(0))

        async def take(session: ReadableStore, task=task) -> list[str]:
            return [run.id for run in (await claim(session, new_id(), tasks=(task,), limit=5, now=at(1))).runs]

        taken = await racers.race(take, take, take, take, head_start=head_start)

        ids = [run_id for ids in taken for run_id in ids]
        assert len(ids) == len(set(ids))
        assert all(len(ids) <= 5 for ids in taken)
        for session in taken:
            for run_id in session:
                assert (await run_now(store, run_id)).attempt == 1


async def test_max_running_holds_while_four_claim(store: ReadableStore, racers: Racers) -> None:
    """G10: judged by each alone, four would count none running and take one each."""
    for n, head_start in rounds():
        task = f"t{n}"
        await store.enqueue([new_run(task) for _ in range(8)], now=at(0))

        async def take(session: ReadableStore, task=task) -> int:
            wants = spec(new_id(), tasks=(task,), max_running=((task, 2),))
            return len((await session.claim(wants, now=at(1))).runs)

        assert sum(await racers.race(take, take, take, take, head_start=head_start)) <= 2
        assert len(await store.runs(RunFilter(task=task, state=RunState.RUNNING))) <= 2
        await claim(store, "w-late", tasks=(task,), max_running=((task, 2),), now=at(1))
        assert len(await store.runs(RunFilter(task=task, state=RunState.RUNNING))) == 2


async def test_max_running_holds_between_a_claim_and_a_lease_on_the_spot(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        task = f"t{n}"
        await enqueued(store, task, now=at(0))
        rows = [await declared(store, f"s{n}.{k}", task=task) for k in range(2)]
        limit = ((task, 1),)

        async def take(session: ReadableStore, task=task, limit=limit) -> int:
            return len((await claim(session, "w1", tasks=(task,), max_running=limit, now=at(1))).runs)

        async def fire(session: ReadableStore, row, task=task, limit=limit) -> int:
            wants = spec(row.name, tasks=(task,), max_running=limit)
            answer = await session.fire([plan(row, at(1))], wants, fire_id=row.name, now=at(1))
            assert answer.results[0].created == 1
            return len(answer.leases)

        taken = await racers.race(
            take, lambda s, r=rows[0]: fire(s, r), lambda s, r=rows[1]: fire(s, r), head_start=head_start
        )

        assert sum(taken) <= 1
        assert len(await store.runs(RunFilter(task=task, state=RunState.RUNNING))) <= 1


async def test_a_run_is_claimed_or_cancelled_and_never_claimed_after(store: ReadableStore, racers: Racers) -> None:
    for _, head_start in rounds():
        run = await enqueued(store, now=at(0))

        async def take(session: ReadableStore) -> int:
            return len((await claim(session, now=at(1))).runs)

        async def cancel(session: ReadableStore, run=run):
            return await session.cancel(run.id, now=at(1))

        taken, answer = await racers.race(take, cancel, head_start=head_start)

        after = await run_now(store, run.id)
        if taken:
            assert (after.state, after.cancel_requested) == (RunState.RUNNING, True)
            await finish(store, after, OutcomeKind.CANCELLED, now=at(1))
        else:
            assert after.state is RunState.CANCELLED
        assert answer.id == run.id


# --- endings ----------------------------------------------------------------------------------


async def test_of_reap_and_heartbeat_one_wins_and_the_other_knows(store: ReadableStore, racers: Racers) -> None:
    """G8: a lease is revived or taken; a worker that was told nothing is lost still has it."""
    for n, head_start in rounds():
        task, worker = f"t{n}", f"w{n}"
        await enqueued(store, task, now=at(0))
        run = await claimed(store, worker, tasks=(task,), now=at(1))
        late = at(1) + LEASE

        async def reap(session: ReadableStore, late=late) -> list[str]:
            return [taken.id for taken in (await session.reap(now=late)).runs]

        async def pulse(session: ReadableStore, run=run, worker=worker, late=late) -> tuple[str, ...]:
            return (await beat(session, worker, [run], now=late)).lost

        taken, lost = await racers.race(reap, pulse, head_start=head_start)

        state = (await run_now(store, run.id)).state
        assert (run.id in taken, state is RunState.PENDING) in {(True, True), (False, False)}
        assert (run.id in lost) is (run.id in taken)
        await finish(store, run, now=late)


async def test_of_reap_and_finish_one_wins_and_the_other_knows(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        task = f"t{n}"
        await enqueued(store, task, now=at(0))
        run = await claimed(store, tasks=(task,), now=at(1))

        async def reap(session: ReadableStore) -> int:
            return len((await session.reap(now=at(60))).runs)

        async def end(session: ReadableStore, run=run) -> FinishStatus:
            return (await finish(session, run, now=at(60))).status

        taken, status = await racers.race(reap, end, head_start=head_start)

        state = (await run_now(store, run.id)).state
        expected = (FinishStatus.LEASE_LOST, RunState.PENDING) if taken else (FinishStatus.RECORDED, RunState.SUCCEEDED)
        assert (status, state) == expected


async def test_of_four_replicas_that_reap_each_run_is_taken_by_one(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        task = f"t{n}"
        await store.enqueue([new_run(task) for _ in range(6)], now=at(0))
        await claim(store, f"w{n}", tasks=(task,), now=at(1))

        async def reap(session: ReadableStore) -> list[str]:
            return [run.id for run in (await session.reap(now=at(60))).runs]

        taken = [run_id for ids in await racers.race(reap, reap, reap, reap, head_start=head_start) for run_id in ids]

        taken += [run.id for run in (await store.reap(now=at(60))).runs]
        assert len(taken) == len(set(taken)) == 6


async def test_of_two_endings_under_one_token_one_is_recorded(store: ReadableStore, racers: Racers) -> None:
    """G6; and what success enqueues is written once."""
    for n, head_start in rounds():
        task = f"t{n}"
        await enqueued(store, task, now=at(0))
        run = await claimed(store, tasks=(task,), now=at(1))
        outcomes = [outcome(run, enqueue=(new_run(f"next{n}"),)), outcome(run, OutcomeKind.FAILED)]

        async def end(session: ReadableStore, said: Outcome):
            [answer] = await session.finish([said], now=at(2))
            return answer

        answers = await racers.race(*(lambda s, o=o: end(s, o) for o in outcomes), head_start=head_start)

        assert sorted(answer.status for answer in answers) == [FinishStatus.RECORDED, FinishStatus.REPEATED]
        assert answers[0].state == answers[1].state == (await run_now(store, run.id)).state
        followers = await store.runs(RunFilter(task=f"next{n}"))
        assert len(followers) == (answers[0].state is RunState.SUCCEEDED)


async def test_a_retry_beside_a_cancel_ends_as_cancelled(store: ReadableStore, racers: Racers) -> None:
    """Sticky whoever comes first: no run stays pending with a request that nobody reads."""
    for n, head_start in rounds():
        task = f"t{n}"
        await enqueued(store, task, now=at(0))
        run = await claimed(store, tasks=(task,), now=at(1))

        await racers.race(
            lambda s, r=run: finish(s, r, OutcomeKind.RETRY, now=at(2)),
            lambda s, r=run: s.cancel(r.id, now=at(2)),
            head_start=head_start,
        )

        assert (await run_now(store, run.id)).state is RunState.CANCELLED


async def test_batches_of_endings_in_opposite_order_do_not_block(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        task = f"t{n}"
        for k in range(4):
            await declared(store, f"s{n}.{k}", overlap=Overlap.QUEUE, task=task)
            await fired(store, at(1), at(2), name=f"s{n}.{k}")
        runs = (await claim(store, tasks=(task,), now=at(2))).runs
        said = [outcome(run) for run in runs]

        answers = await racers.race(
            lambda s, o=said: s.finish(o, now=at(3)),
            lambda s, o=said[::-1]: s.finish(o, now=at(3)),
            head_start=head_start,
        )

        statuses = [answer.status for answers_of_one in answers for answer in answers_of_one]
        assert statuses.count(FinishStatus.RECORDED) == statuses.count(FinishStatus.REPEATED) == 4
        for k in range(4):
            await assert_one_head(store, f"s{n}.{k}")


# --- enqueue ----------------------------------------------------------------------------------


async def test_of_four_that_enqueue_one_unique_key_one_does_and_all_are_told_of_it(
    store: ReadableStore, racers: Racers
) -> None:
    for n, head_start in rounds():

        async def ask(session: ReadableStore, n=n):
            return await enqueue(session, unique=f"k{n}", now=at(0))

        answers = await racers.race(ask, ask, ask, ask, head_start=head_start)

        assert sorted(answer.is_new for answer in answers) == [False, False, False, True]
        assert len({answer.run.id for answer in answers}) == 1


async def test_one_id_enqueued_by_two_is_one_run(store: ReadableStore, racers: Racers) -> None:
    """G7: a repetition while the first call is still on its way."""
    for _, head_start in rounds():
        new = [new_run() for _ in range(5)]

        async def ask(session: ReadableStore, new=new) -> list[str]:
            return [answer.run.id for answer in await session.enqueue(new, now=at(0))]

        answers = await racers.race(ask, ask, head_start=head_start)

        assert answers == [[run.id for run in new]] * 2
    assert len(await store.runs(RunFilter(limit=10_000))) == 5 * ROUNDS


async def test_unique_keys_in_opposite_order_do_not_block(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        forth = [new_run(unique=f"k{n}.{k}") for k in range(8)]
        back = [new_run(unique=f"k{n}.{k}") for k in reversed(range(8))]

        await racers.race(
            lambda s, r=forth: s.enqueue(r, now=at(0)), lambda s, r=back: s.enqueue(r, now=at(0)), head_start=head_start
        )

    runs = await store.runs(RunFilter(limit=10_000))
    assert len({run.unique for run in runs}) == len(runs) == 8 * ROUNDS


# --- all of it --------------------------------------------------------------------------------


async def test_a_fleet_at_work_keeps_every_promise(store: ReadableStore, racers: Racers) -> None:
    """Four replicas fire, claim, finish and reap what they find, all at once, on a few schedules."""
    overlaps = [Overlap.SKIP, Overlap.WAIT, Overlap.QUEUE, Overlap.CANCEL, Overlap.ALLOW]
    for overlap in overlaps:
        await declared(store, overlap.value, overlap=overlap, retries=9)

    async def work(session: ReadableStore) -> None:
        me = new_id()
        for second in range(1, ROUNDS + 1):
            due = await session.due(at(second))
            rows = await session.schedules([each.name for each in due])
            plans = [plan(row, at(second)) for row in rows if row.cursor < at(second)]
            leases = (await session.fire(plans, spec(me), fire_id=new_id(), now=at(second))).leases
            runs = [*leases, *(await claim(session, me, limit=2, now=at(second))).runs]
            assert len({run.schedule for run in runs if run.serial}) == len([run for run in runs if run.serial])
            kinds = (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.RELEASED)
            said = [outcome(run, kinds[(second + k) % 3]) for k, run in enumerate(runs)]
            for answer in await session.finish(said, now=at(second)):
                assert answer.status is FinishStatus.RECORDED

    async with asyncio.timeout(60):
        await racers.race(work, work, work, work)

    for overlap in overlaps:
        row = await seen(store, overlap.value)
        runs = await store.runs(RunFilter(schedule=overlap.value, limit=10_000))
        superseded = [run for run in runs if run.state is RunState.SKIPPED]
        passed = sum(gap.count for gap in await store.gaps(overlap.value, limit=10_000))
        assert row.cursor == at(ROUNDS)
        assert len({run.tick for run in runs}) == len(runs), "G1"
        assert len(runs) + passed == ROUNDS, "G11"
        assert row.created_count == len(runs) - len(superseded)
        if overlap is not Overlap.ALLOW:
            await assert_one_head(store, overlap.value)
