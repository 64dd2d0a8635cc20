"""Callers' connections as SQLAlchemy and Django hold them: the real ones, on each store's database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from oncron._model import RunState
from oncron._store import ReadableStore
from oncron.errors import DefinitionError, NotSupported
from tests.contract.effects import Effects, off_loop
from tests.contract.given import at, claimed, enqueued, new_run, outcome, run_now

sqlalchemy = pytest.importorskip("sqlalchemy", reason="callers' connections: pip install sqlalchemy")
django = pytest.importorskip("django", reason="callers' connections: pip install django")

pytestmark = pytest.mark.parametrize("connect", ["sqlite", "postgres"], indirect=True)
INSERT = sqlalchemy.text("insert into effects (note) values (:note)")


async def ids(store: ReadableStore, *runs: Any) -> list[str]:
    return [run.id for run in await store.get_runs([new.id for new in runs])]


@pytest.fixture
def engine(effects: Effects) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(effects.of_sqlalchemy())
    yield engine
    engine.dispose()


async def test_a_connection_of_sqlalchemy(store: ReadableStore, effects: Effects, engine: Any) -> None:
    kept, dropped = new_run(), new_run()
    with engine.connect() as connection:
        with connection.begin() as transaction:
            connection.execute(INSERT, {"note": "no"})
            store.enqueue_in(connection, [dropped])
            transaction.rollback()
        with connection.begin():
            store.enqueue_in(connection, [kept])
            connection.execute(INSERT, {"note": "yes"})
            assert await ids(store, kept) == []

    assert (await ids(store, kept, dropped), effects.notes()) == ([kept.id], ["yes"])


async def test_an_enqueueing_alone_in_a_transaction_of_sqlalchemy_is_kept(store: ReadableStore, engine: Any) -> None:
    new = new_run()
    with engine.begin() as connection:
        store.enqueue_in(connection, [new])
    assert await ids(store, new) == [new.id]


async def test_a_connection_of_sqlalchemy_that_has_not_begun_is_refused(store: ReadableStore, engine: Any) -> None:
    with engine.connect() as connection, pytest.raises(DefinitionError, match=r"engine\.begin\(\)"):
        store.enqueue_in(connection, [new_run()])
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.begin() as connection, pytest.raises(DefinitionError, match="no transaction is open"):
        store.enqueue_in(connection, [new_run()])


async def test_a_session_of_sqlalchemy(store: ReadableStore, effects: Effects, engine: Any) -> None:
    from sqlalchemy.orm import Session, scoped_session, sessionmaker

    kept, dropped, third = new_run(), new_run(), new_run()
    with Session(engine) as session:
        session.execute(INSERT, {"note": "no"})
        store.enqueue_in(session, [dropped])
        session.rollback()
        store.enqueue_in(session, [kept])
        session.execute(INSERT, {"note": "yes"})
        session.commit()
    scoped = scoped_session(sessionmaker(engine))
    store.enqueue_in(scoped, [third])
    scoped.commit()
    scoped.remove()

    assert set(await ids(store, kept, dropped, third)) == {kept.id, third.id}
    assert effects.notes() == ["yes"]


async def test_an_async_connection_and_session_of_sqlalchemy(store: ReadableStore, effects: Effects) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    kept, dropped, run = new_run(), new_run(), await a_claimed_run(store)
    engine = create_async_engine(effects.of_sqlalchemy("async"))
    try:
        async with engine.begin() as connection:
            await connection.execute(INSERT, {"note": "first"})
            await store.enqueue_in_async(connection, [kept])
        async with AsyncSession(engine) as session:
            await store.enqueue_in_async(session, [dropped])
            await session.rollback()
            await session.execute(INSERT, {"note": "second"})
            await store.finish_in_async(session, outcome(run))
            await session.commit()
        async with engine.connect() as connection:
            with pytest.raises(DefinitionError, match="no transaction is open"):
                await store.enqueue_in_async(connection, [new_run()])
            await connection.begin()
            with pytest.raises(DefinitionError, match="has to be awaited"):
                store.enqueue_in(connection, [new_run()])
    finally:
        await engine.dispose()

    assert (await ids(store, kept, dropped), effects.notes()) == ([kept.id], ["first", "second"])
    assert (await run_now(store, run.id)).state is RunState.SUCCEEDED


async def a_claimed_run(store: ReadableStore) -> Any:
    await enqueued(store, now=at(0))
    return await claimed(store, now=at(1))


async def test_the_end_of_a_run_joins_a_session_of_sqlalchemy(
    store: ReadableStore, effects: Effects, engine: Any
) -> None:
    from sqlalchemy.orm import Session

    run = await a_claimed_run(store)
    with Session(engine) as session:
        session.execute(INSERT, {"note": "paid"})
        store.finish_in(session, outcome(run))
        session.commit()
    assert ((await run_now(store, run.id)).state, effects.notes()) == (RunState.SUCCEEDED, ["paid"])


async def test_a_driver_that_is_not_the_stores_is_refused(store: ReadableStore, effects: Effects) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as connection, pytest.raises(NotSupported):
        store.enqueue_in(connection, [new_run()])
    engine.dispose()


@pytest.fixture
def of_django(effects: Effects) -> str:
    """The alias of a database of Django's."""
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    alias = f"of_{effects.kind}"
    if effects.kind == "sqlite":
        database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": effects.place}
    else:
        host, _, name = effects.place.rpartition("@")[2].partition("/")
        address, _, port = host.partition(":")
        database = {
            "ENGINE": "django.db.backends.postgresql", "HOST": address, "PORT": port, "NAME": name, "USER": "oncron",
        }  # fmt: skip
    connections.settings = {"default": connections.settings["default"], alias: database}
    connections.configure_settings(connections.settings)
    return alias


