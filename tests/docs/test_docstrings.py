"""Every public name has a docstring that promises something, names units and errors, and is in the reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import oncron
from oncron import backoff, errors, limits, metrics, middleware, testing, tracing, triggers, web
from oncron._backfill import Backfill
from oncron._batch import Batch
from oncron._limiter import Grant, Limiter
from oncron._lock import Leadership, Lock
from oncron._queue import Queue
from oncron._walk import Walk
from oncron._why import Why
from tests.docs.snippets import REPOSITORY
from tests.docs.test_reference import FOR_THE_ENGINE

PAGE = REPOSITORY / "docs" / "reference" / "docstrings.md"
NO_ERRORS = {
    "Batch.delete", "FakeRun.stop", "HeldLock.lose", "Limiter.is_inside", "ManualClock.enqueued",
    "ManualClock.fired", "RunIds.filter", "Schedule.describe", "Server.close", "Trigger.describe", "Trigger.warnings",
    "Walk.end", "polynomial", "tzdata_version", "unlimited",
}  # fmt: skip
"""What raises nothing of its own: looks at what is there, or ends something."""
UNSAID_UNITS = {"ManualClock.block"}
"""Where the parameter's name is the unit."""


def objects() -> Iterator[Any]:
    for module in (oncron, limits, metrics, middleware, testing, tracing, web):
        yield from (getattr(module, name) for name in module.__all__)
    yield from (triggers.parse, triggers.tzdata_version, backoff.exponential, backoff.polynomial, backoff.fixed)
    yield from (Lock, Leadership, Limiter, Grant, Batch, Walk, Queue, Backfill, Why)


def members(owner: type) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(owner):
        if not name.startswith("_") and name not in FOR_THE_ENGINE and not hasattr(BaseException, name):
            yield f"{owner.__name__}.{name}", member


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for found in objects():
        if inspect.isclass(found):
            yield from ((name, member) for name, member in members(found) if inspect.isfunction(member))
        elif inspect.isfunction(found):
            yield found.__name__, found


def said(found: Any) -> str:
    return (found.__dict__.get("__doc__") if inspect.isclass(found) else inspect.getdoc(found)) or ""


def test_every_public_class_and_function_promises_something() -> None:
    classes = [(found.__name__, found) for found in objects() if inspect.isclass(found)]
    assert [name for name, found in (*classes, *functions()) if not said(found).rstrip().endswith((".", ":"))] == []


def test_every_public_function_says_what_it_raises() -> None:
    silent = {name for name, found in functions() if not re.search(r"[Rr]aises?\b|[Ee]rror", said(found))}
    assert silent == NO_ERRORS


def test_what_docstrings_say_is_raised_exists() -> None:
    known = {*vars(errors), "TimeoutError", "AssertionError", "CancelledError"}
    for name, found in functions():
        for clause in re.findall(r"\b[Rr]aises? ((?:[A-Z]\w+(?:, | or |; )?)+)", said(found)):
            named = re.findall(r"[A-Z][a-z]+[A-Z]\w+|NotFound|Occupied|Stopped", clause)
            assert set(named) <= known, (name, named)


def test_every_duration_says_its_units() -> None:
    for name, found in functions():
        durations = [
            each.name for each in inspect.signature(found).parameters.values() if "Duration" in str(each.annotation)
        ]
        if durations and name not in UNSAID_UNITS:
            assert re.search(r"seconds|timedelta|duration", said(found)), (name, durations)


def test_the_reference_shows_every_public_name() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = {line.rpartition(".")[2] for line in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    named = {found.__name__ for found in objects() if inspect.isclass(found) or inspect.isfunction(found)}
    assert named - shown - {"Rule"} == set()
