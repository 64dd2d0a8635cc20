"""Named locks: so many holders at once, each until its lease ends, under tokens that only grow (G5, G7)."""

from __future__ import annotations

import pytest

from oncron._groups import Acquired, LockRecord
from oncron._store import ReadableStore
from tests.contract.conftest import Connect
from tests.contract.given import DAY, FAR_AHEAD, LEASE, at


async def acquired(store: ReadableStore, owner: str = "a", *, name: str = "lock", now: int, slots: int = 1) -> Acquired:
    return await store.acquire(name, owner=owner, lease_for=LEASE, slots=slots, now=now)


async def held(store: ReadableStore, owner: str = "a", *, name: str = "lock", now: int, slots: int = 1) -> int:
    """The token of an owner who gets the lock."""
    answer = await acquired(store, owner, name=name, now=now, slots=slots)
    assert answer.token is not None
    return answer.token


async def owners(store: ReadableStore, *, now: int) -> list[str]:
    return [one.owner for one in await store.locks(now=now)]


async def test_the_first_gets_the_lock_until_its_lease_ends(store: ReadableStore) -> None:
    answer = await acquired(store, "a", now=at(0))

    assert (answer.now, answer.lease_until, answer.holders) == (at(0), at(0) + LEASE, 1)
    assert answer.token is not None
    assert await store.locks(now=at(1)) == [
        LockRecord(name="lock", owner="a", token=answer.token, since=at(0), lease_until=at(0) + LEASE)
    ]


async def test_while_it_is_held_others_are_told_when_to_come_back(store: ReadableStore) -> None:
    await held(store, "a", now=at(0))

    answer = await acquired(store, "b", now=at(2))

    assert answer == Acquired(now=at(2), token=None, lease_until=at(0) + LEASE, holders=1)
    assert await owners(store, now=at(2)) == ["a"]


async def test_a_lock_of_another_name_is_another_lock(store: ReadableStore) -> None:
    await held(store, "a", name="one", now=at(0))
    await held(store, "b", name="two", now=at(0))

    assert [(one.name, one.owner) for one in await store.locks(now=at(1))] == [("one", "a"), ("two", "b")]


async def test_a_released_lock_is_free_at_once(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert await store.release("lock", token, now=at(1)) is True

    assert await owners(store, now=at(1)) == []
    assert await held(store, "b", now=at(1)) > token


async def test_releasing_again_says_that_it_was_not_held(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))
    await store.release("lock", token, now=at(1))
    await held(store, "b", now=at(2))

    assert await store.release("lock", token, now=at(3)) is False

    assert await owners(store, now=at(3)) == ["b"]


