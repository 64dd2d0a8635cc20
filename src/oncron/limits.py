"""How often something may be done: the rules of `app.limiter(name, rule)`, fleet-wide, by the store's clock.

================  =========================================================================
`window`          at most n in each stretch of `per`, counted from the epoch
`sliding`         at most n in any stretch of `per`, wherever it begins
`leaky`           a bucket of n that drains evenly, wholly in `per`: bursts of n, then a steady flow
`points`          the same for work of different cost: estimated first, settled afterwards
`slots`           at most n at the same time; a slot of a process that died is free after `lease_for`
`unlimited`       no limit, for a place where one could be
================  =========================================================================

The window rules count what was granted; a window lets 2n through around its edge, a sliding one
never. The buckets follow the generic cell rate algorithm (ITU-T I.371).
"""

from __future__ import annotations

from dataclasses import dataclass

from oncron._clock import SECOND, delta_us
from oncron._defaults import DAY
from oncron._groups import LimitKind, LimitRule
from oncron.errors import InvalidOption

__all__ = ["Rule", "leaky", "points", "sliding", "slots", "unlimited", "window"]

_MOST = 1_000_000
_LONGEST = 366 * DAY


@dataclass(frozen=True)
class Rule:
    """What a limiter allows. Made by the functions of this module."""

    text: str
    """As it was written: for messages and lists."""
    amount: int | None
    """How much at most; None is no limit."""
    counted: LimitRule | None = None
    """Of all kinds but slots."""
    lease_for: int | None = None
    """Of slots, in microseconds."""
    is_settled: bool = False
    """Whether what is taken is an estimate that is put right later."""

    def __str__(self) -> str:
        return self.text


def window(n: int, per: object) -> Rule:
    """At most `n` in each stretch of `per` (seconds or a timedelta) that begins at a multiple of it since 1970: a
    minute's limit is a clock minute's. Raises InvalidOption."""
    return _counted("window", LimitKind.WINDOW, n, per)


def sliding(n: int, per: object) -> Rule:
    """At most `n` in any stretch of `per`. The store remembers each take for that long. Raises InvalidOption."""
    return _counted("sliding", LimitKind.SLIDING, n, per)


def leaky(n: int, per: object) -> Rule:
    """A bucket that holds `n` and drains evenly, wholly in `per`. Raises InvalidOption."""
    return _counted("leaky", LimitKind.BUCKET, n, per)


def points(n: int, per: object) -> Rule:
    """`n` points that come back evenly, all of them in `per`: `limiter.cost(30)` takes what the work may cost,
    `grant.settle(12)` says what it did cost. Raises InvalidOption."""
    return _counted("points", LimitKind.BUCKET, n, per, is_settled=True)


def slots(n: int, *, lease_for: object = 30) -> Rule:
    """At most `n` at the same time. A holder's lease is renewed while its block runs. Raises InvalidOption."""
    lease = _duration(lease_for, "lease_for", least=SECOND // 2)
    return Rule(f"slots({_amount(n)})", n, lease_for=lease)


def unlimited() -> Rule:
    """Everything is granted, and nothing is stored."""
    return Rule("unlimited()", None)


def _counted(name: str, kind: LimitKind, n: int, per: object, *, is_settled: bool = False) -> Rule:
    amount, duration = _amount(n), _duration(per, "per", least=1000)
    rule = LimitRule(kind=kind, amount=amount, per=duration)
    return Rule(f"{name}({amount}, per={duration / SECOND:g})", amount, counted=rule, is_settled=is_settled)


def _amount(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST:
        raise InvalidOption(f"a limit of {n!r}: give a whole number from 1 to {_MOST:,}; to stop work, pause its queue")
    return n


def _duration(value: object, option: str, *, least: int) -> int:
    try:
        found = delta_us(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = -1
    if isinstance(value, bool) or not least <= found <= _LONGEST:
        raise InvalidOption(
            f"{option}={value!r}: give a timedelta or a number of seconds, "
            f"from {least / SECOND:g} to {_LONGEST // SECOND:,}"
        )
    return found
