"""The number under which PostgreSQL locks a name: the same in every process, and in Go's recipe."""

from __future__ import annotations

import threading

from oncron.errors import DuplicateName, InvalidOption

_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3

_names: dict[int, str] = {}
_one_at_a_time = threading.Lock()


def job_lock_key(name: str) -> int:
    """The key of a name for `pg_try_advisory_lock(bigint)`: FNV-1a of its UTF-8, 64 bits, as a signed number. The
    name is taken as it is. Raises InvalidOption for what is no text."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"job_lock_key({name!r}): give the name as a str")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"job_lock_key({name!r}): a lone surrogate is no text; leave it out") from None
    key = _OFFSET
    for byte in raw:
        key = (key ^ byte) * _PRIME & 0xFFFFFFFFFFFFFFFF
    return key - (1 << 64) if key >> 63 else key


def known_key(name: str) -> int:
    """The key of a name that this process locks by, from now on. Raises DuplicateName if another name that it
    locks by has the same one: each would keep the other from running."""
    key = job_lock_key(name)
    with _one_at_a_time:
        other = _names.setdefault(key, name)
    if other != name:
        raise DuplicateName(
            f"the advisory locks of {other!r} and {name!r} have the same key, {key}: each would keep the other from "
            "running; rename one of them"
        )
    return key
