"""Single instants."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime

from oncron.errors import InvalidTrigger
from oncron.triggers import words
from oncron.triggers.days import EPOCH_DAY, OneDay
from oncron.triggers.every import instant_text
from oncron.triggers.local import Fold, Gap, LocalTimes, check_options
from oncron.triggers.text import write
from oncron.triggers.times import ListedTimes
from oncron.triggers.trigger import Trigger, instant_us

MOST_INSTANTS = 1_000


class OnceTrigger(Trigger):
    """Some instants, ascending, each at most once. Made by `once`."""

    __slots__ = ("_instants", "_text")

    def __init__(self, instants: tuple[int, ...]) -> None:
        self._instants = instants
        self._text = write("once", *map(instant_text, instants))

    @property
    def kind(self) -> str:
        return "once"

    @property
    def first_us(self) -> int:
        return self._instants[0]

    @property
    def instants_us(self) -> tuple[int, ...]:
        """All of them, ascending."""
        return self._instants

    def next_after_us(self, t: int, /) -> int | None:
        index = bisect_right(self._instants, t)
        return self._instants[index] if index < len(self._instants) else None

    def latest_in_us(self, a: int, b: int, n: int) -> list[int]:
        found = self._instants[bisect_right(self._instants, a) : bisect_right(self._instants, b)]
        return list(found[-n:]) if n > 0 else []

    def bind(self, schedule: str, timezone: str | None = None) -> OnceTrigger:
        del schedule, timezone
        return self

    def describe(self) -> str:
        return words.describe_once(self)


def once(*instants: datetime, timezone: str | None = None, gap: Gap = "next", fold: Fold = "first") -> OnceTrigger:
    """A trigger of single instants: sorted, each at most once.

    They are aware datetimes; naive ones are taken as local times of `timezone`, where `gap` and
    `fold` rule those that a clock change skips or repeats. Raises InvalidTrigger for none at all,
    more than a thousand, or a naive one without `timezone`.
    """
    check_options(gap, fold, instants)
    if not 1 <= len(instants) <= MOST_INSTANTS:
        raise InvalidTrigger(
            f"{len(instants)} instants",
            expression="once(...)",
            field="instants",
            mend=f"give 1 to {MOST_INSTANTS}; for more, enqueue each with at=",
        )
    found: set[int] = set()
    for instant in instants:
        if timezone is not None and isinstance(instant, datetime) and instant.utcoffset() is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            found.update(_local(instant, timezone, gap, fold))
        else:
            found.add(_aware(instant))
    if not found:
        raise InvalidTrigger(
            f"none of these times exists in {timezone}", expression=instants, field="instants", mend="use gap='next'"
        )
    return OnceTrigger(tuple(sorted(found)))


def _aware(instant: datetime) -> int:
    try:
        return instant_us(instant)
    except InvalidTrigger as refused:
        mend = f"{refused.mend}, or pass timezone= for local times"
        raise InvalidTrigger(refused.reason, expression=refused.expression, field="instants", mend=mend) from None


def _local(instant: datetime, timezone: str, gap: Gap, fold: Fold) -> list[int]:
    """The instants of one local time: one, or none or two where the clock jumps."""
    day = instant.toordinal() - EPOCH_DAY
    time_of_day = instant.hour * 3600 + instant.minute * 60 + instant.second
    if instant.microsecond:
        raise InvalidTrigger(
            "a local time has whole seconds",
            expression=instant.isoformat(),
            field="instants",
            mend="leave the microseconds out, or give an instant with tzinfo",
        )
    rule = LocalTimes(OneDay(day), ListedTimes((time_of_day,)), timezone=timezone, gap=gap, fold=fold)
    start = day * 86_400 * 1_000_000
    return rule.ticks_us(start - 3 * 86_400_000_000, start + 3 * 86_400_000_000)
