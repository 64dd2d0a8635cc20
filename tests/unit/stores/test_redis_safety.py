"""What `open` refuses, and with which words: servers that would lose ticks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from oncron.errors import SchemaOutdated, SchemaTooNew, StoreUnavailable, StoreUnsafe
from oncron.stores.redis import RedisStore
from tests.conftest import start_redis
from tests.redis_server import KINDS, RedisServer


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = start_redis(request.param)
    yield server
    server.close()


async def opened(server: RedisServer, *, user: str = "", **parameters: object) -> None:
    store = RedisStore(server.url(**parameters).replace("://", f"://{user}"))
    try:
        await store.open()
    finally:
        await store.close()


async def test_a_server_that_may_throw_keys_away_is_refused(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(
            StoreUnsafe, match=r"maxmemory-policy allkeys-lru.* set `CONFIG SET maxmemory-policy noevic"
        ):
            await opened(server, volatile="true")
    finally:
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_server_that_keeps_nothing_is_refused_unless_the_url_accepts_it(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "appendonly", "no")
    try:
        with pytest.raises(StoreUnsafe, match=r"keeps no append-only file.* add \?volatile=true"):
            await opened(server)
        await opened(server, volatile="true")
    finally:
        server.command("CONFIG", "SET", "appendonly", "yes")


async def test_a_replica_is_refused(server: RedisServer) -> None:
    replica = server.replica()
    try:
        with pytest.raises(StoreUnsafe, match=r"is a replica.* name the primary"):
            await opened(replica)
    finally:
        replica.close()


async def test_a_second_that_may_be_lost_is_warned_of_once(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await opened(server)
    assert [record.message.split(":")[0] for record in caplog.records] == ["store.not_durable"]

    caplog.clear()
    server.command("CONFIG", "SET", "appendfsync", "always")
    with caplog.at_level(logging.WARNING):
        await opened(server)
    server.command("CONFIG", "SET", "appendfsync", "everysec")
    assert caplog.records == []


async def test_a_user_who_may_not_ask_is_warned_and_goes_on(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.command(
        "ACL",
        "SETUSER",
        "shop",
        "on",
        ">pw",
        "~{oncron}:*",
        "resetchannels",
        "&{oncron}:*",
        "+@all",
        "-info",
        "-config",
    )
    with caplog.at_level(logging.WARNING):
        await opened(server, user="shop:pw@")

    assert "store.not_checked" in caplog.text
    store = RedisStore(server.url().replace("://", "://shop:pw@"))
    await store.migrate()
    await store.check()
    await store.drop()
    await store.close()


async def test_a_user_without_rights_on_the_keys_is_told_what_it_needs(server: RedisServer) -> None:
    server.command("ACL", "SETUSER", "guest", "on", ">pw", "~elsewhere", "+@all")
    store = RedisStore(server.url().replace("://", "://guest:pw@"))
    with pytest.raises(StoreUnsafe, match="let this user run scripts and touch the keys of oncron's namespace"):
        await store.migrate()
    await store.close()


async def test_a_wrong_password_is_said_without_showing_it(server: RedisServer) -> None:
    with pytest.raises(StoreUnavailable, match="check user and password in the URL") as refused:
        await opened(server, user="shop:wrong-one@")
    assert "wrong-one" not in str(refused.value)


async def test_a_server_that_is_not_there_is_said_with_its_address() -> None:
    store = RedisStore("redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable, match=r"redis://127\.0\.0\.1:1 cannot be reached"):
        await store.open()


async def test_a_server_that_is_full_writes_nothing_and_says_what_to_do(server: RedisServer) -> None:
    store = RedisStore(server.url(), namespace=server.namespace())
    await store.migrate()
    server.command("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable, match="nothing was written: raise maxmemory"):
            await store.set_queue("default", paused=True)
    finally:
        server.command("CONFIG", "SET", "maxmemory", 0)
    assert await store.queues() == []
    await store.drop()
    await store.close()


async def test_a_namespace_that_nobody_migrated_or_a_newer_release_did_is_refused(server: RedisServer) -> None:
    namespace = server.namespace()
    store = RedisStore(server.url(), namespace=namespace)
    with pytest.raises(SchemaOutdated, match="run `oncron migrate`"):
        await store.check()
    with pytest.raises(SchemaOutdated, match="run `oncron migrate`"):
        await store.poll([], None)

    server.command("HSET", f"{{{namespace}}}:meta", "major", 2)
    for refused in (store.check(), store.migrate(), store.reap()):
        with pytest.raises(SchemaTooNew, match="its keys are of version 2, this release knows 1; upgrade oncron here"):
            await refused
    assert server.command("HGET", f"{{{namespace}}}:meta", "major") == "2"
    await store.close()
