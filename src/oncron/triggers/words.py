"""Triggers in English words, and what may surprise about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncron.triggers.calendar import CalendarTrigger
    from oncron.triggers.cron import CronTrigger
    from oncron.triggers.every import BetweenTrigger, EveryTrigger
    from oncron.triggers.local import LocalTrigger
    from oncron.triggers.once import OnceTrigger


def in_zone(name: str | None) -> str:
    return f" ({name})" if name else ""


def describe_cron(t: CronTrigger) -> str:
    return t.expression + in_zone(t.timezone)


def describe_every(t: EveryTrigger) -> str:
    return str(t)


def describe_between(t: BetweenTrigger) -> str:
    return str(t)


def describe_once(t: OnceTrigger) -> str:
    return str(t)


def describe_calendar(t: CalendarTrigger) -> str:
    return str(t)


def cron_warnings(t: CronTrigger) -> list[str]:
    return []


def every_warnings(t: EveryTrigger) -> list[str]:
    return []


def clock_warnings(t: LocalTrigger) -> list[str]:
    return []
