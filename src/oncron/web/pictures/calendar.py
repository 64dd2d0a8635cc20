"""The days of a schedule: what each came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from oncron.web.pictures.clocks import DAY, Clocks
from oncron.web.pictures.facts import Mark, Outcome
from oncron.web.pictures.glyphs import BADNESS, WORDS, glyph
from oncron.web.pictures.svg import element, picture, text, tooltip
from oncron.web.pictures.tally import SAID, Tally, grouped

_DAYS = 190
_CELL_W, _CELL_H, _TOP, _LEGEND = 76, 54, 24, 22
_WIDTH = 7 * _CELL_W + 2
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def calendar(
    marks: Sequence[Mark], *, schedule: str, zone: str, start: int, end: int, now: int, ident: str = "calendar"
) -> str:
    """The days that [start, end) touches on the clocks of the zone, at most 190 of them: each with its worst outcome
    and how many ticks had which."""
    clocks = Clocks(zone)
    last = clocks.day(max(start, end - 1))
    first = max(clocks.day(start), last - timedelta(days=_DAYS - 1))
    days = _by_day(clocks, marks, first, last, start, end)
    monday = first - timedelta(days=first.weekday())
    weeks = ((last - monday).days // 7) + 1
    present = [outcome for outcome in SAID if any(day.tally[outcome] for day in days.values())]
    height = _TOP + weeks * _CELL_H + 8 + _LEGEND * -(-len(present) // 4)
    today = clocks.day(now)
    inside = [text(n * _CELL_W + 8, 15, name, class_="axis") for n, name in enumerate(_WEEKDAYS)]
    for day, what in days.items():
        inside += _cell(what, (day - monday).days, named=day == first or day.day == 1, is_today=day == today)
    inside += _legend(present, _TOP + weeks * _CELL_H + 22)
    return picture(
        "calendar",
        _WIDTH,
        height,
        title=f"Days of {schedule}",
        desc=_said(clocks, list(days.values())),
        inside=inside,
        ident=ident,
    )


@dataclass(frozen=True)
class _Day:
    day: date
    hours: float
    tally: Tally


def _by_day(clocks: Clocks, marks: Sequence[Mark], first: date, last: date, start: int, end: int) -> dict[date, _Day]:
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    found = {day: _Day(day, clocks.hours_of(day), Tally()) for day in days}
    for mark in marks:
        for day, count in _spread(clocks, mark, start, end):
            if day in found:
                found[day].tally.add(mark.outcome, count, at_least=mark.at_least)
    return found


def _spread(clocks: Clocks, mark: Mark, start: int, end: int) -> Iterator[tuple[date, int]]:
    """A mark's ticks by day: a gap's are taken as even over its time, as nobody wrote down each of them."""
    if mark.last is None or mark.last <= mark.at:
        if start <= mark.at < end:
            yield clocks.day(mark.at), mark.count
        return
    # A tick of a gap that is long ago would be a day of its own for years: only what is drawn is walked.
    low, high = max(mark.at, start - DAY), min(mark.last, end + DAY)
    if low > high:
        return
    day, until = clocks.day(low), clocks.day(high)
    whole, done = mark.last - mark.at, _share(mark, low - mark.at)
    while day <= until:
        day += timedelta(days=1)
        through = whole if day > until and high == mark.last else min(whole, clocks.start_of(day) - mark.at)
        reached = mark.count if through == whole else _share(mark, through)
        if reached > done:
            yield day - timedelta(days=1), reached - done
        done = reached


def _share(mark: Mark, through: int) -> int:
    assert mark.last is not None  # noqa: S101 - the caller has looked
    return mark.count * through // (mark.last - mark.at)


def _cell(what: _Day, place: int, *, named: bool, is_today: bool) -> Iterator[str]:
    x, y = place % 7 * _CELL_W + 1, _TOP + place // 7 * _CELL_H
    worst, tally = what.tally.worst, what.tally
    odd = f" ({what.hours:g} h)" if what.hours != 24 else ""
    name = f"{what.day:%a} {what.day.day} {what.day:%b %Y}{odd}{', today' if is_today else ''}"
    yield f'<g class="day{" today" if is_today else ""}">{tooltip(f"{name}: {tally}")}'
    yield element(
        "rect", class_=f"cell {f'o-{worst.value}' if worst else 'empty'}",
        x=x + 1, y=y + 1, width=_CELL_W - 3, height=_CELL_H - 3, rx=5,
    )  # fmt: skip
    yield text(x + 7, y + 17, f"{what.day.day} {what.day:%b}" if named else str(what.day.day), class_="date")
    if odd:
        yield text(x + _CELL_W - 8, y + 33, f"{what.hours:g} h", class_="hours", anchor="end")
    if worst is not None:
        yield glyph(worst, x + _CELL_W - 13, y + 13, 4.5)
        good = tally[Outcome.SUCCEEDED]
        shown = grouped(tally.total) if good == tally.total else f"{grouped(good)}/{grouped(tally.total)}"
        yield text(x + 7, y + 34, shown, class_="count")
        yield from _bar(tally, x + 7, y + _CELL_H - 12, _CELL_W - 15)
    yield "</g>"


def _bar(tally: Tally, x: float, y: float, width: float) -> Iterator[str]:
    """The day's outcomes by their parts: each that occurs can be seen, however rare it was."""
    outcomes = sorted(tally.outcomes, key=lambda outcome: -BADNESS[outcome])
    least = 3.0
    free = width - least * len(outcomes)
    for outcome in outcomes:
        size = least + free * tally[outcome] / tally.total
        yield element("rect", class_=f"o-{outcome.value} part", x=x, y=y, width=size - 0.8, height=5)
        x += size


def _legend(present: Sequence[Outcome], y: float) -> Iterator[str]:
    for place, outcome in enumerate(present):
        x, down = place % 4 * (_WIDTH / 4) + 10, y + place // 4 * _LEGEND
        yield glyph(outcome, x, down - 4, 4.5)
        yield text(x + 11, down, WORDS[outcome], class_="name")


def _said(clocks: Clocks, days: Sequence[_Day]) -> str:
    whole = Tally()
    for day in days:
        for outcome in day.tally.outcomes:
            whole.add(outcome, day.tally[outcome], at_least=day.tally.at_least)
    bad = [d for d in days if d.tally.worst is not None and BADNESS[d.tally.worst] <= BADNESS[Outcome.MISSED]]
    parts = [f"{_dated(days[0].day)} to {_dated(days[-1].day)}, days of {clocks.zone}: {whole}."]
    parts += [f"{_dated(day.day)}: {day.tally}." for day in bad[-10:]]
    if len(bad) > 10:
        parts.insert(1, f"{len(bad)} days had ticks that failed, were lost or missed; the last ten:")
    parts += [f"{_dated(day.day)} has {day.hours:g} hours." for day in days if day.hours != 24]
    return " ".join(parts)


def _dated(day: date) -> str:
    return f"{day.day} {day:%b %Y}"
