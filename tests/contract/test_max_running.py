"""`max_running` (G10): claims held per task, fleet-wide. Only finish and reap free one."""

from __future__ import annotations

from oncron._store import ReadableStore
from tests.contract.given import (
    at,
    claim,
    enqueue,
    finish,
    spec,
)


async def test_max_running_counts_the_claims_held_of_the_whole_fleet(
    store: ReadableStore, other: ReadableStore
) -> None:
    for _ in range(4):
        await enqueue(store, "scarce", now=at(0))
    wants = {"tasks": ("scarce",), "max_running": (("scarce", 2),)}

    first = (await claim(store, "w1", now=at(1), limit=1, **wants)).runs
    second = (await claim(other, "w2", now=at(1), **wants)).runs
    third = (await claim(store, "w3", now=at(1), **wants)).runs

    assert [len(runs) for runs in (first, second, third)] == [1, 1, 0]
    await finish(store, first[0], now=at(2))
    assert len((await claim(other, "w3", now=at(2), **wants)).runs) == 1


async def test_a_full_task_is_not_freed_by_an_expired_lease_before_it_is_reaped(store: ReadableStore) -> None:
    for _ in range(2):
        await enqueue(store, "scarce", now=at(0), retries=0)
    wants = {"tasks": ("scarce",), "max_running": (("scarce", 1),)}
    await claim(store, "w1", now=at(1), **wants)

    assert (await claim(store, "w2", now=at(100), **wants)).runs == ()
    await store.reap(now=at(100))
    assert len((await claim(store, "w2", now=at(100), **wants)).runs) == 1


async def test_a_full_task_does_not_hold_up_the_runs_of_others(store: ReadableStore) -> None:
    for _ in range(3):
        await enqueue(store, "scarce", now=at(0))
    await enqueue(store, "send", now=at(0.5))

    runs = (await store.claim(spec(tasks=("scarce", "send"), limit=2, max_running=(("scarce", 1),)), now=at(1))).runs

    assert [run.task for run in runs] == ["scarce", "send"]
