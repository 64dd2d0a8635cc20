"""What a limiter's rule says: pure, from what was granted to the verdict. The stores keep the takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncron import _defaults as limits
from oncron._groups import LimitKind, LimitRule


class Verdict(NamedTuple):
    granted: bool
    used: int
    """After the step."""
    retry_in: int
    empty_at: int
    """Of a bucket, after the step; of other kinds as it was."""


def judge(rule: LimitRule, takes: Iterable[tuple[int, int]], empty_at: int, cost: int, now: int) -> Verdict:
    """Whether the cost fits now. `takes` are (at, cost) of what was granted, the oldest first; at least
    those that `counts_after` still counts."""
    if rule.kind is LimitKind.BUCKET:
        return _pour(rule, empty_at, cost, now)
    since = counts_after(rule, now)
    counted = [(at, took) for at, took in takes if at > since]
    used = sum(took for _, took in counted)
    if used + cost <= rule.amount:
        return Verdict(True, used + cost, 0, empty_at)
    return Verdict(False, used, _until_it_fits(rule, counted, used + cost - rule.amount, now), empty_at)


def counts_after(rule: LimitRule, now: int) -> int:
    """Takes later than this instant count against the rule."""
    if rule.kind is LimitKind.WINDOW:
        return now - now % rule.per - 1
    return now - rule.per


def remembered_until(rule: LimitRule, at: int, keep_for: int) -> int:
    """Longer than it counts: were it forgotten at the very end, a clock that goes back a little would grant
    it anew."""
    return at + max(rule.per + limits.STALE_WALL, keep_for)


def drained(rule: LimitRule, empty_at: int, now: int) -> int:
    """The bucket's level now, rounded up."""
    return -(-max(0, empty_at - now - rounded(rule)) * rule.amount // rule.per)


def poured(rule: LimitRule, cost: int) -> int:
    """How much later the bucket is empty for a take of that cost: rounded up, so that it never holds too much."""
    return -(-cost * rule.per // rule.amount)


def rounded(rule: LimitRule) -> int:
    """How much later than its amount takes a full bucket may be empty, because each take was rounded up: else
    ten seconds for three would have room for two. Less than a cost of 1 takes, so that no more fits."""
    return min(rule.amount, poured(rule, 1)) - 1 if rule.per % rule.amount else 0


def settled(rule: LimitRule, take_empty_at: int, cost: int, true_cost: int, now: int) -> int:
    """How much later (or, below 0, earlier) the bucket is empty for the true cost of a take after which it
    was to be empty at `take_empty_at`. What it has drained by now is not given back: others came after it."""
    later = poured(rule, true_cost) - poured(rule, cost)
    return max(later, -max(0, take_empty_at - now))


def _pour(rule: LimitRule, empty_at: int, cost: int, now: int) -> Verdict:
    after = max(empty_at, now) + poured(rule, cost)
    too_late = after - now - rule.per - rounded(rule)
    if too_late <= 0:
        return Verdict(True, drained(rule, after, now), 0, after)
    return Verdict(False, drained(rule, empty_at, now), too_late, empty_at)


def _until_it_fits(rule: LimitRule, counted: list[tuple[int, int]], too_much: int, now: int) -> int:
    for at, took in sorted(counted):
        too_much -= took
        if too_much <= 0:
            return at + rule.per - (at % rule.per if rule.kind is LimitKind.WINDOW else 0) - now
    return rule.per
