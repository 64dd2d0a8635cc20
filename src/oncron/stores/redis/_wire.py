"""Msgpack to the scripts, and records from their answers.

Lua reads a field that is nil as absent, and so it writes it: records are decoded with their defaults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from oncron.errors import StoreError
from oncron.stores._text import without_surrogates

T = TypeVar("T")
log = logging.getLogger("oncron.stores.redis")

_encode = msgspec.msgpack.Encoder().encode


def encode(payload: Any) -> bytes:
    """Lone surrogates, which no text of a store may hold, become U+FFFD."""
    try:
        return _encode(payload)
    except UnicodeEncodeError:
        return _encode(without_surrogates(msgspec.to_builtins(payload)))


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """It raises StoreError for what is no such thing: another release's, or edited by hand."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(raw: bytes) -> T:
        try:
            return decode(raw)
        except msgspec.MsgspecError as error:
            raise StoreError(f"the store holds a {kind} that this release cannot read: {error}") from error

    return read


def readable(read: Callable[[Any], T], raws: Iterable[Any]) -> list[T]:
    """Those that can be read. The others are left alone, and said."""
    found: list[T] = []
    for raw in raws:
        try:
            found.append(read(raw))
        except StoreError as error:
            log.error("record.unreadable: %s; it is left as it is", error)
    return found
