"""What a limiter's rule says: pure, from what was granted to the verdict. The stores keep the takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncron._model import LimitKind, LimitRule


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
    counted = [(min(at, now), took) for at, took in takes if at > since]
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
    return at + max(rule.per, keep_for)


def drained(rule: LimitRule, empty_at: int, now: int) -> int:
    """The bucket's level now, rounded up."""
    return -(-max(0, empty_at - now) * rule.amount // rule.per)


def poured(rule: LimitRule, cost: int) -> int:
    """How much later the bucket is empty for a take of that cost: rounded up, so that it never holds too much."""
    return -(-cost * rule.per // rule.amount)


def _pour(rule: LimitRule, empty_at: int, cost: int, now: int) -> Verdict:
    after = max(empty_at, now) + poured(rule, cost)
    if after <= now + rule.per:
        return Verdict(True, drained(rule, after, now), 0, after)
    return Verdict(False, drained(rule, empty_at, now), after - now - rule.per, empty_at)


def _until_it_fits(rule: LimitRule, counted: list[tuple[int, int]], too_much: int, now: int) -> int:
    if rule.kind is LimitKind.WINDOW:
        return rule.per - now % rule.per
    for at, took in sorted(counted):
        too_much -= took
        if too_much <= 0:
            return at + rule.per - now
    return rule.per
