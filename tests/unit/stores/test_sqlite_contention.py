"""Many processes on one file: every run is claimed once, and nobody starves."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from oncron._model import NewRun, RunFilter, RunState, new_run_id
from tests.unit.stores.sqlite_kit import child, opened

WORKER = """
import asyncio, json, sys
from tests.contract.given import outcome, spec
from oncron.stores.sqlite import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    done = []
    while (claimed := await store.claim(spec(sys.argv[2], limit=int(sys.argv[3])))).runs:
        results = await store.finish([outcome(run) for run in claimed.runs])
        done += [result.run_id for result in results if result.status == "recorded"]
    await store.close()
    print(json.dumps(done))

asyncio.run(main())
"""


async def claimed_by_all(path: Path, runs: int, processes: int, limit: int) -> list[list[str]]:
    """Ids that each of the processes finished."""
    async with opened(path) as store:
        for start in range(0, runs, 1000):
            new = [NewRun(id=new_run_id(), task="send") for _ in range(min(1000, runs - start))]
            await store.enqueue(new)
    said = await asyncio.gather(*(child(WORKER, path, f"w{number}", limit) for number in range(processes)))
    return [json.loads(one) for one in said]


async def test_four_processes_claim_each_run_once(tmp_path: Path) -> None:
    done = await claimed_by_all(tmp_path / "a.db", runs=1000, processes=4, limit=5)

    counted = Counter(run_id for one in done for run_id in one)
    assert len(counted) == 1000
    assert set(counted.values()) == {1}
    async with opened(tmp_path / "a.db") as store:
        runs = await store.runs(RunFilter(limit=2000))
        assert {(run.state, run.attempt) for run in runs} == {(RunState.SUCCEEDED, 1)}


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_eight_processes_claim_twenty_thousand_runs_once(tmp_path: Path) -> None:
    done = await claimed_by_all(tmp_path / "a.db", runs=20_000, processes=8, limit=20)

    counted = Counter(run_id for one in done for run_id in one)
    assert len(counted) == 20_000
    assert set(counted.values()) == {1}
    assert min(map(len, done)) > 20_000 // 8 // 4, "nobody starves"
