"""Scheduled jobs that run once per tick, however many replicas schedule them."""

from oncron._app import Oncron
from oncron._context import RunContext, current_run
from oncron._events import Event
from oncron._lifecycle import GiveUp, RetryIn, Skip
from oncron._run import Run
from oncron._schedule import Schedule
from oncron._task import Task
from oncron.triggers import Trigger, cron, daily, every, monthly, once, weekly

__all__ = [
    "Event",
    "GiveUp",
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
    "monthly",
    "once",
    "weekly",
]
