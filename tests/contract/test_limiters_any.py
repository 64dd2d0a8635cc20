"""Whatever is asked for, in whatever order, whatever the clock does: no limiter grants more than its rule.

Each play goes to a store and to a record of everything that was granted, in the words of the contract
and never forgetting: their verdicts are the same.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings, strategies as st

from oncron._groups import LimitKind, LimitRule, Take, Taken
from oncron._store import ReadableStore
from oncron.stores import _limits
from tests.contract.conftest import KINDS, connector
from tests.contract.given import SECOND, at

EXAMPLES = int(os.environ.get("ONCRON_PLAYS", "30"))
LONG = 3600 * SECOND

amounts = st.integers(1, 12)
lengths = st.sampled_from((10, 1000, 3 * SECOND, 10 * SECOND))
"""Of rules: from so short that rounding shows to what people use."""


AMOUNTS_IN_A_TIME = st.builds(
    LimitRule, kind=st.sampled_from((LimitKind.WINDOW, LimitKind.SLIDING)), amount=amounts, per=lengths
)
BUCKETS = st.builds(LimitRule, kind=st.just(LimitKind.BUCKET), amount=amounts, per=lengths.filter(lambda per: per > 10))


def steps(*, back: bool = False) -> st.SearchStrategy[list[Any]]:
    """(what is asked for, how far the clock goes on in thirds of `per`, cost, whose nonce)."""
    strides = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5, 9, *((-1, -2) if back else ())))
    kinds = st.sampled_from(("take", "take", "take", "again", "settle", "look", "prune"))
    return st.lists(st.tuples(kinds, strides, st.integers(0, 6), st.integers(0, 50)), min_size=1, max_size=25)


class Granted:
    """What was granted, by (nonce, instant, cost), and what that says of one more."""

    def __init__(self) -> None:
        self.takes: dict[str, tuple[int, int]] = {}

    def used(self, rule: LimitRule, now: int) -> int:
        return sum(cost for at_, cost in self.takes.values() if self._counts(rule, at_, now))

    def fits(self, rule: LimitRule, cost: int, now: int) -> bool:
        return self.used(rule, now) + cost <= rule.amount

    def fits_first_in(self, rule: LimitRule, cost: int, now: int) -> int:
        """How long until it fits, found by trying the only instants at which anything leaves."""
        ends = {now + rule.per}
        for at_, _ in self.takes.values():
            ends |= {at_ + rule.per, at_ - at_ % rule.per + rule.per}
        return next(end - now for end in sorted(ends) if end > now and self.fits(rule, cost, end))

    def _counts(self, rule: LimitRule, at_: int, now: int) -> bool:
        if rule.kind is LimitKind.WINDOW:
            return at_ // rule.per >= now // rule.per
        return now - at_ < rule.per

    def most_in_any_window(self, rule: LimitRule) -> int:
        """The most that was granted in any stretch of the rule's length, or of its windows."""
        instants = [at_ for at_, _ in self.takes.values()]
        if rule.kind is LimitKind.WINDOW:
            begins = {at_ - at_ % rule.per for at_ in instants}
        else:
            begins = set(instants)
        return max(
            (sum(cost for at_, cost in self.takes.values() if begin <= at_ < begin + rule.per) for begin in begins),
            default=0,
        )


