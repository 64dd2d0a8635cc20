"""Others' writes wake a listener; its own do not; nobody listens to a store that was closed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncron._clock import SECOND
from oncron._model import WorkerRecord
from oncron.stores.sqlite import _wakeups
from tests.contract.given import at, outcome, spec
from tests.unit.stores.sqlite_kit import opened, written


async def listening(store) -> asyncio.Task[None]:
    """A listener that has looked at least once."""
    task = asyncio.ensure_future(anext(store.wakeups()))
    await asyncio.wait({task}, timeout=0.1)
    return task


async def test_a_write_of_another_session_wakes(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store, opened(tmp_path / "a.db") as other:
        task = await listening(store)

        await written(other)

        await asyncio.wait_for(task, 5)


async def test_its_own_writes_do_not_wake_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wakeups, "QUICK", 1000)
    async with opened(tmp_path / "a.db") as store:
        task = await listening(store)
        for _ in range(10):
            await written(store)
            await asyncio.wait({task}, timeout=0.005)

        assert not task.done()
        task.cancel()


async def test_another_sessions_write_beside_its_own_is_not_missed(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store, opened(tmp_path / "a.db") as other:
        task = await listening(store)

        await asyncio.gather(written(store), written(other), written(store))

        await asyncio.wait_for(task, 5)


async def test_listening_ends_when_the_store_is_closed(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        task = await listening(store)

    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(task, 5)


async def test_it_looks_often_only_while_something_goes_on_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = at(0)
    monkeypatch.setattr(_wakeups, "boot_us", lambda: now)
    async with opened(tmp_path / "a.db") as store:
        now += 2 * SECOND
        assert not store._activity.is_busy()

        await written(store)
        assert store._activity.is_busy(), "it has just written"
        now += 2 * SECOND
        assert not store._activity.is_busy()

        [run] = (await store.claim(spec())).runs
        now += 2 * SECOND
        assert store._activity.is_busy(), "it holds a run"
        await store.heartbeat(WorkerRecord(id="w1"), 15 * SECOND, held=[(run.id, run.token)])
        now += 2 * SECOND
        assert store._activity.is_busy()

        await store.finish([outcome(run)])
        now += 2 * SECOND
        assert not store._activity.is_busy()
