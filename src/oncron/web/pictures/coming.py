"""The coming ticks of a schedule, and the clock changes among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncron._clock import SECOND
from oncron._shown import away
from oncron.web.pictures.clocks import Clocks, shift
from oncron.web.pictures.facts import Jump, Outcome
from oncron.web.pictures.glyphs import glyph
from oncron.web.pictures.svg import element, number, picture, text, tooltip

_HEIGHT, _EDGE = 92, 40
_LINE = 46
_MOST = 300


def coming(
    ticks: Sequence[int],
    *,
    schedule: str,
    zone: str,
    now: int,
    jumps: Sequence[Jump] = (),
    slim: bool = False,
    ident: str = "coming",
) -> str:
    """The ticks in order on a line from `now` on, with the clock changes up to the last of them marked, and the ticks
    that lie in the hour that such a change skips or repeats. A later change is said in words only. `slim` is for a
    phone's width."""
    width = 520 if slim else 1080
    ahead = [tick for tick in ticks if tick > now][:_MOST]
    clocks = Clocks(zone)
    inside = [element("path", class_="lane", d=f"M{_EDGE} {_LINE}H{width - _EDGE}")]
    if ahead:
        reach = max(ahead[-1] - now, SECOND)
        near = [jump for jump in jumps if now < jump.at <= ahead[-1]]
        inside += _drawn(ahead, near, clocks, now, reach, width)
    else:
        inside.append(text(width / 2, _LINE - 10, "No tick is to come.", class_="name", anchor="middle"))
    return picture(
        "coming slim" if slim else "coming",
        width,
        _HEIGHT,
        title=f"Coming ticks of {schedule}",
        desc=_said(ahead, jumps, clocks, now),
        inside=inside,
        ident=ident,
    )


def is_touched(tick: int, jumps: Sequence[Jump]) -> bool:
    """Whether its local time is one that a clock change skips or repeats."""
    return any(abs(tick - jump.at) < abs(jump.after - jump.before) * SECOND or tick == jump.at for jump in jumps)


def _drawn(
    ahead: Sequence[int], jumps: Sequence[Jump], clocks: Clocks, now: int, reach: int, width: int
) -> Iterator[str]:
    across = width - 2 * _EDGE

    def x(instant: int) -> float:
        return _EDGE + across * (instant - now) / reach

    for at, label in clocks.grid(now, now + reach, width // 90):
        yield element("path", class_="grid", d=f"M{number(x(at))} {_LINE - 14}V{_LINE + 14}")
        yield text(x(at), _HEIGHT - 10, label, class_="axis", anchor="middle")
    yield text(_EDGE, _LINE - 24, "now", class_="note", anchor="middle")
    yield element("path", class_="now", d=f"M{_EDGE} {_LINE - 18}V{_LINE + 18}")
    for jump in jumps:
        there, what = x(jump.at), shift(jump.before * SECOND, jump.after * SECOND)
        said = tooltip(f"{clocks.stamp(jump.at)}: {what}. {jump.what}")
        yield element("path", said, class_="jump", d=f"M{number(there)} {_LINE - 18}V{_LINE + 18}")
        yield text(min(max(there, 60), width - 60), _LINE - 24, what, class_="note", anchor="middle")
    for tick in ahead:
        touched = is_touched(tick, jumps)
        said = f"{clocks.stamp(tick)}, {away(tick, now)}{': the clocks change' if touched else ''}"
        if touched:
            d = f"M{number(x(tick))} {_LINE - 9}l9 9-9 9-9-9z"
            yield element("path", tooltip(said), class_="touched", d=d)
        else:
            yield glyph(Outcome.COMING, x(tick), _LINE, 8, tooltip(said))


def _said(ahead: Sequence[int], jumps: Sequence[Jump], clocks: Clocks, now: int) -> str:
    if not ahead:
        return "No tick is to come."
    shown = ", ".join(clocks.stamp(tick) for tick in ahead[:5])
    rest = f", then {len(ahead) - 5} more up to {clocks.stamp(ahead[-1])}" if len(ahead) > 5 else ""
    parts = [f"{shown}{rest} ({clocks.zone}); the first {away(ahead[0], now)}."]
    for jump in jumps:
        what = shift(jump.before * SECOND, jump.after * SECOND)
        parts.append(f"{what.capitalize()} at {clocks.stamp(jump.at)}{f': {jump.what}' if jump.what else ''}.")
    return " ".join(parts)
