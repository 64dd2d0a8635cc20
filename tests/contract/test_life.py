"""Opening, migrating, checking, the clock, resetting and closing."""

from __future__ import annotations

import asyncio

from oncron._clock import SECOND, wall_us
from oncron._model import RunFilter
from oncron._store import ReadableStore
from tests.contract.conftest import Connect
from tests.contract.given import at, declared, enqueued, new_run, picture, seen


async def test_migrating_again_changes_nothing(store: ReadableStore) -> None:
    await declared(store)
    await enqueued(store, now=at(0))
    before = await picture(store)

    await store.migrate()
    await store.migrate()

    await store.check()
    assert await picture(store) == before


async def test_many_replicas_may_migrate_at_once(connect_unmigrated: Connect) -> None:
    replicas = [connect_unmigrated() for _ in range(6)]
    for replica in replicas:
        await replica.open()
    try:
        await asyncio.gather(*(replica.migrate() for replica in replicas))

        for replica in replicas:
            await replica.check()
        await declared(replicas[0])
        assert (await seen(replicas[-1])).name == "report"
    finally:
        for replica in replicas:
            await replica.close()


async def test_the_clock_of_the_store_is_that_of_the_world_and_never_goes_back(store: ReadableStore) -> None:
    readings = [await store.now() for _ in range(20)]

    assert readings == sorted(readings)
    assert abs(readings[-1] - wall_us()) < 60 * SECOND


async def test_a_step_that_is_not_told_the_time_takes_it_from_the_clock_of_the_store(store: ReadableStore) -> None:
    [answer] = await store.enqueue([new_run()])
    after = await store.now()

    assert after - 60 * SECOND < answer.run.created_at <= after
    assert answer.run.due_at == answer.run.created_at


async def test_a_time_that_was_told_is_not_remembered(store: ReadableStore) -> None:
    far = 4_000_000_000 * SECOND
    await enqueued(store, now=far)

    assert await store.now() < far
    [answer] = await store.enqueue([new_run()])
    assert answer.run.created_at < far


async def test_two_sessions_see_what_the_other_wrote_at_once(store: ReadableStore, other: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))

    assert await other.get_run(run.id) == run


async def test_after_a_reset_the_next_call_works_and_nothing_is_lost(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))

    await store.reset()
    await store.reset()

    assert await store.get_run(run.id) == run
    await enqueued(store, now=at(1))


async def test_closing_twice_or_before_opening_is_harmless(connect: Connect, store: ReadableStore) -> None:
    never_opened = connect()
    await never_opened.close()
    twice = connect()
    await twice.open()
    await twice.close()
    await twice.close()

    assert await store.runs(RunFilter()) == []


async def test_a_closed_store_may_be_opened_again(connect: Connect, store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0))
    again = connect()
    await again.open()
    await again.close()
    await again.open()

    assert await again.get_run(run.id) == run
    await again.close()


async def test_the_address_of_a_store_is_told_without_a_password(store: ReadableStore) -> None:
    assert store.url
    assert "password" not in store.url


async def test_many_calls_at_once_on_one_session_do_not_disturb_each_other(store: ReadableStore) -> None:
    runs = await asyncio.gather(*(enqueued(store, now=at(n)) for n in range(50)))

    assert len({run.id for run in runs}) == 50
    found = await asyncio.gather(*(store.get_run(run.id) for run in runs))
    assert list(found) == list(runs)
