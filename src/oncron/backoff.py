"""How long to wait between the attempts of a run: `exponential()`, `polynomial()`, `fixed()`.

A task takes one as `backoff=`. Each answers, for the number of attempts spent so far, the
longest wait; the wait drawn for a run lies between its half and its whole, so that runs that
failed together do not come back together. No attempt number overflows: the cap is applied
before a power is taken.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from oncron._clock import SECOND, delta_us
from oncron._lifecycle import doubled, drawn
from oncron.errors import InvalidOption

_DAY = 24 * 3600 * SECOND


class Backoff(ABC):
    """A rule from the number of attempts spent to a wait."""

    def __call__(self, attempt: int) -> timedelta:
        """The longest wait after `attempt` (1 or more) attempts."""
        return timedelta(microseconds=self.whole_us(max(1, attempt)))

    def draw_us(self, attempt: int, seed: str) -> int:
        """Microseconds to wait, the same for the same attempt and seed in every process."""
        return drawn(self.whole_us(max(1, attempt)), attempt, seed)

    @abstractmethod
    def whole_us(self, attempt: int) -> int:
        """Microseconds, without jitter."""


@dataclass(frozen=True)
class _Exponential(Backoff):
    base: int
    cap: int

    def whole_us(self, attempt: int) -> int:
        return doubled(self.base, self.cap, attempt)


@dataclass(frozen=True)
class _Polynomial(Backoff):
    cap: int

    def whole_us(self, attempt: int) -> int:
        n = min(attempt, 1000) - 1
        return min(self.cap, (n**4 + 10 * n + 15) * SECOND)


@dataclass(frozen=True)
class _Fixed(Backoff):
    wait: int

    def whole_us(self, attempt: int) -> int:
        del attempt
        return self.wait

    def draw_us(self, attempt: int, seed: str) -> int:
        """Exactly the wait: who asks for a fixed one gets it."""
        del attempt, seed
        return self.wait


def exponential(base: timedelta | float = 1, max: timedelta | float = 3600) -> Backoff:  # noqa: A002 - the public word
    """`base`, then twice as long each time, `max` at most. Durations are timedeltas or seconds. Raises
    InvalidOption."""
    first, cap = _wait(base, "base"), _wait(max, "max")
    if cap < first:
        raise InvalidOption(f"exponential(base={base!r}, max={max!r}): max is shorter than base; swap them")
    return _Exponential(first, cap)


def polynomial() -> Backoff:
    """n**4 + 10 n + 15 seconds after n + 1 attempts: 15 s, 26 s, 51 s, 126 s, ... 10 days at most. For
    what may stay broken for long: 25 retries span three weeks."""
    return _Polynomial(10 * _DAY)


def fixed(d: timedelta | float) -> Backoff:
    """Always `d`, a timedelta or seconds, without jitter. Raises InvalidOption."""
    return _Fixed(_wait(d, "d"))


def _wait(value: timedelta | float, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidOption(f"{option}={value!r}: a duration is a timedelta or a number of seconds")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(f"{option}={value!r}: give a finite number of seconds")
    wait = delta_us(value)
    if not 0 <= wait <= 3650 * _DAY:
        raise InvalidOption(f"{option}={value!r}: give a wait between 0 and ten years")
    return wait
