"""`register` and `unheld`: who still declares which schedules, so that what nobody declares can go dormant."""

from __future__ import annotations

from oncron._model import Status
from oncron._store import ReadableStore
from tests.contract.given import at, changed, declared, seen

HOUR = 3600


async def test_a_set_is_written_once_and_noted_again_by_its_id(store: ReadableStore) -> None:
    assert not await store.register("set-1", None, now=at(0)), "nobody has told its names yet"
    assert await store.register("set-1", ["report"], now=at(1))
    assert await store.register("set-1", None, now=at(2))


async def test_a_schedule_that_some_noted_set_holds_is_held(store: ReadableStore) -> None:
    await declared(store, "report", now=at(0))
    await store.register("old", ["report", "other"], now=at(1))
    await store.register("new", ["other"], now=at(2 * HOUR))

    assert await store.unheld(at(1), now=at(HOUR)) == [], "noted at that very instant"
    assert await store.unheld(at(HOUR), now=at(2 * HOUR)) == ["report"]


async def test_a_set_that_was_noted_again_holds_on(store: ReadableStore) -> None:
    await declared(store, "report", now=at(0))
    await store.register("set", ["report"], now=at(1))
    await store.register("set", None, now=at(2 * HOUR))
    assert await store.unheld(at(HOUR), now=at(3 * HOUR)) == []


async def test_a_set_noted_last_before_the_instant_is_forgotten(store: ReadableStore) -> None:
    await store.register("set", ["report"], now=at(1))
    await store.unheld(at(HOUR), now=at(2 * HOUR))
    assert not await store.register("set", None, now=at(2 * HOUR))


async def test_only_active_schedules_of_code_that_have_not_changed_since_are_told(store: ReadableStore) -> None:
    await declared(store, "b-report", now=at(0))
    await declared(store, "a-report", now=at(0))
    await declared(store, "put", now=at(0), origin="api")
    await declared(store, "paused", now=at(0), status=Status.PAUSED)
    await declared(store, "young", now=at(2 * HOUR))
    touched = await declared(store, "touched", now=at(0))
    await changed(store, touched, now=at(2 * HOUR), queue="slow")

    assert await store.unheld(at(HOUR), now=at(3 * HOUR)) == ["a-report", "b-report"]
    assert await store.unheld(at(HOUR), limit=1, now=at(3 * HOUR)) == ["a-report"]


async def test_names_of_any_language_come_back_as_they_were(store: ReadableStore) -> None:
    names = ["日報", "naïve-café", "O'Brien; --", "a:b"]
    for name in names:
        await declared(store, name, now=at(0))
    await store.register("set", names[:1], now=at(HOUR))
    assert set(await store.unheld(at(HOUR), now=at(2 * HOUR))) == set(names[1:])


async def test_the_row_knows_the_definition_before_its_newest_change(store: ReadableStore) -> None:
    first = await declared(store, now=at(0))
    assert first.previous == ""
    await changed(store, first, now=at(1), queue="slow")
    second = await seen(store)
    assert second.previous == first.definition.digest()
    await changed(store, second, now=at(2), status=Status.PAUSED)
    paused = await seen(store)
    assert paused.previous == first.definition.digest(), "a pause changes no definition"
    await changed(store, paused, now=at(3), queue="default")
    assert (await seen(store)).previous == second.definition.digest()
