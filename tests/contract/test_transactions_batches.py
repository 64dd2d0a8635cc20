"""Batches in a caller's transaction: what is added to them holds when it commits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from oncron._groups import NewBatch
from oncron._model import OutcomeKind, RunState, new_id
from oncron._store import ReadableStore
from oncron.errors import NotFound
from tests.contract.effects import WITHIN, Effects, off_loop
from tests.contract.given import at, claimed, enqueued, new_run, outcome, run_now

pytestmark = pytest.mark.parametrize("connect", ["sqlite", "postgres"], indirect=True)


async def opened(store: ReadableStore) -> str:
    batch = NewBatch(id=new_id())
    await store.open_batch(batch, now=at(0))
    return batch.id


async def pending(store: ReadableStore, batch: str) -> int:
    record = await store.get_batch(batch)
    assert record is not None
    return record.pending


async def test_a_run_is_added_to_a_batch_when_the_transaction_commits(store: ReadableStore, effects: Effects) -> None:
    batch, kept, dropped = await opened(store), new_run(), new_run()

    def added(run_id: str, *, fails: bool) -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute(effects.insert, [run_id])
            store.enqueue_in(connection, [new_run(id=run_id, batch=batch)])
            if fails:
                raise ZeroDivisionError

    await off_loop(lambda: added(kept.id, fails=False))
    with pytest.raises(ZeroDivisionError):
        await off_loop(lambda: added(dropped.id, fails=True))

    assert (await pending(store, batch), effects.notes()) == (1, [kept.id])
    assert await store.get_run(dropped.id) is None
    assert (await run_now(store, kept.id)).batch == batch


async def test_nothing_is_added_to_a_complete_batch_in_a_transaction(store: ReadableStore, effects: Effects) -> None:
    batch = await opened(store)
    await store.close_batch(batch, now=at(0))

    def add() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute(effects.insert, ["order"])
            store.enqueue_in(connection, [new_run(batch=batch)])

    with pytest.raises(NotFound, match="does not exist or is complete"):
        await off_loop(add)

    assert effects.notes() == []


async def test_a_batch_does_not_complete_beside_a_transaction_that_adds_to_it(
    store: ReadableStore, other: ReadableStore, effects: Effects
) -> None:
    batch, begun, closing = await opened(store), threading.Event(), threading.Event()

    def add() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute(effects.insert, ["order"])
            store.enqueue_in(connection, [new_run(batch=batch)])
            begun.set()
            closing.wait(10)

    adding = asyncio.create_task(off_loop(add))
    await asyncio.to_thread(begun.wait, 10)
    close = asyncio.create_task(store.close_batch(batch, now=at(1)))
    for _ in range(10):
        await other.now()
    closing.set()
    await adding

    assert (await close).completed_at is None
    assert await pending(store, batch) == 1


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.SKIPPED])
async def test_what_follows_a_run_is_written_with_its_end(
    store: ReadableStore, effects: Effects, kind: OutcomeKind
) -> None:
    batch = await opened(store)
    await enqueued(store, batch=batch, now=at(0))
    await store.close_batch(batch, now=at(0))
    run, then = await claimed(store, now=at(1)), new_run("next", batch=batch)

    def end() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute(effects.insert, ["paid"])
            store.finish_in(connection, outcome(run, kind, then=then))

    await off_loop(end)

    assert (effects.notes(), await pending(store, batch)) == (["paid"], 1)
    assert (await run_now(store, then.id)).state is RunState.PENDING
    [record] = await store.settle_batches([batch], now=at(2))
    assert record.completed_at is None
