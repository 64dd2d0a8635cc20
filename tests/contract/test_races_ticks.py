"""Two replicas at the same instant, about a tick: real sessions, let go at a barrier, again and again.

Each test states what must hold whoever comes first.
"""

from __future__ import annotations

import pytest

from oncron._model import (
    FireOutcome,
    GapReason,
    OutcomeKind,
    Overlap,
    RunFilter,
    RunState,
    Status,
    new_id,
)
from oncron._store import ReadableStore
from tests.contract.given import (
    at,
    change_of,
    claim,
    claimed,
    declared,
    enqueue,
    finish,
    fired,
    outcome,
    plan,
    run_of,
    seen,
    spec,
)
from tests.contract.race import Racers, assert_one_head, open_runs, rounds

# --- fire -------------------------------------------------------------------------------------


async def test_of_four_replicas_that_fire_one_tick_one_does(store: ReadableStore, racers: Racers) -> None:
    """G1, G3."""
    for n, head_start in rounds():
        row = await declared(store, f"s{n}")

        async def fire(session: ReadableStore, row=row) -> FireOutcome:
            answer = await session.fire([plan(row, at(1))], spec(new_id()), fire_id=new_id(), now=at(1))
            return answer.results[0].outcome

        outcomes = await racers.race(fire, fire, fire, fire, head_start=head_start)

        assert sorted(outcomes) == [FireOutcome.FIRED] + [FireOutcome.STALE] * 3
        assert len(await store.runs(RunFilter(schedule=f"s{n}"))) == 1


async def test_batches_in_opposite_order_fire_each_tick_once_and_do_not_block(
    store: ReadableStore, racers: Racers
) -> None:
    for n, head_start in rounds():
        rows = [await declared(store, f"s{n}.{k}") for k in range(12)]
        forth = [plan(row, at(1)) for row in rows]

        async def fire(session: ReadableStore, plans=forth) -> list[FireOutcome]:
            return [result.outcome for result in (await session.fire(plans, fire_id=new_id(), now=at(1))).results]

        back = forth[::-1]
        first, second = await racers.race(fire, lambda s, b=back: fire(s, b), head_start=head_start)

        for one, two in zip(first, second[::-1], strict=True):
            assert sorted([one, two]) == [FireOutcome.FIRED, FireOutcome.STALE]
        assert all([(await seen(store, row.name)).created_count == 1 for row in rows])


async def test_a_repetition_that_overtakes_the_first_call_is_the_same_fire(
    store: ReadableStore, racers: Racers
) -> None:
    """G7: the caller gave up waiting while its first call was still on its way."""
    for n, head_start in rounds():
        row = await declared(store, f"s{n}")
        wants = spec(f"w{n}")

        async def fire(session: ReadableStore, row=row, wants=wants, n=n):
            return await session.fire([plan(row, at(1))], wants, fire_id=f"f{n}", now=at(1))

        answers = await racers.race(fire, fire, head_start=head_start)

        assert [answer.results[0].outcome for answer in answers] == [FireOutcome.FIRED] * 2
        assert answers[0].leases == answers[1].leases
        assert len(answers[0].leases) == 1


