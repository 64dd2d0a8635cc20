"""`Outcome.then`: a run that is written in the very step that ends another, however it ends. And what of
`then` and `enqueue` is dropped instead of refused."""

from __future__ import annotations

import pytest

from oncron._model import FinishStatus, OutcomeKind, Overlap, RunFilter, RunState, new_run_id
from oncron._store import ReadableStore
from tests.contract.given import (
    SECOND,
    at,
    claim,
    claimed,
    declared,
    enqueued,
    finish,
    fired,
    new_run,
    outcome,
    run_now,
    seen,
)
from tests.contract.race import Racers, rounds

ENDINGS = [kind for kind in OutcomeKind if kind not in (OutcomeKind.RETRY, OutcomeKind.RELEASED)]


async def followers(store: ReadableStore, task: str = "next") -> list[str]:
    return [run.id for run in await store.runs(RunFilter(task=task))]


@pytest.mark.parametrize("kind", ENDINGS)
async def test_every_end_writes_what_comes_then(store: ReadableStore, kind: OutcomeKind) -> None:
    await enqueued(store, now=at(0))
    then = new_run("next", args='{"a": 1}', delay=5 * SECOND, guard="advisory")

    answer = await finish(store, await claimed(store, now=at(1)), kind, now=at(2), then=then)

    assert (answer.status, answer.state) == (FinishStatus.RECORDED, RunState(kind.value))
    after = await run_now(store, then.id)
    assert (after.state, after.args, after.due_at, after.created_at) == (RunState.PENDING, then.args, at(7), at(2))
    assert after.guard == "advisory"


@pytest.mark.parametrize("kind", [OutcomeKind.RETRY, OutcomeKind.RELEASED])
async def test_what_leaves_the_run_pending_writes_nothing_then(store: ReadableStore, kind: OutcomeKind) -> None:
    await enqueued(store, now=at(0))

    await finish(store, await claimed(store, now=at(1)), kind, now=at(2), then=new_run("next"))

    assert await followers(store) == []


async def test_a_retry_that_ends_as_cancelled_is_an_end(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))
    held = await claimed(store, now=at(1))
    await store.cancel(run.id, now=at(2))

    answer = await finish(store, held, OutcomeKind.RETRY, now=at(3), then=new_run("next"))

    assert answer.state is RunState.CANCELLED
    assert len(await followers(store)) == 1


async def test_a_release_that_loses_the_run_is_an_end(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), retries=0)
    for second in range(1, 11):
        await finish(store, await claimed(store, now=at(second)), OutcomeKind.RELEASED, now=at(second))

    held = await claimed(store, now=at(11))
    answer = await finish(store, held, OutcomeKind.RELEASED, now=at(11), then=new_run("next"))

    assert answer.state is RunState.LOST
    assert len(await followers(store)) == 1


async def test_a_repeated_end_writes_nothing_again(store: ReadableStore) -> None:
    """G7; also after the follower has come and gone, and with another follower."""
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))
    said = outcome(run, OutcomeKind.FAILED, then=new_run("next"))
    await store.finish([said], now=at(2))
    await finish(store, await claimed(store, now=at(3), tasks=("next",)), now=at(3))

    [again] = await store.finish([said], now=at(4))
    [another] = await store.finish([outcome(run, OutcomeKind.FAILED, then=new_run("next"))], now=at(4))

    assert (again.status, another.status) == (FinishStatus.REPEATED, FinishStatus.REPEATED)
    assert len(await followers(store)) == 1


async def test_a_stale_token_writes_nothing_then(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    stale = await claimed(store, now=at(1))
    await store.reap(now=at(60))
    newer = await claimed(store, "w2", now=at(1000))

    answers = await store.finish(
        [outcome(stale, then=new_run("stale")), outcome(newer, then=new_run("next"))], now=at(1001)
    )

    assert [answer.status for answer in answers] == [FinishStatus.LEASE_LOST, FinishStatus.RECORDED]
    assert (len(await followers(store, "stale")), len(await followers(store))) == (0, 1)


async def test_of_two_ends_under_one_token_in_a_batch_the_first_writes(store: ReadableStore) -> None:
    await enqueued(store, now=at(0))
    run = await claimed(store, now=at(1))

    await store.finish(
        [outcome(run, OutcomeKind.FAILED, then=new_run("next")), outcome(run, then=new_run("late"))], now=at(2)
    )

    assert (len(await followers(store)), len(await followers(store, "late"))) == (1, 0)


async def test_what_comes_then_may_take_the_key_and_the_place_that_the_end_frees(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP, unique="k")
    await fired(store, at(1))
    then = new_run("next", unique="k", schedule="report")

    await finish(store, await claimed(store, now=at(1)), now=at(2), then=then)

    assert (await run_now(store, then.id)).state is RunState.PENDING


async def test_success_writes_both_and_failure_what_comes_then_alone(store: ReadableStore) -> None:
    for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.FAILED):
        await enqueued(store, now=at(0))
        held = await claimed(store, now=at(1))
        await finish(store, held, kind, now=at(2), enqueue=(new_run(f"{kind}-own"),), then=new_run(f"{kind}-then"))

    tasks = {run.task for run in await store.runs(RunFilter())} - {"send"}
    assert tasks == {"succeeded-own", "succeeded-then", "failed-then"}


