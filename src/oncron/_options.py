"""The options of tasks, schedules and calls: their types for readers and checkers, and the checks.

Every check raises InvalidOption with the option's name, the value and what it may be.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypedDict, TypeVar, cast

from oncron._clock import delta_us, to_us
from oncron._model import Missed, Overlap, checked_name
from oncron.backoff import Backoff
from oncron.errors import InvalidOption

Duration = timedelta | float
"""A timedelta, or a number of seconds."""

UniqueKey = bool | str | Callable[[Mapping[str, Any]], str]
E = TypeVar("E", bound=StrEnum)

LONGEST = 200 * 365 * 24 * 3600 * 1_000_000
"""Two hundred years: instants stay within what every store and datetime can hold."""

_EARLIEST, _LATEST = to_us(datetime.min.replace(tzinfo=UTC)), to_us(datetime.max.replace(tzinfo=UTC))

LONGEST_SOUGHT = 500
"""Characters. Names have 200, and some are made of others."""


class CallOptions(TypedDict, total=False):
    """What `Task.options()` and `app.enqueue()` take: for one call."""

    delay: Duration | None
    at: datetime | None
    unique: UniqueKey | None
    queue: str | None
    priority: int | None
    retries: int | None
    timeout: Duration | None
    connection: Any


class RunOptions(TypedDict, total=False):
    """Task options that a schedule may override for its runs."""

    queue: str
    priority: int
    retries: int
    timeout: Duration | None
    unique: UniqueKey


class TaskOptions(RunOptions, total=False):
    """What `@app.task()` takes, but for the name."""

    name: str
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    backoff: Backoff | Callable[[int], Duration]
    executor: Literal["auto", "thread", "process"]
    max_running: int | None
    middleware: Iterable[Callable[..., Any]]
    limiter: Any
    """A Limiter of `app.limiter()`, or None."""
    every_after_end: Duration | None
    on_doubt: Literal["stop", "continue"]


class Timing(TypedDict, total=False):
    """What belongs to a schedule alone."""

    args: Mapping[str, Any]
    timezone: str | None
    missed: Literal["latest", "all", "skip"]
    missed_within: Duration | None
    missed_limit: int
    overlap: Literal["skip", "wait", "queue", "cancel", "allow"]
    jitter: Duration
    start_at: datetime | None
    end_at: datetime | None
    limit: int | None
    paused: bool
    tags: Iterable[str]
    guard: str | None


class ScheduleOptions(Timing, RunOptions, total=False):
    """What `add_schedule` takes: the schedule's own, and overrides of the task's."""


class ScheduleDecoratorOptions(Timing, TaskOptions, total=False):
    """What `@app.schedule()` takes: on a function also the options of the task it makes."""


CALL = frozenset(CallOptions.__optional_keys__)
RUN = frozenset(RunOptions.__optional_keys__)
TASK = frozenset(TaskOptions.__optional_keys__)
TIMING = frozenset(Timing.__optional_keys__)


def known(options: Mapping[str, Any], names: frozenset[str], where: str) -> None:
    """Raises InvalidOption for an option that is not among `names`, with the nearest ones."""
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.6)
            mend = f"did you mean {' or '.join(near)}?" if near else f"it takes {', '.join(sorted(names))}"
            raise InvalidOption(f"{where}: unknown option {name!r}; {mend}")


def duration(value: Any, option: str, *, least: int = 0, none: bool = False) -> int | None:
    """Microseconds of a timedelta or of a number of seconds, at least `least`."""
    if value is None and none:
        return None
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise InvalidOption(f"{option}={value!r}: a duration is a timedelta or a number of seconds")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(f"{option}={value!r}: give a finite number of seconds" + (" or None" if none else ""))
    found = delta_us(value)
    if found < least:
        at_least = "not negative" if least == 0 else f"at least {least / 1_000_000:g} s"
        raise InvalidOption(f"{option}={value!r} must be {at_least}" + (", or None" if none else ""))
    if found > LONGEST:
        raise InvalidOption(f"{option}={value!r} is longer than 200 years; give seconds, not milliseconds")
    return found


def span(value: Any, option: str, *, least: int = 0) -> int:
    """A duration that must be given."""
    return cast("int", duration(value, option, least=least))


def instant(value: Any, option: str) -> int | None:
    """Microseconds of an aware datetime; None for None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidOption(f"{option}={value!r}: give an aware datetime, datetime.now(UTC) + timedelta(hours=1) say")
    if value.utcoffset() is None:
        raise InvalidOption(
            f"{option}={value.isoformat()} is a naive datetime; give it a zone: "
            "datetime(..., tzinfo=ZoneInfo('Europe/Berlin')) or datetime.now(UTC)"
        )
    found = to_us(value)
    if not _EARLIEST <= found <= _LATEST:
        raise InvalidOption(f"{option}={value.isoformat()} lies outside of the years 1 to 9999 in UTC")
    return found


