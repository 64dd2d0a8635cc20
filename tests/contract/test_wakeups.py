"""`hint` and `wakeups` (G9): whoever listens is told to look; whoever is not told finds out by `poll`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from oncron._store import ReadableStore
from tests.contract.conftest import Connect


async def heard(store: ReadableStore, listener: AsyncIterator[None], *, within: float = 10) -> None:
    """Hints until the listener hears one: a hint that is given before it listens may be lost."""
    waiting = asyncio.ensure_future(anext(listener))
    async with asyncio.timeout(within):
        while not waiting.done():
            await store.hint()
            await asyncio.wait({waiting}, timeout=0.05)
    await waiting


async def test_a_hint_wakes_one_that_listens_on_another_session(store: ReadableStore, other: ReadableStore) -> None:
    listener = other.wakeups()

    await heard(store, listener)
    await heard(store, listener)


async def test_a_hint_wakes_one_that_listens_on_the_same_session(store: ReadableStore) -> None:
    await heard(store, store.wakeups())


async def test_a_hint_wakes_every_listener(store: ReadableStore, other: ReadableStore) -> None:
    listeners = [store.wakeups(), store.wakeups(), other.wakeups()]
    waiting = [asyncio.ensure_future(anext(listener)) for listener in listeners]

    async with asyncio.timeout(10):
        while not all(task.done() for task in waiting):
            await store.hint()
            await asyncio.wait(waiting, timeout=0.05)


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
            await store.hint()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