async def test_what_comes_then_is_written_after_what_success_enqueues(store: ReadableStore) -> None:
    """The one unique key goes to the latter's run."""
    await enqueued(store, now=at(0))
    own, then = new_run("own", unique="k"), new_run("next", unique="k")

    await finish(store, await claimed(store, now=at(1)), now=at(2), enqueue=(own,), then=then)

    assert await followers(store, "own") == [own.id]
    assert await followers(store) == []


async def test_what_would_be_refused_is_dropped_and_the_run_ends(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.SKIP)
    await fired(store, at(1))
    await enqueued(store, now=at(0), unique="k", delay=900 * SECOND)
    await enqueued(store, now=at(0), queue="here")
    run = await claimed(store, now=at(1), queues=("here",))
    refused = (new_run("next", unique="k"), new_run("next", schedule="report"), new_run("next", schedule="unknown"))
    fine = new_run("next")

    answer = await finish(store, run, now=at(2), enqueue=(*refused, fine), then=new_run("next", batch=new_run_id()))

    assert answer.state is RunState.SUCCEEDED
    assert await followers(store) == [fine.id]


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.LOST])
async def test_a_schedule_that_does_not_exist_drops_what_comes_then(store: ReadableStore, kind: OutcomeKind) -> None:
    await enqueued(store, now=at(0))

    answer = await finish(
        store, await claimed(store, now=at(1)), kind, now=at(2), then=new_run("next", schedule="unknown")
    )

    assert answer.status is FinishStatus.RECORDED
    assert await followers(store) == []


async def test_each_end_of_a_batch_has_its_own_follower(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    for _ in range(3):
        await enqueued(store, now=at(0))
    runs = (await claim(store, now=at(1))).runs
    kinds = (OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.RETRY)
    said = [
        outcome(run, kind, then=new_run("next", schedule="report", reason=run.id))
        for run, kind in zip(runs, kinds, strict=True)
    ]

    await store.finish(said, now=at(2))

    written = {run.reason for run in await store.runs(RunFilter(task="next", schedule="report"))}
    assert written == {run.id for run in runs[:2]}
    assert (await seen(store)).created_count == 0


async def test_of_two_ends_at_once_one_writes_its_follower(store: ReadableStore, racers: Racers) -> None:
    """G6: whoever comes first."""
    for n, head_start in rounds():
        await enqueued(store, f"t{n}", now=at(0))
        run = await claimed(store, tasks=(f"t{n}",), now=at(1))

        async def end(session: ReadableStore, kind: OutcomeKind, run=run, n=n) -> FinishStatus:
            return (await finish(session, run, kind, now=at(2), then=new_run(f"next{n}", reason=kind))).status

        answers = await racers.race(
            *(lambda s, k=kind: end(s, k) for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.FAILED, OutcomeKind.LOST)),
            head_start=head_start,
        )

        assert sorted(answers) == [FinishStatus.RECORDED, FinishStatus.REPEATED, FinishStatus.REPEATED]
        [follower] = await store.runs(RunFilter(task=f"next{n}"))
        assert follower.reason == (await run_now(store, run.id)).state


@pytest.mark.parametrize("backwards", [False, True])
async def test_what_several_ends_of_one_call_write_comes_in_their_order(store: ReadableStore, backwards: bool) -> None:
    """Of two that want one place the first one gets it."""
    await declared(store, "a", overlap=Overlap.SKIP)
    for _ in range(2):
        await enqueued(store, now=at(0))
    runs = sorted((await claim(store, limit=2, now=at(1))).runs, key=lambda run: run.id, reverse=backwards)
    nexts = [new_run("next", schedule="a") for _ in runs]

    await store.finish(
        [outcome(run, OutcomeKind.SUCCEEDED, then=then) for run, then in zip(runs, nexts, strict=True)], now=at(2)
    )

    assert await followers(store) == [nexts[0].id]