Play = Callable[[Callable[[ReadableStore, str], Any]], None]


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Runs one play on a store, each with a limiter of its own."""
    store = connector(request.param, tmp_path, request)()
    names = (f"limiter {n}" for n in itertools.count())
    with asyncio.Runner() as runner:
        runner.run(store.open())
        runner.run(store.migrate())
        yield lambda work: runner.run(work(store, next(names)))
        runner.run(store.close())


def playing(**strategies: Any) -> Callable[[Any], Any]:
    limits = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    return lambda test: limits(given(**strategies)(test))


async def _take(store: ReadableStore, name: str, rule: LimitRule, cost: int, nonce: str, now: int) -> Taken:
    wanted = Take(limiter=name, nonce=nonce, rule=rule, cost=cost, keep_for=LONG)
    return await store.take(wanted, now=now)


async def played(store: ReadableStore, name: str, rule: LimitRule, moves: list[Any], *, settling: bool) -> Granted:
    """Makes the moves; each answer is what the record of grants says."""
    record, now = Granted(), at(0)
    for n, (move, stride, cost, pick) in enumerate(moves):
        now += stride * rule.per // 3
        known = list(record.takes)[pick % len(record.takes)] if record.takes else None
        if move == "again" and known is not None:
            again = await _take(store, name, rule, record.takes[known][1], known, now)
            assert (again.granted, again.used, again.retry_in) == (True, record.used(rule, now), 0)
        elif move == "settle" and known is not None and settling:
            record.takes[known] = (record.takes[known][0], cost)
            said = await store.settle(name, known, cost, now=now)
            assert said is not None
            assert said.used == record.used(rule, now)
        elif move == "look":
            look = await store.taken(name, rule, now=now)
            assert (look.granted, look.used) == (record.fits(rule, 1, now), record.used(rule, now))
        elif move == "prune":
            await store.prune(ended_before=0, failed_before=0, now=now)
        else:
            await _take_as_recorded(store, name, rule, record, min(max(cost, 1), rule.amount), f"n{n}", now)
    return record


async def _take_as_recorded(
    store: ReadableStore, name: str, rule: LimitRule, record: Granted, cost: int, nonce: str, now: int
) -> None:
    fits = record.fits(rule, cost, now)
    answer = await _take(store, name, rule, cost, nonce, now)
    assert (answer.granted, answer.now) == (fits, now)
    if fits:
        record.takes[nonce] = (now, cost)
        assert answer.retry_in == 0
    else:
        assert answer.retry_in == record.fits_first_in(rule, cost, now)
    assert answer.used == record.used(rule, now)


@pytest.mark.timeout(300)
def test_no_window_holds_more_than_the_amount_whatever_is_asked_for(play: Play) -> None:
    @playing(rule=AMOUNTS_IN_A_TIME, moves=steps())
    def check(rule: LimitRule, moves: list[Any]) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            record = await played(store, name, rule, moves, settling=False)
            assert record.most_in_any_window(rule) <= rule.amount

        play(work)

    check()


@pytest.mark.timeout(300)
def test_a_settled_cost_counts_instead_of_the_estimate_whatever_is_asked_for(play: Play) -> None:
    @playing(rule=AMOUNTS_IN_A_TIME, moves=steps())
    def check(rule: LimitRule, moves: list[Any]) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            await played(store, name, rule, moves, settling=True)

        play(work)

    check()


@pytest.mark.timeout(300)
def test_no_window_holds_more_although_the_clock_goes_back(play: Play) -> None:
    @playing(rule=AMOUNTS_IN_A_TIME, moves=steps(back=True))
    def check(rule: LimitRule, moves: list[Any]) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            record, now = Granted(), at(0)
            for n, (_, stride, cost, _) in enumerate(moves):
                now += stride * rule.per // 3
                wants = min(max(cost, 1), rule.amount)
                fits = record.fits(rule, wants, now)
                answer = await _take(store, name, rule, wants, f"n{n}", now)
                assert answer.granted is fits
                assert answer.used == record.used(rule, now) + (wants if fits else 0)
                if fits:
                    record.takes[f"n{n}"] = (now, wants)
            assert record.most_in_any_window(rule) <= rule.amount

        play(work)

    check()


@pytest.mark.timeout(300)
def test_a_rule_that_changes_judges_all_that_is_on_record(play: Play) -> None:
    @playing(
        changing=st.lists(AMOUNTS_IN_A_TIME, min_size=2, max_size=6),
        moves=steps(),
    )
    def check(changing: list[LimitRule], moves: list[Any]) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            record, now = Granted(), at(0)
            for n, (_, stride, cost, pick) in enumerate(moves):
                rule = changing[pick % len(changing)]
                now += stride * rule.per // 3
                await _take_as_recorded(store, name, rule, record, min(max(cost, 1), rule.amount), f"n{n}", now)

        play(work)

    check()


@pytest.mark.timeout(300)
def test_a_bucket_never_holds_more_than_its_amount_and_tells_when_it_has_room(play: Play) -> None:
    """The level is kept exactly here; the store may round a take up by less than a microsecond."""

    @playing(rule=BUCKETS, moves=steps(back=True))
    @example(rule=LimitRule(kind=LimitKind.BUCKET, amount=3, per=10 * SECOND), moves=[("take", 0, 1, 0)] * 4)
    @example(rule=LimitRule(kind=LimitKind.BUCKET, amount=1, per=10 * SECOND), moves=[("take", 0, 1, 0)] * 2)
    def check(rule: LimitRule, moves: list[Any]) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            now, empty_at = at(0), Fraction(0)
            tolerance = 2 * len(moves) + rule.amount
            for n, (_, stride, cost, _) in enumerate(moves):
                now += stride * rule.per // 3
                wants = min(max(cost, 1), rule.amount)
                after = max(empty_at, Fraction(now)) + Fraction(wants * rule.per, rule.amount)
                answer = await _take(store, name, rule, wants, f"n{n}", now)
                if answer.granted:
                    assert after <= now + rule.per + tolerance
                    empty_at = after
                    assert answer.used <= rule.amount
                else:
                    assert after > now + rule.per - tolerance
                    assert abs(after - now - rule.per - answer.retry_in) <= tolerance
                    await _fits_exactly_then(store, name, rule, wants, f"n{n}", now + answer.retry_in)
                    empty_at, now = after, now + answer.retry_in

        play(work)

    check()


async def _fits_exactly_then(
    store: ReadableStore, name: str, rule: LimitRule, cost: int, nonce: str, then: int
) -> None:
    assert (await _take(store, name, rule, cost, f"{nonce} early", then - 1)).granted is False
    assert (await _take(store, name, rule, cost, f"{nonce} then", then)).granted is True


@pytest.mark.timeout(300)
def test_a_bucket_from_idle_grants_its_amount_at_once_and_not_one_more(play: Play) -> None:
    @playing(
        rule=st.builds(LimitRule, kind=st.just(LimitKind.BUCKET), amount=st.integers(1, 300), per=lengths).filter(
            lambda rule: rule.amount**2 <= rule.per
        ),
        cost=st.integers(1, 300),
    )
    def check(rule: LimitRule, cost: int) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            first = min(cost, rule.amount)
            costs = [first] + [1] * (rule.amount - first)
            answers = [await _take(store, name, rule, each, f"n{n}", at(0)) for n, each in enumerate(costs[:20])]
            assert all(answer.granted for answer in answers)
            if len(costs) <= 20:
                assert (await _take(store, name, rule, 1, "more", at(0))).granted is False

        play(work)

    check()


@pytest.mark.timeout(300)
def test_what_is_settled_never_makes_a_bucket_grant_more_than_the_true_costs_allow(play: Play) -> None:
    @playing(rule=BUCKETS, moves=steps())
    def check(rule: LimitRule, moves: list[Any]) -> None:
        async def work(store: ReadableStore, name: str) -> None:
            record, now = Granted(), at(0)
            for n, (move, stride, cost, pick) in enumerate(moves):
                now += stride * rule.per // 3
                known = list(record.takes)[pick % len(record.takes)] if record.takes else None
                if move == "settle" and known is not None:
                    record.takes[known] = (record.takes[known][0], cost)
                    assert await store.settle(name, known, cost, now=now) is not None
                    continue
                wants = min(max(cost, 1), rule.amount)
                answer = await _take(store, name, rule, wants, f"n{n}", now)
                if answer.granted:
                    record.takes[f"n{n}"] = (now, wants)
                    assert _level(rule, record, now) <= rule.amount + Fraction(
                        (2 * len(moves) + rule.amount) * rule.amount, rule.per
                    )

        play(work)

    check()


def _level(rule: LimitRule, record: Granted, now: int) -> Fraction:
    """What a bucket holds now into which the true costs were poured."""
    level, last = Fraction(0), 0
    for at_, cost in [*record.takes.values(), (now, 0)]:
        level = max(Fraction(0), level - Fraction((at_ - last) * rule.amount, rule.per)) + cost
        last = at_
    return level


@playing(
    rule=AMOUNTS_IN_A_TIME,
    takes=st.lists(st.tuples(st.integers(-30, 12), st.integers(0, 6)), max_size=12),
    cost=st.integers(1, 12),
)
def test_a_refusal_tells_the_first_instant_at_which_it_fits(
    rule: LimitRule, takes: list[tuple[int, int]], cost: int
) -> None:
    """Also where the clock went back behind what was granted."""
    now, cost = at(0), min(cost, rule.amount)
    granted = sorted((now + stride * rule.per // 3, spent) for stride, spent in takes)
    verdict = _limits.judge(rule, granted, 0, cost, now)
    if verdict.granted:
        return

    then = now + verdict.retry_in
    assert not _limits.judge(rule, granted, 0, cost, then - 1).granted
    assert _limits.judge(rule, granted, 0, cost, then).granted