async def test_nobody_releases_or_extends_what_another_holds(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert await store.release("lock", token + 1, now=at(1)) is False
    assert await store.release("other", token, now=at(1)) is False
    assert await store.extend("lock", token - 1, lease_for=LEASE, now=at(1)) is None
    assert await store.extend("other", token, lease_for=LEASE, now=at(1)) is None

    [one] = await store.locks(now=at(1))
    assert (one.owner, one.lease_until) == ("a", at(0) + LEASE)


async def test_a_lease_is_over_at_its_end_and_not_before(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert (await acquired(store, "b", now=at(0) + LEASE - 1)).token is None
    assert await owners(store, now=at(0) + LEASE - 1) == ["a"]
    assert await owners(store, now=at(0) + LEASE) == []
    assert await held(store, "b", now=at(0) + LEASE) > token


async def test_an_extended_lease_ends_later(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert await store.extend("lock", token, lease_for=LEASE, now=at(10)) == at(10) + LEASE

    assert (await acquired(store, "b", now=at(0) + LEASE)).lease_until == at(10) + LEASE
    assert (await acquired(store, "b", now=at(10) + LEASE)).token is not None


async def test_a_lease_that_expired_can_be_extended_while_nobody_asked_for_the_lock(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert await store.extend("lock", token, lease_for=LEASE, now=at(100)) == at(100) + LEASE

    assert (await acquired(store, "b", now=at(101))).token is None
    assert await owners(store, now=at(101)) == ["a"]


async def test_after_another_got_it_the_old_holder_has_lost_it(store: ReadableStore) -> None:
    """G5."""
    token = await held(store, "a", now=at(0))
    await held(store, "b", now=at(20))

    assert await store.extend("lock", token, lease_for=LEASE, now=at(21)) is None
    assert await store.release("lock", token, now=at(21)) is False

    assert await owners(store, now=at(21)) == ["b"]


async def test_a_holder_that_expired_is_forgotten_although_a_slot_was_free(store: ReadableStore) -> None:
    token = await held(store, "a", slots=2, now=at(0))
    await held(store, "b", slots=2, now=at(20))

    assert await store.extend("lock", token, lease_for=LEASE, now=at(21)) is None


async def test_the_same_owner_asking_again_gets_its_token_and_a_longer_lease(store: ReadableStore) -> None:
    """G7: the answer was lost, the call is repeated."""
    token = await held(store, "a", now=at(0))

    again = await acquired(store, "a", now=at(5))

    assert again == Acquired(now=at(5), token=token, lease_until=at(5) + LEASE, holders=1)
    assert [one.since for one in await store.locks(now=at(5))] == [at(0)]


async def test_the_same_owner_has_one_slot_however_often_it_asks(store: ReadableStore) -> None:
    first = await held(store, "a", slots=2, now=at(0))
    second = await held(store, "a", slots=2, now=at(1))

    assert first == second
    assert (await acquired(store, "b", slots=2, now=at(1))).holders == 2


async def test_the_same_owner_after_its_lease_ended_gets_a_new_token(store: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert await held(store, "a", now=at(20)) > token

    assert [one.since for one in await store.locks(now=at(20))] == [at(20)]


async def test_so_many_hold_it_at_once_as_it_has_slots(store: ReadableStore) -> None:
    tokens = [await held(store, owner, slots=3, now=at(n)) for n, owner in enumerate("abc")]

    refused = await acquired(store, "d", slots=3, now=at(3))

    assert len(set(tokens)) == 3
    assert (refused.token, refused.holders, refused.lease_until) == (None, 3, at(0) + LEASE)
    await store.release("lock", tokens[1], now=at(4))
    assert (await acquired(store, "d", slots=3, now=at(4))).holders == 3
    assert sorted(await owners(store, now=at(4))) == ["a", "c", "d"]


async def test_fewer_slots_than_before_take_nobody_the_lock_away(store: ReadableStore) -> None:
    tokens = [await held(store, owner, slots=2, now=at(0)) for owner in "ab"]

    assert (await acquired(store, "c", slots=1, now=at(1))).holders == 2
    assert await store.extend("lock", tokens[1], lease_for=LEASE, now=at(1)) is not None
    await store.release("lock", tokens[0], now=at(1))
    assert (await acquired(store, "c", slots=1, now=at(1))).token is None


@pytest.mark.parametrize("step", [1, 0, -3600])
async def test_tokens_grow_whatever_the_clock_does(store: ReadableStore, step: int) -> None:
    """G5: the clock goes on, stands, or goes back."""
    tokens = []
    for n in range(4):
        tokens.append(await held(store, f"o{n}", now=at(n * step)))
        await store.release("lock", tokens[-1], now=at(n * step))

    assert tokens == sorted(set(tokens))
    assert tokens[0] >= at(0)


async def test_tokens_grow_over_the_expiry_of_a_lease(store: ReadableStore) -> None:
    tokens = [await held(store, f"o{n}", now=at(100 * n)) for n in range(4)]

    assert tokens == sorted(set(tokens))
    assert all(token >= at(100 * n) for n, token in enumerate(tokens))


async def test_tokens_of_slots_taken_at_one_instant_differ(store: ReadableStore) -> None:
    tokens = [await held(store, owner, slots=5, now=at(0)) for owner in "abcde"]

    assert tokens == sorted(set(tokens))
    assert [one.token for one in await store.locks(now=at(1))] == tokens


async def test_another_session_sees_who_holds_what(store: ReadableStore, other: ReadableStore) -> None:
    token = await held(store, "a", now=at(0))

    assert (await acquired(other, "b", now=at(1))).token is None
    assert await other.extend("lock", token, lease_for=LEASE, now=at(2)) == at(2) + LEASE
    assert await store.locks(now=at(3)) == await other.locks(now=at(3))


async def test_holders_and_tokens_outlive_the_sessions(connect: Connect, store: ReadableStore) -> None:
    kept = await held(store, "a", name="kept", now=at(0))
    freed = await held(store, "a", name="freed", now=at(0))
    await store.release("freed", freed, now=at(0))
    await store.close()
    fresh = connect()
    await fresh.open()

    assert (await acquired(fresh, "b", name="kept", now=at(1))).token is None
    assert await fresh.extend("kept", kept, lease_for=LEASE, now=at(1)) == at(1) + LEASE
    assert await held(fresh, "b", name="freed", now=at(0)) > freed

    await fresh.close()


async def test_names_and_owners_may_be_any_text(store: ReadableStore) -> None:
    name, owner = "ßé/'\"{}:%$1 \U0001f512", "host-1:4711' or 1=1"
    token = await held(store, owner, name=name, now=at(0))

    assert [(one.name, one.owner) for one in await store.locks(now=at(0))] == [(name, owner)]
    assert await store.release(name, token, now=at(0)) is True


async def test_pruning_forgets_no_lock_that_was_held_within_a_day(store: ReadableStore) -> None:
    live = await held(store, "a", name="live", now=at(0))
    await store.extend("live", live, lease_for=3 * DAY, now=at(1))
    expired = await held(store, "a", name="expired", now=at(0))
    last = await held(store, "a", name="freed", now=at(0))
    await store.release("freed", last, now=at(0))

    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(0) + DAY // 2)

    assert await store.extend("live", live, lease_for=3 * DAY, now=at(2)) == at(2) + 3 * DAY
    assert await store.extend("expired", expired, lease_for=LEASE, now=at(2)) == at(2) + LEASE
    assert await held(store, "b", name="freed", now=at(0)) > last


async def test_after_a_day_without_a_holder_tokens_go_on_growing_with_the_clock(store: ReadableStore) -> None:
    last = await held(store, "a", now=at(0))
    later = at(0) + 3 * DAY
    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=later)

    assert await store.extend("lock", last, lease_for=LEASE, now=later) is None
    assert await held(store, "b", now=later) > last


async def test_without_a_now_the_clock_of_the_store_counts(store: ReadableStore) -> None:
    before = await store.now()
    answer = await store.acquire("lock", owner="a", lease_for=LEASE)
    token = answer.token
    assert token is not None

    assert before <= answer.now == answer.lease_until - LEASE
    assert token >= before
    assert [one.owner for one in await store.locks()] == ["a"]
    extended = await store.extend("lock", token, lease_for=LEASE)
    assert extended is not None
    assert extended >= answer.lease_until
    assert await store.release("lock", token) is True
