"""Hints: heard by others, noticed when their connection is gone, never in the way of anything."""

from __future__ import annotations

import asyncio

import pytest

from oncron.errors import StoreUnavailable
from oncron.stores.postgres import PostgresStore, _wakeups
from tests.servers import PostgresServer
from tests.unit.stores.postgres_kit import asked, opened

LISTENING = "select count(*) from pg_stat_activity where datname = current_database() and query like 'listen%'"


async def listening(url: str, store: PostgresStore) -> asyncio.Task[None]:
    """A listener that the server knows of."""
    waiting = asyncio.ensure_future(anext(store.wakeups()))
    await seen(url, LISTENING)
    return waiting


async def seen(url: str, count: str) -> None:
    async with asyncio.timeout(10):
        while (await asked(url, count))[0][0] == 0:
            pass


async def test_a_listener_whose_connection_is_ended_says_so(postgres_server: PostgresServer, postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        waiting = await listening(postgres_url, store)
        postgres_server.terminate_backends(postgres_url)

        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, 10)


async def test_a_silent_connection_is_asked_and_goes_on(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wakeups, "ASK_EVERY_S", 0.05)
    async with opened(postgres_url) as store:
        waiting = asyncio.ensure_future(anext(store.wakeups()))
        await seen(postgres_url, LISTENING.replace("listen%", "select 1"))
        assert not waiting.done()
        await store.hint()
        await asyncio.wait_for(waiting, 10)


async def test_a_burst_of_hints_is_a_few_commits(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        waiting = await listening(postgres_url, store)
        committed = "select sum(xact_commit) from pg_stat_database where datname = current_database()"
        before = (await asked(postgres_url, committed))[0][0]
        await asyncio.gather(*(store.hint() for _ in range(500)))
        await asyncio.wait_for(waiting, 10)

        assert (await asked(postgres_url, committed))[0][0] - before < 50


async def test_a_hint_that_cannot_be_given_is_lost_in_silence() -> None:
    await PostgresStore("postgresql://127.0.0.1:1/nowhere").hint()


async def test_hints_of_one_namespace_do_not_wake_another(postgres_url: str) -> None:
    async with opened(postgres_url, namespace="shop") as shop, opened(postgres_url, namespace="blog") as blog:
        waiting = await listening(postgres_url, shop)
        await blog.hint()
        await asyncio.wait({waiting}, timeout=0.2)
        assert not waiting.done()
        await shop.hint()
        await asyncio.wait_for(waiting, 10)
