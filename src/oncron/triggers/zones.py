"""Time zones as integer tables, read from the tzdata package only.

The host's zone, its `TZ` variable and its zone files are never looked at: every replica
with the same tzdata computes the same instants. A zone is kept as two lists, the instants
at which its offset from UTC changes and the offsets between them, so that finding a tick
is a bisection and an addition.
"""

from __future__ import annotations

import difflib
import importlib.resources
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from importlib.resources.abc import Traversable

import tzdata

from oncron.errors import InvalidTrigger
from oncron.triggers._posix import PosixRule, parse_rule, year_of

LAST_SECOND = 253_402_300_799
"""9999-12-31T23:59:59Z in seconds: no instant lies past it."""

_FIRST_REACH = 2050
_DAY = 86_400


def tzdata_version() -> str:
    """The version of the zone rules in use, `2026f` for instance."""
    return tzdata.IANA_VERSION


class Zone:
    """One zone's offsets.

    `jumps[i]` is the UTC second at which `offsets[i]` ends and `offsets[i + 1]` begins
    (seconds east of UTC). Complete up to `until`; `reach` extends it by the zone's rule.
    Changes of name or of the DST flag alone are not jumps.
    """

    __slots__ = ("_listed_to", "_lock", "_next_year", "_rule", "jumps", "name", "offsets", "until")

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._lock = threading.Lock()
        raw, first, footer = _read_tzif(data)
        self.jumps: list[int] = []
        self.offsets: list[int] = [first]
        self._listed_to = -1 << 60
        for at, offset in raw:
            self._append(at, offset)
            self._listed_to = at
        self._rule: PosixRule | None = parse_rule(footer)
        self._next_year = year_of(self._listed_to) if self.jumps else 1970
        self.until = 0
        self._extend(_FIRST_REACH)

    def offset_at(self, second: int) -> int:
        """Seconds east of UTC at a UTC second."""
        self.reach(second)
        return self.offsets[bisect_right(self.jumps, second)]

    def jumps_in(self, first_year: int, last_year: int) -> list[tuple[int, int, int]]:
        """The jumps of some years: (UTC second, offset before, offset after)."""
        start, end = _year_start(first_year), _year_start(last_year + 1)
        self.reach(end)
        found = zip(self.jumps, self.offsets, self.offsets[1:], strict=False)
        return [jump for jump in found if start <= jump[0] < end]

    def reach(self, second: int) -> None:
        """Make the table complete for `second` and the days around it."""
        if second >= self.until:
            self._extend(min(9999, year_of(min(second, LAST_SECOND)) + 50))

    def _extend(self, last_year: int) -> None:
        rule = self._rule
        with self._lock:
            if rule is None or not rule.has_dst:
                self.until = LAST_SECOND * 2
                return
            for year in range(self._next_year, last_year + 1):
                for at, offset in rule.changes(year):
                    if at > self._listed_to:
                        self._append(at, offset)
            self._next_year = max(self._next_year, last_year + 1)
            # The last days of a year may belong to a change the next year's rule makes.
            self.until = LAST_SECOND * 2 if last_year >= 9999 else _year_start(last_year + 1) - 7 * _DAY

    def _append(self, at: int, offset: int) -> None:
        # Readers bisect `jumps` without a lock: its offset has to be there first.
        if offset != self.offsets[-1]:
            self.offsets.append(offset)
            self.jumps.append(at)


def zone_names() -> frozenset[str]:
    """Every zone name the tzdata package knows."""
    return frozenset(_names())


def load_zone(name: object) -> Zone:
    """The zone of an IANA name. Raises InvalidTrigger with the nearest names if there is none."""
    if not isinstance(name, str):
        key = getattr(name, "key", None)
        mend = f"write timezone={key!r}" if isinstance(key, str) else "give its IANA name, 'Europe/Berlin' for instance"
        raise InvalidTrigger("a time zone is given by its name", expression=name, field="timezone", mend=mend)
    return _load(name)


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    if name not in zone_names():
        raise _unknown(name)
    return Zone(name, _file(name).read_bytes())


def _unknown(name: str) -> InvalidTrigger:
    lowered = {known.lower(): known for known in _names()}
    wanted = name[:64].strip().lower().replace(" ", "_")
    near = difflib.get_close_matches(wanted, lowered, n=3, cutoff=0.7)
    by_city = [low for low in lowered if wanted and low.rsplit("/", 1)[-1] == wanted.rsplit("/", 1)[-1]]
    found = list(dict.fromkeys([lowered[low] for low in by_city + near]))[:3]
    mend = (
        f"did you mean {' or '.join(found)}?" if found else "give an IANA name, 'Europe/Berlin' or 'UTC' for instance"
    )
    return InvalidTrigger(
        f"no such time zone in tzdata {tzdata_version()}", expression=name, field="timezone", mend=mend
    )


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    text = importlib.resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return tuple(text.split())


def _file(name: str) -> Traversable:
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))


def _year_start(year: int) -> int:
    return (date(year, 1, 1).toordinal() - 719_163) * _DAY


def _read_tzif(data: bytes) -> tuple[Iterator[tuple[int, int]], int, str]:
    """The changes (UTC second, offset after it), the offset before them, and the rule for
    the time after them, of a TZif file of version 2 or later (RFC 8536)."""
    sizes = struct.unpack(">6l", data[20:44])
    start = 44 + _block_size(sizes, 4)
    isut, isstd, leaps, times, types, chars = sizes = struct.unpack(">6l", data[start + 20 : start + 44])
    del isut, isstd, leaps, chars
    body = start + 44
    ats = struct.unpack(f">{times}q", data[body : body + 8 * times])
    kinds = data[body + 8 * times : body + 9 * times]
    table = body + 9 * times
    offsets = [int(struct.unpack(">l", data[table + 6 * k : table + 6 * k + 4])[0]) for k in range(types)]
    footer = data[body + _block_size(sizes, 8) :].strip(b"\n").decode("ascii")
    return ((at, offsets[kind]) for at, kind in zip(ats, kinds, strict=True)), offsets[0], footer


def _block_size(sizes: tuple[int, ...], width: int) -> int:
    isut, isstd, leaps, times, types, chars = sizes
    return times * (width + 1) + types * 6 + chars + leaps * (width + 4) + isstd + isut
