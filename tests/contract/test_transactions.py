"""`Transactions`: what a task writes, and the end of its run, commit together or not at all; so do a caller's
writes and the runs that it enqueues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncron._model import (
    EnqueueResult,
    FinishResult,
    FinishStatus,
    NewRun,
    Outcome,
    OutcomeKind,
    RunRecord,
    RunState,
    new_id,
)
from oncron._store import ReadableStore
from oncron.errors import DefinitionError, LeaseLost, NotFound, NotSupported
from oncron.stores import _caller
from oncron.stores.memory import MemoryStore
from tests.contract.conftest import Connect
from tests.contract.effects import WITHIN, Effects, off_loop
from tests.contract.given import at, claim, claimed, declared, enqueue, enqueued, fired, new_run, outcome, run_now
from tests.contract.race import Racers, rounds

pytestmark = pytest.mark.parametrize("connect", ["sqlite", "postgres"], indirect=True)


async def a_claimed_run(store: ReadableStore, **options: Any) -> RunRecord:
    await enqueued(store, now=at(0), **options)
    return await claimed(store, now=at(1))


def end_with_a_note(
    store: ReadableStore, effects: Effects, run: RunRecord, note: str = "paid", **fields: Any
) -> FinishStatus:
    """What a sync task does in `with ctx.transaction()`."""
    with store.transaction(within=WITHIN) as connection:
        connection.execute(effects.insert, [note])
        return store.finish_in(connection, outcome(run, **fields)).status


async def end_with_a_note_async(
    store: ReadableStore, effects: Effects, run: RunRecord, note: str = "paid", **fields: Any
) -> FinishStatus:
    async with store.transaction_async(within=WITHIN) as connection:
        await connection.execute(effects.insert, [note])
        return (await store.finish_in_async(connection, outcome(run, **fields))).status


async def taken_over(store: ReadableStore) -> tuple[RunRecord, RunRecord]:
    """A run as its first holder knows it, and as the worker that took it over does."""
    old = await a_claimed_run(store)
    [reaped] = (await store.reap(now=at(3600))).runs
    new = await claimed(store, "w2", now=reaped.due_at)
    assert (new.id, new.token > old.token) == (old.id, True)
    return old, new


# --- the end of a run ------------------------------------------------------------------------


async def test_the_writes_and_the_end_of_the_run_commit_together(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)

    status = await off_loop(lambda: end_with_a_note(store, effects, run, progress="3/3", checkpoint="[3]", log="one"))

    assert status is FinishStatus.RECORDED
    assert effects.notes() == ["paid"]
    ended = await run_now(store, run.id)
    assert (ended.state, ended.progress, ended.checkpoint) == (RunState.SUCCEEDED, "3/3", "[3]")
    assert ended.log == "one"


async def test_with_an_async_connection_too(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)

    assert await end_with_a_note_async(store, effects, run) is FinishStatus.RECORDED

    assert effects.notes() == ["paid"]
    assert (await run_now(store, run.id)).state is RunState.SUCCEEDED


async def test_an_exception_rolls_both_back(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)

    def fail() -> None:
        with store.transaction(within=WITHIN) as connection:
            connection.execute(effects.insert, ["paid"])
            store.finish_in(connection, outcome(run))
            raise ZeroDivisionError

    async def fail_async() -> None:
        async with store.transaction_async(within=WITHIN) as connection:
            await connection.execute(effects.insert, ["paid"])
            await store.finish_in_async(connection, outcome(run))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await off_loop(fail)
    with pytest.raises(ZeroDivisionError):
        await fail_async()

    assert effects.notes() == []
    assert (await run_now(store, run.id)).state is RunState.RUNNING
    assert await off_loop(lambda: end_with_a_note(store, effects, run)) is FinishStatus.RECORDED


async def test_a_statement_that_fails_rolls_both_back(store: ReadableStore, effects: Effects) -> None:
    first, second = await a_claimed_run(store), await a_claimed_run(store)
    await off_loop(lambda: end_with_a_note(store, effects, first))

    with pytest.raises(Exception, match=r"(?i)unique"):
        await off_loop(lambda: end_with_a_note(store, effects, second))

    assert (await run_now(store, second.id)).state is RunState.RUNNING


async def test_a_cancelled_block_rolls_both_back(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)
    inside = asyncio.Event()

    async def hang() -> None:
        async with store.transaction_async(within=WITHIN) as connection:
            await connection.execute(effects.insert, ["paid"])
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert effects.notes() == []
    assert await end_with_a_note_async(store, effects, run) is FinishStatus.RECORDED


async def test_a_stale_token_commits_nothing(store: ReadableStore, effects: Effects) -> None:
    old, new = await taken_over(store)

    with pytest.raises(LeaseLost, match="no longer yours"):
        await off_loop(lambda: end_with_a_note(store, effects, old, "of the old holder"))
    with pytest.raises(LeaseLost):
        await end_with_a_note_async(store, effects, old, "of the old holder")

    await off_loop(lambda: end_with_a_note(store, effects, new, "of the new one"))
    assert effects.notes() == ["of the new one"]


async def test_a_run_that_nobody_knows_commits_nothing(store: ReadableStore, effects: Effects) -> None:
    stranger = RunRecord(id=new_id(), task="send", due_at=0, created_at=0, token=1)

    with pytest.raises(LeaseLost):
        await off_loop(lambda: end_with_a_note(store, effects, stranger))

    assert effects.notes() == []


async def test_an_end_that_is_on_record_commits_nothing_again(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)
    await off_loop(lambda: end_with_a_note(store, effects, run, "once"))

    with pytest.raises(LeaseLost, match="has ended already"):
        await off_loop(lambda: end_with_a_note(store, effects, run, "twice"))

    assert effects.notes() == ["once"]


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.FAILED, OutcomeKind.RELEASED])
async def test_a_finish_after_a_commit_whose_answer_was_lost_is_told_of_the_success(
    store: ReadableStore, effects: Effects, kind: OutcomeKind
) -> None:
    run = await a_claimed_run(store)
    await off_loop(lambda: end_with_a_note(store, effects, run))

    [answer] = await store.finish([outcome(run, kind, error="the connection was lost")])

    assert (answer.status, answer.state) == (FinishStatus.REPEATED, RunState.SUCCEEDED)
    assert (await run_now(store, run.id)).error is None


async def test_what_the_run_enqueues_is_written_with_its_end_and_only_then(
    store: ReadableStore, effects: Effects
) -> None:
    run = await a_claimed_run(store)
    following = new_run("follow")

    def fail() -> None:
        with store.transaction(within=WITHIN) as connection:
            store.finish_in(connection, outcome(run, enqueue=(following,)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await off_loop(fail)
    assert await store.get_run(following.id) is None

    await off_loop(lambda: end_with_a_note(store, effects, run, enqueue=(following,)))
    await store.finish([outcome(run, enqueue=(following, new_run("follow")))])

    assert [found.id for found in (await claim(store, now=2**60, tasks=("follow",))).runs] == [following.id]


async def test_the_end_of_a_transaction_frees_the_place_of_the_schedule(store: ReadableStore, effects: Effects) -> None:
    await declared(store, overlap="queue")
    await fired(store, at(1))
    await fired(store, at(2))
    first = await claimed(store, now=at(3))

    await off_loop(lambda: end_with_a_note(store, effects, first))

    assert (await claimed(store, now=at(4))).tick == at(2)


async def test_a_run_that_was_asked_to_cancel_may_still_commit(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)
    await store.cancel(run.id, now=at(2))

    await off_loop(lambda: end_with_a_note(store, effects, run))

    assert (effects.notes(), (await run_now(store, run.id)).state) == (["paid"], RunState.SUCCEEDED)


async def test_of_an_old_holder_and_the_one_that_takes_over_one_commits(
    store: ReadableStore, racers: Racers, effects: Effects
) -> None:
    expected: list[str] = []
    for turn, head_start in rounds():
        run = await a_claimed_run(store)

        async def hold(session: ReadableStore, run: RunRecord = run, turn: int = turn) -> bool:
            try:
                await off_loop(lambda: end_with_a_note(session, effects, run, f"{turn} old"))
            except LeaseLost:
                return False
            return True

        async def take_over(session: ReadableStore, turn: int = turn) -> bool:
            if not (await session.reap(now=at(3600))).runs:
                return False
            while not (runs := (await claim(session, f"w{turn}", now=2**60)).runs):
                pass  # a claim waits for no lock: that of a holder who is about to be told
            await off_loop(lambda: end_with_a_note(session, effects, runs[0], f"{turn} new"))
            return True

        held, took = await racers.race(hold, take_over, head_start=head_start)

        assert held is not took
        expected.append(f"{turn} old" if held else f"{turn} new")
        assert (await run_now(store, run.id)).state is RunState.SUCCEEDED
    assert effects.notes() == sorted(expected)


# --- a caller's own transaction --------------------------------------------------------------


async def test_an_end_joins_the_callers_own_transaction(store: ReadableStore, effects: Effects) -> None:
    run = await a_claimed_run(store)
    with effects.connected() as connection:
        connection.execute(effects.insert, ["paid"])
        store.finish_in(connection, outcome(run))
        assert (await run_now(store, run.id)).state is RunState.RUNNING
        connection.rollback()
        assert (await run_now(store, run.id)).state is RunState.RUNNING

        connection.execute(effects.insert, ["paid"])
        store.finish_in(connection, outcome(run))
        connection.commit()

    assert (await run_now(store, run.id)).state is RunState.SUCCEEDED
    assert effects.notes() == ["paid"]


async def test_what_is_enqueued_exists_when_the_caller_has_committed(store: ReadableStore, effects: Effects) -> None:
    wanted = [new_run(), new_run()]
    with effects.connected() as connection:
        connection.execute(effects.insert, ["ordered"])
        results = store.enqueue_in(connection, wanted)
        assert [(result.run.id, result.is_new) for result in results] == [(new.id, True) for new in wanted]
        assert await store.get_runs([new.id for new in wanted]) == []
        connection.commit()

    kept = {run.id: run for run in await store.get_runs([new.id for new in wanted])}
    assert [kept[new.id] for new in wanted] == [result.run for result in results]
    assert effects.notes() == ["ordered"]


async def test_what_is_rolled_back_leaves_nothing(store: ReadableStore, effects: Effects) -> None:
    new = new_run(unique="once")
    with effects.connected() as connection:
        connection.execute(effects.insert, ["ordered"])
        store.enqueue_in(connection, [new])
        connection.rollback()

    assert await store.get_run(new.id) is None
    assert effects.notes() == []
    assert (await enqueue(store, unique="once", now=at(0))).is_new


async def test_enqueueing_is_judged_inside_as_outside(store: ReadableStore, effects: Effects) -> None:
    holder = await enqueued(store, unique="once", now=at(0))
    await declared(store)
    with effects.connected() as connection:
        [taken, again, placed, refused] = store.enqueue_in(
            connection,
            [new_run(unique="once"), NewRun(id=holder.id, task="send"), *(new_run(schedule="report") for _ in "12")],
        )
        assert (taken.run.id, taken.is_new) == (holder.id, False)
        assert again.run.id == holder.id
        assert (placed.is_new, refused.occupied, refused.run.id) == (True, True, placed.run.id)
        with pytest.raises(NotFound, match="'nobody'"):
            store.enqueue_in(connection, [new_run(schedule="nobody")])
        connection.commit()
    assert await store.get_run(placed.run.id) is not None


async def test_an_async_connection_joins_as_well(store: ReadableStore, effects: Effects) -> None:
    kept, dropped, run = new_run(), new_run(), await a_claimed_run(store)
    async with effects.connected_async() as connection:
        await connection.execute(effects.insert, ["no"])
        await store.enqueue_in_async(connection, [dropped])
        await connection.rollback()
        await connection.execute(effects.insert, ["yes"])
        await store.enqueue_in_async(connection, [kept])
        await store.finish_in_async(connection, outcome(run))
        await connection.commit()

    assert [found.id for found in await store.get_runs([kept.id, dropped.id])] == [kept.id]
    assert (await run_now(store, run.id)).state is RunState.SUCCEEDED
    assert effects.notes() == ["yes"]


async def test_a_sync_connection_may_be_given_to_async_code(store: ReadableStore, effects: Effects) -> None:
    new = new_run()
    with effects.connected() as connection:
        await store.enqueue_in_async(connection, [new])
        connection.commit()
    assert await store.get_run(new.id) is not None


async def test_whatever_the_caller_has_set_for_rows_is_left_alone(store: ReadableStore, effects: Effects) -> None:
    def odd(cursor: Any, row: Any = None) -> Any:
        return {"odd": True} if row is not None else (lambda values: {"odd": values})

    with effects.connected() as connection:
        connection.row_factory = odd
        [result] = store.enqueue_in(connection, [new_run(args='{"n":1}')])
        assert connection.row_factory is odd
        connection.commit()
    assert await store.get_run(result.run.id) == result.run


# --- refused ---------------------------------------------------------------------------------


async def test_a_connection_without_a_transaction_is_refused(store: ReadableStore, effects: Effects) -> None:
    connection = effects.connect_autocommit()
    try:
        with pytest.raises(DefinitionError, match="no transaction is open on this connection"):
            store.enqueue_in(connection, [new_run()])
        connection.execute("begin")
        [result] = store.enqueue_in(connection, [new_run()])
        connection.execute("commit")
    finally:
        connection.close()
    assert await store.get_run(result.run.id) is not None


async def test_a_connection_that_is_none_of_the_drivers_is_refused(store: ReadableStore) -> None:
    for stranger in (object(), "postgresql://localhost", 7):
        with pytest.raises(NotSupported, match=r"is no connection that .* can share a transaction with"):
            store.enqueue_in(stranger, [new_run()])
        with pytest.raises(NotSupported):
            await store.enqueue_in_async(stranger, [new_run()])


async def test_a_connection_to_another_place_is_refused(
    store: ReadableStore, effects: Effects, elsewhere: Effects
) -> None:
    run = await a_claimed_run(store)
    with elsewhere.connected() as connection:
        connection.execute(elsewhere.insert, ["here"])
        with pytest.raises(NotSupported, match="commits together"):
            store.enqueue_in(connection, [new_run()])
        with pytest.raises(NotSupported, match="commits together"):
            store.finish_in(connection, outcome(run))
        connection.commit()
    assert elsewhere.notes() == ["here"]
    assert (await run_now(store, run.id)).state is RunState.RUNNING


async def test_a_closed_connection_is_refused(store: ReadableStore, effects: Effects) -> None:
    with effects.connected() as connection:
        pass
    with pytest.raises(DefinitionError, match="closed"):
        store.enqueue_in(connection, [new_run()])


async def test_a_transaction_works_on_a_store_that_was_never_opened(
    connect: Connect, store: ReadableStore, effects: Effects
) -> None:
    run, apart = await a_claimed_run(store), connect()
    try:
        assert await off_loop(lambda: end_with_a_note(apart, effects, run)) is FinishStatus.RECORDED
    finally:
        await apart.close()
        await apart.close()
    assert effects.notes() == ["paid"]


async def test_a_store_in_memory_says_what_to_do_instead(connect: Connect) -> None:
    store, runs = MemoryStore(), [new_run()]
    with pytest.raises(NotSupported, match=r"ctx\.token"), store.transaction(within=WITHIN):
        pass
    with pytest.raises(NotSupported):
        async with store.transaction_async(within=WITHIN):
            pass
    with pytest.raises(NotSupported, match="leave connection= out"):
        store.enqueue_in(object(), runs)
    with pytest.raises(NotSupported):
        await store.enqueue_in_async(object(), runs)
    assert await store.stats()


# --- the suite notices -----------------------------------------------------------------------


async def test_a_store_that_takes_a_stale_token_is_found_out(
    store: ReadableStore, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the look at what `finish` answered, between the last statement and the commit."""
    monkeypatch.setattr(_caller, "recorded", lambda result, _: result)
    with pytest.raises(pytest.fail.Exception):
        await test_a_stale_token_commits_nothing(store, effects)
    with pytest.raises(pytest.fail.Exception):
        await test_an_end_that_is_on_record_commits_nothing_again(store, effects)