async def test_a_connection_of_django(store: ReadableStore, effects: Effects, of_django: str) -> None:
    from django.db import connections, transaction

    kept, dropped, nested, run = new_run(), new_run(), new_run(), await a_claimed_run(store)

    def note(connection: Any, text: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("insert into effects (note) values (%s)", [text])

    def fail(connection: Any, new: Any) -> None:
        with transaction.atomic(using=of_django):
            note(connection, "no")
            store.enqueue_in(connection, [new])
            raise ZeroDivisionError

    def view() -> None:
        connection = connections[of_django]
        try:
            with pytest.raises(DefinitionError, match="no transaction is open"):
                store.enqueue_in(connection, [new_run()])
            with pytest.raises(ZeroDivisionError):
                fail(connection, dropped)
            with transaction.atomic(using=of_django):
                store.enqueue_in(connection, [kept])
                note(connection, "yes")
                with pytest.raises(ZeroDivisionError):
                    fail(connection, nested)
            with transaction.atomic(using=of_django):
                note(connection, "paid")
                store.finish_in(connection, outcome(run))
        finally:
            connection.close()

    await off_loop(view)

    assert (await ids(store, kept, dropped, nested), effects.notes()) == ([kept.id], ["paid", "yes"])
    assert (await run_now(store, run.id)).state is RunState.SUCCEEDED


async def test_a_question_tells_when_the_callers_transaction_is_over(
    store: ReadableStore, effects: Effects, engine: Any
) -> None:
    if effects.kind == "sqlite":
        assert store.still_open(object()) is None
        return
    with effects.connected() as connection:
        store.enqueue_in(connection, [new_run()])
        still_open = store.still_open(connection)
        assert still_open is not None
        assert await asyncio.to_thread(still_open)
        connection.commit()
        assert not still_open()
    with engine.connect() as connection, connection.begin():
        store.enqueue_in(connection, [new_run()])
        still_open = store.still_open(connection)
        assert still_open()
    assert not still_open()
