"""Replicas at the same instant, about a batch: real sessions, let go at a barrier, again and again.

Each test states what must hold whoever comes first.
"""

from __future__ import annotations

import pytest

from oncron._groups import BatchRecord, NewBatch
from oncron._model import OutcomeKind, RunFilter, RunState, new_id
from oncron._store import ReadableStore
from oncron.errors import NotFound
from tests.contract.given import at, claim, claimed, enqueued, finish, new_run
from tests.contract.race import Racers, rounds


async def opened(store: ReadableStore, **options: str) -> NewBatch:
    """A batch with a callback of its own task for each of the three."""
    name = new_id()
    batch = NewBatch(
        id=name,
        on_complete=new_run(f"completed {name}"),
        on_success=new_run(f"succeeded {name}"),
        on_death=new_run(f"died {name}"),
        **options,
    )
    await store.open_batch(batch, now=at(0))
    return batch


async def seen(store: ReadableStore, batch: NewBatch) -> BatchRecord:
    record = await store.get_batch(batch.id)
    assert record is not None
    return record


async def called(store: ReadableStore, batch: NewBatch) -> list[str]:
    what = ("completed", "succeeded", "died")
    return [word for word in what for _ in await store.runs(RunFilter(task=f"{word} {batch.id}"))]


async def settle(session: ReadableStore, batch: NewBatch) -> BatchRecord:
    [record] = await session.settle_batches([batch.id], now=at(2))
    return record


async def test_a_batch_that_four_settle_completes_once(store: ReadableStore, racers: Racers) -> None:
    for _, head_start in rounds():
        batch = await opened(store)
        await enqueued(store, batch=batch.id, now=at(0))
        await finish(store, await claimed(store, now=at(0)), now=at(0))

        async def close(session: ReadableStore, batch=batch) -> BatchRecord:
            return await session.close_batch(batch.id, now=at(2))

        async def look(session: ReadableStore, batch=batch) -> BatchRecord:
            return await settle(session, batch)

        await racers.race(close, close, look, look, head_start=head_start)

        assert (await seen(store, batch)).succeeded_at == at(2)
        assert await called(store, batch) == ["completed", "succeeded"]


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.FAILED])
async def test_of_runs_that_end_at_once_the_last_completes_the_batch(
    store: ReadableStore, racers: Racers, kind: OutcomeKind
) -> None:
    """Neither may look before the other has ended and take it for open."""
    for _, head_start in rounds():
        batch = await opened(store)
        for _ in range(3):
            await enqueued(store, batch=batch.id, now=at(0))
        runs = (await claim(store, now=at(0))).runs
        await store.close_batch(batch.id, now=at(0))

        async def end(session: ReadableStore, run, batch=batch) -> BatchRecord:
            await finish(session, run, kind, now=at(1))
            return await settle(session, batch)

        answers = await racers.race(*(lambda s, run=run: end(s, run) for run in runs), head_start=head_start)

        assert (await seen(store, batch)).completed_at == at(2)
        assert any(answer.completed_at is not None for answer in answers)
        died = kind is OutcomeKind.FAILED
        assert await called(store, batch) == (["completed", "died"] if died else ["completed", "succeeded"])


async def test_a_run_is_added_before_the_batch_completes_or_refused(store: ReadableStore, racers: Racers) -> None:
    for _, head_start in rounds():
        batch, new = await opened(store), new_run()

        async def add(session: ReadableStore, batch=batch, new=new) -> bool:
            try:
                await session.enqueue([new_run("send", id=new.id, batch=batch.id)], now=at(1))
            except NotFound:
                return False
            return True

        async def close(session: ReadableStore, batch=batch) -> BatchRecord:
            return await session.close_batch(batch.id, now=at(1))

        added, closed = await racers.race(add, close, head_start=head_start)

        record = await seen(store, batch)
        assert (record.completed_at is None) is added
        assert (closed.completed_at is None) is added
        assert record.total == added
        if added:
            await finish(store, await claimed(store, now=at(1)), now=at(1))
            assert (await settle(store, batch)).succeeded_at == at(2)


