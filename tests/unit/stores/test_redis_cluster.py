"""A namespace on a cluster lies in one slot: every step works wherever the slot is, and follows it when it moves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from oncron._model import OutcomeKind, RunState
from oncron.errors import StoreUnavailable
from oncron.stores.redis import RedisStore
from tests.contract.given import at, beat, claim, declared, enqueued, finish, fired, new_run, picture, spec
from tests.redis_server import KINDS, RedisServer, cluster, find_server, free_cluster_port
from tests.servers import ServerMissing


@pytest.fixture(scope="module", params=KINDS)
def nodes(request: pytest.FixtureRequest) -> Iterator[list[RedisServer]]:
    try:
        find_server(request.param)
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    with cluster(request.param, 3) as servers:
        yield servers


def url(nodes: list[RedisServer], **parameters: object) -> str:
    return nodes[0].url(**parameters).replace("redis://", "redis+cluster://")


def keys(node: RedisServer) -> set[str]:
    return set(node.command("KEYS", "*"))


async def test_namespaces_lie_on_different_nodes_each_on_one(nodes: list[RedisServer]) -> None:
    for namespace in ("a", "b", "c"):
        before = [keys(node) for node in nodes]
        store = RedisStore(url(nodes), namespace=namespace)
        await store.open()
        await store.migrate()
        await declared(store, now=at(0))
        [run] = (await fired(store, at(1), claim=spec())).leases
        await beat(store, held=[run], now=at(2))
        await finish(store, run, OutcomeKind.SUCCEEDED, now=at(2))
        await enqueued(store, now=at(2), schedule="report")

        made = [len(keys(node) - old) for node, old in zip(nodes, before, strict=True)]
        assert sorted(made)[:2] == [0, 0]
        assert made[["b", "c", "a"].index(namespace)] == max(made)
        assert (await store.stats(now=at(3))).runs == {RunState.SUCCEEDED: 1, RunState.PENDING: 1}
        await store.drop()
        await store.close()


async def test_a_hint_reaches_who_listens_whichever_node_it_is_given_to(nodes: list[RedisServer]) -> None:
    store, other = (RedisStore(url(nodes), namespace="a") for _ in range(2))
    woken = asyncio.ensure_future(anext(other.wakeups()))
    async with asyncio.timeout(10):
        while not woken.done():
            await store.hint()
            await asyncio.wait({woken}, timeout=0.05)
    for each in (store, other):
        await each.close()


async def test_a_slot_that_moves_takes_its_namespace_along(nodes: list[RedisServer]) -> None:
    store = RedisStore(url(nodes), namespace="a")
    await store.migrate()
    run = await enqueued(store, now=at(0))
    before = await picture(store)

    slot = nodes[0].command("CLUSTER", "KEYSLOT", "{a}")
    [source] = [node for node in nodes if any(key.startswith("{a}") for key in keys(node))]
    target = nodes[(nodes.index(source) + 1) % len(nodes)]
    ids = {node.port: node.command("CLUSTER", "MYID") for node in nodes}
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
    moved = source.command("CLUSTER", "GETKEYSINSLOT", slot, 10_000)
    source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moved)
    for node in (target, source, *nodes):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])

    assert await picture(store) == before
    assert [each.id for each in (await claim(store, now=at(1))).runs] == [run.id]
    assert any(key.startswith("{a}") for key in keys(target))
    await store.drop()
    await store.close()


async def test_wait_is_asked_of_the_node_that_has_the_namespace(nodes: list[RedisServer]) -> None:
    store = RedisStore(url(nodes, wait_replicas=1, wait_within=50), namespace="b")
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas acknowledged"):
        await store.migrate()
    [home] = [node for node in nodes if any(key.startswith("{b}") for key in keys(node))]
    replica = RedisServer(
        home.kind, {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf"}, port=free_cluster_port()
    )
    try:
        replica.start()
        replica.command("CLUSTER", "MEET", "127.0.0.1", home.port)
        replica.until(lambda: home.command("CLUSTER", "MYID") in str(replica.command("CLUSTER", "NODES")))
        replica.command("CLUSTER", "REPLICATE", home.command("CLUSTER", "MYID"))
        replica.until(lambda: replica.info("replication").get("master_link_status") == "up")

        async with asyncio.timeout(20):
            while True:
                try:
                    await store.migrate()
                    break
                except StoreUnavailable:
                    await asyncio.to_thread(home.info, "server")
        [answer] = await store.enqueue([new_run()], now=at(0))
        assert answer.is_new
    finally:
        replica.close()
        await store.close()
