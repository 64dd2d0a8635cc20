"""Scheduled jobs that run once per tick, however many replicas schedule them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncron._app import Oncron
    from oncron._context import RunContext, current_run
    from oncron._events import Event
    from oncron._lifecycle import GiveUp, Interrupted, RetryIn, Skip
    from oncron._lock_key import job_lock_key
    from oncron._locked_run import HeldLock, locked_run
    from oncron._run import Run
    from oncron._schedule import Schedule
    from oncron._task import Task
    from oncron.triggers import Trigger, cron, daily, every, monthly, once, weekly

__all__ = [
    "Event",
    "GiveUp",
    "HeldLock",
    "Interrupted",
    "Oncron",
    "RetryIn",
    "Run",
    "RunContext",
    "Schedule",
    "Skip",
    "Task",
    "Trigger",
    "cron",
    "current_run",
    "daily",
    "every",
    "job_lock_key",
    "locked_run",
    "monthly",
    "once",
    "weekly",
]

_HOMES = {
    "_app": ("Oncron",),
    "_context": ("RunContext", "current_run"),
    "_events": ("Event",),
    "_lifecycle": ("GiveUp", "Interrupted", "RetryIn", "Skip"),
    "_lock_key": ("job_lock_key",),
    "_locked_run": ("HeldLock", "locked_run"),
    "_run": ("Run",),
    "_schedule": ("Schedule",),
    "_task": ("Task",),
    "triggers": ("Trigger", "cron", "daily", "every", "monthly", "once", "weekly"),
}
_HOME_OF = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
_MODULES = ("backoff", "errors", "limits", "metrics", "middleware", "testing", "tracing", "triggers")

# Names are fetched from where they live when they are first used, so that `oncron --help` and programs
# that need one trigger do not import the engine. Type checkers see the imports above alone.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
            return found
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