async def test_of_two_schedules_that_share_a_unique_key_one_gets_it(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        a, b = [await declared(store, f"{name}{n}", unique=f"k{n}") for name in "ab"]

        async def fire(session: ReadableStore, row) -> int:
            return (await session.fire([plan(row, at(1))], fire_id=row.name, now=at(1))).results[0].created

        created = await racers.race(lambda s, a=a: fire(s, a), lambda s, b=b: fire(s, b), head_start=head_start)

        assert sorted(created) == [0, 1]


@pytest.mark.parametrize("status", [Status.PAUSED, Status.REMOVED])
async def test_either_the_pause_or_the_tick_wins(store: ReadableStore, racers: Racers, status: Status) -> None:
    """G3: never a pause that saw nothing owed beside a tick that fired."""
    for n, head_start in rounds():
        row = await declared(store, f"s{n}")

        async def fire(session: ReadableStore, row=row) -> bool:
            result = (await session.fire([plan(row, at(1))], fire_id=row.name, now=at(1))).results[0]
            return result.outcome is FireOutcome.FIRED

        async def pause(session: ReadableStore, row=row) -> bool:
            [answer] = await session.declare([change_of(row, status=status)], now=at(1))
            return answer.changed

        did_fire, did_pause = await racers.race(fire, pause, head_start=head_start)

        assert did_fire is not did_pause
        after = await seen(store, row.name)
        assert (after.cursor == at(1), after.status is status) == (did_fire, did_pause)


async def test_of_four_replicas_that_declare_a_new_schedule_one_does(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        model = await declared(store, f"model{n}")
        change = change_of(model)
        new = type(change)(
            name=f"s{n}",
            definition=type(model.definition)(name=f"s{n}", trigger="every 1s", task="send"),
            status=Status.ACTIVE,
            new_cursor=at(0),
            next_at=at(1),
        )

        async def declare(session: ReadableStore, new=new) -> bool:
            [answer] = await session.declare([new], now=at(0))
            assert answer.record is not None
            return answer.changed

        assert sorted(await racers.race(declare, declare, declare, declare, head_start=head_start)) == [False] * 3 + [
            True
        ]


# --- fire against what frees its place (G10) --------------------------------------------------


@pytest.mark.parametrize("ending", ["finish", "reap", "cancel"])
async def test_under_skip_a_tick_beside_an_ending_runs_or_leaves_a_gap(
    store: ReadableStore, racers: Racers, ending: str
) -> None:
    for n, head_start in rounds():
        name = f"s{n}"
        await declared(store, name, overlap=Overlap.SKIP, retries=0, task=f"t{n}")
        await fired(store, at(1), name=name)
        end = await an_ending(store, ending, name, task=f"t{n}")
        row = await seen(store, name)

        async def fire(session: ReadableStore, row=row):
            return (await session.fire([plan(row, at(60))], fire_id=row.name, now=at(60))).results[0]

        result, _ = await racers.race(fire, end, head_start=head_start)

        assert (result.outcome, result.created + result.skipped) == (FireOutcome.FIRED, 1)
        await end_for_sure(store)
        assert len(await open_runs(store, name)) == result.created
        gaps = [gap.count for gap in await store.gaps(name) if gap.reason is GapReason.OVERLAP]
        assert sum(gaps) == result.skipped


@pytest.mark.parametrize("ending", ["finish", "reap", "cancel"])
@pytest.mark.parametrize("overlap", [Overlap.WAIT, Overlap.QUEUE])
async def test_a_tick_that_comes_to_wait_beside_an_ending_is_never_forgotten(
    store: ReadableStore, racers: Racers, overlap: Overlap, ending: str
) -> None:
    """Parked behind a run that ends in the same moment without seeing it, it would wait for ever."""
    for n, head_start in rounds():
        name = f"s{n}"
        await declared(store, name, overlap=overlap, retries=0, task=f"t{n}")
        await fired(store, at(1), name=name)
        end = await an_ending(store, ending, name, task=f"t{n}")
        row = await seen(store, name)

        async def fire(session: ReadableStore, row=row):
            return (await session.fire([plan(row, at(60))], fire_id=row.name, now=at(60))).results[0]

        result, _ = await racers.race(fire, end, head_start=head_start)

        assert result.created == 1
        await end_for_sure(store)
        [waiting] = await open_runs(store, name)
        assert not waiting.parked


async def end_for_sure(store: ReadableStore) -> None:
    """Reaping skips what a step in flight has locked; it is for the next one."""
    await store.reap(now=at(60))


async def an_ending(store: ReadableStore, ending: str, name: str, task: str):
    """Something that ends the run of at(1): held and to be finished, expired and to be reaped, or pending."""
    if ending == "cancel":
        pending = await run_of(store, at(1), name)
        return lambda session: session.cancel(pending.id, now=at(60))
    run = await claimed(store, f"w-{name}", tasks=(task,), now=at(1))
    if ending == "reap":
        return lambda session: session.reap(now=at(60))
    return lambda session: session.finish([outcome(run)], now=at(60))


async def test_two_ticks_of_one_schedule_never_run_side_by_side(store: ReadableStore, racers: Racers) -> None:
    """Finish and claim while the next tick is fired with a lease on the spot."""
    for n, head_start in rounds():
        name, task = f"s{n}", f"t{n}"
        await declared(store, name, overlap=Overlap.QUEUE, task=task)
        await fired(store, at(1), at(2), name=name)
        head = await claimed(store, "w0", tasks=(task,), now=at(2))
        row = await seen(store, name)

        async def end_and_claim(session: ReadableStore, head=head, task=task):
            await finish(session, head, now=at(3))
            return (await claim(session, "w1", tasks=(task,), now=at(3))).runs

        async def claim_again(session: ReadableStore, task=task):
            return (await claim(session, "w2", tasks=(task,), now=at(3))).runs

        async def fire(session: ReadableStore, row=row, task=task):
            return (await session.fire([plan(row, at(3))], spec("w3", tasks=(task,)), fire_id="f", now=at(3))).leases

        leases = await racers.race(end_and_claim, claim_again, fire, head_start=head_start)

        assert sum(len(runs) for runs in leases) <= 1
        running = [run for run in await open_runs(store, name) if run.state is RunState.RUNNING]
        assert len(running) <= 1
        await assert_one_head(store, name)


async def test_of_run_now_and_a_tick_one_gets_the_place(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        name = f"s{n}"
        row = await declared(store, name, overlap=Overlap.SKIP)

        async def fire(session: ReadableStore, row=row) -> bool:
            result = (await session.fire([plan(row, at(1))], fire_id=row.name, now=at(1))).results[0]
            return result.created == 1

        async def ask(session: ReadableStore, name=name) -> bool:
            answer = await enqueue(session, schedule=name, now=at(1))
            assert answer.is_new is not answer.occupied
            return answer.is_new

        assert sorted(await racers.race(fire, ask, ask, head_start=head_start)) == [False, False, True]
        assert len(await open_runs(store, name)) == 1


async def test_of_a_re_opened_run_and_a_tick_one_gets_the_place(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        name, task = f"s{n}", f"t{n}"
        await declared(store, name, overlap=Overlap.SKIP, task=task)
        await fired(store, at(1), name=name)
        failed = await claimed(store, tasks=(task,), now=at(1))
        await finish(store, failed, OutcomeKind.FAILED, now=at(1))
        row = await seen(store, name)

        async def fire(session: ReadableStore, row=row) -> bool:
            result = (await session.fire([plan(row, at(2))], fire_id=row.name, now=at(2))).results[0]
            return result.created == 1

        async def retry(session: ReadableStore, failed=failed) -> bool:
            return (await session.retry(failed.id, now=at(2))).is_new

        assert sorted(await racers.race(fire, retry, retry, head_start=head_start)) == [False, False, True]
        assert len(await open_runs(store, name)) == 1


async def test_a_changed_policy_beside_a_tick_leaves_one_head(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        name = f"s{n}"
        await declared(store, name, overlap=Overlap.ALLOW)
        await fired(store, at(1), at(2), name=name)
        row = await seen(store, name)

        async def fire(session: ReadableStore, row=row) -> bool:
            result = (await session.fire([plan(row, at(3))], fire_id=row.name, now=at(3))).results[0]
            return result.outcome is FireOutcome.FIRED

        async def change(session: ReadableStore, row=row) -> bool:
            [answer] = await session.declare([change_of(row, overlap=Overlap.QUEUE)], now=at(3))
            return answer.changed

        did_fire, did_change = await racers.race(fire, change, head_start=head_start)

        assert did_fire is not did_change
        if did_change:
            await assert_one_head(store, name)
