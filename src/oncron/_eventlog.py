"""Events as log records: one line each, named `noun.past`, with the event's fields as `extra=`."""

from __future__ import annotations

import logging

from oncron._events import NAMES, Event

_LOGGED_WHERE_THEY_HAPPEN = frozenset({
    "lease.lost", "run.failed", "run.lost", "run.overrun", "run.retried", "store.lost", "store.back",
})  # fmt: skip
"""Their place knows more than the event says."""
_WARNINGS = frozenset({
    "tick.missed", "run.failed", "run.retried", "schedule.dormant", "schedule.overdue", "schedule.flapped",
    "worker.dead", "store.rolled_back",
})  # fmt: skip
_FOR_MACHINES = ("late_by", "took")
"""In the record, not in its text."""
_GROUPS_FOR_INFO = ("schedule.", "worker.")


def _level(name: str) -> int:
    if name in _WARNINGS:
        return logging.WARNING
    return logging.INFO if name.startswith(_GROUPS_FOR_INFO) or name == "run.cancelled" else logging.DEBUG


_LEVELS = {name: _level(name) for name in NAMES - _LOGGED_WHERE_THEY_HAPPEN}
_LOGGERS = {name: logging.getLogger(f"oncron.{name.split('.')[0]}") for name in NAMES}


def is_logged(name: str) -> bool:
    level = _LEVELS.get(name)
    return level is not None and _LOGGERS[name].isEnabledFor(level)


def log_event(event: Event) -> None:
    """Losing a race to another replica is no event; what happens many times a second is DEBUG."""
    if not is_logged(event.name):
        return
    fields = {
        "schedule": event.schedule,
        "tick": None if event.tick is None else event.tick.isoformat(),
        "run": event.run,
        "reason": event.reason,
        "worker": event.worker,
        "task": event.task,
        "attempt": event.attempt,
        "late_by": None if event.late_by is None else event.late_by.total_seconds(),
        "took": None if event.took is None else event.took.total_seconds(),
    }
    shown = {name: value for name, value in fields.items() if value is not None}
    for name in _FOR_MACHINES if event.name.startswith("worker.") else ("worker", *_FOR_MACHINES):
        shown.pop(name, None)
    text = " ".join(f"{name}={value!r}" for name, value in shown.items())
    _LOGGERS[event.name].log(_LEVELS[event.name], "%s %s", event.name, text, extra={"event": event.name, **fields})
