"""`due`: the lock-free read that asks which schedules have a tick."""

from __future__ import annotations

from oncron._model import Change, Due, Status
from oncron._store import ReadableStore
from tests.contract.given import at, changed, declared, definition, fired, seen


async def declared_for(store: ReadableStore, **next_at: float) -> None:
    await store.declare(
        [
            Change(name=name, definition=definition(name), status=Status.ACTIVE, new_cursor=at(0), next_at=at(second))
            for name, second in next_at.items()
        ],
        now=at(0),
    )


async def test_due_answers_what_a_plan_needs_to_know_of_the_row(store: ReadableStore) -> None:
    await declared(store)
    await changed(store, await seen(store), now=at(0), retries=9)
    await fired(store, at(1))

    assert await store.due(at(2)) == [Due(name="report", revision=2, cursor=at(1), next_at=at(2))]


async def test_due_reaches_to_the_horizon_and_includes_it(store: ReadableStore) -> None:
    await declared_for(store, now=1, later=2, much_later=2.000001)

    assert [due.name for due in await store.due(at(0.999999))] == []
    assert [due.name for due in await store.due(at(1))] == ["now"]
    assert [due.name for due in await store.due(at(2))] == ["now", "later"]


async def test_due_is_ordered_by_instant_then_name_and_pages_after_a_pair(store: ReadableStore) -> None:
    await declared_for(store, c=1, a=1, b=1, early=0.5, late=3)
    whole = await store.due(at(9))
    assert [due.name for due in whole] == ["early", "a", "b", "c", "late"]

    pages: list[str] = []
    after: tuple[int, str] | None = None
    while page := await store.due(at(9), after=after, limit=2):
        assert len(page) <= 2
        pages += [due.name for due in page]
        after = (page[-1].next_at, page[-1].name)

    assert pages == ["early", "a", "b", "c", "late"]


async def test_excluded_schedules_crowd_out_no_others(store: ReadableStore) -> None:
    """A row that this replica cannot read is left alone; with a thousand of them in front, others still fire."""
    await declared_for(store, **{f"unreadable{n}": 0.5 for n in range(20)}, fine=1)

    page = await store.due(at(9), exclude=[f"unreadable{n}" for n in range(20)], limit=5)

    assert [due.name for due in page] == ["fine"]


async def test_order_by_name_is_the_same_on_every_store(store: ReadableStore) -> None:
    """By code point: a page must not depend on the collation of a database."""
    names = ["B", "a", "Z", "é", "b", "_", "-", "日"]
    await declared_for(store, **dict.fromkeys(names, 1))

    assert [due.name for due in await store.due(at(9))] == sorted(names)
    assert [row.name for row in await store.schedules()] == sorted(names)
