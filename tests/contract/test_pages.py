"""Reads by part: runs of a queue or a batch, schedules page by page and by tag, what a worker says of itself."""

from __future__ import annotations

import pytest

from oncron._groups import NewBatch
from oncron._model import OutcomeKind, RunFilter, RunState, Status, WorkerRecord, new_id
from oncron._store import ReadableStore
from tests.contract.given import LEASE, at, change_of, claimed, declared, enqueued, finish, seen

# --- runs -----------------------------------------------------------------------------------


async def test_runs_are_listed_by_queue(store: ReadableStore) -> None:
    ids = [(await enqueued(store, f"t{n % 2}", now=at(n), queue=f"q{n % 3}")).id for n in range(9)]
    run = await claimed(store, now=at(9), tasks=("t0",), queues=("q0",), limit=1)
    await finish(store, run, now=at(9))

    assert [run.id for run in await store.runs(RunFilter(queue="q0"))] == [ids[6], ids[3], ids[0]]
    assert [run.id for run in await store.runs(RunFilter(queue="q0", task="t0"))] == [ids[6], ids[0]]
    assert [run.id for run in await store.runs(RunFilter(queue="q0", state=RunState.SUCCEEDED))] == [ids[0]]
    assert [run.id for run in await store.runs(RunFilter(queue="q0", before=ids[6], limit=1))] == [ids[3]]
    assert await store.runs(RunFilter(queue="q")) == []


async def test_runs_are_listed_by_batch(store: ReadableStore) -> None:
    one, two = new_id(), new_id()
    for batch in (one, two):
        await store.open_batch(NewBatch(id=batch), now=at(0))
    ids = [(await enqueued(store, f"t{n % 2}", now=at(n), batch=(one, two, None)[n % 3])).id for n in range(9)]
    run = await claimed(store, now=at(9), tasks=("t0",), limit=1)
    assert run.id == ids[0]
    await finish(store, run, OutcomeKind.FAILED, now=at(9))

    listed = await store.runs(RunFilter(batch=one))

    assert [run.id for run in listed] == [ids[6], ids[3], ids[0]]
    assert {run.batch for run in listed} == {one}
    assert [run.id for run in await store.runs(RunFilter(batch=one, state=RunState.PENDING))] == [ids[6], ids[3]]
    assert [run.id for run in await store.runs(RunFilter(batch=one, since=at(1), limit=1))] == [ids[6]]
    assert [run.id for run in await store.runs(RunFilter(batch=one, before=ids[6]))] == [ids[3], ids[0]]
    assert await store.runs(RunFilter(batch=two, task="t5")) == []
    assert await store.runs(RunFilter(batch="nobody's")) == []


# --- schedules ------------------------------------------------------------------------------


async def test_schedules_are_paged_by_name(store: ReadableStore) -> None:
    names = sorted(f"{letter}{n}" for letter in ("a", "B", "ß") for n in range(3))
    for name in names[::-1]:
        await declared(store, name)

    pages: list[list[str]] = []
    for _ in range(5):
        rows = await store.schedules(after=pages[-1][-1] if pages else None, limit=2)
        pages.append([row.name for row in rows])

    assert pages == [names[:2], names[2:4], names[4:6], names[6:8], names[8:]]
    assert [row.name for row in await store.schedules(after=names[6])] == names[7:]
    assert [row.name for row in await store.schedules(after="a11", limit=1)] == ["a2"]
    assert await store.schedules(limit=0) == []


async def test_schedules_are_found_by_tag(store: ReadableStore) -> None:
    for n in range(6):
        await declared(store, f"s{n}", tags=(("even", "odd")[n % 2], f"n{n}", 'quo"ted ß'))
    await declared(store, "plain")

    assert [row.name for row in await store.schedules(tag="even")] == ["s0", "s2", "s4"]
    assert [row.name for row in await store.schedules(tag="even", after="s0", limit=1)] == ["s2"]
    assert [row.name for row in await store.schedules(["s1", "s2", "plain", "none"], tag="odd")] == ["s1"]
    assert len(await store.schedules(tag='quo"ted ß')) == 6
    assert await store.schedules(tag="eve") == []


async def test_a_changed_tag_is_found_and_the_old_one_not(store: ReadableStore) -> None:
    await declared(store, tags=("old",))
    await store.declare([change_of(await seen(store), tags=("new",), status=Status.REMOVED)], now=at(1))

    assert await store.schedules(tag="old") == []
    [row] = await store.schedules(tag="new")
    assert (row.status, row.definition.tags) == (Status.REMOVED, ("new",))


async def test_names_are_paged_like_all(store: ReadableStore) -> None:
    for name in ("a", "b", "c", "d"):
        await declared(store, name)

    assert [row.name for row in await store.schedules(["d", "b", "a", "x"], after="a")] == ["b", "d"]
    assert [row.name for row in await store.schedules(["d", "b", "a", "x"], limit=2)] == ["a", "b"]
    assert await store.schedules([]) == []


# --- workers --------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [None, (), ("default", "slow")])
async def test_a_worker_is_listed_with_its_tasks_and_queues(
    store: ReadableStore, queues: tuple[str, ...] | None
) -> None:
    worker = WorkerRecord(id="w1", started_at=at(0), roles=("worker",), tasks=("send", 'quo"ted'), queues=queues)
    await store.heartbeat(worker, LEASE, now=at(1))

    [listed] = await store.workers()

    assert (listed.tasks, listed.queues) == (("send", 'quo"ted'), queues)
