"""Records that cannot be read (edited by hand, of a newer release) stay as they are, and stop none of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from oncron._model import Overlap, RunFilter, RunRecord
from oncron.errors import NotFound, StoreError
from oncron.stores.redis import RedisStore
from tests.contract.given import FAR_AHEAD, at, beat, claim, declared, enqueued, finish, fired, run_of
from tests.redis_server import RedisServer

GARBAGE = "\xff not a record"


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.url(), namespace=redis_server.namespace())
    await store.migrate()
    yield store
    await store.drop()
    await store.close()


@pytest.fixture
def spoil(store: RedisStore, redis_server: RedisServer) -> Callable[[str], None]:
    def spoil(run_id: str) -> None:
        redis_server.command("SET", f"{{{store._namespace}}}:run:{run_id}", GARBAGE)

    return spoil


async def test_a_run_that_cannot_be_read_crowds_out_no_other(store: RedisStore, spoil: Callable[[str], None]) -> None:
    runs = [await enqueued(store, now=at(n)) for n in range(4)]
    for run in (runs[0], runs[2]):
        spoil(run.id)

    first = await claim(store, now=at(9), limit=1)
    rest = await claim(store, now=at(9))

    assert [run.id for run in (*first.runs, *rest.runs)] == [runs[1].id, runs[3].id]
    assert rest.next_due_at is None
    assert [run.id for run in await store.runs(RunFilter())] == [runs[3].id, runs[1].id]
    assert await store.get_run(runs[0].id) is None


async def test_a_held_run_that_cannot_be_read_stops_neither_reaper_nor_heartbeat(
    store: RedisStore, spoil: Callable[[str], None]
) -> None:
    runs = [await enqueued(store, now=at(0)) for _ in range(3)]
    await claim(store, now=at(0))
    spoil(runs[0].id)
    assert {run.id for run in (await beat(store, now=at(1))).strays} == {runs[1].id, runs[2].id}
    spoil(runs[1].id)

    reaped = await store.reap(now=at(100))

    assert [run.id for run in reaped.runs] == [runs[2].id]
    assert not (await store.poll(["send"], None, now=at(100))).expired


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.WAIT, Overlap.QUEUE, Overlap.CANCEL])
async def test_a_run_that_cannot_be_read_does_not_keep_its_schedules_place(
    store: RedisStore, spoil: Callable[[str], None], overlap: Overlap
) -> None:
    await declared(store, overlap=overlap)
    await fired(store, at(1))
    spoil((await run_of(store, at(1))).id)

    await fired(store, at(2))

    assert [run.tick for run in (await claim(store, now=at(2))).runs] == [at(2)]


async def test_one_that_waits_and_cannot_be_read_is_passed_over(
    store: RedisStore, spoil: Callable[[str], None]
) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    for second in (1, 2, 3):
        await fired(store, at(second))
    spoil((await run_of(store, at(2))).id)
    [run] = (await claim(store, now=at(3))).runs
    await finish(store, run, now=at(3))

    assert [run.tick for run in (await claim(store, now=at(3))).runs] == [at(3)]


async def test_what_is_asked_of_it_by_name_says_that_there_is_no_such_run(
    store: RedisStore, spoil: Callable[[str], None]
) -> None:
    run = await enqueued(store, now=at(0))
    spoil(run.id)
    for call in (store.cancel(run.id), store.retry(run.id)):
        with pytest.raises(NotFound):
            await call
    assert await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD) == 0


async def test_a_record_of_a_newer_release_is_said_and_left_alone(
    store: RedisStore, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    run = await enqueued(store, now=at(0))
    newer = msgspec.to_builtins(run) | {"state": "dreaming"}
    raw = msgspec.msgpack.encode({key: value for key, value in newer.items() if value is not None})
    redis_server.command("SET", f"{{{store._namespace}}}:run:{run.id}", raw)

    assert await store.runs(RunFilter()) == []
    assert "record.unreadable" in caplog.text
    assert "dreaming" in caplog.text


async def test_a_schedule_that_cannot_be_read_hides_none_of_the_others(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await declared(store, "bad")
    await declared(store, "good")
    redis_server.command("HSET", f"{{{store._namespace}}}:definitions", "bad", "{")

    assert [row.name for row in await store.schedules()] == ["good"]
    assert await store.schedules(["bad"]) == []


async def test_an_answer_that_cannot_be_read_is_a_store_error(store: RedisStore, redis_server: RedisServer) -> None:
    run: RunRecord = await enqueued(store, now=at(0), unique="k")
    redis_server.command("SET", f"{{{store._namespace}}}:run:{run.id}", GARBAGE)
    with pytest.raises(StoreError, match="cannot read"):
        await enqueued(store, now=at(0), unique="k")
