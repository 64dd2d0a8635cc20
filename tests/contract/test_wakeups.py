"""`hint` and `wakeups` (G9): whoever listens is told to look; whoever is not told finds out by `poll`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from oncron._store import ReadableStore
from tests.contract.conftest import Connect
from tests.contract.given import at, enqueued


async def something_new(store: ReadableStore) -> None:
    """What a replica does that has written: some stores tell by the hint, some by the write."""
    await enqueued(store, now=at(0))
    await store.hint()


async def heard(store: ReadableStore, *listeners: AsyncIterator[None]) -> None:
    """Writes and hints until every listener woke: what comes before it listens may pass it by."""
    waiting = [asyncio.ensure_future(anext(listener)) for listener in listeners]
    async with asyncio.timeout(10):
        while not all(task.done() for task in waiting):
            await something_new(store)
            await asyncio.wait(waiting, timeout=0.1)
    for task in waiting:
        await task


async def test_news_wake_one_that_listens_on_another_session(store: ReadableStore, other: ReadableStore) -> None:
    listener = other.wakeups()

    await heard(store, listener)
    await heard(store, listener)


async def test_news_wake_every_listener(store: ReadableStore, other: ReadableStore) -> None:
    await heard(store, other.wakeups(), other.wakeups(), other.wakeups())


async def test_hints_without_listeners_are_lost_without_harm(store: ReadableStore) -> None:
    for _ in range(5):
        await store.hint()


async def test_a_listener_that_goes_leaves_the_others_listening(store: ReadableStore, other: ReadableStore) -> None:
    staying, going = other.wakeups(), other.wakeups()
    await heard(store, going)
    waiting = asyncio.ensure_future(anext(going))
    await asyncio.wait({waiting}, timeout=0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await heard(store, staying)


async def test_a_listener_on_the_loop_of_another_thread_is_woken(store: ReadableStore, connect: Connect) -> None:
    """Each replica, and each app that shares a store in memory, has an event loop of its own."""
    woken = threading.Event()

    async def listen() -> None:
        mine = connect()
        await mine.open()
        try:
            async with asyncio.timeout(10):
                await anext(mine.wakeups())
            woken.set()
        finally:
            await mine.close()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    async with asyncio.timeout(10):
        while not await asyncio.to_thread(woken.wait, 0.05):
            await something_new(store)
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
