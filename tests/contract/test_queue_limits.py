"""`queue_limits` and `fleet_limit` (G10): claims held per queue, and of all. Only finish, cancel and reap free one."""

from __future__ import annotations

from typing import Any

import pytest

from oncron._model import ClaimSpec, OutcomeKind, RunFilter, RunState, new_id
from oncron._store import ReadableStore
from tests.contract.given import (
    LEASE,
    SECOND,
    at,
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
    spec,
)
from tests.contract.race import Racers, rounds

ONE_AT_A_TIME = {"queue_limits": (("narrow", 1),)}


async def running(store: ReadableStore, **where: object) -> int:
    return len(await store.runs(RunFilter(**{"state": RunState.RUNNING, "limit": 1000, **where})))


# --- a queue --------------------------------------------------------------------------------


async def test_a_queue_gives_no_more_than_it_may_have_held_by_the_whole_fleet(
    store: ReadableStore, other: ReadableStore
) -> None:
    for _ in range(4):
        await enqueue(store, now=at(0), queue="narrow")
    wants = {"queue_limits": (("narrow", 2),)}

    first = (await claim(store, "w1", now=at(1), limit=1, **wants)).runs
    second = (await claim(other, "w2", now=at(1), **wants)).runs
    third = (await claim(store, "w3", now=at(1), **wants)).runs

    assert [len(runs) for runs in (first, second, third)] == [1, 1, 0]
    await finish(store, first[0], now=at(2))
    assert len((await claim(other, "w3", now=at(2), **wants)).runs) == 1


async def test_a_limit_of_a_queue_counts_all_its_tasks(store: ReadableStore) -> None:
    for second, task in enumerate(("a", "b", "c")):
        await enqueue(store, task, now=at(second), queue="narrow")

    runs = (await claim(store, now=at(3), tasks=("a", "b", "c"), queue_limits=(("narrow", 2),))).runs

    assert [run.task for run in runs] == ["a", "b"]
    assert (await claim(store, now=at(3), tasks=("c",), queue_limits=(("narrow", 2),))).runs == ()


async def test_a_sequential_queue_gives_its_runs_in_order_one_after_the_other(store: ReadableStore) -> None:
    ids = [(await enqueued(store, f"t{n % 2}", now=at(n), queue="narrow")).id for n in range(4)]

    taken: list[str] = []
    for second in range(4, 8):
        run = await claimed(store, now=at(second), tasks=("t0", "t1"), **ONE_AT_A_TIME)
        assert (await claim(store, "w2", now=at(second), tasks=("t0", "t1"), **ONE_AT_A_TIME)).runs == ()
        await finish(store, run, now=at(second))
        taken.append(run.id)

    assert taken == ids


async def test_a_full_queue_does_not_hold_up_the_runs_of_others(store: ReadableStore) -> None:
    for _ in range(3):
        await enqueue(store, now=at(0), queue="narrow")
    for _ in range(2):
        await enqueue(store, now=at(0.5), queue="wide")

    runs = (await claim(store, now=at(1), limit=3, **ONE_AT_A_TIME)).runs

    assert [run.queue for run in runs] == ["narrow", "wide", "wide"]


