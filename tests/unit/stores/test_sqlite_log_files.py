"""The -wal and -shm files are part of the database: removing them under running replicas doubles no tick."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncron._model import new_id
from oncron.errors import StoreUnavailable
from tests.unit.stores.postgres_kit import declared, plan
from tests.unit.stores.sqlite_kit import opened, written


def remove(path: Path, *ends: str) -> None:
    for end in ends:
        Path(f"{path}{end}").unlink()


@pytest.mark.parametrize("ends", [("-wal", "-shm"), ("-wal",), ("-shm",)], ids=" ".join)
async def test_a_replica_whose_log_was_removed_says_so_and_goes_on_with_what_the_others_have(
    tmp_path: Path, ends: tuple[str, ...]
) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as old:
        await declared(old, "a")
        remove(path, *ends)
        with pytest.raises(StoreUnavailable, match="-wal or -shm file was removed"):
            await old.now()
        async with opened(path) as newcomer:
            await declared(newcomer, "b")
            assert len(await old.schedules(["b"])) == 1, "both see the same file again"


async def test_what_was_committed_before_the_log_was_removed_is_kept_if_nobody_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as one, opened(path) as two:
        cursor = await declared(one, "a")
        run = await written(two)
        assert (await one.fire([plan("a", cursor)], fire_id=new_id())).results[0].outcome == "fired"
        remove(path, "-wal", "-shm")
        for store in (one, two):
            with pytest.raises(StoreUnavailable):
                await store.now()

        again = [(await store.fire([plan("a", cursor)], fire_id=new_id())).results[0].outcome for store in (one, two)]
        assert again == ["stale", "stale"], "the tick has passed once"
        assert (await two.get_run(run.id)).id == run.id
