"""Redis and Valkey go away, come back, forget, and are replaced: what was acknowledged, and what is named as lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from oncron._model import OutcomeKind, RunFilter
from oncron.errors import StoreUnavailable
from oncron.stores.redis import RedisStore
from tests.contract.given import claim, new_run, outcome
from tests.fault import faults
from tests.fault.faults import Fault
from tests.fault.fleet import Fleet, Load, machine_us
from tests.fault.test_failover import Forgotten
from tests.fault.test_storm import TO_REPLICAS, weather
from tests.redis_server import RedisServer, Sentinel

pytestmark = pytest.mark.timeout(120)


# --- replicas at work ---------------------------------------------------------------------


def end_connections(server: RedisServer) -> Fault:
    """Every connection is ended, and every script forgotten."""

    def end(fleet: Fleet, chance: random.Random) -> None:
        time.sleep(0.2 - time.time() % 0.2 + chance.uniform(0, 0.02))
        with fleet.disturbing("end connections", echo=2):
            server.command("SCRIPT", "FLUSH")
            server.command("CLIENT", "KILL", "TYPE", "normal")
            server.command("CLIENT", "KILL", "TYPE", "pubsub")

    return end


def restart(server: RedisServer, *, hard: bool) -> Fault:
    """The server goes away and comes back: told to, or by SIGKILL."""

    def again(fleet: Fleet, chance: random.Random) -> None:
        time.sleep(chance.uniform(0, 0.2))
        with fleet.disturbing("kill server" if hard else "restart server", echo=2 + fleet.load.lease):
            (server.kill if hard else server.stop)()
            server.start()

    return again


def suspend(server: RedisServer) -> Fault:
    """It answers nobody for one to three seconds, longer than a lease."""

    def silent(fleet: Fleet, chance: random.Random) -> None:
        with fleet.disturbing("server silent", echo=2 + fleet.load.lease):
            server.suspend()
            time.sleep(chance.uniform(1, 3))
            server.resume()

    return silent


def to_server(server: RedisServer) -> list[tuple[str, Fault]]:
    return [
        ("connections ended", end_connections(server)),
        ("server restarted", restart(server, hard=False)),
        ("server killed", restart(server, hard=True)),
        ("server silent", suspend(server)),
    ]


def test_a_short_storm_loses_and_doubles_nothing(durable_redis: RedisServer, tmp_path: Path):
    """A crash of the server loses nothing: the append-only file is on disk before the answer."""
    fleet = Fleet(durable_redis.url(), tmp_path, Load(lease=2, skip=1, queue=1))
    kinds = [("kill of a holder", faults.kill_holder), *to_server(durable_redis)]
    weather(fleet, kinds, rounds=1, seed=5, least=40)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_long_storm_loses_and_doubles_nothing(durable_redis: RedisServer, tmp_path: Path):
    fleet = Fleet(durable_redis.url(), tmp_path, Load(fast=5, second=3, skip=2, queue=2, lease=3))
    kinds = [*TO_REPLICAS, ("deploy", faults.deploy), *to_server(durable_redis)]
    weather(fleet, kinds, rounds=20, seed=6, least=10_000)


# --- a server that is killed under load -----------------------------------------------------


class Worked:
    """What a store acknowledged to some who enqueue, claim and finish as fast as they can."""

    def __init__(self, url: str) -> None:
        self._url, self._over = url, False
        self.enqueued: set[str] = set()
        self.ended: set[str] = set()
        self.failures = 0

    async def __aenter__(self) -> Self:
        store = RedisStore(self._url)
        await store.migrate()
        await store.close()
        self._busy = [asyncio.ensure_future(self._work(f"w{n}")) for n in range(4)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await asyncio.gather(*self._busy)

    async def _work(self, worker: str) -> None:
        store = RedisStore(self._url)
        while not self._over:
            try:
                new = [new_run(args="[1]") for _ in range(5)]
                self.enqueued |= {answer.run.id for answer in await store.enqueue(new)}
                for run in (await claim(store, worker, now=None, limit=4)).runs:  # type: ignore[arg-type]
                    await store.finish([outcome(run, OutcomeKind.SUCCEEDED)])
                    self.ended.add(run.id)
            except StoreUnavailable:
                self.failures += 1
                await store.reset()
                await asyncio.sleep(0.01)
        await store.close()

    async def lost(self, url: str) -> tuple[set[str], set[str]]:
        """Of what was acknowledged: runs that are not there, and ends that are not."""
        store = RedisStore(url)
        runs = {run.id: run for run in await store.runs(RunFilter(limit=10**6))}
        await store.close()
        gone = self.enqueued - set(runs)
        return gone, {run_id for run_id in self.ended - gone if runs[run_id].ended_at is None}


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load(durable_redis: RedisServer):
    async with Worked(durable_redis.url()) as worked:
        for _ in range(4):
            await asyncio.sleep(0.4)
            durable_redis.kill()
            await asyncio.to_thread(durable_redis.start)
        await asyncio.sleep(0.2)

    print(f"\n{len(worked.enqueued)} runs, {len(worked.ended)} ends, {worked.failures} calls failed")
    assert worked.failures >= 4
    assert len(worked.ended) > 100
    assert await worked.lost(durable_redis.url()) == (set(), set())


# --- fail-over ----------------------------------------------------------------------------


@pytest.fixture
def replica(own_redis: RedisServer) -> Iterator[RedisServer]:
    server = own_redis.replica()
    yield server
    server.close()


def cut_off(replica: RedisServer) -> None:
    """It hears nothing more of its primary, and is behind from now on."""
    replica.command("REPLICAOF", "127.0.0.1", 1)


async def test_a_fail_over_to_a_replica_that_was_behind_forgets_what_was_acknowledged_since(
    own_redis: RedisServer, replica: RedisServer
):
    """The limit of Redis without WAIT, shown."""
    async with Worked(own_redis.url()) as worked:
        await asyncio.sleep(0.3)
        before = set(worked.enqueued)
        cut_off(replica)
        await asyncio.sleep(0.3)
        since = worked.enqueued - before
        own_redis.kill()
        replica.follow(None)

    lost, _ = await worked.lost(replica.url())
    print(f"\n{len(lost)} of {len(worked.enqueued)} runs lost")
    assert lost
    assert lost <= since | (worked.enqueued - before)


async def test_with_wait_nothing_acknowledged_is_lost_in_a_fail_over(own_redis: RedisServer, replica: RedisServer):
    """While no replica is in step nothing is acknowledged: calls say that they do not know."""
    async with Worked(own_redis.url(wait_replicas=1, wait_within=200)) as worked:
        await asyncio.sleep(0.5)
        cut_off(replica)
        await asyncio.sleep(0.5)
        own_redis.kill()
        replica.follow(None)

    assert worked.failures > 0
    assert len(worked.ended) > 10
    assert await worked.lost(replica.url()) == (set(), set())


async def test_a_repetition_waits_for_what_the_first_attempt_wrote(own_redis: RedisServer, replica: RedisServer):
    """It writes nothing itself, and may not be taken for replicated all the same."""
    store = RedisStore(own_redis.url(wait_replicas=1, wait_within=100))
    await store.migrate()
    new = new_run()
    cut_off(replica)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"0 of 1 replicas acknowledged.* repeat it with the same ids"):
            await store.enqueue([new])

    replica.follow(own_redis)
    own_redis.until(lambda: replica.info("replication")["master_link_status"] == "up")

    assert [answer.is_new for answer in await store.enqueue([new])] == [True]
    await store.close()


@pytest.fixture
def sentinel(own_redis: RedisServer, replica: RedisServer) -> Iterator[Sentinel]:
    watcher = Sentinel(own_redis)
    watcher.start()
    watcher.until(watcher.knows_replica)
    yield watcher
    watcher.close()


def fail_over(fleet: Fleet, sentinel: Sentinel, primary: RedisServer, replica: RedisServer) -> None:
    """The primary is killed; once the other one has its place it comes back as a replica."""
    with fleet.disturbing("fail-over", echo=2 + fleet.load.lease):
        primary.kill()
        sentinel.until(lambda: sentinel.primary() == replica.port)
        primary.follow(replica)
        primary.start()
        replica.until(lambda: primary.info("replication")["master_link_status"] == "up")


def test_a_fail_over_by_sentinel_loses_and_doubles_nothing_with_wait(
    own_redis: RedisServer, replica: RedisServer, sentinel: Sentinel, tmp_path: Path
):
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main?wait_replicas=1"
    fleet = Fleet(url, tmp_path, Load(lease=2), offsets=(0, 300))
    with fleet.running():
        fleet.until(lambda: len(fleet.lines()) > 20, 30, "work to be done")
        fail_over(fleet, sentinel, own_redis, replica)
        back = machine_us()
        fleet.until(lambda: fleet.lines()[-1].at > back, 30, "work to go on")
        time.sleep(1)
        found = fleet.settle()
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.ticks >= 20


@pytest.mark.long
def test_what_a_fail_over_forgot_is_named_and_tokens_still_grow(
    own_redis: RedisServer, replica: RedisServer, tmp_path: Path
):
    """Without WAIT: what a live replica of oncron's remembers is on record as `store_rolled_back` and does not run
    again. Redis' own replica takes the primary's address, as behind a virtual one."""
    fleet = Fleet(own_redis.url(), tmp_path, Load(lease=2), offsets=(0, 300, -60))
    with fleet.running():
        time.sleep(2)
        lost_from = machine_us()
        cut_off(replica)
        time.sleep(1.5)
        with fleet.disturbing("fail-over", echo=2 + fleet.load.lease):
            replica.follow(None)
            replica.stop()
            lost_until = machine_us()
            own_redis.kill()
            replica.port = own_redis.port
            replica.start()
        time.sleep(4)
        evidence = fleet.end()
    lost = Forgotten(evidence, lost_from, lost_until)
    print(f"\n{lost.summary()}")
    assert not lost.wrong, "\n".join([lost.summary(), *lost.wrong[:20], fleet.logs()])
    assert lost.named > lost.repeated
