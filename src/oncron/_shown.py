"""What faces show of records: instants and durations for people, plain values for programs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import msgspec

from oncron._cipher import as_shown
from oncron._clock import SECOND, from_us
from oncron._model import ScheduleRecord, Status
from oncron.triggers.zones import load_zone

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

# --- instants and durations -----------------------------------------------------------------


def utc(instant: int | None) -> str:
    """`2026-07-20 03:00:00Z`, with fractions if it has any."""
    return "-" if instant is None else _iso(instant).replace("T", " ")


def local(instant: int, zone: str) -> str:
    """`2026-07-20 05:00:00+02:00`: the same instant on the clocks of a zone."""
    offset = load_zone(zone).offset_at(instant // SECOND)
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    shown = _naive(from_us(instant + offset * SECOND))
    return f"{shown.replace('T', ' ')}{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def on_the_wall(instant: int, zone: str) -> str:
    """`Mon 05:00 Europe/Berlin`: what the clocks of the zone show."""
    shown = from_us(instant + load_zone(zone).offset_at(instant // SECOND) * SECOND)
    return f"{shown:%a %H:%M}{f':{shown:%S}' if shown.second else ''} {zone}"


def away(instant: int, now: int) -> str:
    """`in 5 min`, `3 s ago`."""
    return f"in {span(instant - now)}" if instant > now else f"{span(now - instant)} ago"


def span(duration: int) -> str:
    """Microseconds in the two largest units: `4 h 12 min`; below ten seconds with fractions."""
    if duration < 10 * SECOND:
        return f"{duration / SECOND:.1f} s" if duration >= SECOND // 10 else f"{duration / 1000:.0f} ms"
    left, parts = duration // SECOND, list[str]()
    for size, unit in _UNITS:
        amount, left = divmod(left, size)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
    return " ".join(part for part in parts[:2] if part)


def count(number: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def done(row: ScheduleRecord) -> str | None:
    """Why an active schedule will not tick again, if it stands so."""
    if row.status is not Status.ACTIVE or row.next_at is not None:
        return None
    return "limit reached" if row.definition.is_used_up(row.created_count) else "no further tick"


# --- JSON -----------------------------------------------------------------------------------

_INSTANTS = {"tick", "cursor", "first", "last", "now"}
_DURATIONS = {"timeout", "jitter", "delay"}
_JSON_TEXTS = {"args", "result", "progress", "checkpoint"}


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """A record with the names it has, as JSON values: instants in ISO 8601 and UTC, durations in
    seconds, JSON texts as what they say. A schedule's definition is laid flat into its row."""
    found: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "definition":
            found |= plain(value)
        elif isinstance(value, msgspec.Struct):
            found[name] = plain(value)
        else:
            found[name] = _value(name, value)
    return found


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if _is_instant(name):
            return _iso(value)
        if _is_duration(name):
            return value // SECOND if value % SECOND == 0 else value / SECOND
    if name in _JSON_TEXTS and isinstance(value, str):
        return msgspec.json.decode(as_shown(value))
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return [plain(item) if isinstance(item, msgspec.Struct) else item for item in items]
    return str(value) if isinstance(value, str) else value


def json_kind(name: str, kind: Any) -> dict[str, Any]:
    """What `plain` makes of a field with that name and type, as JSON Schema."""
    if name in _JSON_TEXTS:
        return {}
    kinds = [part for part in (get_args(kind) if isinstance(kind, UnionType) else (kind,)) if part is not NoneType]
    found = _json_kind(name, kinds[0])
    return {**found, "type": [found["type"], "null"]} if "type" in found and NoneType in get_args(kind) else found


def _json_kind(name: str, kind: Any) -> dict[str, Any]:
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        if _is_instant(name):
            return {"type": "string", "format": "date-time"}
        return {"type": "number"} if _is_duration(name) else {"type": "integer"}
    origin = get_origin(kind) or kind
    if origin in (tuple, list):
        return {"type": "array"}
    if origin is dict or issubclass(origin, msgspec.Struct):
        return {"type": "object"}
    if issubclass(origin, StrEnum):
        return {"type": "string", "enum": [word.value for word in origin]}
    return {"type": "string"}


def _is_instant(name: str) -> bool:
    return name in _INSTANTS or name.endswith(("_at", "_until"))


def _is_duration(name: str) -> bool:
    return name in _DURATIONS or name.endswith(("_for", "_within", "_delay"))


def iso(instant: int | None) -> str | None:
    """An instant as JSON has it."""
    return None if instant is None else _iso(instant)


def _iso(instant: int) -> str:
    return _naive(from_us(instant)) + "Z"


def _naive(instant: datetime) -> str:
    text = instant.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if "." in text else text
