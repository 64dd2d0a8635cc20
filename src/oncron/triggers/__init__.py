"""Triggers: pure rules that say at which instants a schedule ticks.

`cron`, `every`, `daily`, `weekly`, `monthly` and `once` make them; `parse` reads back the
text that `str()` writes.
"""

from oncron.triggers.calendar import daily, monthly, weekly
from oncron.triggers.cron import cron
from oncron.triggers.every import every
from oncron.triggers.once import once
from oncron.triggers.parse import parse
from oncron.triggers.trigger import Trigger
from oncron.triggers.zones import tzdata_version

__all__ = ["Trigger", "cron", "daily", "every", "monthly", "once", "parse", "tzdata_version", "weekly"]
