"""Effects exactly once: what a task writes commits with the end of its run; what code enqueues, with its own writes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import Any

import pytest

from oncron import Event, Oncron, RunContext, current_run
from oncron._clock import SECOND
from oncron._model import ClaimSpec, Outcome, OutcomeKind, RunRecord, new_id
from oncron._store import ReadableStore
from oncron.backoff import fixed
from oncron.errors import DefinitionError, LeaseLost, NotSupported, RunFailed, Stopped, StoreUnavailable

on_databases = pytest.mark.parametrize("replica", ["sqlite", "postgresql"], indirect=True)


class Shop:
    """The user's tables, in the database where the app's store is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.mark = "?" if url.startswith("sqlite") else "%s"
        with self.connected() as connection:
            connection.execute("drop table if exists orders")
            connection.execute("create table orders (item text not null)")
            connection.commit()

    @contextmanager
    def connected(self) -> Any:
        if self._url.startswith("sqlite"):
            connection: Any = sqlite3.connect(self._url.removeprefix("sqlite:///"))
        else:
            import psycopg

            connection = psycopg.connect(self._url)
        try:
            yield connection
        finally:
            connection.close()

    @property
    def insert(self) -> str:
        return f"insert into orders values ({self.mark})"

    def orders(self) -> list[str]:
        with self.connected() as connection:
            return sorted(item for (item,) in connection.execute("select item from orders").fetchall())


@pytest.fixture
def shop(app: Oncron) -> Shop:
    return Shop(app._open.url)


@on_databases
async def test_what_a_task_writes_commits_with_the_end_of_its_run(app: Oncron, shop: Shop) -> None:
    @app.task
    def order(ctx: RunContext, item: str) -> None:
        with ctx.transaction() as connection:
            connection.execute(shop.insert, (item,))

    async with app:
        run = await order.enqueue("tea")
        await run.wait(10)

    assert shop.orders() == ["tea"]
    assert (await app.get_run(run.id)).state == "succeeded"


@on_databases
async def test_async_tasks_write_through_an_async_connection(app: Oncron, shop: Shop) -> None:
    @app.task
    async def order(ctx: RunContext, item: str) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(shop.insert, (item,))
            rows = await connection.execute("select item from orders")
            assert await rows.fetchone() == (item,)

    async with app:
        await (await order.enqueue("tea")).wait(10)

    assert shop.orders() == ["tea"]


@on_databases
async def test_an_error_undoes_what_was_written_and_the_retry_writes_it_once(app: Oncron, shop: Shop) -> None:
    @app.task(backoff=fixed(0))
    def order(ctx: RunContext) -> None:
        with ctx.transaction() as connection:
            connection.execute(shop.insert, ("tea",))
            if ctx.attempt == 1:
                raise ConnectionError

    async with app:
        run = await order.enqueue()
        await run.wait(10)

    assert shop.orders() == ["tea"]
    assert (await app.get_run(run.id)).attempt == 2


@on_databases
async def test_what_is_said_and_enqueued_until_then_commits_too(app: Oncron, shop: Shop) -> None:
    @app.task
    def pack(item: str) -> str:
        return f"packed {item}"

    @app.task(backoff=fixed(0))
    def order(ctx: RunContext, item: str) -> None:
        ctx.checkpoint({"seen": ctx.attempt})
        ctx.enqueue(pack, item)
        with ctx.transaction() as connection:
            connection.execute(shop.insert, (item,))
            ctx.progress(1, 1, "done")
            if ctx.attempt == 1:
                raise ConnectionError

    async with app:
        run = await order.enqueue("tea")
        await run.wait(10)
        [packed] = await app.runs(task="pack")
        assert await packed.wait(10) == "packed tea"

    record = (await app.get_run(run.id))._record
    assert (record.checkpoint, record.progress) == ('{"seen":2}', '{"done":1,"total":1,"note":"done"}')


@on_databases
async def test_a_transaction_comes_once_and_last(app: Oncron, shop: Shop) -> None:
    said: dict[str, str] = {}

    def complaint(call: Callable[[], object]) -> str:
        with pytest.raises(DefinitionError) as told:
            call()
        return str(told.value)

    @app.task
    def order(ctx: RunContext) -> str:
        with ctx.transaction() as connection:
            connection.execute(shop.insert, ("tea",))
        said["progress"] = complaint(lambda: ctx.progress(1))
        said["checkpoint"] = complaint(lambda: ctx.checkpoint(1))
        said["enqueue"] = complaint(lambda: ctx.enqueue(order))
        said["again"] = complaint(ctx.transaction().__enter__)
        return "not kept"

    async with app:
        run = await order.enqueue()
        assert await run.wait(10) is None

    assert "comes once in a run, and last" in said.pop("again")
    assert all("after ctx.transaction(), which has ended the run" in each for each in said.values())
    assert shop.orders() == ["tea"]


