"""Limiters: what they granted is a row each; what that says of one more take is `stores._limits`."""

from __future__ import annotations

from oncron._groups import LimitKind, LimitRule, Take, Taken
from oncron.stores import _limits
from oncron.stores.sqlite._step import Step

_FORGOTTEN_AT_ONCE = 100
_LAST = (1 << 63) - 1


def take(step: Step, take: Take) -> Taken:
    step.do("take.forget", limiter=take.limiter, now=step.now, most=_FORGOTTEN_AT_ONCE)
    before, empty_at = _limiter(step, take.limiter)
    granted = step.row("take.get", limiter=take.limiter, nonce=take.nonce)
    if granted is not None and granted[2] > step.now:
        if before != take.rule:
            _put(step, take.limiter, take.rule, empty_at)
        return _said(step, take.limiter, take.rule, empty_at)
    verdict = _judge(step, take.limiter, take.rule, empty_at, take.cost)
    if before != take.rule or verdict.empty_at != empty_at:
        _put(step, take.limiter, take.rule, verdict.empty_at)
    if verdict.granted:
        step.do(
            "take.put",
            limiter=take.limiter,
            nonce=take.nonce,
            now=step.now,
            cost=take.cost,
            until=_limits.remembered_until(take.rule, step.now, take.keep_for),
            empty_at=verdict.empty_at,
        )
    return Taken(granted=verdict.granted, now=step.now, used=verdict.used, retry_in=verdict.retry_in)


def settle(step: Step, limiter: str, nonce: str, cost: int) -> Taken | None:
    rule, empty_at = _limiter(step, limiter)
    granted = step.row("take.get", limiter=limiter, nonce=nonce)
    if rule is None or granted is None:
        return None
    estimate, take_empty_at, _ = granted
    later = 0
    if rule.kind is LimitKind.BUCKET:
        later = _limits.settled(rule, take_empty_at, estimate, cost, step.now)
    if cost != estimate:
        step.do("take.settle", limiter=limiter, nonce=nonce, cost=cost, later=later)
    if later:
        _put(step, limiter, rule, empty_at + later)
    return _said(step, limiter, rule, empty_at + later)


def taken(step: Step, limiter: str, rule: LimitRule) -> Taken:
    empty_at = _limiter(step, limiter)[1]
    verdict = _judge(step, limiter, rule, empty_at, 1)
    used = _said(step, limiter, rule, empty_at).used
    return Taken(granted=verdict.granted, now=step.now, used=used, retry_in=verdict.retry_in)


def forget(step: Step, limit: int) -> None:
    """What need not be remembered any more, and limiters of which nothing counts."""
    step.do("take.forget_all", now=step.now, most=limit)
    step.do("limiter.forget", now=step.now)


def _limiter(step: Step, name: str) -> tuple[LimitRule | None, int]:
    row = step.row("limiter.get", name=name)
    if row is None:
        return None, 0
    kind, amount, per, empty_at = row
    return LimitRule(kind=LimitKind(kind), amount=amount, per=per), empty_at


def _put(step: Step, name: str, rule: LimitRule, empty_at: int) -> None:
    step.do("limiter.put", name=name, kind=rule.kind, amount=rule.amount, per=rule.per, empty_at=empty_at)


def _judge(step: Step, limiter: str, rule: LimitRule, empty_at: int, cost: int) -> _limits.Verdict:
    """`_limits.judge`, given sums in the place of single takes: there may be many."""
    takes: list[tuple[int, int]] = []
    if rule.kind is not LimitKind.BUCKET:
        since = _limits.counts_after(rule, step.now)
        used: int = step.value("take.used", limiter=limiter, since=since)
        too_much = used + cost - rule.amount
        frees = step.value("take.frees", limiter=limiter, since=since, needed=too_much) if too_much > 0 else None
        # All up to the one that makes room count as one take, and the others as one after all of them.
        takes = [(_LAST, used)] if frees is None else [(frees, too_much), (_LAST, used - too_much)]
    return _limits.judge(rule, takes, empty_at, cost, step.now)


def _said(step: Step, limiter: str, rule: LimitRule, empty_at: int) -> Taken:
    """What is used, by a take of nothing."""
    return Taken(granted=True, now=step.now, used=_judge(step, limiter, rule, empty_at, 0).used)
