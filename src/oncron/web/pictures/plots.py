"""How long runs take, and how late they start, over time: a dot each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oncron._shown import span
from oncron.web.pictures.clocks import DAY, HOUR, MINUTE, Clocks, short
from oncron.web.pictures.facts import Mark, Outcome
from oncron.web.pictures.glyphs import BADNESS, WORDS, glyph
from oncron.web.pictures.svg import element, linked, number, picture, text, tooltip
from oncron.web.pictures.tally import grouped

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _FOOT = 540, 240, 58, 100, 14, 28
_LOW = _HEIGHT - _FOOT
_EMPTY = 56
_SINGLY, _DOTS = 240, 4000
_MS, _S = 1000, 1_000_000
_ROUND = tuple(
    [n * _MS for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
    + [n * _S for n in (1, 2, 5, 10, 15, 30)]
    + [n * MINUTE for n in (1, 2, 5, 10, 15, 30)]
    + [n * HOUR for n in (1, 2, 3, 6, 12)]
    + [n * DAY for n in (1, 2, 5, 10, 20, 50, 100, 1000)]
)
_DECADES = (_MS, 10 * _MS, 100 * _MS, _S, 10 * _S, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 10 * DAY, 1000 * DAY)
_SPREAD = 20
"""A largest value of so many times the median asks for powers of ten: else all the others lie on the floor."""


@dataclass(frozen=True, slots=True)
class _Dot:
    at: int
    value: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Limit:
    """A line across, with its name."""

    name: str
    value: int
    kind: str


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
    """A dot for each run that ended and whose tick is in [start, end): how long it took; lines at the median, the
    95th percentile and the timeout."""
    dots = [_Dot(m.at, m.took, m) for m in marks if m.took is not None and start <= m.at < end]
    limits = [] if timeout is None else [_Limit("timeout", timeout, "timeout")]
    plot = _Plot("How long runs took", schedule, Clocks(zone), start, max(end, start + 1), dots, limits)
    return plot.drawn("run took", "No run has ended.", ident)


def latenesses(
    marks: Sequence[Mark], *, schedule: str, zone: str, start: int, end: int, ident: str = "latenesses"
) -> str:
    """A dot for each tick in [start, end) that started: how long after it that was."""
    dots = [_Dot(m.at, m.late, m) for m in marks if m.late is not None and start <= m.at < end]
    plot = _Plot("How late ticks started", schedule, Clocks(zone), start, max(end, start + 1), dots, [])
    return plot.drawn("start was late by", "No tick has started.", ident)


class _Plot:
    def __init__(
        self,
        what: str,
        schedule: str,
        clocks: Clocks,
        start: int,
        end: int,
        dots: list[_Dot],
        limits: list[_Limit],
    ) -> None:
        self._title = f"{what}: {schedule}"
        self._clocks, self._start, self._end = clocks, start, end
        self._dots = sorted(dots, key=lambda dot: dot.at)
        self._values = sorted(dot.value for dot in dots)
        self._limits = limits
        if self._values:
            self._limits = [
                _Limit("p50", self._at(0.50), "p50"),
                _Limit("p95", self._at(0.95), "p95"),
                *limits,
            ]
        most = max([_MS, *self._values[-1:]])
        # A timeout far above everything would press the dots to the floor: it is said, not drawn.
        self._limits = [limit for limit in self._limits if limit.kind != "timeout" or limit.value <= 4 * most]
        self._most = max([most, *(limit.value for limit in self._limits)])
        self._powers = bool(self._values) and self._most > _SPREAD * max(_MS, self._at(0.50))

    def _at(self, part: float) -> int:
        """The smallest value that so large a part does not exceed."""
        return self._values[max(0, math.ceil(part * len(self._values)) - 1)]

    def drawn(self, does: str, nothing: str, ident: str) -> str:
        inside = [*self._axes(), *self._drawn_dots(does), *self._across()]
        if not self._dots:
            inside.append(text(_WIDTH / 2, _HEIGHT / 2, nothing, class_="name", anchor="middle"))
        return picture("plot", _WIDTH, _HEIGHT, title=self._title, desc=self._said(nothing), inside=inside, ident=ident)

    def _said(self, nothing: str) -> str:
        when = f"From {self._clocks.stamp(self._start)} to {self._clocks.stamp(self._end)} ({self._clocks.zone})"
        if not self._dots:
            return f"{when}: {nothing}"
        worst = max(self._dots, key=lambda dot: dot.value)
        return (
            f"{when}: {grouped(len(self._dots))} dot{'' if len(self._dots) == 1 else 's'}; half are at most "
            f"{span(self._at(0.5))}, 95 of 100 at most {span(self._at(0.95))}, the most is {span(worst.value)}, at "
            f"{self._clocks.stamp(worst.at)}. {'The scale goes by powers of ten.' if self._powers else ''}"
        )

    # --- places ---

    def _x(self, instant: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (instant - self._start) / (self._end - self._start)

    def _y(self, value: int) -> float:
        if not self._powers:
            return _LOW - (_LOW - _TOP) * value / (self._most * 1.06)
        floor = self._floor()
        reach = math.log(self._most * 1.2 / floor)
        return _LOW - (_LOW - _TOP) * max(0.0, math.log(max(value, floor) / floor)) / reach

    def _floor(self) -> int:
        least = max(_MS, self._values[0])
        return max(decade for decade in _DECADES if decade <= least)

    def _axes(self) -> Iterator[str]:
        if self._powers:
            floor = self._floor()
            values = [decade for decade in _DECADES if floor <= decade <= self._most * 1.2]
        else:
            step = next((s for s in _ROUND if self._most / s <= 5), _ROUND[-1])
            values = [n * step for n in range(int(self._most * 1.06 // step) + 1)]
        for value in values:
            y = self._y(value)
            yield element("path", class_="grid", d=f"M{_LEFT} {number(y)}H{_WIDTH - _RIGHT}")
            yield text(_LEFT - 8, y + 4, short(value), class_="axis", anchor="end")
        for at, label in self._clocks.grid(self._start, self._end, 7):
            x = self._x(at)
            yield element("path", class_="grid", d=f"M{number(x)} {_TOP}V{_LOW}")
            yield text(x, _HEIGHT - 8, label, class_="axis", anchor="middle")

    def _across(self) -> Iterator[str]:
        free = _LOW + 20.0
        for limit in sorted(self._limits, key=lambda limit: limit.value):
            y = self._y(limit.value)
            free = min(y + 4, free - 14)
            yield element("path", class_=f"across {limit.kind}", d=f"M{_LEFT} {number(y)}H{_WIDTH - _RIGHT}")
            yield text(_WIDTH - _RIGHT + 5, free, f"{limit.name} {short(limit.value)}", class_="note")

    # --- dots ---

    def _drawn_dots(self, does: str) -> Iterator[str]:
        """Of many, those that went well are one path without words, on a grid that is as fine as it can be."""
        placed = [(self._x(dot.at), self._y(dot.value), dot) for dot in self._dots]
        if len(placed) > _SINGLY:
            good = [(x, y) for x, y, dot in placed if dot.mark.outcome is Outcome.SUCCEEDED]
            yield element("path", class_="o-succeeded dots", d=_dotted(good))
            placed = _thinned([each for each in placed if each[2].mark.outcome is not Outcome.SUCCEEDED])
        for x, y, dot in sorted(placed, key=lambda each: -BADNESS[each[2].mark.outcome]):
            said = f"{self._clocks.stamp(dot.at)}: {does} {span(dot.value)}, {WORDS[dot.mark.outcome].lower()}"
            yield linked(dot.mark.href, glyph(dot.mark.outcome, x, y, 3.2, tooltip(said)))


def _dotted(places: list[tuple[float, float]]) -> str:
    for grid in (0.5, 1, 2, 3, 4):
        cells = {(round(x / grid), round(y / grid)) for x, y in places}
        if len(cells) <= _DOTS:
            break
    return "".join(f"M{number(x * grid)} {number(y * grid)}h0" for x, y in sorted(cells))


def _thinned(placed: list[tuple[float, float, _Dot]]) -> list[tuple[float, float, _Dot]]:
    """At most so many as are told singly: of those that lie together the one that took longest."""
    for grid in (1, 4, 8, 12, 20, 40):
        cells: dict[tuple[int, int, Outcome], tuple[float, float, _Dot]] = {}
        for x, y, dot in placed:
            place = (int(x / grid), int(y / grid), dot.mark.outcome)
            if place not in cells or cells[place][2].value < dot.value:
                cells[place] = (x, y, dot)
        if len(cells) <= _SINGLY:
            break
    return list(cells.values())