async def test_what_a_full_queue_holds_back_is_not_announced(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueue(store, now=at(0), queue="narrow")
    await enqueue(store, now=at(0), queue="wide", delay=50 * SECOND)

    first = await claim(store, now=at(1), **ONE_AT_A_TIME)
    second = await claim(store, "w2", now=at(1), **ONE_AT_A_TIME)

    assert (len(first.runs), first.next_due_at) == (1, at(50))
    assert (second.runs, second.next_due_at) == ((), at(50))
    await finish(store, first.runs[0], now=at(2))
    assert (await claim(store, "w2", now=at(2), limit=0, **ONE_AT_A_TIME)).next_due_at == at(0)


async def test_a_full_queue_is_not_freed_by_an_expired_lease_before_it_is_reaped(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueue(store, now=at(0), queue="narrow", retries=0)
    await claim(store, "w1", now=at(1), **ONE_AT_A_TIME)

    assert (await claim(store, "w2", now=at(1) + 2 * LEASE, **ONE_AT_A_TIME)).runs == ()
    await store.reap(now=at(1) + 2 * LEASE)
    assert len((await claim(store, "w2", now=at(1) + 2 * LEASE, **ONE_AT_A_TIME)).runs) == 1


@pytest.mark.parametrize("kind", OutcomeKind)
async def test_every_ending_of_a_claim_frees_its_place_in_the_queue(store: ReadableStore, kind: OutcomeKind) -> None:
    for _ in range(2):
        await enqueue(store, now=at(0), queue="narrow")
    run = await claimed(store, now=at(1), **ONE_AT_A_TIME)

    await finish(store, run, kind, now=at(2), delay=60 * SECOND)

    assert (await claimed(store, now=at(2), **ONE_AT_A_TIME)).id != run.id


async def test_a_limit_holds_for_a_queue_named_by_nobody_else(store: ReadableStore) -> None:
    """Claims without the limit are counted, and not held up by it."""
    for _ in range(3):
        await enqueue(store, now=at(0), queue="narrow")
    await claim(store, "w1", now=at(1), limit=1)

    assert (await claim(store, "w2", now=at(1), **ONE_AT_A_TIME)).runs == ()
    assert len((await claim(store, "w1", now=at(1), limit=1)).runs) == 1


async def test_the_limits_of_task_queue_and_fleet_hold_together(store: ReadableStore) -> None:
    """In claim order, each run that fits all three; what does not fit is passed over and takes no room."""
    asked = [("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("b", "y"), ("a", "y"), ("b", "z"), ("b", "z")]
    for second, (task, queue) in enumerate(asked):
        await enqueue(store, task, now=at(second), queue=queue)

    answer = await claim(
        store,
        now=at(20),
        tasks=("a", "b"),
        max_running=(("a", 2),),
        queue_limits=(("x", 2), ("y", 2)),
        fleet_limit=5,
    )

    assert [run.created_at for run in answer.runs] == [at(second) for second in (0, 1, 4, 5, 7)]
    assert answer.next_due_at is None


async def test_a_limit_of_none_at_all_gives_nothing(store: ReadableStore) -> None:
    await enqueue(store, now=at(0), queue="narrow")

    assert (await claim(store, now=at(1), queue_limits=(("narrow", 0),))).runs == ()
    assert (await claim(store, now=at(1), fleet_limit=0)).runs == ()


@pytest.mark.parametrize("wants", [ONE_AT_A_TIME, {"fleet_limit": 1}, {"fleet_limit": 1, **ONE_AT_A_TIME}])
@pytest.mark.parametrize("tasks", [("a",), ("a", "b")])
async def test_a_limit_below_what_is_held_gives_nothing_until_enough_have_ended(
    store: ReadableStore, wants: dict[str, Any], tasks: tuple[str, ...]
) -> None:
    """A new release has lowered it."""
    for n in range(6):
        await enqueue(store, tasks[n % len(tasks)], now=at(0), queue="narrow")
    held = (await claim(store, "w1", now=at(1), tasks=tasks, limit=3)).runs

    answer = await claim(store, "w2", now=at(1), tasks=tasks, **wants)
    assert (answer.runs, answer.next_due_at) == ((), None)
    await declared(store, "s", task="a", queue="narrow")
    assert (await fired(store, at(2), name="s", claim=spec("w2", tasks=tasks, **wants))).leases == ()
    await store.finish([outcome(run) for run in held], now=at(2))

    assert len((await claim(store, "w2", now=at(2), tasks=tasks, **wants)).runs) == 1


# --- the fleet ------------------------------------------------------------------------------


async def test_the_fleet_holds_no_more_than_it_may(store: ReadableStore, other: ReadableStore) -> None:
    for n in range(6):
        await enqueue(store, f"t{n % 3}", now=at(0), queue=f"q{n % 2}")
    wants = {"tasks": ("t0", "t1", "t2"), "fleet_limit": 3}

    first = (await claim(store, "w1", now=at(1), limit=2, **wants)).runs
    second = await claim(other, "w2", now=at(1), **wants)
    third = await claim(store, "w3", now=at(1), **wants)

    assert (len(first), len(second.runs), len(third.runs)) == (2, 1, 0)
    assert second.next_due_at is third.next_due_at is None
    await finish(store, first[0], now=at(2))
    assert len((await claim(other, "w3", now=at(2), **wants)).runs) == 1


# --- within fire ----------------------------------------------------------------------------


async def test_leases_on_the_spot_stop_at_the_limits_of_queue_and_fleet(store: ReadableStore) -> None:
    queues = (("narrow", 1), ("narrow", 1), ("wide", 0), ("wide", 0))
    rows = [await declared(store, f"s{n}", queue=queue, priority=first) for n, (queue, first) in enumerate(queues)]

    answer = await store.fire(
        [plan(row, at(1)) for row in rows], spec(fleet_limit=2, **ONE_AT_A_TIME), fire_id=new_id(), now=at(1)
    )

    assert sorted(run.queue for run in answer.leases) == ["narrow", "wide"]
    assert [result.created for result in answer.results] == [1, 1, 1, 1]


@pytest.mark.parametrize("wants", [ONE_AT_A_TIME, {"fleet_limit": 1}], ids=["queue", "fleet"])
async def test_a_single_tick_is_not_leased_into_a_full_queue_or_fleet(
    store: ReadableStore, wants: dict[str, object]
) -> None:
    await enqueued(store, now=at(0), queue="narrow")
    run = await claimed(store, now=at(0))
    await declared(store, queue="narrow")

    answer = await fired(store, at(1), claim=spec("w2", **wants))

    assert answer.leases == ()
    await finish(store, run, now=at(2))
    assert (await claimed(store, now=at(2), **wants)).tick == at(1)


async def test_a_single_tick_that_fits_is_leased_on_the_spot(store: ReadableStore) -> None:
    await declared(store, queue="narrow")

    answer = await fired(store, at(1), claim=spec(fleet_limit=1, **ONE_AT_A_TIME))

    assert [run.tick for run in answer.leases] == [at(1)]


# --- by several -----------------------------------------------------------------------------


def limited(kind: str, n: int, most: int = 2) -> tuple[str, dict[str, object]]:
    """A queue of this round and a limit: its own, or the fleet's."""
    return f"q{n}", {"queue_limits": ((f"q{n}", most),)} if kind == "queue" else {"fleet_limit": most}


@pytest.mark.parametrize("kind", ["queue", "fleet"])
async def test_a_limit_holds_while_four_claim(store: ReadableStore, racers: Racers, kind: str) -> None:
    """G10: judged by each alone, four would count none running and take one each."""
    for n, head_start in rounds():
        queue, limit = limited(kind, n)
        await store.enqueue([new_run(f"t{k % 2}", queue=queue) for k in range(8)], now=at(0))

        async def take(session: ReadableStore, queue=queue, limit=limit) -> int:
            wants = spec(new_id(), tasks=("t0", "t1"), queues=(queue,), **limit)
            return len((await session.claim(wants, now=at(1))).runs)

        assert sum(await racers.race(take, take, take, take, head_start=head_start)) <= 2
        assert await running(store) <= 2
        await take(store)
        held = await store.runs(RunFilter(state=RunState.RUNNING))
        assert len(held) == 2
        await store.finish([outcome(run) for run in held], now=at(2))


@pytest.mark.parametrize("kind", ["queue", "fleet"])
async def test_a_limit_holds_between_a_claim_and_leases_on_the_spot(
    store: ReadableStore, racers: Racers, kind: str
) -> None:
    for n, head_start in rounds():
        queue, limit = limited(kind, n, 1)
        await enqueued(store, now=at(0), queue=queue)
        rows = [await declared(store, f"s{n}.{k}", queue=queue) for k in range(2)]

        async def take(session: ReadableStore, queue=queue, limit=limit) -> list[str]:
            wants = spec(new_id(), queues=(queue,), **limit)
            return [run.id for run in (await session.claim(wants, now=at(1))).runs]

        async def fire(session: ReadableStore, row, queue=queue, limit=limit) -> list[str]:
            wants = spec(row.name, queues=(queue,), **limit)
            answer = await session.fire([plan(row, at(1))], wants, fire_id=row.name, now=at(1))
            assert answer.results[0].created == 1
            return [run.id for run in answer.leases]

        taken = await racers.race(
            take, lambda s, r=rows[0]: fire(s, r), lambda s, r=rows[1]: fire(s, r), head_start=head_start
        )

        held = await store.runs(RunFilter(queue=queue, state=RunState.RUNNING))
        assert len(held) <= 1
        assert [run.id for run in held] == [run_id for ids in taken for run_id in ids]
        await store.finish([outcome(run) for run in held], now=at(2))


async def test_limits_named_in_opposite_order_do_not_block(store: ReadableStore, racers: Racers) -> None:
    for _, head_start in rounds():
        await store.enqueue([new_run(f"t{k % 2}", queue=f"q{k % 3}") for k in range(12)], now=at(0))
        tasks = (("t0", 3), ("t1", 3))
        queues = (("q0", 2), ("q1", 2), ("q2", 2))

        def wants(turn: int, tasks=tasks, queues=queues) -> ClaimSpec:
            step = -1 if turn else 1
            return spec(
                new_id(), tasks=("t0", "t1"), max_running=tasks[::step], queue_limits=queues[::step], fleet_limit=5
            )

        async def work(session: ReadableStore, turn: int) -> None:
            for _ in range(3):
                runs = (await session.claim(wants(turn), now=at(1))).runs
                await session.finish([outcome(run) for run in runs], now=at(1))

        await racers.race(*(lambda s, t=t: work(s, t % 2) for t in range(4)), head_start=head_start)

        assert await running(store) == 0
