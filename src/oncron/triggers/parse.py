"""From stored text back to the trigger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

from oncron.errors import InvalidTrigger
from oncron.triggers.calendar import daily, monthly, weekly
from oncron.triggers.cron import cron
from oncron.triggers.every import bound_between, every
from oncron.triggers.once import once
from oncron.triggers.text import Call, Value, read
from oncron.triggers.trigger import Trigger


def parse(text: str) -> Trigger:
    """The trigger that `str()` wrote: `parse(str(trigger)) == trigger`.

    Raises InvalidTrigger for every other text, and never anything else.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        read(text)
    return _parse(text)


def is_own(trigger: Trigger) -> bool:
    """Whether it is of oncron's kinds, so that whoever finds its text in the store can read it back."""
    return type(trigger).__module__.startswith("oncron.triggers.")


@lru_cache(maxsize=2048)
def _parse(text: str) -> Trigger:
    call = read(text)
    make = _KINDS.get(call.kind)
    if make is None:
        raise InvalidTrigger(
            f"there is no trigger {call.kind!r}", expression=text, mend=f"the kinds are {', '.join(_KINDS)}"
        )
    try:
        return make(call)
    except InvalidTrigger as refused:
        raise InvalidTrigger(refused.reason, expression=text, field=refused.field, mend=refused.mend) from None
    except (TypeError, KeyError, ValueError, OverflowError, ArithmeticError):
        raise InvalidTrigger(
            f"arguments that {call.kind} does not take", expression=text, mend="pass str(trigger) as it was written"
        ) from None


def _cron(call: Call) -> Trigger:
    (expression,) = call.arguments
    return cron(expression, **_options(call, {}))  # pyright: ignore[reportArgumentType]


def _every(call: Call) -> Trigger:
    if call.arguments:
        raise TypeError
    options = dict(call.options)
    anchor = _instant(options.pop("anchor", "1970-01-01T00:00:00Z"))
    if "between" in options:
        least, most = cast("tuple[Decimal, Decimal]", _pair(options.pop("between")))
        seed = options.pop("seed", None)
        if options:
            raise TypeError
        if seed is None:
            return every(between=(least, most), anchor=anchor)
        return bound_between(least, most, anchor, str(seed))
    return every(anchor=anchor, **cast("dict[str, Any]", options))


def _calendar(make: Callable[..., Trigger]) -> Callable[[Call], Trigger]:
    def made(call: Call) -> Trigger:
        return make(*call.arguments, **_options(call, {"anchor": _date}))

    return made


def _once(call: Call) -> Trigger:
    if call.options:
        raise TypeError
    return once(*map(_instant, call.arguments))


def _options(call: Call, readers: Mapping[str, Callable[[Value], Any]]) -> dict[str, Any]:
    return {key: readers[key](value) if key in readers else value for key, value in call.options.items()}


def _instant(value: Value) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    return datetime.fromisoformat(value)


def _date(value: Value) -> date:
    if not isinstance(value, str):
        raise TypeError
    return date.fromisoformat(value)


def _pair(value: Value) -> tuple[Value, Value]:
    if not isinstance(value, list):
        raise TypeError
    first, second = value
    return first, second


_KINDS: dict[str, Callable[[Call], Trigger]] = {
    "cron": _cron,
    "every": _every,
    "daily": _calendar(daily),
    "weekly": _calendar(weekly),
    "monthly": _calendar(monthly),
    "once": _once,
}