@on_databases
async def test_an_error_after_the_transaction_changes_nothing(app: Oncron, shop: Shop) -> None:
    @app.task(retries=0)
    def order(ctx: RunContext) -> None:
        with ctx.transaction() as connection:
            connection.execute(shop.insert, ("tea",))
        raise ZeroDivisionError

    async with app:
        run = await order.enqueue()
        await run.wait(10)

    assert (shop.orders(), (await app.get_run(run.id)).error) == (["tea"], None)


@on_databases
async def test_a_worker_whose_run_was_taken_over_cannot_commit(app: Oncron, shop: Shop) -> None:
    taken_over, loop = threading.Event(), asyncio.get_running_loop()
    begun, told = asyncio.Event(), loop.create_future()

    @app.task
    def order(ctx: RunContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert taken_over.wait(10)
        try:
            with ctx.transaction() as connection:
                connection.execute(shop.insert, ("of the first worker",))
        except LeaseLost as error:
            loop.call_soon_threadsafe(told.set_result, str(error))
            raise

    async def take_over(store: ReadableStore) -> RunRecord:
        """What another worker does once the lease has run out."""
        later = await store.now() + 3600 * SECOND
        while not (reaped := (await store.reap(now=later)).runs):
            pass  # it waits for no lock: a heartbeat was at it
        spec = ClaimSpec(claim_id=new_id(), worker="another", limit=1, lease_for=3 * SECOND, tasks=("order",))
        while not (runs := (await store.claim(spec, now=reaped[0].due_at)).runs):
            pass
        return runs[0]

    async with app:
        run = await order.enqueue()
        await begun.wait()
        mine = await asyncio.wrap_future(app._life.engine.call(take_over))
        taken_over.set()
        assert "is no longer yours" in await asyncio.wait_for(told, 10)
        async with app._desk.transactions.transaction_async(within=SECOND) as connection:
            await connection.execute(shop.insert, ("of the second",))
            outcome = Outcome(run_id=mine.id, token=mine.token, kind=OutcomeKind.SUCCEEDED)
            await app._desk.transactions.finish_in_async(connection, outcome)
        await run.wait(10)

    assert shop.orders() == ["of the second"]


class AnswersLost:
    """A store whose commits are done and whose callers are told that the connection was lost."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self, *, within: int) -> Any:
        with self._store.transaction(within=within) as connection:
            yield connection
        self.lost += 1
        raise StoreUnavailable("the connection was lost during a commit")


@on_databases
async def test_a_commit_whose_answer_was_lost_is_not_repeated(app: Oncron, shop: Shop) -> None:
    @app.task(backoff=fixed(0))
    def order(ctx: RunContext) -> None:
        with ctx.transaction() as connection:
            connection.execute(shop.insert, ("tea",))

    line = AnswersLost(app._life.engine.transactions)
    app._life.engine._apart = line  # type: ignore[assignment]
    async with app:
        run = await order.enqueue()
        await run.wait(10)

    assert (shop.orders(), line.lost) == (["tea"], 1)
    assert ((await app.get_run(run.id)).state, (await app.get_run(run.id)).attempt) == ("succeeded", 1)


@on_databases
async def test_a_heartbeat_after_the_commit_does_not_disturb_the_task(
    app: Oncron, shop: Shop, heard: Callable[[str], Awaitable[Event]]
) -> None:
    committed, go_on, lost = asyncio.Event(), asyncio.Event(), []
    app.on("lease.lost")(lost.append)

    @app.task
    async def order(ctx: RunContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(shop.insert, ("tea",))
        committed.set()
        await go_on.wait()

    async with app:
        run = await order.enqueue()
        await committed.wait()
        engine = app._life.engine
        replica = engine._replica
        assert replica is not None
        pulse = await asyncio.wrap_future(engine._submit(replica._keeper.once()))
        assert pulse.lost == (run.id,)
        go_on.set()
        assert (await heard("run.succeeded")).run == run.id

    assert lost == []


@on_databases
async def test_a_run_that_waits_for_the_place_begins_when_it_is_free(app: Oncron, shop: Shop) -> None:
    """Its end is told by the transaction, not by the worker."""
    order = asyncio.Queue[int]()

    @app.task(max_running=1)
    async def one_by_one(ctx: RunContext, number: int) -> None:
        async with ctx.transaction():
            await order.put(number)

    async with app:
        runs = await one_by_one.enqueue_many([{"number": n} for n in range(5)])
        async with asyncio.timeout(20):
            for run in runs:
                await run.wait()
    assert order.qsize() == 5


@on_databases
async def test_the_end_may_join_the_tasks_own_transaction(app: Oncron, shop: Shop) -> None:
    @app.task
    def order(ctx: RunContext, item: str, keep: bool) -> None:
        with shop.connected() as mine:
            mine.execute(shop.insert, (item,))
            with ctx.transaction(connection=mine) as same:
                assert same is mine
                same.execute(shop.insert, (f"more {item}",))
            if keep:
                mine.commit()
            else:
                mine.rollback()
                raise ZeroDivisionError

    async with app:
        kept = await order.options(retries=0).enqueue("tea", keep=True)
        await kept.wait(10)
        dropped = await order.options(retries=0).enqueue("milk", keep=False)
        with pytest.raises(RunFailed):
            await dropped.wait(10)

    assert shop.orders() == ["more tea", "tea"]


@on_databases
async def test_code_that_a_task_calls_finds_the_transaction_by_the_current_run(app: Oncron, shop: Shop) -> None:
    def save(item: str) -> None:
        with current_run().transaction() as connection:
            connection.execute(shop.insert, (item,))

    @app.task
    def order(item: str) -> None:
        save(item)

    async with app:
        await (await order.enqueue("tea")).wait(10)
    assert shop.orders() == ["tea"]


@on_databases
async def test_a_loop_is_not_blocked_by_mistake(app: Oncron) -> None:
    @app.task(retries=0)
    async def order(ctx: RunContext) -> None:
        with ctx.transaction():
            pass

    async with app:
        with pytest.raises(RunFailed, match="write `async with"):
            await (await order.enqueue()).wait(10)


@pytest.mark.parametrize("replica", ["memory"], indirect=True)
async def test_a_store_without_transactions_says_so(app: Oncron) -> None:
    @app.task(retries=0)
    async def order(ctx: RunContext) -> None:
        async with ctx.transaction():
            pass

    async with app:
        with pytest.raises(RunFailed, match=r"condition them on ctx\.token"):
            await (await order.enqueue()).wait(10)
        with pytest.raises(NotSupported):
            await order.options(connection=object()).enqueue()


# --- enqueueing inside the caller's transaction ----------------------------------------------


@on_databases
async def test_a_run_is_enqueued_if_and_only_if_the_caller_commits(app: Oncron, shop: Shop) -> None:
    @app.task
    def send(to: str) -> str:
        return f"sent to {to}"

    def sign_up(name: str, *, keep: bool) -> str:
        with shop.connected() as connection:
            connection.execute(shop.insert, (name,))
            run = send.options(connection=connection).enqueue_sync(name)
            connection.commit() if keep else connection.rollback()
            return run.id

    async with app:
        kept = await asyncio.to_thread(sign_up, "ann", keep=True)
        dropped = await asyncio.to_thread(sign_up, "bob", keep=False)
        assert await (await app.get_run(kept)).wait(10) == "sent to ann"

    assert shop.orders() == ["ann"]
    assert [run.id for run in await app.runs()] == [kept]
    assert dropped != kept


@on_databases
async def test_many_runs_and_runs_by_name_join_too(app: Oncron, shop: Shop) -> None:
    @app.task
    def send(to: str) -> None: ...

    await app.stats()  # the tables have to be there: whoever is started, or `oncron migrate`, makes them
    with shop.connected() as connection:
        joined = send.options(connection=connection)
        runs = await joined.enqueue_many([{"to": "ann"}, {"to": "bob"}])
        runs.append(await joined.options(delay=60).enqueue("eve"))
        runs.append(await app.enqueue("elsewhere", args={"x": 1}, connection=connection))
        assert await app.runs() == []
        connection.commit()

    assert {run.id for run in await app.runs()} == {run.id for run in runs}


@on_databases
async def test_an_app_that_was_stopped_enqueues_no_more(app: Oncron, shop: Shop) -> None:
    @app.task
    def send() -> None: ...

    async with app:
        pass
    with shop.connected() as connection, pytest.raises(Stopped):
        await send.options(connection=connection).enqueue()
