"""Batches are settled as their runs end, also while a call about them is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from oncron._engine.followers import Followers
from oncron._groups import BatchRecord, NewBatch
from oncron.errors import StoreUnavailable
from oncron.stores.memory import MemoryStore
from tests.contract.given import at, claim, enqueued, finish


class Slow(MemoryStore):
    """What it answers takes its time on the way; `broken` calls are lost."""

    def __init__(self, broken: int = 0) -> None:
        super().__init__()
        self.asked, self.arrives = asyncio.Event(), asyncio.Event()
        self.broken = broken

    async def settle_batches(self, ids: Sequence[str] | None = None, **options: Any) -> list[BatchRecord]:
        if self.broken:
            self.broken -= 1
            raise StoreUnavailable("lost on the way")
        answer = await super().settle_batches(ids, **options)
        self.asked.set()
        await self.arrives.wait()
        return answer


def followers_of(store: Slow) -> tuple[Followers, asyncio.Event]:
    """And what is set when something is due because of them."""
    due = asyncio.Event()

    async def door(call: Any) -> Any:
        return await call(store)

    return Followers(door, {}, due=due.set), due  # type: ignore[arg-type]


async def test_a_run_that_ends_while_its_batch_is_settled_is_looked_at_too() -> None:
    store = Slow()
    followers, due = followers_of(store)
    await store.open_batch(NewBatch(id="b"), now=at(0))
    for _ in range(2):
        await enqueued(store, batch="b", now=at(0))
    first, second = (await claim(store, now=at(0))).runs
    await store.close_batch("b", now=at(0))
    loop = asyncio.create_task(followers.settle_loop())

    await finish(store, first, now=at(1))
    followers.run_ended("b")
    await asyncio.wait_for(store.asked.wait(), 10)
    await finish(store, second, now=at(1))
    followers.run_ended("b")
    store.arrives.set()
    await asyncio.wait_for(due.wait(), 10)

    record = await store.get_batch("b")
    assert record is not None
    assert record.succeeded_at is not None
    loop.cancel()


async def test_a_batch_whose_call_was_lost_is_settled_by_the_next_loop() -> None:
    store = Slow(broken=1)
    store.arrives.set()
    followers, due = followers_of(store)
    await store.open_batch(NewBatch(id="b"), now=at(0))
    await enqueued(store, batch="b", now=at(0))
    [run] = (await claim(store, now=at(0))).runs
    await store.close_batch("b", now=at(0))
    await finish(store, run, now=at(1))

    followers.run_ended("b")
    with pytest.raises(StoreUnavailable):
        await followers.settle_loop()
    loop = asyncio.create_task(followers.settle_loop())
    await asyncio.wait_for(due.wait(), 10)

    record = await store.get_batch("b")
    assert record is not None
    assert record.succeeded_at is not None
    loop.cancel()
