"""The store's clock: the machine's, never back, and not trusted when it is far ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncron import _clock
from oncron._clock import SECOND
from oncron._model import RunFilter
from oncron.errors import StoreUnavailable
from tests.contract.given import at
from tests.unit.stores.sqlite_kit import opened, stranger, written


def set_clock(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    for module in ("_schema", "_step"):
        monkeypatch.setattr(f"oncron.stores.sqlite.{module}.machine_us", lambda: now)


async def test_the_clock_is_the_machines(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        before = _clock.machine_us()
        assert before <= await store.now() <= _clock.machine_us()


async def test_the_clock_does_not_go_back_when_the_machines_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db") as store, opened(tmp_path / "a.db") as other:
        first = await written(store)
        set_clock(monkeypatch, first.created_at - 30 * SECOND)

        later = await written(other)

        assert later.created_at >= first.created_at
        assert await store.now() >= later.created_at


async def test_nothing_is_written_while_the_stored_clock_is_over_a_minute_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db") as store:
        first = await written(store)
        set_clock(monkeypatch, first.created_at - 61 * SECOND)

        with pytest.raises(StoreUnavailable, match="61 s ahead"):
            await written(store)
        with pytest.raises(StoreUnavailable, match="61 s ahead"):
            await store.now()

        assert [run.id for run in await store.runs(RunFilter())] == [first.id], "looking is still possible"


async def test_it_writes_again_once_the_machines_clock_has_come_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db") as store:
        first = await written(store)
        set_clock(monkeypatch, first.created_at - 59 * SECOND)

        assert (await written(store)).created_at >= first.created_at


async def test_an_instant_that_a_test_says_leaves_the_clock_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await written(store, now=at(10**9))

        assert await store.now() < at(10**9)


async def test_each_write_leaves_the_clock_in_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        first = await written(store)

        [[now_at]] = stranger(tmp_path / "a.db").execute("select now_at from oncron_meta")
        assert now_at == first.created_at
