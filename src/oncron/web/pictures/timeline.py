"""What became of a schedule's ticks, along a line of time: a lane for each outcome, so that place tells it as well."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oncron._shown import span
from oncron.web.pictures.clocks import DAY, Clocks, shift, short
from oncron.web.pictures.facts import Mark, Outcome
from oncron.web.pictures.glyphs import BADNESS, WORDS, glyph
from oncron.web.pictures.svg import element, linked, number, picture, text, tooltip
from oncron.web.pictures.tally import SAID, Tally, grouped

_RIGHT, _TOP, _FOOT = 16, 26, 26
_LANE, _LATE_LANE = 30, 46
_SINGLY, _SINGLY_IN_ALL = 80, 240
"""A lane with more marks is drawn as columns; so are the fullest lanes when there are more in all."""
_COLUMNS, _NARROW = 700, 4
"""Columns in all lanes together, and how wide they are if there is room."""
_TOO_DENSE = 0.01
"""Ticks so near to each other are even in any column."""
_BANDS = 62
_LATE_FROM = 1000
"""What is less late than a millisecond is not late."""


def timeline(
    marks: Sequence[Mark],
    *,
    schedule: str,
    zone: str,
    start: int,
    end: int,
    now: int,
    slim: bool = False,
    ident: str = "timeline",
) -> str:
    """Ticks in [start, end) by outcome, a lane each, and how late they started. Marks outside are left out. `slim` is
    for a phone's width."""
    end = max(end, start + 1)
    shown = sorted((m for m in marks if m.count and m.at < end and (m.last or m.at) >= start), key=lambda m: m.at)
    line = _Line(Clocks(zone), start, end, *((540, 178, 4) if slim else (1080, 168, 14)))
    lanes = [o for o in SAID if o is Outcome.SUCCEEDED or any(m.outcome is o for m in shown)]
    height = _TOP + len(lanes) * _LANE + _LATE_LANE + _FOOT
    inside = [*_background(line, height), *_lanes(line, lanes, shown), *_late(line, shown, _TOP + len(lanes) * _LANE)]
    if start <= now < end:
        inside.append(_now(line, now, height))
    return picture(
        "timeline slim" if slim else "timeline",
        line.width,
        height,
        title=f"What became of the ticks of {schedule}",
        desc=_said(line, shown),
        inside=inside,
        ident=ident,
    )


@dataclass(frozen=True)
class _Line:
    clocks: Clocks
    start: int
    end: int
    width: int
    left: int
    labels: int
    """About so many on the axis."""

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    @property
    def across(self) -> int:
        return self.right - self.left

    def x(self, instant: int) -> float:
        return self.left + self.across * (min(max(instant, self.start), self.end) - self.start) / (
            self.end - self.start
        )

    def instant(self, x: float) -> int:
        return self.start + round((x - self.left) * (self.end - self.start) / self.across)


def _said(line: _Line, marks: Sequence[Mark]) -> str:
    clocks = line.clocks
    parts = [f"From {clocks.stamp(line.start)} to {clocks.stamp(line.end)} ({clocks.zone}): {Tally(marks)}."]
    bad = next((m for m in reversed(marks) if BADNESS[m.outcome] <= BADNESS[Outcome.MISSED]), None)
    if bad is not None:
        why = f": {bad.words}" if bad.words else ""
        parts.append(f"The newest that went wrong: {WORDS[bad.outcome].lower()} at {clocks.stamp(bad.at)}{why}.")
    late = max((m.late for m in marks if m.late is not None), default=None)
    if late is not None:
        parts.append(f"The latest start was {span(late)} after its tick.")
    parts += [
        f"{shift(b, a).capitalize()} at {clocks.stamp(at)}." for at, b, a in clocks.jumps(line.start, line.end)[:4]
    ]
    return " ".join(parts)


# --- what lies behind -------------------------------------------------------------------------


