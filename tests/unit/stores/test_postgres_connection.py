"""Connections fail: every call ends within its deadline, says which server, and the next one starts afresh."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import traceback
from collections.abc import Callable, Iterator

import psycopg
import pytest

from oncron._clock import SECOND
from oncron._model import new_id
from oncron.errors import InvalidOption, SchemaOutdated, StoreUnavailable, StoreUnsafe
from oncron.stores.postgres import PostgresStore, store as module
from tests.servers import PostgresServer
from tests.unit.stores.postgres_kit import asked, declared, new, opened, outcomes, plan, spec

SECRET = "hunter2"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def said(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


async def test_an_unreachable_server_is_named_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = PostgresStore(f"postgresql://shop:{SECRET}@127.0.0.1:1/orders")

    with pytest.raises(StoreUnavailable, match=r"shop@127\.0\.0\.1:1/orders cannot be reached.*check that") as caught:
        await store.open()

    assert SECRET not in said(caught.value) + repr(store) + store.url + caplog.text


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hun/ter2@h/d", "postgresql://u:12/ter2@h/d", "postgresql://u:hunter2@h/d?no_such=1", "host=a b"],
)
def test_a_url_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidOption, match="percent-encoded") as caught:
        PostgresStore(url)

    assert "ter2" not in said(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@db.example:5433/shop?sslmode=require", "postgresql://u@db.example:5433/shop"),
        ("postgresql://db1:5432,db2:5433/shop?password=p", "postgresql://db1:5432,db2:5433/shop"),
        ("postgresql://u:p@db1,db2/shop", "postgresql://u@db1,db2/shop"),
        ("postgresql:///shop?host=/run/postgresql", "postgresql:///run/postgresql/shop"),
    ],
)
def test_the_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert PostgresStore(url).url == shown


@pytest.mark.parametrize("name", ["", "1st", 'a"b', "pg_mine", "public", "a b", "x" * 64, "a;drop"])
def test_a_namespace_that_is_no_schema_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="namespace"):
        PostgresStore("postgresql://localhost/shop", namespace=name)


async def test_a_database_that_does_not_exist_is_said_so(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.url("nowhere"))

    with pytest.raises(StoreUnavailable, match=r"nowhere.*refused.*check user, password and database"):
        await store.open()


async def test_a_server_that_never_answers_costs_no_more_than_the_deadline(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.2)
    store = PostgresStore(f"postgresql://127.0.0.1:{silent_port}/shop")

    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer"):
        await store.now()

    assert time.monotonic() - begun < 2


async def test_of_several_hosts_one_that_never_answers_leaves_time_for_the_others(
    silent_port: int, postgres_url: str
) -> None:
    server, database = postgres_url.removeprefix("postgresql://oncron@").split("/")
    url = f"postgresql://oncron@127.0.0.1:{silent_port},{server}/{database}?target_session_attrs=read-write"
    store = PostgresStore(url)
    assert await store.now() > 0
    await store.close()

    given = PostgresStore(f"{url}&connect_timeout=7")
    assert given._address.parameters["connect_timeout"] == "7", "a user's own word stands"


async def test_a_call_behind_a_held_lock_ends_at_its_deadline(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url) as store:
        await declared(store, "a")
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("lock table oncron.cursors in access exclusive mode")
            monkeypatch.setattr(module, "DEADLINE_S", 0.7)
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await store.due(10**18)
            assert time.monotonic() - begun < 5
        monkeypatch.undo()
        assert [row.name for row in await store.due(10**18)] == ["a"]


async def test_a_cancelled_call_lets_go_at_once_and_its_connection_is_not_used_again(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=3) as store:
        await declared(store, "a")
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("lock table oncron.cursors in access exclusive mode")
            call = asyncio.ensure_future(store.due(10**18))
            await asyncio.wait({call}, timeout=0.2)
            begun = time.monotonic()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert time.monotonic() - begun < 1
        assert [row.name for row in await store.due(10**18)] == ["a"]


async def test_idle_connections_that_the_server_ended_are_replaced_unseen(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with opened(postgres_url) as store:
        cursor = await declared(store, "a")
        await store.fire([plan("a", cursor)], fire_id=new_id())
        postgres_server.terminate_backends(postgres_url)
        async with asyncio.timeout(5):
            while (await asked(postgres_url, _SESSIONS))[0][0]:
                pass

        assert (await store.fire([plan("a", cursor + SECOND)], fire_id=new_id())).results[0].skipped == 1
        assert len((await store.claim(spec())).runs) == 1


_SESSIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'oncron'"
    " and pid <> pg_backend_pid()"
)


async def test_after_a_restart_the_store_goes_on_and_nothing_is_doubled(own_postgres: PostgresServer) -> None:
    async with opened(own_postgres.create_database()) as store:
        cursor = await declared(store, "a")
        await store.fire([plan("a", cursor)], fire_id="one")
        own_postgres.stop("immediate")
        with pytest.raises(StoreUnavailable):
            await store.fire([plan("a", cursor)], fire_id="one")
        await store.reset()
        own_postgres.start()

        again = await store.fire([plan("a", cursor)], fire_id="one")

        assert (again.results[0].outcome, again.results[0].created) == ("fired", 1)
        assert (await store.stats()).runs == {"pending": 1}


async def test_a_step_whose_answer_was_lost_is_repeated_without_doubling(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        cursor = await declared(store, *(f"s{n}" for n in range(50)))
        plans = [plan(f"s{n}", cursor) for n in range(50)]
        claim = spec(5)
        first = await store.fire(plans, claim, fire_id="f")
        run = new()
        await store.enqueue([run])

        again = await store.fire(plans, claim, fire_id="f")
        assert again.results == first.results
        assert {lease.id for lease in again.leases} == {lease.id for lease in first.leases}
        assert (await store.enqueue([run]))[0].is_new
        assert (await store.stats()).runs == {"pending": 46, "running": 5}


async def test_a_read_only_database_is_unsafe_to_open_and_unavailable_later(postgres_url: str) -> None:
    database = postgres_url.rsplit("/", 1)[1]
    async with opened(postgres_url) as store:
        await declared(store, "a")
        await asked(postgres_url, f'alter database "{database}" set default_transaction_read_only = on')
        await store.reset()

        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.enqueue([new()])
        with pytest.raises(StoreUnsafe, match="read-only"):
            await PostgresStore(postgres_url).open()


async def test_a_database_that_cannot_hold_every_text_is_unsafe(postgres_server: PostgresServer) -> None:
    await asked(postgres_server.url(), "create database latin encoding 'LATIN1' template template0")
    url = postgres_server.url("latin")

    with pytest.raises(StoreUnsafe, match=r"LATIN1.*UTF8"):
        await PostgresStore(url).open()
    postgres_server.drop_database(url)


async def test_weak_durability_is_warned_of(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    database = postgres_url.rsplit("/", 1)[1]
    await asked(postgres_url, f'alter database "{database}" set synchronous_commit = off')

    async with opened(postgres_url):
        assert "synchronous_commit=off" in caplog.text


async def test_a_default_isolation_of_serializable_changes_nothing(
    postgres_url: str, postgres_errors: Callable[[], list[str]]
) -> None:
    database = postgres_url.rsplit("/", 1)[1]
    await asked(postgres_url, f'alter database "{database}" set default_transaction_isolation = serializable')
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        cursor = await declared(store, *(f"s{n}" for n in range(100)))
        plans = [plan(f"s{n}", cursor) for n in range(100)]
        fired = await asyncio.gather(*(each.fire(plans, fire_id=new_id()) for each in (store, other)))

        assert sum(result.created for answer in fired for result in answer.results) == 100
    assert postgres_errors() == []


async def test_a_schema_that_vanished_is_outdated_not_unavailable(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await asked(postgres_url, "drop schema oncron cascade")

        with pytest.raises(SchemaOutdated, match="oncron migrate"):
            await store.due(10**18)


async def test_many_calls_share_few_connections(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=4) as store:
        await asyncio.gather(*(store.enqueue([new()]) for _ in range(40)))
        sessions = (await asked(postgres_url, _SESSIONS))[0][0]

        assert sessions <= 4
        assert len((await store.claim(spec(100))).runs) == 40


async def test_firing_does_not_wait_for_other_calls(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=3) as store:
        cursor = await declared(store, "a")
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("lock table oncron.gaps in access exclusive mode")
            blocked = asyncio.ensure_future(store.gaps("a"))
            await asyncio.wait({blocked}, timeout=0.1)
            fired = await asyncio.wait_for(store.fire([plan("a", cursor)], spec(), fire_id=new_id()), 5)
            assert len(fired.leases) == 1
        await blocked
        await store.finish(outcomes(fired.leases))