async def test_an_end_that_does_not_commit_with_the_writes_is_found_out(
    connect: Connect, store: ReadableStore, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end as a step of its own after the block: a process may die in between."""
    later: list[Outcome] = []

    def note(connection: Any, outcome: Outcome) -> FinishResult:
        later.append(outcome)
        return FinishResult(run_id=outcome.run_id, status=FinishStatus.RECORDED, state=RunState.SUCCEEDED)

    monkeypatch.setattr(store, "finish_in", note)
    with pytest.raises(AssertionError):
        await test_the_writes_and_the_end_of_the_run_commit_together(store, effects)
    assert later


async def test_runs_that_are_enqueued_beside_the_callers_transaction_are_found_out(
    connect: Connect, store: ReadableStore, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside(connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        async def enqueue() -> list[EnqueueResult]:
            other = connect()
            try:
                return await other.enqueue(runs)
            finally:
                await other.close()

        if effects.kind == "sqlite":
            connection.commit()  # or it would wait for the lock
        with ThreadPoolExecutor() as pool:
            return pool.submit(asyncio.run, enqueue()).result()

    monkeypatch.setattr(store, "enqueue_in", beside)
    with pytest.raises(AssertionError):
        await test_what_is_rolled_back_leaves_nothing(store, effects)
    effects.make()
    with pytest.raises(AssertionError):
        await test_what_is_enqueued_exists_when_the_caller_has_committed(store, effects)
