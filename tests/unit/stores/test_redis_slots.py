"""guard="slot:NAMESPACE": a tick belongs to whoever has the key of its minute, oncron or another scheduler."""

from __future__ import annotations

import pytest

from oncron._model import FireOutcome, GapReason, Overlap, RunFilter, new_id
from oncron._store import ReadableStore
from oncron.errors import NotSupported
from oncron.stores.redis import RedisStore
from tests.contract.given import SECOND, at, declared, fired, plan, seen
from tests.redis_server import RedisServer

MINUTE = 60 * SECOND
FIRST = at(0) // MINUTE * MINUTE + MINUTE
"""A whole minute."""


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> RedisServer:
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
async def store(server: RedisServer):
    store = RedisStore(server.url(), namespace=server.namespace())
    await store.migrate()
    yield store
    await store.drop()
    await store.close()


def key(other: str, minute: int, name: str = "report") -> str:
    return f"{other}:periodic:{name}:{minute // SECOND}"


async def test_the_slot_of_a_ticks_minute_is_taken_in_the_step_that_fires_it(
    store: ReadableStore, server: RedisServer
) -> None:
    other = "o" + new_id()[:8]
    await declared(store, guard=f"slot:{other}", overlap=Overlap.ALLOW)
    await fired(store, FIRST + 7 * SECOND)

    [found] = server.command("KEYS", f"{other}*")
    assert found == key(other, FIRST)
    assert 3590 < server.command("TTL", found) <= 3600
    server.command("DEL", found)


async def test_a_slot_that_somebody_else_has_passes_the_tick_with_that_reason(
    store: ReadableStore, server: RedisServer
) -> None:
    other = "o" + new_id()[:8]
    server.command("SET", key(other, FIRST), "theirs", "EX", 60)
    await declared(store, guard=f"slot:{other}", overlap=Overlap.ALLOW)

    [result] = (await fired(store, FIRST)).results
    await fired(store, FIRST + MINUTE)

    assert (result.created, result.skipped, result.reason) == (0, 1, GapReason.GUARD)
    [gap] = await store.gaps("report")
    assert (gap.first, gap.count, gap.reason) == (FIRST, 1, GapReason.GUARD)
    assert [run.tick for run in await store.runs(RunFilter())] == [FIRST + MINUTE]
    assert server.command("GET", key(other, FIRST)) == "theirs"
    server.command("DEL", key(other, FIRST), key(other, FIRST + MINUTE))


async def test_slots_that_others_had_between_ones_own_are_gaps_of_their_own(
    store: ReadableStore, server: RedisServer
) -> None:
    other = "o" + new_id()[:8]
    minutes = [FIRST + n * MINUTE for n in range(5)]
    for n in (0, 1, 3):
        server.command("SET", key(other, minutes[n]), "theirs", "EX", 60)
    await declared(store, guard=f"slot:{other}", overlap=Overlap.ALLOW)

    [result] = (await fired(store, *minutes)).results

    assert (result.created, result.skipped) == (2, 3)
    gaps = [(gap.first, gap.last, gap.count) for gap in reversed(await store.gaps("report"))]
    assert gaps == [(minutes[0], minutes[1], 2), (minutes[3], minutes[3], 1)]
    server.command("DEL", *(key(other, minute) for minute in minutes))


async def test_a_tick_that_is_refused_for_its_own_reasons_takes_no_slot(
    store: ReadableStore, server: RedisServer
) -> None:
    other = "o" + new_id()[:8]
    await declared(store, guard=f"slot:{other}", overlap=Overlap.SKIP)
    await fired(store, FIRST)
    await fired(store, FIRST + MINUTE)

    assert server.command("KEYS", f"{other}*") == [key(other, FIRST)]
    server.command("DEL", key(other, FIRST))


async def test_a_repeated_fire_keeps_its_slot(store: ReadableStore, server: RedisServer) -> None:
    """G7: the answer was lost, and the key is there already: it is ours."""
    other = "o" + new_id()[:8]
    await declared(store, guard=f"slot:{other}")
    wanted, fire_id = plan(await seen(store), FIRST), new_id()
    for _ in range(2):
        [result] = (await store.fire([wanted], fire_id=fire_id, now=FIRST)).results
        assert (result.outcome, result.created) == (FireOutcome.FIRED, 1)
    server.command("DEL", key(other, FIRST))


async def test_a_slot_is_refused_on_a_cluster_and_a_lock_of_postgresqls_everywhere() -> None:
    clustered, single = RedisStore("redis+cluster://localhost"), RedisStore("redis+sentinel://localhost/main")

    with pytest.raises(NotSupported, match="is a cluster: no step could write both"):
        await clustered.refuse_guard("slot:other")
    await single.refuse_guard("slot:other")
    for store in (clustered, single):
        with pytest.raises(NotSupported, match="advisory lock of PostgreSQL's"):
            await store.refuse_guard("advisory")
