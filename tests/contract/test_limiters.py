"""Limiters: never more than the rule, by the store's clock; every grant counted once (G7)."""

from __future__ import annotations

from typing import Any

import pytest

from oncron._groups import LimitKind, LimitRule, Take, Taken
from oncron._model import new_id
from oncron._store import ReadableStore
from tests.contract.conftest import Connect
from tests.contract.given import DAY, FAR_AHEAD, SECOND, at

KINDS = (LimitKind.WINDOW, LimitKind.SLIDING, LimitKind.BUCKET)
MINUTE = at(20)
"""The beginning of a minute: where a window of ten seconds begins as well."""
LONG = 3600 * SECOND


def rule_of(kind: LimitKind = LimitKind.SLIDING, amount: int = 3, per: int = 10 * SECOND) -> LimitRule:
    return LimitRule(kind=kind, amount=amount, per=per)


async def take(
    store: ReadableStore, rule: LimitRule, cost: int = 1, *, now: int, limiter: str = "calls", **options: Any
) -> Taken:
    nonce = options.pop("nonce", None) or new_id()
    wanted = Take(limiter=limiter, nonce=nonce, rule=rule, cost=cost, **options)
    return await store.take(wanted, now=now)


async def granted(store: ReadableStore, rule: LimitRule, *costs: int, now: int, **options: Any) -> None:
    for cost in costs:
        assert (await take(store, rule, cost, now=now, **options)).granted


@pytest.mark.parametrize("kind", KINDS)
async def test_as_much_as_the_rule_allows_is_granted_and_no_more(store: ReadableStore, kind: LimitKind) -> None:
    rule = rule_of(kind)

    answers = [await take(store, rule, now=MINUTE) for _ in range(5)]

    assert [answer.granted for answer in answers] == [True, True, True, False, False]
    assert answers[2].used >= 3
    assert answers[0].retry_in == 0
    assert {answer.now for answer in answers} == {MINUTE}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_refused_is_not_counted(store: ReadableStore, kind: LimitKind) -> None:
    rule = rule_of(kind)
    await granted(store, rule, 2, now=MINUTE)

    assert not (await take(store, rule, 2, now=MINUTE)).granted

    assert (await take(store, rule, 1, now=MINUTE)).granted


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_take_fits_when_it_was_told_to_and_not_before(store: ReadableStore, kind: LimitKind) -> None:
    rule = rule_of(kind)
    await granted(store, rule, 1, now=MINUTE)
    await granted(store, rule, 2, now=MINUTE + 3 * SECOND)
    refused = await take(store, rule, 2, now=MINUTE + 4 * SECOND)
    then = MINUTE + 4 * SECOND + refused.retry_in

    assert not refused.granted
    assert not (await take(store, rule, 2, now=then - 1)).granted
    assert (await take(store, rule, 2, now=then)).granted


async def test_a_window_begins_anew_at_its_multiple(store: ReadableStore) -> None:
    rule = rule_of(LimitKind.WINDOW)
    await granted(store, rule, 3, now=MINUTE + 9 * SECOND)

    refused = await take(store, rule, now=MINUTE + 9 * SECOND)

    assert (refused.granted, refused.used, refused.retry_in) == (False, 3, SECOND)
    assert not (await take(store, rule, now=MINUTE + 10 * SECOND - 1)).granted
    assert (await take(store, rule, 3, now=MINUTE + 10 * SECOND)).used == 3


async def test_a_sliding_limit_counts_what_was_granted_less_than_its_length_ago(store: ReadableStore) -> None:
    rule = rule_of(LimitKind.SLIDING)
    await granted(store, rule, 2, now=at(0))
    await granted(store, rule, 1, now=at(4))

    refused = await take(store, rule, now=at(5))

    assert (refused.used, refused.retry_in) == (3, 5 * SECOND)
    assert not (await take(store, rule, now=at(10) - 1)).granted
    assert (await take(store, rule, 2, now=at(10))).used == 3
    assert (await take(store, rule, now=at(10))).retry_in == 4 * SECOND


