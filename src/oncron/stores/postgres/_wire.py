"""JSON to the server's functions, and records from their answers."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from oncron.stores._text import without_surrogates

_encode = msgspec.json.Encoder().encode
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def encode(payload: Any) -> bytes:
    """The payload as JSON that PostgreSQL can hold: no text of it breaks a batch. NUL characters and
    lone surrogates, which no PostgreSQL text may hold, become U+FFFD."""
    try:
        raw = _encode(payload)
    except UnicodeEncodeError:
        raw = _encode(without_surrogates(msgspec.to_builtins(payload)))
    # JSON inside a text has its backslashes doubled: only an odd number of them is a NUL itself.
    return _NUL.sub(rb"\1\\ufffd", raw) if rb"\u0000" in raw else raw
