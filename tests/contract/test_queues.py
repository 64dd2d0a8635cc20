"""Queues as the whole fleet sees them: paused and resumed for everybody, and how much waits in them."""

from __future__ import annotations

from oncron._groups import QueueRecord
from oncron._model import OutcomeKind, Overlap, RunFilter, RunState, new_id
from oncron._store import ReadableStore
from tests.contract.given import (
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
    plan,
    run_of,
    spec,
)
from tests.contract.race import Racers, rounds

# --- paused ---------------------------------------------------------------------------------


async def test_a_paused_queue_gives_nothing_to_anybody(store: ReadableStore, other: ReadableStore) -> None:
    await enqueued(store, now=at(0), queue="slow")
    open_here = await enqueued(store, now=at(0))

    await store.set_queue("slow", paused=True, now=at(1))

    for session in (store, other):
        assert (await claim(session, now=at(2), queues=("slow",))).runs == ()
    assert [run.id for run in (await claim(other, now=at(2))).runs] == [open_here.id]


async def test_a_resumed_queue_gives_again_what_waited(store: ReadableStore, other: ReadableStore) -> None:
    run = await enqueued(store, now=at(0), queue="slow")
    await store.set_queue("slow", paused=True, now=at(1))

    await other.set_queue("slow", paused=False, now=at(2))

    assert (await claimed(store, now=at(3))).id == run.id


async def test_a_queue_may_be_paused_before_it_has_runs_and_takes_them_in(store: ReadableStore) -> None:
    await store.set_queue("slow", paused=True, now=at(0))
    await declared(store, queue="slow")

    run = await enqueued(store, now=at(1), queue="slow")
    answer = await fired(store, at(1), claim=spec())

    assert (answer.results[0].created, answer.leases) == (1, ())
    assert (await claim(store, now=at(2))).runs == ()
    waiting = {each.id for each in await store.runs(RunFilter(state=RunState.PENDING))}
    assert waiting == {run.id, (await run_of(store, at(1))).id}


async def test_fire_leases_nothing_from_a_paused_queue_also_in_a_batch(store: ReadableStore) -> None:
    await store.set_queue("slow", paused=True, now=at(0))
    rows = [await declared(store, f"s{n}", queue=queue) for n, queue in enumerate(("slow", "fast"))]

    answer = await store.fire([plan(row, at(1)) for row in rows], spec(), fire_id=new_id(), now=at(1))

    assert [result.created for result in answer.results] == [1, 1]
    assert [run.queue for run in answer.leases] == ["fast"]


async def test_what_is_held_from_a_queue_that_is_paused_goes_on_and_ends(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), queue="slow")
    run = await claimed(store, now=at(1))
    await store.set_queue("slow", paused=True, now=at(2))

    answer = await finish(store, run, OutcomeKind.RETRY, now=at(3))

    assert answer.state is RunState.PENDING
    assert (await claim(store, now=at(4))).runs == ()
    await store.set_queue("slow", paused=False, now=at(5))
    assert (await claimed(store, now=at(5))).id == run.id


async def test_a_paused_queue_takes_no_share_of_a_claim(store: ReadableStore) -> None:
    for _ in range(5):
        await enqueue(store, now=at(0), queue="slow", priority=5)
    behind = {(await enqueued(store, now=at(1))).id for _ in range(2)}
    await store.set_queue("slow", paused=True, now=at(1))

    assert {run.id for run in (await claim(store, now=at(2), limit=2)).runs} == behind


async def test_what_waits_in_a_paused_queue_is_not_announced(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), queue="slow")
    await enqueued(store, now=at(0), delay=50 * SECOND)
    await store.set_queue("slow", paused=True, now=at(1))

    assert (await store.poll(["send"], None, now=at(1))).next_due_at == at(50)
    assert (await store.poll(["send"], ["slow"], now=at(1))).next_due_at is None
    assert (await claim(store, now=at(1))).next_due_at == at(50)
    await store.set_queue("slow", paused=False, now=at(2))
    assert (await store.poll(["send"], None, now=at(2))).next_due_at == at(0)


async def test_a_repeated_claim_returns_what_it_holds_of_a_queue_that_was_paused_since(store: ReadableStore) -> None:
    """G7."""
    run = await enqueued(store, now=at(0), queue="slow")
    wants = spec()
    await store.claim(wants, now=at(1))
    await store.set_queue("slow", paused=True, now=at(2))

    assert [again.id for again in (await store.claim(wants, now=at(3))).runs] == [run.id]


