"""Values to JSON and back, strictly: what cannot come back as it went in is refused by name.

msgspec reads and writes; Pydantic models go through `model_dump` and `model_validate`, found
by those methods, so Pydantic need not be installed.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec

from oncron.errors import InvalidArguments

_DEEPEST = 100
_AS_TEXT = (date, time, timedelta, Decimal, UUID)
_KEEP = (bytes, bytearray, memoryview, datetime, Decimal)


def plain(value: Any, path: str = "$") -> Any:
    """The value in dicts, lists, strings, numbers, booleans and None. Raises InvalidArguments with the
    path of the first part that is not JSON."""
    return _Plain().convert(value, path)


def dumps(value: Any, path: str = "$") -> str:
    """The value's JSON text. Raises InvalidArguments with the path of what is not JSON."""
    return msgspec.json.encode(plain(value, path)).decode()


def loads(text: str) -> Any:
    return msgspec.json.decode(text)


def from_plain(kind: Any, value: Any) -> Any:
    """The hook for types that msgspec does not know: Pydantic models validate themselves."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"JSON cannot become a {type_name(kind)}; annotate it with a dataclass or another plain type")
    return validate(value)


def type_name(kind: Any) -> str:
    module, name = getattr(kind, "__module__", ""), getattr(kind, "__qualname__", repr(kind))
    return name if module in ("builtins", "") else f"{module}.{name}"


class _Plain:
    """One conversion; remembers which containers it is inside of, so that a cycle ends."""

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def convert(self, value: Any, path: str) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum):
            return self.convert(value.value, path)
        if isinstance(value, str):
            return _text(value, path)
        if isinstance(value, int):
            return _whole(value, path)
        if isinstance(value, float):
            return _finite(value, path)
        if isinstance(value, datetime):
            return _instant(value, path)
        if isinstance(value, _AS_TEXT):
            return _as_text(value, path)
        return self._container(value, path)

    def _container(self, value: Any, path: str) -> Any:
        me = id(value)
        if me in self._inside or len(self._inside) >= _DEEPEST:
            reason = "contains itself" if me in self._inside else f"is nested deeper than {_DEEPEST}"
            raise _refusal(value, path, f"{reason}; pass plain values")
        self._inside.add(me)
        try:
            if isinstance(value, Mapping):
                items = cast("Mapping[Any, Any]", value).items()
                return self._object(items, path)
            if isinstance(value, list | tuple | set | frozenset):
                elements = cast("list[Any]", value)
                return [self.convert(item, f"{path}[{i}]") for i, item in enumerate(elements)]
            if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
                return self.convert(value.model_dump(mode="json"), path)
            if _is_record(value):
                return self.convert(_fields(value, path), path)
        finally:
            self._inside.discard(me)
        raise _refusal(value, path, "pass an id, a name or a path instead, and look it up in the task")

    def _object(self, items: Iterable[tuple[Any, Any]], path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in items:
            name = _key(key, path)
            if name in found:
                raise _refusal(key, f"{path}.{name}", f"two keys become the JSON key {name!r}; rename one of them")
            found[name] = self.convert(item, f"{path}.{name}")
        return found


def _is_record(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value) or hasattr(value, "__attrs_attrs__")


def _fields(value: Any, path: str) -> Any:
    """One record's fields under the names and tags that msgspec gives them."""

    def unknown(part: Any) -> Any:
        if callable(getattr(part, "model_dump", None)):
            return part.model_dump(mode="json")
        raise TypeError(f"{_a(type(part))} is not JSON")

    try:
        return msgspec.to_builtins(value, builtin_types=_KEEP, enc_hook=unknown)
    except RecursionError:
        raise _refusal(value, path, "contains itself; pass plain values") from None
    except (TypeError, ValueError, NotImplementedError) as error:
        raise _refusal(value, path, str(error)) from None


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refusal(value, path, f"holds a lone surrogate at {error.start}; decode it properly first") from None
    return str(value)


def _whole(value: int, path: str) -> int:
    if not -(2**63) <= value < 2**64:
        raise _refusal(value, path, "does not fit 64 bits; pass it as a str")
    return int(value)


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise _refusal(value, path, f"{value} has no JSON; pass None or a str")
    return float(value)


def _instant(value: datetime, path: str) -> str:
    if value.utcoffset() is None:
        raise _refusal(
            value, path, f"{value.isoformat()} is naive; give it a zone: datetime.now(UTC), or tzinfo=ZoneInfo(...)"
        )
    return value.isoformat()


def _as_text(value: Any, path: str) -> Any:
    if isinstance(value, Decimal) and not value.is_finite():
        raise _refusal(value, path, f"{value} has no JSON; pass None or a str")
    return msgspec.to_builtins(value)


def _key(key: Any, path: str) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return _text(key, path)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, date | UUID):
        return str(msgspec.to_builtins(key))
    raise _refusal(key, path, "JSON's keys are text")


def _refusal(value: Any, path: str, mend: str) -> InvalidArguments:
    return InvalidArguments(f"{path}: {_a(type(value))} cannot be stored as JSON: {mend}", path=path)


def _a(kind: Any) -> str:
    """The type's name with its article."""
    name = type_name(kind)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