async def test_what_an_ending_run_adds_is_in_before_its_batch_can_complete(
    store: ReadableStore, racers: Racers
) -> None:
    for _, head_start in rounds():
        batch = await opened(store)
        await enqueued(store, batch=batch.id, now=at(0))
        run, child = await claimed(store, now=at(0)), new_run("child", batch=batch.id)

        async def end(session: ReadableStore, batch=batch, run=run, child=child) -> BatchRecord:
            await finish(session, run, enqueue=(child,), now=at(1))
            return await settle(session, batch)

        async def close(session: ReadableStore, batch=batch) -> BatchRecord:
            return await session.close_batch(batch.id, now=at(1))

        await racers.race(end, close, head_start=head_start)

        record = await seen(store, batch)
        assert (record.completed_at, record.total, record.pending) == (None, 2, 1)
        await store.cancel(child.id, now=at(1))


async def test_a_batch_is_opened_in_another_before_that_completes_or_refused(
    store: ReadableStore, racers: Racers
) -> None:
    for _, head_start in rounds():
        parent, child = await opened(store), NewBatch(id=new_id())

        async def add(session: ReadableStore, parent=parent, child=child) -> bool:
            try:
                await session.open_batch(NewBatch(id=child.id, parent=parent.id), now=at(1))
            except NotFound:
                return False
            return True

        async def close(session: ReadableStore, parent=parent) -> BatchRecord:
            return await session.close_batch(parent.id, now=at(1))

        added, _ = await racers.race(add, close, head_start=head_start)

        assert ((await seen(store, parent)).completed_at is None) is added
        assert (await store.get_batch(child.id) is not None) is added


async def test_of_batches_that_complete_at_once_the_last_completes_the_one_around_them(
    store: ReadableStore, racers: Racers
) -> None:
    for _, head_start in rounds():
        parent = await opened(store)
        children = [await opened(store, parent=parent.id) for _ in range(4)]
        await store.close_batch(parent.id, now=at(0))

        async def close(session: ReadableStore, child: NewBatch) -> BatchRecord:
            return await session.close_batch(child.id, now=at(1))

        await racers.race(*(lambda s, child=child: close(s, child) for child in children), head_start=head_start)

        record = await seen(store, parent)
        assert (record.children, record.completed_at, record.succeeded_at) == (0, at(1), at(1))
        assert await called(store, parent) == ["completed", "succeeded"]


async def test_a_run_that_is_re_opened_beside_a_settle_is_looked_at_again(store: ReadableStore, racers: Racers) -> None:
    for _, head_start in rounds():
        batch = await opened(store)
        run = await enqueued(store, batch=batch.id, now=at(0))
        await finish(store, await claimed(store, now=at(0)), OutcomeKind.FAILED, now=at(0))
        await store.close_batch(batch.id, now=at(0))

        async def retry(session: ReadableStore, run=run) -> RunState:
            return (await session.retry(run.id, now=at(1))).run.state

        async def look(session: ReadableStore, batch=batch) -> BatchRecord:
            return await settle(session, batch)

        await racers.race(retry, look, look, head_start=head_start)
        await finish(store, await claimed(store, now=at(1)), now=at(1))

        found = [record.id for record in await store.settle_batches(None, now=at(2))]
        assert batch.id in found
        assert (await seen(store, batch)).succeeded_at == at(2)
        assert await called(store, batch) == ["completed", "succeeded", "died"]


async def test_a_batch_that_is_deleted_beside_its_end_calls_all_or_nobody(store: ReadableStore, racers: Racers) -> None:
    """And what it was in completes once, whoever comes first."""
    for _, head_start in rounds():
        parent = await opened(store)
        child = await opened(store, parent=parent.id)
        await store.close_batch(parent.id, now=at(0))
        await enqueued(store, batch=child.id, now=at(0))
        [run] = (await claim(store, now=at(0))).runs
        await store.close_batch(child.id, now=at(0))

        async def end(session: ReadableStore, run=run, child=child) -> None:
            await finish(session, run, now=at(1))
            await session.settle_batches([child.id], now=at(2))

        async def delete(session: ReadableStore, child=child) -> bool:
            return await session.delete_batch(child.id, now=at(2))

        _, one, other = await racers.race(end, delete, delete, head_start=head_start)

        assert one is not other
        assert await store.get_batch(child.id) is None
        heard = await called(store, child)
        assert heard in ([], ["completed", "succeeded"])
        assert (await seen(store, parent)).succeeded_at == at(2)
        assert await called(store, parent) == ["completed", "succeeded"]
        ended = await store.get_run(run.id)
        assert ended is not None
        assert ended.state is RunState.SUCCEEDED