async def test_pausing_again_writes_nothing_and_another_note_is_a_change(store: ReadableStore) -> None:
    first = await store.set_queue("slow", paused=True, note="broken", now=at(1))
    again = await store.set_queue("slow", paused=True, note="broken", now=at(2))
    noted = await store.set_queue("slow", paused=True, note="still broken", now=at(3))

    assert (first.name, first.paused, first.note, first.changed_at) == ("slow", True, "broken", at(1))
    assert again == first
    assert (noted.note, noted.changed_at) == ("still broken", at(3))


async def test_resuming_what_was_never_paused_writes_nothing(store: ReadableStore) -> None:
    assert await store.set_queue("slow", paused=False, now=at(1)) == QueueRecord(name="slow")
    assert await store.queues(now=at(2)) == []


async def test_the_name_of_a_queue_is_taken_to_the_letter(store: ReadableStore) -> None:
    for name in ("Slow", "slow ", "ß/'\"\\%_", "slow"):
        await enqueued(store, now=at(0), queue=name)
    await store.set_queue("slow", paused=True, note="ß'\"\\", now=at(1))

    assert {run.queue for run in (await claim(store, now=at(2))).runs} == {"Slow", "slow ", "ß/'\"\\%_"}
    [paused] = [row for row in await store.queues(now=at(2)) if row.paused]
    assert (paused.name, paused.note) == ("slow", "ß'\"\\")


# --- counted --------------------------------------------------------------------------------


async def test_queues_are_listed_by_name_with_what_waits_in_them(store: ReadableStore) -> None:
    for second in (1, 2, 3):
        await enqueued(store, now=at(second), queue="b")
    await enqueued(store, now=at(1), queue="b", delay=100 * SECOND)
    await enqueued(store, "other", now=at(1), queue="a")
    await claimed(store, now=at(4), queues=("b",), limit=1)
    await store.set_queue("c", paused=True, note="closed", now=at(5))

    assert await store.queues(now=at(6)) == [
        QueueRecord(name="a", ready=1, oldest_due_at=at(1)),
        QueueRecord(name="b", ready=2, waiting=1, running=1, oldest_due_at=at(2)),
        QueueRecord(name="c", paused=True, note="closed", changed_at=at(5)),
    ]


async def test_what_is_parked_waits_and_is_not_ready(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1))
    await fired(store, at(2))

    assert await store.queues(now=at(3)) == [QueueRecord(name="default", ready=1, waiting=1, oldest_due_at=at(1))]


async def test_a_queue_without_open_runs_is_listed_only_while_it_is_paused(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), queue="slow")
    await finish(store, await claimed(store, now=at(0)), now=at(1))
    assert await store.queues(now=at(1)) == []

    await store.set_queue("slow", paused=True, now=at(2))
    assert [row.name for row in await store.queues(now=at(2))] == ["slow"]

    await store.set_queue("slow", paused=False, now=at(3))
    assert await store.queues(now=at(3)) == []


async def test_pausing_answers_what_waits_there(store: ReadableStore) -> None:
    await enqueued(store, now=at(0), queue="slow")
    await enqueued(store, now=at(0))

    paused = await store.set_queue("slow", paused=True, now=at(1))

    assert (paused.ready, paused.waiting, paused.running, paused.oldest_due_at) == (1, 0, 0, at(0))


# --- by several -----------------------------------------------------------------------------


async def test_after_a_pause_nobody_takes_whoever_was_first(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():
        queue = f"q{n}"
        await store.enqueue([new_run(queue=queue) for _ in range(9)], now=at(0))

        async def take(session: ReadableStore, queue=queue) -> list[str]:
            taken: list[str] = []
            for _ in range(3):
                taken += [run.id for run in (await claim(session, new_id(), queues=(queue,), limit=1, now=at(1))).runs]
            return taken

        async def pause(session: ReadableStore, queue=queue) -> int:
            await session.set_queue(queue, paused=True, now=at(1))
            return len((await claim(session, new_id(), queues=(queue,), now=at(1))).runs)

        first, second, after = await racers.race(take, take, pause, head_start=head_start)

        assert after == 0
        held = {run.id for run in await store.runs(RunFilter(queue=queue, state=RunState.RUNNING))}
        assert held == {*first, *second}
        assert len(first) + len(second) == len(held)
        assert (await claim(store, queues=(queue,), now=at(2))).runs == ()


async def test_of_four_that_pause_one_queue_all_are_told_the_same(store: ReadableStore, racers: Racers) -> None:
    for n, head_start in rounds():

        async def pause(session: ReadableStore, n=n) -> QueueRecord:
            return await session.set_queue(f"q{n}", paused=True, note="all", now=at(n))

        answers = await racers.race(pause, pause, pause, pause, head_start=head_start)

        assert answers == [QueueRecord(name=f"q{n}", paused=True, note="all", changed_at=at(n))] * 4