def number(value: Any, option: str, *, least: int, most: int = 2**31 - 1, none: bool = False) -> Any:
    """A whole number in [least, most]; None where `none`."""
    if value is None and none:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{option}={value!r}: give a whole number" + (" or None" if none else ""))
    if not least <= value <= most:
        raise InvalidOption(f"{option}={value!r}: give a number from {least} to {most}")
    return value


def choice(value: Any, option: str, kind: type[E]) -> E:
    try:
        return kind(value)
    except ValueError:
        raise InvalidOption(f"{option}={value!r}: give one of {', '.join(repr(k.value) for k in kind)}") from None


def one_of(value: Any, option: str, words: tuple[str, ...], more: str = "") -> Any:
    if value not in words:
        raise InvalidOption(f"{option}={value!r}: give one of {', '.join(map(repr, words))}{more}")
    return value


def queue_name(value: Any) -> str:
    return checked_name(value, "queue")


def truth(value: Any, option: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{option}={value!r}: give True or False")
    return value


def guard_word(value: Any) -> str | None:
    """None, "advisory" or "slot:NAMESPACE"."""
    if value is None or value == "advisory":
        return value
    if isinstance(value, str) and value.startswith("slot:") and value != "slot:":
        return line(value, "guard")
    raise InvalidOption(
        f"guard={value!r}: give 'advisory' (PostgreSQL's advisory lock of the schedule's name) or "
        "'slot:NAMESPACE' (on Redis, the other scheduler's key of the tick's minute)"
    )


def tag_list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidOption(f"tags={value!r}: give a list of texts, tags=[{value!r}] say")
    return tuple(checked_name(tag, "tag") for tag in cast("Iterable[Any]", value))


def line(value: Any, option: str) -> str:
    """Text that every store can keep."""
    if not isinstance(value, str):
        raise InvalidOption(f"{option}={value!r}: give a text")
    if bad := next((c for c in value if c == "\0" or "\ud800" <= c <= "\udfff"), None):
        raise InvalidOption(f"{option}={value!r} holds U+{ord(bad):04X}, which is no text; leave it out")
    return value


def sought(value: Any, option: str) -> str:
    """A name or an id that is looked for, in NFC as names are kept. What no name and no id can be is refused before
    a store is asked, which would answer each in its own way."""
    if not isinstance(value, str):
        raise InvalidOption(f"{option}={shown(value)}: a {type(value).__name__} is no name or id; give its text")
    if len(value) > LONGEST_SOUGHT:
        raise InvalidOption(
            f"{option}={shown(value)} has {len(value):,} characters: no name or id has more than {LONGEST_SOUGHT}"
        )
    return unicodedata.normalize("NFC", line(value, option))


def sought_if(value: Any, option: str) -> str | None:
    """The same of one that may be left out."""
    return None if value is None else sought(value, option)


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unique_key(value: Any) -> UniqueKey:
    if not isinstance(value, bool | str) and not callable(value):
        raise InvalidOption(f"unique={value!r}: give True (one open run per arguments), a text, or a function of them")
    if value == "":
        raise InvalidOption("unique='': an empty key is none; give a text, or leave it out")
    if isinstance(value, str):
        line(value, "unique")
    return cast("UniqueKey", value)


def error_types(value: Any) -> type[BaseException] | tuple[type[BaseException], ...]:
    kinds = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise InvalidOption(f"retry_on={value!r}: give an exception class or a tuple of them; () repeats no error")
    return cast("Any", value)


def executor_word(value: Any) -> Literal["auto", "thread", "process"]:
    words = ("auto", "thread", "process")
    return one_of(value, "executor", words, "; 'auto' runs async tasks on the loop, others in threads")


def missed_word(value: Any) -> Missed:
    return choice(value, "missed", Missed)


def overlap_word(value: Any) -> Overlap:
    return choice(value, "overlap", Overlap)
