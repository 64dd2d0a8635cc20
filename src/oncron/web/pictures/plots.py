"""How long runs take, and how late they start, over time."""

from __future__ import annotations

from collections.abc import Sequence

from oncron.web.pictures.facts import Mark
from oncron.web.pictures.svg import picture


def durations(
    marks: Sequence[Mark],
    *,
    schedule: str,
    zone: str,
    start: int,
    end: int,
    timeout: int | None = None,
    ident: str = "durations",
) -> str:
    """A dot for each run that ended in [start, end): how long it took; lines at the median, the 95th percentile and
    the timeout."""
    return picture("plot", 540, 240, title=f"Durations of {schedule}", desc="", inside=[], ident=ident)


def latenesses(
    marks: Sequence[Mark], *, schedule: str, zone: str, start: int, end: int, ident: str = "latenesses"
) -> str:
    """A dot for each tick in [start, end) that started: how long after it that was."""
    return picture("plot", 540, 240, title=f"Lateness of {schedule}", desc="", inside=[], ident=ident)
