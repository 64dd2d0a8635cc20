"""Cron expressions: five fields as Debian's cron reads them, or six with seconds first."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from oncron._defaults import EXPRESSION_CHARS
from oncron.errors import InvalidTrigger
from oncron.triggers import hashed, surprises, words
from oncron.triggers.days import DayRule, cron_days
from oncron.triggers.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    Field,
    FieldKind,
    FieldRefused,
    parse_field,
)
from oncron.triggers.local import Fold, Gap, LocalTrigger, check_options
from oncron.triggers.text import write
from oncron.triggers.times import TimesOfDay, times_of_fields

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_KINDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class CronFields(NamedTuple):
    """The six fields; seconds are `0` where the expression has five."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field


class CronTrigger(LocalTrigger):
    """A cron expression in a zone. Made by `cron`."""

    __slots__ = ("_expression", "_texts")

    def __init__(
        self,
        texts: tuple[str, ...],
        days: DayRule,
        times: TimesOfDay,
        expression: str,
        *,
        timezone: str | None,
        gap: Gap,
        fold: Fold,
    ) -> None:
        fixed = not (texts[0][0] == "*" or texts[1][0] == "*" or texts[2][0] == "*")
        super().__init__(days, times, timezone=timezone, gap=gap, fold=fold, fixed=fixed)
        self._texts, self._expression = texts, expression
        self._text = _text(expression, texts, timezone, gap, fold)

    @property
    def kind(self) -> str:
        return "cron"

    @property
    def expression(self) -> str:
        """The expression, with single spaces; `0 X` of six fields is `X`."""
        return self._expression

    def bind(self, schedule: str, timezone: str | None = None) -> CronTrigger:
        del schedule
        if self._timezone is not None:
            return self
        return CronTrigger(
            self._texts,
            self._days,
            self._times,
            self._expression,
            timezone=timezone or "UTC",
            gap=self._gap,
            fold=self._fold,
        )

    def describe(self) -> str:
        return words.describe_cron(self)

    def warnings(self) -> list[str]:
        return surprises.of_cron(self)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the six fields, seconds first."""
        return self._texts

    @property
    def fields(self) -> CronFields:
        """The six fields, parsed."""
        return CronFields(*(parse_field(kind, text) for kind, text in zip(_KINDS, self._texts, strict=True)))


class HashedCron(CronTrigger):
    """A cron expression with `H`, which means nothing before it is bound to a name."""

    __slots__ = ()

    @property
    def is_bound(self) -> bool:
        return False

    def _search(self, second: int) -> int:
        del second
        raise InvalidTrigger(
            "H stands for a value drawn from the schedule's name, and there is no schedule yet",
            expression=self._expression,
            mend="ask trigger.bind('schedule-name', 'Europe/Berlin') instead",
        )

    def bind(self, schedule: str, timezone: str | None = None) -> CronTrigger:
        seed = hashed.seed_of(schedule)
        texts = tuple(
            hashed.resolve(kind, text, seed) if hashed.is_hashed(text) else text
            for kind, text in zip(_KINDS, self._texts, strict=True)
        )
        return _build(
            " ".join(texts),
            texts,
            self._expression,
            timezone=self._timezone or timezone or "UTC",
            gap=self._gap,
            fold=self._fold,
        )

    def describe(self) -> str:
        return words.describe_hashed(self._expression, self._timezone)

    def warnings(self) -> list[str]:
        return []


def cron(
    expr: str, *, seconds: bool = False, timezone: str | None = None, gap: Gap = "next", fold: Fold = "first"
) -> CronTrigger:
    """A trigger of a cron expression: minute, hour, day of month, month, day of week.

    `seconds=True` reads six fields, seconds first. `timezone` is an IANA name; without one the
    schedule's is used, then the app's. `gap` and `fold` rule the local times that a clock change
    skips ("next", "skip", "shift") and repeats ("first", "second", "both"); they matter unless
    the second, minute or hour begins with a star. Raises InvalidTrigger, which names the field
    and the mend.
    """
    texts = _split(expr, seconds)
    check_options(gap, fold, expr)
    return _build(expr, texts, expr, timezone=timezone, gap=gap, fold=fold)


def _build(
    expression: str, texts: tuple[str, ...], given: str, *, timezone: str | None, gap: Gap, fold: Fold
) -> CronTrigger:
    unresolved = ("H" in expression or "h" in expression) and any(map(hashed.is_hashed, texts))
    shown = expression.strip(" \t").lower() if "@" in expression else " ".join(texts[1:] if texts[0] == "0" else texts)
    try:
        sample = _sample(texts) if unresolved else texts
        times, days = _times(*sample[:3]), _days(*sample[3:])
    except _AtField as refused:
        raise InvalidTrigger(refused.reason, expression=given, field=refused.field, mend=refused.mend) from None
    made = HashedCron if unresolved else CronTrigger
    return made(texts, days, times, shown, timezone=timezone, gap=gap, fold=fold)


def _sample(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The fields with some value for each `H`, so that the rest is checked before there is a name."""
    resolved: list[str] = []
    for kind, text in zip(_KINDS, texts, strict=True):
        try:
            resolved.append(hashed.resolve(kind, text, ""))
        except FieldRefused as refused:
            raise _AtField(kind.name, refused.reason, refused.mend) from None
    return tuple(resolved)


