"""What APScheduler 3 pickled into its SQLAlchemy job store, read without running any of it.

Unpickling calls whatever the pickle names. Here it can name the few classes that a job's state is made of: dates and
zones, which are built, and APScheduler's triggers, of which only the attributes are kept.
"""

from __future__ import annotations

import builtins
import datetime as dt
import decimal
import io
import pickle
import uuid
from collections.abc import Callable
from typing import Any, cast
from zoneinfo import ZoneInfo

from oncron.cli.moving.moved import NoEquivalent
from oncron.triggers.zones import load_zone

_BUILT: dict[tuple[str, str], Any] = {
    **{("datetime", name): getattr(dt, name) for name in ("date", "datetime", "time", "timedelta", "timezone")},
    **{("builtins", name): getattr(builtins, name) for name in ("set", "frozenset")},
    ("decimal", "Decimal"): decimal.Decimal,
    ("uuid", "UUID"): uuid.UUID,
}
_STATES = {
    "apscheduler.triggers.cron": ("CronTrigger",),
    "apscheduler.triggers.interval": ("IntervalTrigger",),
    "apscheduler.triggers.date": ("DateTrigger",),
    "apscheduler.triggers.calendarinterval": ("CalendarIntervalTrigger",),
    "apscheduler.triggers.combining": ("AndTrigger", "OrTrigger"),
    "apscheduler.triggers.cron.fields": ("BaseField", "WeekField", "DayOfMonthField", "DayOfWeekField", "MonthField"),
    "apscheduler.triggers.cron.expressions": (
        "AllExpression", "RangeExpression", "MonthRangeExpression", "WeekdayRangeExpression",
        "WeekdayPositionExpression", "LastDayOfMonthExpression",
    ),
}  # fmt: skip


class _Zones:
    """zoneinfo.ZoneInfo, as a pickle names it."""


def _zone(key: Any, *_: Any) -> ZoneInfo:
    return ZoneInfo(load_zone(key).name)


def _attribute(owner: Any, name: Any) -> Callable[..., Any]:
    """`getattr` for the one purpose that zones have of it."""
    if owner is _Zones and name == "_unpickle":
        return _zone
    raise pickle.UnpicklingError("it asks for an attribute")


def _utc() -> ZoneInfo:
    return ZoneInfo("UTC")


class Kept:
    """An object of which only the attributes are kept."""

    def __setstate__(self, state: Any) -> None:
        self.values = state
        if isinstance(state, dict):
            self.__dict__.update(cast("dict[str, Any]", state))


_KEPT = {
    (module, name): type(name, (Kept,), {"__module__": module}) for module, names in _STATES.items() for name in names
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        asked = (module_name, global_name)
        special: dict[tuple[str, str], Any] = {
            ("zoneinfo", "ZoneInfo"): _Zones, ("builtins", "getattr"): _attribute, ("pytz", "_UTC"): _utc,
            ("pytz", "_p"): _zone,
        }  # fmt: skip
        for known in (_BUILT, _KEPT, special):
            if asked in known:
                return known[asked]
        raise NoEquivalent(
            f"its pickled state holds a {module_name}.{global_name}, which is not loaded, as that would run code: "
            "arguments have to be plain values"
        )


def job_state(data: bytes) -> dict[str, Any]:
    """The state of a job. Raises NoEquivalent for what is not plain."""
    try:
        state = _Unpickler(io.BytesIO(data)).load()
    except NoEquivalent:
        raise
    except Exception as error:  # noqa: BLE001 - a broken pickle raises anything
        raise NoEquivalent(f"its pickled state cannot be read: {type(error).__name__}: {error}") from None
    if not isinstance(state, dict) or "trigger" not in state:
        raise NoEquivalent("its pickled state is none of an APScheduler 3 job")
    return state  # pyright: ignore[reportUnknownVariableType]