async def test_a_bucket_drains_evenly_and_never_holds_more_than_its_amount(store: ReadableStore) -> None:
    rule = rule_of(LimitKind.BUCKET, amount=5, per=10 * SECOND)
    await granted(store, rule, 5, now=at(0))

    refused = await take(store, rule, now=at(0))

    assert (refused.used, refused.retry_in) == (5, 2 * SECOND)
    assert (await take(store, rule, now=at(2))).granted
    assert not (await take(store, rule, now=at(2))).granted
    idle = at(1000)
    assert [(await take(store, rule, 2, now=idle)).granted for _ in range(3)] == [True, True, False]


async def test_each_limiter_counts_for_itself(store: ReadableStore) -> None:
    await granted(store, rule_of(), 3, now=at(0), limiter="one")

    assert (await take(store, rule_of(), 3, now=at(0), limiter="two")).granted


async def test_what_another_session_was_granted_counts(store: ReadableStore, other: ReadableStore) -> None:
    await granted(store, rule_of(), 2, now=at(0))

    assert (await take(other, rule_of(), 2, now=at(0))).used == 2


async def test_grants_outlive_the_sessions(connect: Connect, store: ReadableStore) -> None:
    await granted(store, rule_of(), 3, now=at(0))
    await granted(store, rule_of(LimitKind.BUCKET), 3, now=at(0), limiter="bucket")
    await store.close()
    fresh = connect()
    await fresh.open()

    assert not (await take(fresh, rule_of(), now=at(1))).granted
    assert not (await take(fresh, rule_of(LimitKind.BUCKET), now=at(1), limiter="bucket")).granted

    await fresh.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_nonce_that_was_granted_is_granted_again_and_counted_once(
    store: ReadableStore, kind: LimitKind
) -> None:
    """G7."""
    rule, nonce = rule_of(kind), new_id()
    await granted(store, rule, 2, now=MINUTE, nonce=nonce)

    for later in (0, 1, 30):
        again = await take(store, rule, 2, now=MINUTE + later * SECOND, nonce=nonce)
        assert (again.granted, again.retry_in) == (True, 0)

    assert (await take(store, rule, 3, now=MINUTE + 30 * SECOND)).granted


@pytest.mark.parametrize("kind", KINDS)
async def test_a_nonce_is_granted_again_even_while_the_limit_is_reached(store: ReadableStore, kind: LimitKind) -> None:
    rule, nonce = rule_of(kind), new_id()
    await granted(store, rule, 1, now=MINUTE, nonce=nonce)
    await granted(store, rule, 2, now=MINUTE)

    again = await take(store, rule, 1, now=MINUTE, nonce=nonce)

    assert (again.granted, again.used) == (True, (await take(store, rule, 3, now=MINUTE)).used)


async def test_a_nonce_that_was_refused_may_be_granted_later(store: ReadableStore) -> None:
    nonce = new_id()
    await granted(store, rule_of(), 3, now=at(0))
    assert not (await take(store, rule_of(), now=at(1), nonce=nonce)).granted

    assert (await take(store, rule_of(), now=at(10), nonce=nonce)).used == 1


async def test_the_nonces_of_two_limiters_have_nothing_to_do_with_each_other(store: ReadableStore) -> None:
    nonce = new_id()
    await granted(store, rule_of(), 3, now=at(0), nonce=nonce, limiter="one")

    assert (await take(store, rule_of(), 2, now=at(0), nonce=nonce, limiter="two")).used == 2


async def test_a_nonce_is_remembered_as_long_as_was_asked_for(store: ReadableStore) -> None:
    nonce = new_id()
    await granted(store, rule_of(), 3, now=at(0), nonce=nonce, keep_for=LONG)
    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(3599))

    again = await take(store, rule_of(), 3, now=at(3599), nonce=nonce, keep_for=LONG)
    assert (again.granted, again.used) == (True, 0)

    assert (await take(store, rule_of(), 3, now=at(3601), nonce=nonce, keep_for=LONG)).used == 3


async def test_a_clock_that_stands_grants_no_more(store: ReadableStore) -> None:
    for kind in KINDS:
        rule = rule_of(kind)
        answers = [(await take(store, rule, now=MINUTE, limiter=kind)).granted for _ in range(9)]
        assert sum(answers) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("back", [1, 3 * SECOND, 25 * SECOND])
