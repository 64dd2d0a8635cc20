"""The rule at the end of a zone file: what its offset does after the last listed change.

The form is POSIX's `TZ` with the usual extension of hours past 24, for instance
`EST5EDT,M3.2.0,M11.1.0` or `<-02>2<-01>,M3.5.0/-1,M10.5.0/0`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

_EPOCH_DAY = 719_163
_NAME = r"(?:<[^>]+>|[A-Za-z]+)"
_TIME = r"[+-]?\d+(?::\d+){0,2}"
_RULE = re.compile(rf"{_NAME}({_TIME})(?:{_NAME}({_TIME})?(?:,([^,/]+)(?:/({_TIME}))?,([^,/]+)(?:/({_TIME}))?)?)?")


@dataclass(frozen=True, slots=True)
class PosixRule:
    """Offsets in seconds east of UTC; `begins` and `ends` are (day rule, seconds of local day)."""

    standard: int
    summer: int
    begins: tuple[str, int]
    ends: tuple[str, int]
    has_dst: bool

    def changes(self, year: int) -> list[tuple[int, int]]:
        """The changes of a year, in order: (UTC second, offset from then on)."""
        begin = _day_of(year, self.begins[0]) * 86_400 + self.begins[1] - self.standard
        end = _day_of(year, self.ends[0]) * 86_400 + self.ends[1] - self.summer
        return sorted([(begin, self.summer), (end, self.standard)])


def parse_rule(text: str) -> PosixRule | None:
    """The rule, or None for the empty text of a zone without one."""
    match = _RULE.fullmatch(text)
    if match is None:
        return None
    standard = -_seconds(match[1])
    if match[3] is None:
        return PosixRule(standard, standard, ("", 0), ("", 0), has_dst=False)
    summer = -_seconds(match[2]) if match[2] else standard + 3600
    begins = (match[3], _seconds(match[4] or "2"))
    ends = (match[5], _seconds(match[6] or "2"))
    return PosixRule(standard, summer, begins, ends, has_dst=True)


def year_of(second: int) -> int:
    """The UTC year of a second."""
    return date.fromordinal(max(1, second // 86_400 + _EPOCH_DAY)).year


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")] + [0, 0]
    return sign * (parts[0] * 3600 + parts[1] * 60 + parts[2])


def _day_of(year: int, rule: str) -> int:
    """The day a rule names in a year, as days since 1970-01-01."""
    if rule.startswith("M"):
        month, week, weekday = (int(part) for part in rule[1:].split("."))
        first = date(year, month, 1)
        day = 1 + (weekday - first.isoweekday()) % 7 + 7 * (week - 1)
        last = (date(year + month // 12, month % 12 + 1, 1) - first).days if year < 9999 or month < 12 else 31
        return first.toordinal() - _EPOCH_DAY + (day - 7 if day > last else day) - 1
    start = date(year, 1, 1).toordinal() - _EPOCH_DAY
    if rule.startswith("J"):
        leap = date(year, 3, 1).toordinal() - date(year, 2, 28).toordinal() == 2
        nth = int(rule[1:])
        return start + nth - 1 + (1 if leap and nth >= 60 else 0)
    return start + int(rule)
