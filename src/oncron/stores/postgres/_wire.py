"""JSON to the server's functions, and records from their answers."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

_encode = msgspec.json.Encoder().encode
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def encode(payload: Any) -> bytes:
    """The payload as JSON that PostgreSQL can hold: no text of it breaks a batch. NUL characters and
    lone surrogates, which no PostgreSQL text may hold, become U+FFFD."""
    try:
        raw = _encode(payload)
    except UnicodeEncodeError:
        raw = _encode(_without_surrogates(msgspec.to_builtins(payload)))
    # JSON inside a text has its backslashes doubled: only an odd number of them is a NUL itself.
    return _NUL.sub(rb"\1\\ufffd", raw) if rb"\u0000" in raw else raw


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in cast("list[Any]", value)]
    return value
