"""What every trigger is: a pure rule from an instant to the next one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from datetime import UTC, datetime
from typing import Final, Self

from oncron._clock import EPOCH, from_us, to_us
from oncron.errors import InvalidTrigger

MIN_US: Final = to_us(datetime(1, 1, 3, tzinfo=UTC))
MAX_US: Final = to_us(datetime.max.replace(tzinfo=UTC))
"""No tick lies outside of these: the years 1 to 9999."""


class Trigger(ABC):
    """A deterministic rule: which instants, computed from the instant asked about alone.

    Bound to its schedule's name and zone (`bind`) a trigger equals its own text: `parse(str(t)) == t`,
    on every replica and in every release. Two triggers are equal if their texts are. A trigger has
    no clock and no state; one object may be used from many threads.
    """

    __slots__ = ()

    _text: str

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of the function that makes such a trigger, `cron` for instance."""

    @property
    def timezone(self) -> str | None:
        """The zone it was given, or None."""
        return None

    @property
    def is_bound(self) -> bool:
        """Whether nothing is left that only a schedule's name or zone can settle."""
        return True

    @property
    def period_us(self) -> int | None:
        """Microseconds between ticks where that is a constant, otherwise None."""
        return None

    @property
    def first_us(self) -> int | None:
        """The earliest instant where there is a first one (`once`), otherwise None."""
        return None

    @abstractmethod
    def next_after_us(self, t: int, /) -> int | None:
        """The first tick strictly after `t`, both in microseconds since 1970 UTC; None after the last.

        Raises InvalidTrigger if the trigger still has to be bound to a name.
        """

    @abstractmethod
    def bind(self, schedule: str, timezone: str | None = None) -> Self:
        """This trigger for one schedule: `H` and `between=` drawn from its name, `timezone` filled in
        if the trigger has none of its own (UTC if neither has). Binding again changes nothing. Raises
        InvalidTrigger for a zone that does not exist."""

    @abstractmethod
    def describe(self) -> str:
        """The rule in English words."""

    def warnings(self) -> list[str]:
        """What may surprise about the rule, a sentence each: uneven steps, times a clock change touches."""
        return []

    def next_after(self, t: datetime) -> datetime | None:
        """The first tick strictly after `t`, in UTC; None after the last.

        `t` is an instant: its zone, fold and microseconds do not matter. A naive `t` raises InvalidTrigger.
        """
        found = self.next_after_us(instant_us(t))
        return None if found is None else utc(found)

    def between(self, a: datetime, b: datetime) -> list[datetime]:
        """The ticks with a < tick <= b, ascending, in UTC. A naive `a` or `b` raises InvalidTrigger."""
        until = instant_us(b)
        found: list[datetime] = []
        tick = self.next_after_us(instant_us(a))
        while tick is not None and tick <= until:
            found.append(utc(tick))
            tick = self.next_after_us(tick)
        return found

    def count_between_us(self, a: int, b: int, at_most: int = 10_000) -> tuple[int, bool]:
        """How many ticks lie in (a, b], and whether counting stopped at `at_most` with more to come."""
        count = 0
        tick = self.next_after_us(a)
        while tick is not None and tick <= b:
            if count == at_most:
                return count, True
            count += 1
            tick = self.next_after_us(tick)
        return count, False

    def latest_in_us(self, a: int, b: int, n: int) -> list[int]:
        """The newest `n` ticks in (a, b], ascending. The work depends on n, not on the span."""
        window = 60_000_000
        while n > 0 and b > a:
            start = max(a, b - window)
            newest: deque[int] = deque(maxlen=n)
            tick = self.next_after_us(start)
            while tick is not None and tick <= b:
                newest.append(tick)
                tick = self.next_after_us(tick)
            if len(newest) == n or start == a:
                return list(newest)
            window *= 4
        return []

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trigger):
            return NotImplemented
        return self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def instant_us(t: object) -> int:
    """Microseconds of an aware datetime. Raises InvalidTrigger for anything else, with the mend."""
    if not isinstance(t, datetime):
        raise InvalidTrigger("an instant is a datetime", expression=t, field="instant", mend="pass datetime.now(UTC)")
    if t.tzinfo is not UTC and t.utcoffset() is None:
        raise InvalidTrigger(
            "a naive datetime is no instant",
            expression=t.isoformat(),
            field="instant",
            mend="give it a zone: datetime(..., tzinfo=ZoneInfo('Europe/Berlin')) or datetime.now(UTC)",
        )
    since = t - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def utc(instant: int) -> datetime:
    """The datetime of an instant in UTC."""
    seconds, rest = divmod(instant, 1_000_000)
    # Three times as fast as adding to the epoch, and exact for whole seconds only.
    return from_us(instant) if rest else datetime.fromtimestamp(seconds, UTC)