async def test_a_clock_that_goes_back_grants_no_more(store: ReadableStore, kind: LimitKind, back: int) -> None:
    rule = rule_of(kind)
    await granted(store, rule, 3, now=MINUTE)

    refused = await take(store, rule, now=MINUTE - back)

    assert not refused.granted
    assert refused.used >= 3


async def test_a_grant_that_counts_no_more_counts_again_when_the_clock_goes_back(store: ReadableStore) -> None:
    """It may not be forgotten the moment it stops counting."""
    per = 600 * SECOND
    rule = rule_of(LimitKind.SLIDING, per=per)
    await granted(store, rule, 3, now=at(0))
    await granted(store, rule, 1, now=at(0) + per)

    refused = await take(store, rule, now=at(0) + per - 2 * SECOND)

    assert (refused.granted, refused.used) == (False, 4)


# --- settle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_the_true_cost_takes_the_place_of_the_estimate(store: ReadableStore, kind: LimitKind) -> None:
    rule, nonce = rule_of(kind, amount=10), new_id()
    await granted(store, rule, 8, now=MINUTE, nonce=nonce)

    said = await store.settle("calls", nonce, 3, now=MINUTE)

    assert said == Taken(granted=True, now=MINUTE, used=3)
    assert not (await take(store, rule, 8, now=MINUTE)).granted
    assert (await take(store, rule, 7, now=MINUTE)).granted


@pytest.mark.parametrize("kind", KINDS)
async def test_a_true_cost_that_is_higher_is_counted_and_not_refused(store: ReadableStore, kind: LimitKind) -> None:
    rule, nonce = rule_of(kind, amount=10), new_id()
    await granted(store, rule, 8, now=MINUTE, nonce=nonce)

    said = await store.settle("calls", nonce, 15, now=MINUTE)

    assert said is not None
    assert (said.granted, said.used) == (True, 15)
    refused = await take(store, rule, 1, now=MINUTE)
    assert not refused.granted
    then = MINUTE + refused.retry_in
    assert not (await take(store, rule, 1, now=then - 1)).granted
    assert (await take(store, rule, 1, now=then)).granted


@pytest.mark.parametrize("kind", KINDS)
async def test_settling_may_be_repeated(store: ReadableStore, kind: LimitKind) -> None:
    rule, nonce = rule_of(kind, amount=10), new_id()
    await granted(store, rule, 8, now=MINUTE, nonce=nonce)

    said = [await store.settle("calls", nonce, cost, now=MINUTE) for cost in (3, 3, 9, 4, 4)]

    assert [answer.used for answer in said if answer is not None] == [3, 3, 9, 4, 4]
    assert (await take(store, rule, 7, now=MINUTE)).granted is False
    assert (await take(store, rule, 6, now=MINUTE)).granted is True


async def test_nothing_is_settled_for_a_nonce_that_is_not_known(store: ReadableStore) -> None:
    refused = new_id()
    await granted(store, rule_of(), 3, now=at(0))
    await take(store, rule_of(), 1, now=at(0), nonce=refused)

    assert await store.settle("calls", refused, 1, now=at(0)) is None
    assert await store.settle("calls", new_id(), 1, now=at(0)) is None
    assert await store.settle("unknown", refused, 1, now=at(0)) is None

    assert (await store.taken("calls", rule_of(), now=at(0))).used == 3


async def test_a_bucket_gives_nothing_back_that_it_has_drained(store: ReadableStore) -> None:
    """Ten at once, drained ten seconds later; then ten more. That the first were one is no room for nine more."""
    rule, nonce = rule_of(LimitKind.BUCKET, amount=10, per=10 * SECOND), new_id()
    await granted(store, rule, 10, now=at(0), nonce=nonce)
    await granted(store, rule, 10, now=at(20))

    said = await store.settle("calls", nonce, 1, now=at(20))

    assert said is not None
    assert said.used == 10
    assert not (await take(store, rule, 1, now=at(20))).granted