def _background(line: _Line, height: float) -> Iterator[str]:
    low, foot = height - _FOOT, height - 8
    if line.end - line.start <= _BANDS * DAY:
        yield from _bands(line, low)
    for at, label in line.clocks.grid(line.start, line.end, line.labels):
        x = line.x(at)
        yield element("path", class_="grid", d=f"M{number(x)} {_TOP}V{number(low)}")
        if x > line.left + 14 and x < line.right - 10:
            yield text(x, foot, label, class_="axis", anchor="middle")
    for at, before, after in line.clocks.jumps(line.start, line.end)[:12]:
        x = line.x(at)
        yield element(
            "path",
            tooltip(f"{line.clocks.stamp(at)}: {shift(before, after)}"),
            class_="jump",
            d=f"M{number(x)} {_TOP - 4}V{number(low)}",
        )
        yield text(x, _TOP - 10, shift(before, after), class_="note", anchor="middle")


def _bands(line: _Line, low: float) -> Iterator[str]:
    """Every other day a little darker."""
    days = [at for at, _ in line.clocks.grid(line.start, line.end, _BANDS) if line.clocks.shown(at).hour == 0]
    edges = [line.start, *days, line.end]
    for place in range(len(edges) - 1):
        if line.clocks.day(edges[place]).toordinal() % 2:
            x, until = line.x(edges[place]), line.x(edges[place + 1])
            yield element("rect", class_="band", x=x, y=_TOP, width=until - x, height=low - _TOP)


def _now(line: _Line, now: int, height: float) -> str:
    x = line.x(now)
    label = text(min(x, line.width - 22), _TOP - 10, "now", class_="note", anchor="middle")
    return element("path", class_="now", d=f"M{number(x)} {_TOP - 4}V{number(height - _FOOT)}") + label


# --- lanes ------------------------------------------------------------------------------------


def _lanes(line: _Line, lanes: Sequence[Outcome], marks: Sequence[Mark]) -> Iterator[str]:
    by_lane: dict[Outcome, list[Mark]] = {lane: [] for lane in lanes}
    for mark in marks:
        by_lane[mark.outcome].append(mark)
    singly = _few(by_lane)
    raster = _raster(line, [by_lane[lane] for lane in lanes if lane not in singly])
    for place, lane in enumerate(lanes):
        y, tally = _TOP + place * _LANE, Tally(by_lane[lane])
        more = "≥ " if tally.at_least else ""
        yield element("path", class_="lane", d=f"M{line.left} {number(y + _LANE)}H{line.right}")
        yield glyph(lane, 12, y + _LANE / 2, 5)
        yield text(26, y + _LANE / 2 + 4.5, WORDS[lane], class_="name")
        yield text(line.left - 12, y + _LANE / 2 + 4.5, f"{more}{grouped(tally.total)}", class_="count", anchor="end")
        if lane in singly:
            yield from _single(line, lane, by_lane[lane], y)
        else:
            yield from _columns(lane, by_lane[lane], y, raster)


def _few(by_lane: dict[Outcome, list[Mark]]) -> set[Outcome]:
    """The lanes whose marks are drawn one by one."""
    found, left = set[Outcome](), _SINGLY_IN_ALL
    for lane, marks in sorted(by_lane.items(), key=lambda item: len(item[1])):
        if len(marks) <= min(_SINGLY, left):
            found.add(lane)
            left -= len(marks)
    return found


def _single(line: _Line, lane: Outcome, marks: Sequence[Mark], y: float) -> Iterator[str]:
    middle = y + _LANE / 2
    for mark in marks:
        x = line.x(mark.at)
        said = tooltip(_of(line.clocks, mark))
        until = x if mark.last is None else line.x(mark.last)
        if until - x > 10:
            drawn = element(
                "rect", said, class_=f"o-{lane.value} span", x=x, y=middle - 5, width=until - x, height=10, rx=5
            )
        else:
            drawn = glyph(lane, (x + until) / 2, middle, 5, said)
        yield linked(mark.href, drawn)


