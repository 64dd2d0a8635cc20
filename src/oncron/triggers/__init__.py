"""Triggers: pure rules that say at which instants a schedule ticks.

`cron`, `every`, `daily`, `weekly`, `monthly` and `once` make them; `parse` reads back the
text that `str()` writes.
"""

from .calendar import daily, monthly, weekly
from .cron import cron
from .every import every
from .once import once
from .parse import parse
from .trigger import Trigger
from .zones import tzdata_version

__all__ = ["Trigger", "cron", "daily", "every", "monthly", "once", "parse", "tzdata_version", "weekly"]
