"""Replicas at the same instant, about a lock or a limiter: real sessions, let go at a barrier, again and again."""

from __future__ import annotations

import asyncio

import pytest

from oncron._groups import LimitKind, LimitRule, Take
from oncron._model import new_id
from oncron._store import ReadableStore
from tests.contract.given import LEASE, SECOND, at
from tests.contract.race import Racers, rounds


@pytest.mark.parametrize("slots", [1, 2])
async def test_of_four_that_want_a_lock_so_many_get_it_as_it_has_slots(
    store: ReadableStore, racers: Racers, slots: int
) -> None:
    for n, head_start in rounds():
        name = f"lock {n}"

        async def want(session: ReadableStore, name=name):
            return await session.acquire(name, owner=new_id(), lease_for=LEASE, slots=slots, now=at(0))

        answers = await racers.race(want, want, want, want, head_start=head_start)

        tokens = [answer.token for answer in answers if answer.token is not None]
        assert len(set(tokens)) == len(tokens) == slots
        assert [one.token for one in await store.locks(now=at(0)) if one.name == name] == sorted(tokens)


async def test_one_owner_that_asks_on_four_sessions_has_one_token(store: ReadableStore, racers: Racers) -> None:
    """G7: the first call is still under way when it is repeated."""
    for n, head_start in rounds():
        name = f"lock {n}"

        async def want(session: ReadableStore, name=name):
            return (await session.acquire(name, owner="a", lease_for=LEASE, slots=4, now=at(0))).token

        assert len(set(await racers.race(want, want, want, want, head_start=head_start))) == 1
        assert len([one for one in await store.locks(now=at(0)) if one.name == name]) == 1


async def test_a_lease_that_expired_is_extended_or_taken_over_and_never_both(
    store: ReadableStore, racers: Racers
) -> None:
    """G5."""
    for n, head_start in rounds():
        name = f"lock {n}"
        token = (await store.acquire(name, owner="a", lease_for=LEASE, now=at(0))).token
        assert token is not None

        async def extend(session: ReadableStore, name=name, token=token):
            return await session.extend(name, token, lease_for=LEASE, now=at(20))

        async def want(session: ReadableStore, name=name):
            return await session.acquire(name, owner=new_id(), lease_for=LEASE, now=at(20))

        until, *answers = await racers.race(extend, want, want, head_start=head_start)

        winners = [answer.token for answer in answers if answer.token is not None]
        assert len(winners) == (1 if until is None else 0)
        assert all(winner > token for winner in winners)
        await asyncio.gather(*(store.release(name, winner, now=at(20)) for winner in winners))


async def test_tokens_grow_over_releases_under_way(store: ReadableStore, racers: Racers) -> None:
    last = (await store.acquire("lock", owner="o", lease_for=LEASE, now=at(0))).token
    for _, head_start in rounds():
        assert last is not None

        async def release(session: ReadableStore, token=last):
            return await session.release("lock", token, now=at(0))

        async def want(session: ReadableStore):
            return (await session.acquire("lock", owner=new_id(), lease_for=LEASE, now=at(0))).token

        released, again, got = await racers.race(release, release, want, head_start=head_start)

        assert (released, again) in ((True, False), (False, True))
        if got is None:
            got = (await store.acquire("lock", owner=new_id(), lease_for=LEASE, now=at(0))).token
        assert got is not None
        assert got > last
        last = got


@pytest.mark.parametrize("kind", LimitKind)
async def test_four_that_take_at_once_take_no_more_than_the_rule(
    store: ReadableStore, racers: Racers, kind: LimitKind
) -> None:
    rule = LimitRule(kind=kind, amount=5, per=10 * SECOND)
    for n, head_start in rounds():
        limiter = f"{kind} {n}"

        async def take(session: ReadableStore, limiter=limiter) -> bool:
            return (await session.take(Take(limiter=limiter, nonce=new_id(), rule=rule, cost=2), now=at(0))).granted

        assert sum(await racers.race(take, take, take, take, head_start=head_start)) == 2
        assert (await store.taken(limiter, rule, now=at(0))).used == 4


@pytest.mark.parametrize("kind", LimitKind)
async def test_one_nonce_on_four_sessions_counts_once(store: ReadableStore, racers: Racers, kind: LimitKind) -> None:
    """G7."""
    rule = LimitRule(kind=kind, amount=5, per=10 * SECOND)
    for n, head_start in rounds():
        limiter = f"{kind} {n}"

        async def take(session: ReadableStore, limiter=limiter) -> bool:
            return (await session.take(Take(limiter=limiter, nonce="same", rule=rule, cost=2), now=at(0))).granted

        assert await racers.race(take, take, take, take, head_start=head_start) == [True] * 4
        assert (await store.taken(limiter, rule, now=at(0))).used == 2


async def test_a_settled_cost_is_not_lost_beside_others_that_take(store: ReadableStore, racers: Racers) -> None:
    rule = LimitRule(kind=LimitKind.BUCKET, amount=100, per=10 * SECOND)
    for n, head_start in rounds():
        limiter = f"bucket {n}"
        await store.take(Take(limiter=limiter, nonce="mine", rule=rule, cost=50), now=at(0))

        async def settle(session: ReadableStore, limiter=limiter) -> bool:
            return await session.settle(limiter, "mine", 10, now=at(0)) is not None

        async def take(session: ReadableStore, limiter=limiter) -> bool:
            return (await session.take(Take(limiter=limiter, nonce=new_id(), rule=rule, cost=7), now=at(0))).granted

        assert all(await racers.race(settle, take, take, head_start=head_start))
        assert (await store.taken(limiter, rule, now=at(0))).used == 24