def _of(clocks: Clocks, mark: Mark) -> str:
    more = "at least " if mark.at_least else ""
    if mark.last is not None and mark.last != mark.at:
        when = f"{clocks.stamp(mark.at)} to {clocks.stamp(mark.last)}: {more}{grouped(mark.count)}"
    else:
        when = f"{clocks.stamp(mark.at)}:"
    said = f"{when} {WORDS[mark.outcome].lower()}"
    if mark.late is not None:
        said += f", {span(mark.late)} after the tick"
    if mark.took is not None:
        said += f", took {span(mark.took)}"
    return f"{said}. {mark.words}" if mark.words else said


# --- columns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Raster:
    """Stretches of time of equal length."""

    line: _Line
    width: float
    shift: float = 0
    """How far the first column lies before the line's beginning."""

    def place(self, instant: int) -> int:
        return math.floor((self.line.x(instant) - self.line.left + self.shift) / self.width)

    def column(self, place: int, y: float, high: float, said: str) -> str:
        """Standing on `y`. `said` goes on after when it begins."""
        x = self.line.left - self.shift + place * self.width
        until = min(x + self.width, self.line.right)
        x = max(x, self.line.left)
        when = self.line.clocks.stamp(self.line.instant(x))
        return element(
            "rect", tooltip(f"from {when}: {said}"), x=x, y=y - high, width=max(1.0, until - x - 0.7), height=high
        )


def _raster(line: _Line, crowded: Sequence[Sequence[Mark]]) -> _Raster:
    """Columns of whole numbers of ticks, if they come evenly: one tick and two would alternate without a reason."""
    ats = [mark.at for mark in max(crowded, key=len, default=())]
    spaces = sorted(later - earlier for earlier, later in pairwise(ats))
    space = spaces[len(spaces) // 2] * line.across / (line.end - line.start) if spaces else 0.0
    width, shift = float(_NARROW), 0.0
    if space > _TOO_DENSE:
        width = space * math.ceil(_NARROW / space)
        shift = (space / 2 - line.x(ats[0]) + line.left) % width
    for times in (1, 2, 3, 4):
        raster = _Raster(line, width * times, shift)
        if sum(len(_counted(raster, marks)) for marks in crowded) <= _COLUMNS:
            break
    return raster


def _columns(lane: Outcome, marks: Sequence[Mark], y: float, raster: _Raster) -> Iterator[str]:
    """How many there were in each stretch of time: a column's height says it."""
    counted = _counted(raster, marks)
    most, word = max(counted.values()), WORDS[lane].lower()
    yield f'<g class="o-{lane.value} column">'
    for place, count in sorted(counted.items()):
        high = max(3.0, (_LANE - 6) * math.sqrt(count / most))
        yield raster.column(place, y + _LANE - 1, high, f"{grouped(count)} {word}")
    yield "</g>"


def _counted(raster: _Raster, marks: Sequence[Mark]) -> Counter[int]:
    """Ticks by column. A gap's are spread over the columns that it covers."""
    found: Counter[int] = Counter()
    for mark in marks:
        first, until = raster.place(mark.at), raster.place(mark.at if mark.last is None else mark.last)
        size = until - first + 1
        for place in range(size):
            count = mark.count * (place + 1) // size - mark.count * place // size
            if count:
                found[first + place] += count
    return found


def _late(line: _Line, marks: Sequence[Mark], y: float) -> Iterator[str]:
    """The latest start of each stretch of time, on a scale of powers of ten from a millisecond on."""
    raster, worst = _Raster(line, _NARROW), dict[int, int]()
    for mark in marks:
        if mark.late is not None and mark.at >= line.start:
            place = raster.place(mark.at)
            worst[place] = max(worst.get(place, 0), mark.late)
    most = max(worst.values(), default=0)
    yield text(26, y + 21, "Lateness", class_="name")
    yield text(line.left - 12, y + 21, f"≤ {short(most)}" if worst else "–", class_="count", anchor="end")
    reach = max(1.0, math.log10(max(most, _LATE_FROM * 10) / _LATE_FROM))
    yield '<g class="late column">'
    for place, late in sorted(worst.items()):
        high = 2 + (_LATE_LANE - 14) * math.log10(max(late, _LATE_FROM) / _LATE_FROM) / reach
        yield raster.column(place, y + _LATE_LANE, high, f"at most {span(late)} late")
    yield "</g>"