async def test_a_bucket_gives_back_what_it_has_not_drained_yet(store: ReadableStore) -> None:
    rule, nonce = rule_of(LimitKind.BUCKET, amount=10, per=10 * SECOND), new_id()
    await granted(store, rule, 4, now=at(0))
    await granted(store, rule, 6, now=at(0), nonce=nonce)

    said = await store.settle("calls", nonce, 1, now=at(7))

    assert said is not None
    assert said.used == 0
    assert (await take(store, rule, 10, now=at(7))).granted


# --- changed rules ----------------------------------------------------------------------------


async def test_a_changed_rule_judges_what_is_on_record_by_its_own_measure(store: ReadableStore) -> None:
    for now in (at(0), at(5), at(8)):
        await granted(store, rule_of(amount=9), 2, now=now, keep_for=LONG)

    tighter = await take(store, rule_of(amount=4), now=at(8))
    assert (tighter.granted, tighter.used) == (False, 6)
    assert (await take(store, rule_of(amount=5, per=4 * SECOND), now=at(8))).used == 5
    longer = await take(store, rule_of(amount=7, per=LONG), now=at(100))
    assert (longer.granted, longer.used) == (True, 7)
    assert (await take(store, rule_of(amount=7, per=LONG), now=at(100))).granted is False
    assert (await take(store, rule_of(LimitKind.WINDOW, amount=9, per=LONG), 2, now=at(100))).used == 9


# --- looking ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_taken_is_told_without_taking_any(store: ReadableStore, kind: LimitKind) -> None:
    rule = rule_of(kind, amount=10)
    assert await store.taken("calls", rule, now=MINUTE) == Taken(granted=True, now=MINUTE, used=0)
    await granted(store, rule, 4, now=MINUTE)

    looks = [await store.taken("calls", rule, now=MINUTE) for _ in range(9)]
    assert {(look.granted, look.used) for look in looks} == {(True, 4)}

    await granted(store, rule, 6, now=MINUTE)
    look = await store.taken("calls", rule, now=MINUTE)
    assert (look.granted, look.used) == (False, 10)
    assert look.retry_in == (await take(store, rule, now=MINUTE)).retry_in


async def test_looking_by_another_rule_changes_none(store: ReadableStore) -> None:
    nonce, bucket = new_id(), rule_of(LimitKind.BUCKET, amount=10)
    await granted(store, bucket, 10, now=at(0), nonce=nonce)

    await store.taken("calls", rule_of(LimitKind.SLIDING, amount=1), now=at(0))

    said = await store.settle("calls", nonce, 5, now=at(2))
    assert said is not None
    assert said.used == 3


# --- forgetting -------------------------------------------------------------------------------


async def test_pruning_forgets_no_grant_that_counts(store: ReadableStore) -> None:
    per = 2 * DAY
    for kind in KINDS:
        await granted(store, rule_of(kind, per=per), 3, now=at(0), limiter=kind)

    later = at(0) + DAY // 2
    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=later)

    for kind in (LimitKind.SLIDING, LimitKind.BUCKET):
        assert (await take(store, rule_of(kind, per=per), 3, now=later, limiter=kind)).granted is False


async def test_a_bucket_is_not_forgotten_with_its_takes(store: ReadableStore) -> None:
    """Settled to much more than its rule allows it stays full for longer than its takes are remembered."""
    rule, nonce = rule_of(LimitKind.BUCKET), new_id()
    await granted(store, rule, 3, now=at(0), nonce=nonce)
    await store.settle("calls", nonce, 300, now=at(0))

    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(500))

    refused = await take(store, rule, 3, now=at(500))
    assert (refused.granted, refused.retry_in) == (False, 500 * SECOND - 2)


async def test_without_a_now_the_clock_of_the_store_counts(store: ReadableStore) -> None:
    before, rule = await store.now(), rule_of(per=LONG)
    taken = await store.take(Take(limiter="calls", nonce="n", rule=rule))
    said = await store.settle("calls", "n", 3)
    look = await store.taken("calls", rule)

    assert before <= taken.now
    assert said is not None
    assert taken.now <= said.now <= look.now
    assert (look.granted, look.used) == (False, 3)
