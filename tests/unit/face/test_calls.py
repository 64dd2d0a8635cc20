"""Enqueueing, firing, cancelling, retrying and reading, on an app that need not be started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncron import GiveUp, Oncron, every
from oncron.errors import (
    DefinitionError,
    InvalidArguments,
    InvalidOption,
    NotFound,
    Occupied,
    RunFailed,
    StoreUnavailable,
)


@pytest.fixture
def add(app: Oncron) -> Any:
    @app.task
    def add(a: int, b: int = 2) -> int:
        return a + b

    return add


async def later() -> int:
    return 1


def one_by_one() -> Iterator[int]:
    yield 1


async def one_by_one_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("work", [later, one_by_one, one_by_one_later])
async def test_a_plain_function_that_returns_work_not_done_has_failed(app: Oncron, work: Callable[[], Any]) -> None:
    @app.task(retries=5)
    def job() -> Any:
        return work()

    async with app:
        run = await job.enqueue()
        with pytest.raises(RunFailed, match=r"returned a .*, which nobody would run; write an async def"):
            await run.wait(10)
        assert (run.state, run.attempt) == ("failed", 1)


async def test_text_that_no_store_could_keep_is_refused_at_the_call(app: Oncron, add: Any) -> None:
    app.add_schedule("s", every(hours=1), add, args={"a": 1})
    bad = "a\ud800"
    for call, says in (
        (lambda: add.options(unique=bad).enqueue(1), "unique=.*U\\+D800"),
        (lambda: add.options(unique=lambda _args: bad).enqueue(1), "unique=.*U\\+D800"),
        (lambda: add.options(queue=bad).enqueue(1), "queue name"),
        (lambda: app.pause("s", note=bad), "note="),
        (lambda: app.fire("s", reason=bad), "reason="),
    ):
        with pytest.raises(InvalidOption, match=says):
            await call()
    assert await app.runs() == []


async def test_keys_that_become_one_in_json_are_refused_and_none_is_lost(app: Oncron) -> None:
    @app.task
    def job(x: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="two keys become the JSON key '1'") as refused:
        await job.enqueue({"deep": {1: 2, "1": 3}})
    assert refused.value.path == "$.x.deep.1"


async def test_an_app_that_was_never_started_enqueues(app: Oncron, add: Any) -> None:
    run = await add.enqueue(1)
    assert (run.state, run.is_new, run.attempt, run.args) == ("pending", True, 0, {"a": 1})
    assert [found.id for found in await app.runs(task="add")] == [run.id]
    assert run.due_at.tzinfo is UTC


def test_sync_code_enqueues_and_calls_anything(app: Oncron, add: Any) -> None:
    run = add.enqueue_sync(1, b=5)
    assert app.sync(app.get_run(run.id)).args == {"a": 1, "b": 5}


async def test_on_an_event_loop_sync_calls_raise_and_say_to_await(app: Oncron, add: Any) -> None:
    with pytest.raises(DefinitionError, match=r"await add.enqueue\(...\)"):
        add.enqueue_sync(1)
    with pytest.raises(DefinitionError, match="await"):
        app.sync(app.schedules())
    with pytest.raises(DefinitionError, match=r"await app.serve\(\)"):
        app.run()
    with pytest.raises(DefinitionError, match="async with app"):
        app.__enter__()


def test_sync_takes_a_coroutine(app: Oncron) -> None:
    with pytest.raises(InvalidOption, match="takes a coroutine"):
        app.sync(app.schedules)  # type: ignore[arg-type]


async def test_nothing_is_written_if_one_of_many_does_not_fit(app: Oncron, add: Any) -> None:
    with pytest.raises(InvalidArguments, match="item 1: task 'add'"):
        await add.enqueue_many([{"a": 1}, {"a": "x"}])
    with pytest.raises(InvalidArguments, match="mapping"):
        await add.enqueue_many([[1]])
    assert await app.runs() == []
    runs = await add.enqueue_many({"a": n} for n in range(2500))
    assert [run.args["a"] for run in runs] == list(range(2500))
    assert await add.enqueue_many([]) == []


# --- unique --------------------------------------------------------------------------------------


async def test_an_open_unique_key_answers_the_run_that_has_it(add: Any) -> None:
    first = await add.options(unique="k").enqueue(1)
    second = await add.options(unique="k").enqueue(2)
    other = await add.options(unique="l").enqueue(2)
    assert (second.id, second.is_new) == (first.id, False)
    assert other.is_new


async def test_a_unique_task_has_one_open_run_per_arguments(app: Oncron) -> None:
    @app.task(unique=True)
    def job(n: int) -> None: ...

    first = await job.enqueue(1)
    assert (await job.enqueue(n=1)).id == first.id
    assert (await job.enqueue(2)).is_new
    assert (await job.options(unique=False).enqueue(1)).is_new


async def test_a_unique_key_may_be_a_function_of_the_arguments(app: Oncron) -> None:
    @app.task(unique=lambda args: f"user:{args['user'] // 10}")
    def job(user: int) -> None: ...

    assert (await job.enqueue(11)).id == (await job.enqueue(19)).id
    assert (await job.enqueue(21)).is_new


async def test_unique_keys_of_two_tasks_are_two_keys(app: Oncron, add: Any) -> None:
    @app.task(unique="k")
    def other() -> None: ...

    await add.options(unique="k").enqueue(1)
    assert (await other.enqueue()).is_new


async def test_a_key_function_that_makes_no_text_is_refused(app: Oncron) -> None:
    @app.task(unique=lambda args: None)  # type: ignore[arg-type, return-value]
    def job() -> None: ...

    with pytest.raises(InvalidOption, match="makes a text"):
        await job.enqueue()


# --- options of a call ---------------------------------------------------------------------------


async def test_options_are_for_one_call_and_leave_the_task_alone(add: Any) -> None:
    other = add.options(queue="q", priority=3, retries=0, timeout=5, delay=60)
    run = await other.enqueue(1)
    assert (run.queue, run.priority, run.record.retries, run.record.timeout) == ("q", 3, 0, 5_000_000)
    assert run.due_at - datetime.now(UTC) > timedelta(seconds=50)
    assert (await add.enqueue(1)).queue == "default"


async def test_a_run_may_be_due_at_an_instant(add: Any) -> None:
    at = datetime(2099, 1, 1, tzinfo=UTC)
    assert (await add.options(at=at).enqueue(1)).due_at == at


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dellay": 3}, "did you mean delay"),
        ({"at": datetime(2099, 1, 1)}, "naive datetime"),
        ({"delay": -1}, "not negative"),
        ({"delay": 1, "at": datetime(2099, 1, 1, tzinfo=UTC)}, "give one"),
        ({"executor": "thread"}, "unknown option 'executor'"),
    ],
)
def test_an_option_that_a_call_cannot_have_is_refused(add: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        add.options(**options)


async def test_a_producer_without_the_code_enqueues_by_name(app: Oncron) -> None:
    run = await app.enqueue("elsewhere", args={"n": 1}, queue="mail", unique="k", retries=0)
    assert (run.task, run.args, run.queue, run.record.retries) == ("elsewhere", {"n": 1}, "mail", 0)
    assert not (await app.enqueue("elsewhere", args={"n": 2}, unique="k")).is_new
    with pytest.raises(InvalidArguments, match=r"task 'elsewhere': \$.n"):
        await app.enqueue("elsewhere", args={"n": object()})


async def test_by_name_a_known_task_checks_its_arguments(app: Oncron, add: Any) -> None:
    with pytest.raises(InvalidArguments, match="task 'add'"):
        await app.enqueue("add", args={"a": "x"})
    assert (await app.enqueue("add", args={"a": 1})).record.retries == 3


# --- schedules -----------------------------------------------------------------------------------


async def test_a_put_schedule_lives_in_the_store_until_it_is_removed(app: Oncron, add: Any) -> None:
    put = await app.put_schedule("s", every(hours=1), add, args={"a": 1}, tags=["t"], paused=True, overlap="allow")
    assert (put.name, put.task, put.args, put.paused, put.origin, put.tags) == (
        "s",
        "add",
        {"a": 1},
        True,
        "api",
        ("t",),
    )
    again = await app.put_schedule("s", every(hours=1), add, args={"a": 1}, tags=["t"], overlap="allow")
    assert again.revision == put.revision
    changed = await app.put_schedule("s", every(hours=2), add, args={"a": 1})
    assert changed.revision > put.revision
    assert [s.name for s in await app.schedules()] == ["s"]
    assert await app.schedules(tag="t") == []
    await app.remove_schedule("s")
    assert await app.schedules() == []
    with pytest.raises(NotFound, match="no schedule 's'"):
        await app.get_schedule("s")


async def test_a_schedule_is_paused_with_a_note_and_resumed(app: Oncron) -> None:
    await app.put_schedule("s", every(hours=1), "elsewhere")
    await app.pause("s", note="holiday")
    paused = await app.get_schedule("s")
    assert (paused.paused, paused.note, paused.next_at) == (True, "holiday", None)
    await app.resume("s")
    resumed = await app.get_schedule("s")
    assert resumed.status == "active"
    assert resumed.next_at is not None
    assert resumed.next_at > datetime.now(UTC)
    assert "hour" in resumed.describe()


@pytest.mark.parametrize("call", ["pause", "resume", "fire", "remove_schedule", "get_schedule"])
async def test_a_schedule_that_does_not_exist_is_not_found(app: Oncron, call: str) -> None:
    with pytest.raises(NotFound, match="no schedule 'ghost'"):
        await getattr(app, call)("ghost")


@pytest.mark.parametrize("call", ["cancel", "retry", "get_run"])
async def test_a_run_that_does_not_exist_is_not_found(app: Oncron, call: str) -> None:
    with pytest.raises(NotFound, match="no run 'ghost'"):
        await getattr(app, call)("ghost")
    with pytest.raises(NotFound, match="no run 'ghost'"):
        await app.runs(before="ghost")


async def test_fire_runs_a_paused_schedule_and_obeys_its_overlap(app: Oncron, add: Any) -> None:
    await app.put_schedule("s", every(hours=1), add, args={"a": 1}, queue="q")
    await app.pause("s")
    before = (await app.get_schedule("s")).cursor
    run = await app.fire("s", reason="by hand")
    assert (run.schedule, run.tick, run.args, run.queue, run.reason) == ("s", None, {"a": 1}, "q", "by hand")
    assert (await app.get_schedule("s")).cursor == before
    with pytest.raises(Occupied, match="has its place") as raised:
        await app.fire("s")
    assert raised.value.run.id == run.id


async def test_fire_with_a_taken_unique_key_is_occupied(app: Oncron, add: Any) -> None:
    await app.put_schedule("s", every(hours=1), add, args={"a": 1}, overlap="allow", unique="k")
    run = await app.fire("s")
    with pytest.raises(Occupied, match="has its unique key") as raised:
        await app.fire("s")
    assert raised.value.run.id == run.id


# --- runs ----------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_in_pages(app: Oncron, add: Any) -> None:
    ids = [(await add.enqueue(n)).id for n in range(5)]
    page = await app.runs(limit=2)
    rest = await app.runs(before=page[-1].id)
    assert [run.id for run in page + rest] == ids[::-1]
    assert await app.runs(state="running") == []
    assert await app.runs(since=datetime.now(UTC) + timedelta(days=1)) == []
    with pytest.raises(InvalidOption, match="'pending', 'running'"):
        await app.runs(state="waiting")
    with pytest.raises(InvalidOption, match="naive"):
        await app.runs(since=datetime(2026, 1, 1))
    with pytest.raises(InvalidOption, match="outside of the years 1 to 9999 in UTC"):
        await app.runs(since=datetime.fromisoformat("9999-12-31T23:59:59-14:00"))


async def test_cancel_ends_a_pending_run_and_retry_opens_it_again(app: Oncron, add: Any) -> None:
    run = await add.enqueue(1)
    assert (await app.cancel(run.id)).state == "cancelled"
    assert (await app.cancel(run.id)).state == "cancelled"
    again = await app.retry(run.id)
    assert (again.id, again.state, again.is_new) == (run.id, "pending", True)
    assert not (await app.retry(run.id)).is_new


async def test_wait_answers_the_typed_result(app: Oncron) -> None:
    @app.task
    def total(at: datetime) -> datetime:
        return at

    at = datetime(2026, 1, 1, tzinfo=UTC)
    async with app:
        run = await total.enqueue(at)
        assert await run.wait(10) == at
        assert (run.state, run.result) == ("succeeded", at)


async def test_wait_raises_for_a_run_that_failed_and_shows_it(app: Oncron) -> None:
    @app.task
    def job() -> None:
        raise GiveUp("no such customer")

    async with app:
        run = await job.enqueue()
        with pytest.raises(RunFailed, match="ended as failed: no such customer") as raised:
            await run.wait(10)
    assert raised.value.run is run
    assert run.error is not None
    assert "GiveUp" in run.error


async def test_wait_gives_up_in_time_and_the_run_goes_on(add: Any) -> None:
    run = await add.enqueue(1)
    with pytest.raises(TimeoutError, match=r"has not ended within 0.05 s"):
        await run.wait(0.05)
    assert run.state == "pending"


async def test_two_apps_wait_for_one_another(make_app: Callable[..., Oncron]) -> None:
    worker = make_app()
    producer = make_app()
    producer._open = worker._open

    @worker.task
    def double(n: int) -> int:
        return n * 2

    async with worker:
        run = await producer.enqueue("double", args={"n": 4})
        assert await run.wait(10) == 8


async def test_stats_tell_the_store_at_a_glance(app: Oncron, add: Any) -> None:
    await add.enqueue(1)
    await app.put_schedule("s", every(hours=1), add, args={"a": 1})
    stats = await app.stats()
    assert (stats.runs["pending"], stats.schedules["active"], stats.overdue, stats.workers) == (1, 1, 0, ())
    assert [(queue.name, queue.ready) for queue in stats.queues] == [("default", 1)]


async def test_a_store_that_cannot_be_reached_is_said_by_name(
    make_app: Callable[..., Oncron], monkeypatch: pytest.MonkeyPatch
) -> None:
    from oncron._engine import engine as engines
    from oncron.stores import postgres  # it takes the deadline when it is imported: never this one

    assert postgres
    monkeypatch.setattr(engines.limits, "CALL_DEADLINE", 200_000)
    app = make_app("postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(StoreUnavailable, match=r"127.0.0.1"):
        await asyncio.wait_for(app.schedules(), 20)
