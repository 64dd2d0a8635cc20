"""How many ticks each minute of the coming day has: the herd at :00 shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oncron.web.pictures.clocks import HOUR, MINUTE, Clocks
from oncron.web.pictures.svg import element, number, picture, text, tooltip
from oncron.web.pictures.tally import grouped

_WIDTH, _LEFT, _RIGHT, _TOP = 1080, 50, 80, 26
_CELL = (_WIDTH - _LEFT - _RIGHT) / 60
_ROW, _ROWS, _FOOT = 18, 26, 40
_CLASSES = 5
_MOST_TOLD = 900
"""Stretches that say their number when pointed at; of more, only the busier ones do."""


def load_map(counts: Sequence[int], *, first_minute: int, zone: str, ident: str = "load") -> str:
    """A row for each hour on the clocks of the zone, a column for each minute. `counts[i]` is of the minute
    `first_minute + i`, minutes numbered since 1970; a day and an hour of them at most are drawn."""
    clocks = Clocks(zone)
    rows = _rows(clocks, counts[: 25 * 60], first_minute)
    bounds = _bounds(max(counts, default=0))
    height = _TOP + _ROW * max(1, len(rows)) + _FOOT
    inside = [*_axes(rows, clocks), *_cells(rows, clocks, bounds), *_legend(bounds, height - 14)]
    return picture(
        "load-map",
        _WIDTH,
        height,
        title="Ticks a minute over the coming day",
        desc=_said(counts[: 25 * 60], clocks, first_minute),
        inside=inside,
        ident=ident,
    )


@dataclass(frozen=True)
class _Hour:
    start: int
    """The instant of its column 0, which may be before the first count."""
    counts: dict[int, int]
    """By column."""


def _rows(clocks: Clocks, counts: Sequence[int], first_minute: int) -> list[_Hour]:
    """By the hour that the clocks show; one that comes twice has two rows."""
    found: list[_Hour] = []
    offset: int | None = None
    for place, count in enumerate(counts):
        at = (first_minute + place) * MINUTE
        there = clocks.offset(at)
        column = (at + there) % HOUR // MINUTE
        if not found or column == 0 or there != offset:
            if len(found) == _ROWS:
                break
            found.append(_Hour(at - column * MINUTE, {}))
            offset = there
        found[-1].counts[column] = count
    return found


def _bounds(most: int) -> list[int]:
    """The least count of each class: few ticks and many differ by a factor, not by a number."""
    return sorted(
        {max(1, round(most ** (n / _CLASSES))) for n in range(_CLASSES)} if most > _CLASSES else range(1, most + 1)
    )


def _class_of(count: int, bounds: Sequence[int]) -> int:
    return sum(count >= bound for bound in bounds)


def _axes(rows: Sequence[_Hour], clocks: Clocks) -> Iterator[str]:
    for minute in range(0, 60, 5):
        yield text(_LEFT + (minute + 0.5) * _CELL, _TOP - 9, f":{minute:02d}", class_="axis", anchor="middle")
    yield text(_WIDTH - 8, _TOP - 9, "an hour", class_="axis", anchor="end")
    for place, row in enumerate(rows):
        y = _TOP + place * _ROW
        shown = clocks.shown(row.start + min(row.counts) * MINUTE)
        yield element("rect", class_="row", x=_LEFT, y=y + 0.5, width=60 * _CELL, height=_ROW - 1)
        yield text(_LEFT - 8, y + _ROW - 5, f"{shown:%H}:00", class_="axis", anchor="end")
        yield text(_WIDTH - 8, y + _ROW - 5, grouped(sum(row.counts.values())), class_="count", anchor="end")


def _cells(rows: Sequence[_Hour], clocks: Clocks, bounds: Sequence[int]) -> Iterator[str]:
    """Equal neighbours are one. A square's size says its class, as well as its colour."""
    stretches = [(place, *stretch) for place, row in enumerate(rows) for stretch in _stretches(row)]
    least = 1 if len(stretches) <= _MOST_TOLD else 2
    for place, first, last, count in stretches:
        level = _class_of(count, bounds)
        side = 4 + (_ROW - 5) * level / _CLASSES
        wide = min(side, _CELL - 1)
        y = _TOP + place * _ROW + (_ROW - side) / 2
        square = f"{number(y)}h{number(wide)}v{number(side)}h-{number(wide)}z"
        edge = _LEFT + (_CELL - wide) / 2
        path = "".join(f"M{number(edge + column * _CELL)} {square}" for column in range(first, last + 1))
        said: list[str] = []
        if _class_of(count, bounds) >= least:
            when = clocks.shown(rows[place].start + first * MINUTE)
            until = f" to {when:%H}:{last:02d}" if last > first else ""
            each = " each" if last > first else ""
            said = [tooltip(f"{when:%H:%M}{until}: {grouped(count)} tick{'' if count == 1 else 's'}{each}")]
        yield element("path", *said, class_=f"h{level}", d=path)


def _stretches(row: _Hour) -> Iterator[tuple[int, int, int]]:
    """(first column, last column, count) where there are ticks."""
    begun: tuple[int, int] | None = None
    for column in range(61):
        count = row.counts.get(column, 0)
        if begun is not None and count != begun[1]:
            yield begun[0], column - 1, begun[1]
            begun = None
        if begun is None and count:
            begun = (column, count)


def _legend(bounds: Sequence[int], y: float) -> Iterator[str]:
    yield text(_LEFT, y, "ticks a minute", class_="axis")
    x = _LEFT + 110.0
    for place, bound in enumerate(bounds):
        level = place + 1
        side = 4 + (_ROW - 5) * level / _CLASSES
        until = bounds[place + 1] - 1 if place + 1 < len(bounds) else None
        label = f"{grouped(bound)} or more" if until is None else grouped(bound)
        if until is not None and until > bound:
            label += f" to {grouped(until)}"
        yield element("rect", class_=f"h{level}", x=x, y=y - 4 - side / 2, width=min(side, _CELL - 1), height=side)
        yield text(x + _CELL + 5, y, label, class_="axis")
        x += _CELL + 30 + 7 * len(label)


def _said(counts: Sequence[int], clocks: Clocks, first_minute: int) -> str:
    total, most = sum(counts), max(counts, default=0)
    if not total:
        return "No schedule has a tick."
    at = clocks.stamp((first_minute + counts.index(most)) * MINUTE)
    herd = sum(n for place, n in enumerate(counts) if (first_minute + place) % 60 == 0)
    return (
        f"{grouped(total)} ticks from {clocks.stamp(first_minute * MINUTE)} on ({clocks.zone}); the busiest minute, "
        f"{at}, has {grouped(most)}. {round(100 * herd / total)} of 100 come in the first minute of an hour."
    )
