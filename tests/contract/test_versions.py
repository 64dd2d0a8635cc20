"""Old and new zone data in one fleet: a plan made with older ones is stale while a live scheduler has newer."""

from __future__ import annotations

import pytest

from oncron._model import FireOutcome, WorkerRecord, new_id, sortable_version
from oncron._store import ReadableStore
from tests.contract.given import LEASE, at, declared, picture, plan, seen


async def live(store: ReadableStore, worker: str, tzdata: str, *roles: str, now: int) -> None:
    record = WorkerRecord(id=worker, tzdata=tzdata, roles=roles or ("scheduler",))
    await store.heartbeat(record, LEASE, now=now)


async def outcome(store: ReadableStore, tzdata: str, *, now: int) -> FireOutcome:
    row = await seen(store)
    fired = await store.fire([plan(row, now, tzdata=tzdata)], fire_id=new_id(), now=now)
    return fired.results[0].outcome


async def test_an_older_plan_is_stale_while_a_live_scheduler_knows_better(store: ReadableStore) -> None:
    await declared(store, now=at(0))
    await live(store, "new", "2026.10", now=at(0))
    before = await picture(store)

    assert await outcome(store, "2026.06", now=at(1)) is FireOutcome.STALE
    assert await picture(store) == before
    assert await outcome(store, "2026.10", now=at(1)) is FireOutcome.FIRED
    assert await outcome(store, "2026.11", now=at(2)) is FireOutcome.FIRED


async def test_the_older_fires_when_the_newer_is_gone(store: ReadableStore) -> None:
    await declared(store, now=at(0))
    await live(store, "new", "2026.10", now=at(0))
    assert await outcome(store, "2026.06", now=at(16)) is FireOutcome.FIRED


async def test_a_worker_that_fires_nothing_does_not_hold_anybody_up(store: ReadableStore) -> None:
    await declared(store, now=at(0))
    await live(store, "new", "2026.10", "worker", now=at(0))
    assert await outcome(store, "2026.06", now=at(1)) is FireOutcome.FIRED


async def test_a_plan_in_which_zones_play_no_part_has_no_age(store: ReadableStore) -> None:
    await declared(store, now=at(0))
    await live(store, "new", "2026.10", now=at(0))
    assert await outcome(store, "", now=at(1)) is FireOutcome.FIRED


@pytest.mark.parametrize(("older", "newer"), [("2026.6", "2026.10"), ("2025.3", "2026.1"), ("2026.1", "2026.2")])
def test_later_versions_sort_later(older: str, newer: str) -> None:
    assert sortable_version(older) < sortable_version(newer)
