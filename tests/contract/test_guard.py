"""`guard`: what a run is to hold while it executes travels with it, from its schedule or from who enqueued it."""

from __future__ import annotations

import pytest

from oncron._model import OutcomeKind, Overlap
from oncron._store import ReadableStore
from tests.contract.given import (
    at,
    change_of,
    changed,
    claim,
    claimed,
    declared,
    enqueued,
    finish,
    fired,
    run_now,
    run_of,
    seen,
    spec,
)


@pytest.mark.parametrize("overlap", Overlap)
async def test_the_runs_of_a_schedule_have_its_guard(store: ReadableStore, overlap: Overlap) -> None:
    await declared(store, guard="advisory", overlap=overlap, unique=None)
    await fired(store, at(1))
    await fired(store, at(2), at(3))

    assert (await seen(store)).definition.guard == "advisory"
    assert (await run_of(store, at(1))).guard == "advisory"
    for run in (await claim(store, now=at(3))).runs:
        assert run.guard == "advisory"


async def test_a_run_with_a_unique_key_has_its_guard_too(store: ReadableStore) -> None:
    await declared(store, guard="advisory", unique="k")
    await fired(store, at(1))

    assert (await run_of(store, at(1))).guard == "advisory"


async def test_a_lease_on_the_spot_tells_the_guard(store: ReadableStore) -> None:
    await declared(store, guard="advisory")

    [run] = (await fired(store, at(1), claim=spec())).leases

    assert run.guard == "advisory"


async def test_a_changed_guard_is_that_of_the_runs_to_come(store: ReadableStore) -> None:
    row = await declared(store, guard="advisory", overlap=Overlap.ALLOW)
    await fired(store, at(1))
    assert (await changed(store, await seen(store), now=at(1), guard=None)).changed
    await fired(store, at(2))
    again = change_of(await seen(store), guard="slot:other")
    await store.declare([again], now=at(2))
    await fired(store, at(3))

    assert [(await run_of(store, at(second))).guard for second in (1, 2, 3)] == ["advisory", None, "slot:other"]
    assert row.definition.guard == "advisory"


async def test_a_run_that_is_enqueued_keeps_its_guard_through_its_life(store: ReadableStore) -> None:
    run = await enqueued(store, now=at(0), guard="advisory")
    assert run.guard == "advisory"
    held = await claimed(store, now=at(1))
    assert held.guard == "advisory"

    await finish(store, held, OutcomeKind.FAILED, now=at(2))
    await store.retry(run.id, now=at(3))

    assert (await run_now(store, run.id)).guard == "advisory"
    assert (await enqueued(store, now=at(4))).guard is None
    assert (await enqueued(store, now=at(4), unique="k", guard="advisory")).guard == "advisory"