class _AtField(Exception):
    def __init__(self, field: str, reason: str, mend: str) -> None:
        self.field, self.reason, self.mend = field, reason, mend
        super().__init__(reason)


@lru_cache(maxsize=8192)
def _days(day: str, month: str, weekday: str) -> DayRule:
    rule = cron_days(_parse(DAY, day), _parse(MONTH, month).mask, _parse(WEEKDAY, weekday))
    if rule is None:
        raise _AtField("day of month", "no such date ever occurs", "give a day that the month has")
    return rule


@lru_cache(maxsize=8192)
def _times(second: str, minute: str, hour: str) -> TimesOfDay:
    second_mask, minute_mask = _parse(SECOND, second).mask, _parse(MINUTE, minute).mask
    return times_of_fields(_parse(HOUR, hour).mask, minute_mask, second_mask)


def _parse(kind: FieldKind, text: str) -> Field:
    try:
        return parse_field(kind, text)
    except FieldRefused as refused:
        raise _AtField(kind.name, refused.reason, refused.mend) from None


def _text(expression: str, texts: tuple[str, ...], timezone: str | None, gap: str, fold: str) -> str:
    return write(
        "cron",
        expression,
        seconds=True if texts[0] != "0" else None,
        timezone=timezone,
        gap=None if gap == "next" else gap,
        fold=None if fold == "first" else fold,
    )


_ZEROS = re.compile(r"0+")


def _split(expr: object, seconds: bool) -> tuple[str, ...]:
    """The six field texts of an expression, or InvalidTrigger if it is none at all."""
    if not isinstance(expr, str):
        raise InvalidTrigger("a cron expression is a str", expression=expr, mend="write cron('0 3 * * *')")
    if len(expr) > EXPRESSION_CHARS:
        raise InvalidTrigger(
            f"longer than {EXPRESSION_CHARS} characters",
            expression=expr,
            field="expression",
            mend="make it two schedules",
        )
    spaced = expr.replace("\t", " ")
    if not (spaced.isascii() and spaced.isprintable()):
        odd = next(c for c in spaced if not (c.isascii() and c.isprintable()))
        raise InvalidTrigger(
            f"the character U+{ord(odd):04X} has no place in a cron expression",
            expression=expr,
            field=_field_of(spaced, odd, seconds),
            mend="type it in plain ASCII, with spaces or tabs between the fields",
        )
    texts = spaced.split()
    if len(texts) == 1 and texts[0][0] == "@":
        return ("0", *_alias(expr, texts[0]).split())
    _check_prefix(expr, texts)
    if len(texts) == 6 and seconds:
        return ("0", *texts[1:]) if _ZEROS.fullmatch(texts[0]) else tuple(texts)
    if len(texts) == 5 and not seconds:
        return ("0", *texts)
    raise InvalidTrigger(
        f"{len(texts)} field{'' if len(texts) == 1 else 's'} where {6 if seconds else 5} are needed",
        expression=expr,
        field="expression",
        mend=_count_mend(len(texts), seconds),
    )


def _count_mend(count: int, seconds: bool) -> str:
    if count == 6:
        return "for seconds first write cron(..., seconds=True); a user column as in /etc/crontab has no place"
    if seconds:
        return "write second minute hour day month weekday, or leave seconds=True out for five fields"
    return "write minute hour day month weekday, '0 3 * * *' for instance"


def _field_of(spaced: str, odd: str, seconds: bool) -> str:
    place = len(spaced[: spaced.index(odd) + 1].split(" ")) - 1
    kinds = _KINDS if seconds else _KINDS[1:]
    return kinds[place].name if place < len(kinds) else "expression"


def _alias(expr: str, word: str) -> str:
    found = ALIASES.get(word.lower())
    if found is not None:
        return found
    mend = f"write one of {', '.join(ALIASES)}"
    if word.lower().startswith("@every"):
        mend = "use every(minutes=5)"
    elif word.lower() == "@reboot":
        mend = "run the function when your program starts; a start is no instant that replicas share"
    raise InvalidTrigger("no such alias", expression=expr, field="expression", mend=mend)


def _check_prefix(expr: str, texts: list[str]) -> None:
    head = texts[0] if texts else ""
    if head.upper().startswith(("CRON_TZ=", "TZ=")):
        zone = head.split("=", 1)[1]
        raise InvalidTrigger(
            "the zone is no part of the expression",
            expression=expr,
            field="expression",
            mend=f"write cron({' '.join(texts[1:])!r}, timezone={zone!r})",
        )
    if head.startswith("@"):
        _alias(expr, head)
        raise InvalidTrigger(
            "an alias stands alone", expression=expr, field="expression", mend=f"write {head!r} without the rest"
        )
