"""The engine's small parts, one by one: the store's clock as a replica sees it, who is first, the order of queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from oncron._engine.door import Door, StoreClock
from oncron._engine.shards import SHARDS, Shards, shard_of
from oncron._engine.worker import Worker
from oncron.errors import StoreUnavailable
from tests.simulation.world import SECOND, START, passes, virtual_time

# --- the store's clock ------------------------------------------------------------------------

ANSWERS = st.lists(
    st.tuples(st.integers(0, 30 * SECOND), st.integers(0, 2 * SECOND), st.integers(0, 2 * SECOND)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(answers=ANSWERS, offset=st.integers(-(10**15), 10**15), drift_ppm=st.integers(-24, 24))
def test_the_estimate_is_never_ahead_of_the_stores_clock_and_no_further_behind_than_the_last_round_trip(
    answers: list[tuple[int, int, int]], offset: int, drift_ppm: int
) -> None:
    """Each answer: a pause, then the way there, then the way back."""
    clock, boot = StoreClock(), 10**12

    def store_at(at: int) -> int:
        return at + offset + (at - 10**12) * drift_ppm // 1_000_000

    for pause, there, back in answers:
        sent = boot + pause
        now, boot = store_at(sent + there), sent + there + back
        clock.heard(sent, boot, now)
        low = boot + clock._low
        assert low <= store_at(boot) + 2
        assert store_at(boot) - low <= (there + back) * (1 + 50e-6) + 2
        assert clock.boot_at(store_at(boot)) >= boot - 2, "waiting until then is never too early"


def test_a_clock_that_was_set_is_believed_at_once() -> None:
    clock = StoreClock()
    clock.heard(1000, 1010, 5_000)
    clock.heard(2000, 2010, 9_000_000)
    assert 9_000_000 - 2010 <= clock._low <= 9_000_000 - 2000
    clock.heard(3000, 3010, 4_000)
    assert 4_000 - 3010 <= clock._low <= 4_000 - 3000


def test_many_answers_are_better_than_one() -> None:
    clock = StoreClock()
    clock.heard(0, 1_000_000, 500_000 + 70)
    wide = clock._high - clock._low
    clock.heard(2_000_000, 2_000_100, 2_000_050 + 70)
    clock.heard(3_000_000, 3_900_000, 3_200_000 + 70)
    assert clock._high - clock._low < 300 < wide


# --- the door ---------------------------------------------------------------------------------


class Silent:
    """A store that answers when it is told to."""

    url = "memory://silent"

    def __init__(self) -> None:
        self.resets = 0

    async def reset(self) -> None:
        self.resets += 1


def test_a_call_that_takes_too_long_fails_leaves_its_connection_and_tells_once() -> None:
    async def story() -> tuple[list[bool], int]:
        told: list[bool] = []
        store: Any = Silent()
        door = Door(store, lambda up, _reason: told.append(up))
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="did not answer within 3 s"):
                await door(lambda _store: passes(60), deadline=3 * SECOND)
        await door(lambda _store: passes(1), deadline=3 * SECOND)
        return told, store.resets

    with virtual_time(0) as loop:
        told, resets = loop.run_until_complete(story())
        assert told == [False, True]
        assert resets == 2
        assert loop.now_us - START == 7 * SECOND


def test_calls_that_fail_together_leave_their_connection_once() -> None:
    """Else those that are repeated on the fresh one would be broken off by those that fail later, and so on."""

    async def story() -> list[int]:
        store: Any = Silent()
        door, resets = Door(store, lambda *_: None), list[int]()

        async def broken(_store: object) -> None:
            await passes(0.5)
            raise StoreUnavailable("connection reset")

        async def call(after: float, deadline: int) -> None:
            await passes(after)
            with pytest.raises(StoreUnavailable):
                await door(broken, deadline=deadline)
            resets.append(store.resets)

        # The second one is sent before the first one failed, and fails after it; the third one is sent afterwards.
        await asyncio.gather(call(0, SECOND), call(0.4, SECOND), call(0.6, SECOND))
        return resets

    with virtual_time(0) as loop:
        assert loop.run_until_complete(story()) == [1, 1, 2]


def test_persisting_repeats_until_it_succeeds_or_the_time_is_up() -> None:
    calls: list[int] = []

    async def story() -> str:
        store: Any = Silent()
        door = Door(store, lambda *_: None)

        async def third_time(_store: object) -> str:
            calls.append(1)
            if len(calls) < 3:
                raise StoreUnavailable("not yet")
            return "here"

        async def never(_store: object) -> str:
            raise StoreUnavailable("never")

        answer = await door.persist(third_time, 10 * SECOND)
        with pytest.raises(StoreUnavailable, match="never"):
            await door.persist(never, 10 * SECOND)
        return answer

    with virtual_time(0) as loop:
        assert loop.run_until_complete(story()) == "here"
        assert len(calls) == 3
        assert 9 * SECOND <= loop.now_us - START <= 11 * SECOND


def test_contact_is_broken_by_a_silence_and_not_by_one_failed_call() -> None:
    async def story() -> list[bool]:
        store: Any = Silent()
        door = Door(store, lambda *_: None, silence=5 * SECOND)

        async def fine(_store: object) -> None: ...

        async def fails(_store: object) -> None:
            raise StoreUnavailable("this once")

        await door(fine)
        since, kept = door.contact_since, []
        for _ in range(4):
            await passes(2)
            with pytest.raises(StoreUnavailable):
                await door(fails)
            await passes(2)
            await door(fine)
            kept.append(door.contact_since == since)
        await passes(6)
        await door(fine)
        return [*kept, door.contact_since == since]

    with virtual_time(0) as loop:
        assert loop.run_until_complete(story()) == [True] * 4 + [False]


# --- who is first -----------------------------------------------------------------------------

NAMES = [f"s{k}" for k in range(500)]


def firsts(members: frozenset[str]) -> dict[str, str]:
    by_member = {member: Shards(member) for member in members}
    for shards in by_member.values():
        shards.meet(members, 0)
    found = {name: [member for member in members if by_member[member].is_mine(name)] for name in NAMES}
    assert all(len(mine) == 1 for mine in found.values()), "exactly one is first"
    return {name: mine[0] for name, mine in found.items()}


@settings(max_examples=10, deadline=None)
@given(st.sets(st.text("abcdef0123456789", min_size=4, max_size=8), min_size=2, max_size=12))
def test_when_a_replica_leaves_only_its_own_shards_move(members: set[str]) -> None:
    everyone = frozenset(members)
    before = firsts(everyone)
    gone = min(everyone)
    after = firsts(everyone - {gone})

    for name in NAMES:
        assert after[name] == before[name] or before[name] == gone


def test_alone_it_is_first_for_everything_also_before_it_was_told_of_others() -> None:
    alone = Shards("me")
    assert all(alone.is_mine(name) for name in NAMES)
    assert alone.meet(frozenset(), 0) is False


def test_the_shards_are_shared_out_evenly_enough() -> None:
    counts = Counter(firsts(frozenset(f"host:{k}:{k * 7919}" for k in range(8))).values())

    assert len(counts) >= 6
    assert max(counts.values()) <= len(NAMES) // 2
    assert {shard_of(name) for name in NAMES} == set(range(SHARDS))


def test_a_first_that_does_not_come_three_times_is_passed_over_for_a_while() -> None:
    members = frozenset(("a", "b"))
    mine = Shards("a")
    mine.meet(members, 0)
    others = next(name for name in NAMES if not mine.is_mine(name))

    assert [mine.absent([others], 100) for _ in range(3)] == [False, False, True]
    assert mine.is_mine(others)
    assert mine.meet(members, 100) is True, "then it is tried again"
    assert not mine.is_mine(others)


def test_a_first_that_comes_is_forgiven_earlier_absences() -> None:
    members = frozenset(("a", "b"))
    mine = Shards("a")
    mine.meet(members, 0)
    others = next(name for name in NAMES if not mine.is_mine(name))

    for _ in range(10):
        assert mine.absent([others], 100) is False
        assert mine.absent([others], 100) is False
        mine.came(others)
    assert not mine.is_mine(others)


# --- queues -----------------------------------------------------------------------------------


def order_of(queues: Any) -> Any:
    worker: Any = type("Half", (), {"_settings": type("S", (), {"queues": queues})()})()
    return Worker._queue_order(worker)


def test_a_sequence_of_queues_is_a_strict_order_and_none_is_every_queue() -> None:
    assert order_of(("critical", "default", "mail")) == ("critical", "default", "mail")
    assert order_of(None) is None


def test_weights_are_how_often_a_queue_comes_first_and_no_queue_is_left_out() -> None:
    with virtual_time(7):
        drawn = [order_of({"critical": 6, "default": 3, "mail": 1}) for _ in range(4_000)]

    assert all(sorted(order) == ["critical", "default", "mail"] for order in drawn)
    first = Counter(order[0] for order in drawn)
    assert 0.55 < first["critical"] / 4_000 < 0.65
    assert 0.25 < first["default"] / 4_000 < 0.35
    assert 0.07 < first["mail"] / 4_000 < 0.13
