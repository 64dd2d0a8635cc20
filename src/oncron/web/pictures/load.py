"""How many ticks each minute of the coming day has: the herd at :00 shows."""

from __future__ import annotations

from collections.abc import Sequence

from oncron.web.pictures.svg import picture


def load_map(counts: Sequence[int], *, first_minute: int, zone: str, ident: str = "load") -> str:
    """A row for each hour on the clocks of the zone, a column for each minute. `counts[i]` is of the minute
    `first_minute + i`, minutes numbered since 1970; a day and an hour of them at most are drawn."""
    return picture("load-map", 1080, 480, title="Ticks a minute", desc="", inside=[], ident=ident)
