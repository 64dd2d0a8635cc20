"""A backfilled run takes no place of its schedule, unless it says as what (G1, G10)."""

from __future__ import annotations

from oncron._model import GapReason, NewRun, Overlap, RunState, tick_run_id
from oncron._store import ReadableStore
from tests.contract.given import at, claim, claimed, declared, finish, fired, run_of


def again(tick: int, *, overlap: Overlap | None = None, run_id: str | None = None) -> NewRun:
    return NewRun(
        id=run_id or tick_run_id("report\nbackfill", tick),
        task="send",
        schedule="report",
        tick=tick,
        backfill="b1",
        overlap=overlap,
    )


async def test_backfilled_runs_run_beside_the_schedule_and_each_other(store: ReadableStore) -> None:
    await declared(store, now=at(0), overlap=Overlap.SKIP)
    await fired(store, at(1))
    answers = await store.enqueue([again(at(-2)), again(at(-1))], now=at(1))
    assert [(answer.is_new, answer.run.serial, answer.run.parked) for answer in answers] == [(True, False, False)] * 2
    assert {run.tick for run in (await claim(store, limit=5, now=at(2))).runs} == {at(-2), at(-1), at(1)}


async def test_a_backfill_with_a_policy_of_its_own_is_judged_by_it(store: ReadableStore) -> None:
    await declared(store, now=at(0), overlap=Overlap.SKIP)
    first, second = await store.enqueue(
        [again(at(-2), overlap=Overlap.QUEUE), again(at(-1), overlap=Overlap.QUEUE)], now=at(0)
    )
    assert (first.run.serial, first.run.parked) == (True, False)
    assert (second.run.serial, second.run.parked) == (True, True)
    assert (await fired(store, at(1))).results[0].reason is GapReason.OVERLAP
    running = await claimed(store, limit=5, now=at(1))
    assert running.tick == at(-2)
    await finish(store, running, now=at(2))
    running = await claimed(store, limit=5, now=at(2))
    assert running.tick == at(-1)


async def test_a_backfill_that_would_skip_is_refused_while_the_place_is_taken(store: ReadableStore) -> None:
    await declared(store, now=at(0), overlap=Overlap.QUEUE)
    await fired(store, at(1))
    [answer] = await store.enqueue([again(at(-1), overlap=Overlap.SKIP)], now=at(1))
    assert (answer.is_new, answer.occupied) == (False, True)
    assert answer.run == await run_of(store, at(1))


async def test_the_same_instant_is_backfilled_once_for_one_id(store: ReadableStore) -> None:
    await declared(store, now=at(0))
    [first] = await store.enqueue([again(at(-1))], now=at(0))
    running = await claimed(store, now=at(0))
    await finish(store, running, now=at(1))
    [repeated] = await store.enqueue([again(at(-1))], now=at(2))
    assert repeated.run.id == first.run.id
    assert repeated.run.state is RunState.SUCCEEDED
