"""How many ticks each minute of the coming day has. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncron._clock import SECOND
from oncron._model import Definition
from oncron._plan import next_tick
from oncron.errors import InvalidTrigger
from oncron.triggers import parse

MINUTE = 60 * SECOND
DAY = 24 * 3600 * SECOND
_LISTED = 1500
"""Ticks of one schedule that are walked: more than one a minute are as good as even."""


def coming_day(definition: Definition, now: int) -> list[int] | None:
    """Its ticks in (now, now + a day]; None if they are more than one a minute. Empty for a trigger of a
    newer release."""
    try:
        trigger = parse(definition.trigger)
    except InvalidTrigger:
        return []
    found: list[int] = []
    tick = next_tick(definition, trigger, now)
    while tick is not None and tick <= now + DAY:
        if len(found) == _LISTED:
            return None
        found.append(tick)
        tick = next_tick(definition, trigger, tick)
    return found


class Load:
    """Ticks by minute. Minutes are numbered since 1970."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._at: Counter[int] = Counter()
        self._always = 0
        """Of those that tick more than once a minute."""

    def add(self, definitions: Iterable[Definition]) -> Load:
        for definition in definitions:
            ticks = coming_day(definition, self._now)
            if ticks is None:
                trigger = parse(definition.trigger)
                count, _ = trigger.count_between_us(self._now, self._now + 10 * MINUTE, 100_000)
                self._always += max(1, count // 10)
            else:
                self._at.update(tick // MINUTE for tick in ticks)
        return self

    def at(self, minute: int) -> int:
        return self._at[minute] + self._always

    def busiest(self, count: int) -> list[int]:
        """The minutes with most ticks, the earlier first among equals."""
        return sorted(self._at, key=lambda minute: (-self._at[minute], minute))[:count]
