"""Behind a pooler in transaction mode every step works; only hints do not come through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from oncron._clock import SECOND
from oncron._model import WorkerRecord, new_id
from tests.servers import PostgresServer
from tests.unit.stores.pooler import Pooler
from tests.unit.stores.postgres_kit import declared, new, opened, outcomes, plan, spec


@pytest.fixture
async def pooler(postgres_server: PostgresServer, postgres_url: str) -> AsyncIterator[Pooler]:
    async with Pooler(postgres_server.port, postgres_url.rsplit("/", 1)[1], "oncron") as pooler:
        yield pooler


@pytest.fixture
def pooled_url(pooler: Pooler) -> str:
    return f"postgresql://oncron@127.0.0.1:{pooler.port}/any"


async def test_three_replicas_share_two_server_connections(pooled_url: str) -> None:
    names = [f"s{n}" for n in range(1200)]
    async with opened(pooled_url) as one, opened(pooled_url) as two, opened(pooled_url) as three:
        replicas = (one, two, three)
        cursor = await declared(one, *names)
        plans = [plan(name, cursor) for name in names]

        fired = await asyncio.gather(*(each.fire(plans, spec(5), fire_id=new_id()) for each in replicas))

        assert sum(result.created for answer in fired for result in answer.results) == len(names)
        for _ in range(2):
            claimed = await asyncio.gather(*(each.claim(spec(200, worker=str(each))) for each in replicas))
            await asyncio.gather(
                *(each.finish(outcomes(answer.runs)) for each, answer in zip(replicas, claimed, strict=True))
            )
        assert await one.heartbeat(WorkerRecord(id="w", roles=("scheduler",)), 15 * SECOND)
        assert (await two.poll(["send"], None)).workers == ("w",)
        stats = await three.stats()
        assert sum(stats.runs.values()) == len(names)
        assert stats.runs["succeeded"] >= 1000


async def test_nothing_is_asked_of_the_session(pooled_url: str, pooler: Pooler) -> None:
    """Each transaction may meet another connection: the settings a step needs travel with it."""
    async with opened(pooled_url) as store:
        before = pooler.transactions
        await store.enqueue([new()])
        assert pooler.transactions == before + 1


async def test_hints_end_behind_a_pooler_and_come_by_listen_url(pooled_url: str, postgres_url: str) -> None:
    async with opened(pooled_url) as deaf, opened(pooled_url, listen_url=postgres_url) as hearing:
        assert [hint async for hint in deaf.wakeups()] == []
        assert [hint async for hint in deaf.wakeups()] == []

        heard = asyncio.ensure_future(anext(hearing.wakeups()))
        async with asyncio.timeout(10):
            while not heard.done():
                await deaf.hint()
                await asyncio.wait({heard}, timeout=0.05)
        await heard
