"""Msgpack to the scripts, and records from their answers.

Lua reads a field that is nil as absent, and so it writes it: records are decoded with their defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode


def encode(payload: Any) -> bytes:
    """Lone surrogates, which no text of a store may hold, become U+FFFD."""
    try:
        return _encode(payload)
    except UnicodeEncodeError:
        return _encode(_without_surrogates(msgspec.to_builtins(payload)))


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.msgpack.Decoder(kind).decode


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in cast("list[Any]", value)]
    return value
