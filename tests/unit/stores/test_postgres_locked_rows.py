"""Rows that somebody else's transaction holds, and values that PostgreSQL does not take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import sql

from oncron._model import Outcome, OutcomeKind, new_id
from oncron.errors import StoreError, StoreUnavailable
from tests.unit.stores.postgres_kit import declared, new, opened, plan, spec, succeeded


@asynccontextmanager
async def held(url: str, statement: str, value: str) -> AsyncIterator[None]:
    connection = await psycopg.AsyncConnection.connect(url)
    try:
        await connection.execute(sql.SQL(statement), (value,))  # type: ignore[arg-type]
        yield
    finally:
        await connection.close()


async def test_a_finish_and_a_fire_wait_a_moment_at_most_for_a_row_that_somebody_holds(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        cursor = await declared(store, "a")
        await store.enqueue([new()])
        [run] = (await store.claim(spec())).runs
        began = time.monotonic()
        async with (
            held(postgres_url, "select from oncron.runs where id = %s for update", run.id),
            held(postgres_url, "select from oncron.cursors where name = %s for update", "a"),
        ):
            said = await asyncio.gather(
                store.finish([succeeded(run)]),
                store.fire([plan("a", cursor)], fire_id=new_id()),
                return_exceptions=True,
            )
        assert time.monotonic() - began < 6
        assert [type(error) for error in said] == [StoreUnavailable] * 2
        assert all("end that transaction" in str(error) for error in said)

        assert (await store.finish([succeeded(run)]))[0].status == "recorded"
        assert (await store.fire([plan("a", cursor)], fire_id=new_id())).results[0].outcome == "fired"


async def test_a_value_that_fits_no_column_is_refused_for_good_and_not_called_an_outage(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.enqueue([new()])
        [run] = (await store.claim(spec())).runs
        far = Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.RETRY, delay=2**70)
        with pytest.raises(StoreError, match="refused as it is") as refused:
            await store.finish([far])
        assert type(refused.value) is StoreError
