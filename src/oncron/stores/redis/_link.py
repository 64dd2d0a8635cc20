"""Connections: to one server, to the one that sentinels name, or to a cluster; all alike from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from redis import asyncio as aioredis, exceptions as rx
from redis.asyncio import cluster, sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from oncron._defaults import CALL_DEADLINE
from oncron.stores.redis import _errors
from oncron.stores.redis._address import Address
from oncron.stores.redis._scripts import Script, script

DEADLINE_S = CALL_DEADLINE / 1_000_000
SENTINEL_WITHIN_S = 2.0
"""How long one sentinel may take to be reached: others are asked next."""
CONNECTIONS = 8
"""What one store uses at once, besides one that listens."""


class Link:
    """Runs scripts on a namespace. Connects at the first call; after `reset` at the next one anew."""

    def __init__(self, address: Address, namespace: str) -> None:
        self._address = address
        self._key = f"{{{namespace}}}:meta"
        self._client: Any = None
        self._sentinel: Any = None
        self._nodes: dict[tuple[str, int], Any] = {}
        """Of a cluster: clients of single nodes."""
        self._turn = asyncio.Semaphore(CONNECTIONS)

    async def run(self, name: str, payload: bytes, now: int | None, *, writes: bool) -> Any:
        """The script's answer. With `writes` and wait_replicas= so many replicas have it too. Raises StoreError."""
        wanted = script(name)
        arguments = (1, self._key, "" if now is None else str(now), payload)
        return await self._guarded(self._run(wanted, arguments, writes=writes))

    async def command(self, *arguments: Any) -> Any:
        """For what is no script."""
        return await self._guarded(self._connected().execute_command(*arguments))

    async def reset(self) -> None:
        """Never raises: what cannot be closed is gone already."""
        clients = [self._client, *self._nodes.values(), *(self._sentinel.sentinels if self._sentinel else ())]
        self._client, self._sentinel, self._nodes = None, None, {}
        self._turn = asyncio.Semaphore(CONNECTIONS)
        for each in clients:
            if each is not None:
                try:
                    await each.aclose()
                except (*_errors.DRIVER, RuntimeError):
                    pass  # RuntimeError: its event loop is closed

    @asynccontextmanager
    async def subscribed(self, channel: str) -> AsyncGenerator[Any]:
        """A subscription on a connection of its own."""
        client = await self._listening_client()
        subscription = client.pubsub()
        try:
            await self._guarded(subscription.subscribe(channel))
            yield subscription
        finally:
            await subscription.aclose()

    # --- one call -------------------------------------------------------------------------

    async def _guarded(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(DEADLINE_S), self._turn:
                return await call
        except _errors.DRIVER as error:
            raise _errors.translated(error, self._address.shown) from error
        finally:
            call.close()

    async def _run(self, wanted: Script, arguments: tuple[Any, ...], *, writes: bool) -> Any:
        send = self._send_and_wait if writes and self._address.wait_replicas else self._send
        try:
            return await send("EVALSHA", wanted.digest, arguments)
        except rx.NoScriptError:
            # After SCRIPT FLUSH, a restart or a fail-over; the whole text makes it known again.
            return await send("EVAL", wanted.text, arguments)

    async def _send(self, how: str, what: str, arguments: tuple[Any, ...]) -> Any:
        return await self._connected().execute_command(how, what, *arguments)

    async def _send_and_wait(self, how: str, what: str, arguments: tuple[Any, ...]) -> Any:
        """The script, then WAIT for the write that follows it: so a repetition, which writes nothing itself,
        waits for what the first attempt wrote."""
        client = self._connected()
        if self._address.kind != "cluster":
            async with client.pipeline(transaction=False) as pipe:
                pipe.execute_command(how, what, *arguments)
                answer, *waited = await self._waited(pipe)
            if isinstance(answer, Exception):
                raise answer
        else:
            # The node is chosen before: were it another one afterwards, its replicas would prove nothing.
            await client.initialize()
            apart = self._apart(client.get_node_from_key(self._key))
            answer = await client.execute_command(how, what, *arguments)
            async with apart.pipeline(transaction=False) as pipe:
                waited = await self._waited(pipe)
        for said in waited:
            if isinstance(said, Exception):
                raise said
        if waited[-1] < self._address.wait_replicas:
            raise _errors.too_few(waited[-1], self._address.wait_replicas, self._address.shown)
        return answer

    async def _waited(self, pipe: Any) -> list[Any]:
        pipe.execute_command("HINCRBY", self._key, "waits", 1)
        pipe.execute_command("WAIT", self._address.wait_replicas, self._address.wait_within)
        return await pipe.execute(raise_on_error=False)

    def _apart(self, node: Any) -> Any:
        """A client of one node of the cluster."""
        place = (node.host, node.port)
        if place not in self._nodes:
            self._nodes[place] = aioredis.Redis(host=node.host, port=node.port, **self._address.options)
        return self._nodes[place]

    # --- connections ----------------------------------------------------------------------

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._make()
        return self._client

    def _make(self) -> Any:
        where = self._address
        if where.kind == "cluster":
            nodes = [cluster.ClusterNode(host, port) for host, port in where.hosts]
            options = {key: value for key, value in where.options.items() if key != "db"}
            return aioredis.RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)
        options: dict[str, Any] = {**where.options, "retry": Retry(NoBackoff(), 0)}
        if where.kind == "sentinel":
            apart = {key: value for key, value in options.items() if key.startswith("socket") or key == "protocol"}
            apart |= {"socket_connect_timeout": SENTINEL_WITHIN_S, **where.sentinel_options}
            self._sentinel = sentinel.Sentinel(list(where.hosts), sentinel_kwargs=apart)
            return self._sentinel.master_for(where.service, **options)
        if where.kind == "unix":
            path = options.pop("path")
            return aioredis.Redis(unix_socket_path=path, **options)
        [(host, port)] = where.hosts
        return aioredis.Redis(host=host, port=port, **options)

    async def _listening_client(self) -> Any:
        """A client that can subscribe. A cluster hands every message on to all its nodes."""
        client = self._connected()
        if self._address.kind != "cluster":
            return client
        await self._guarded(client.initialize())
        return self._apart(client.get_default_node())
