"""Each outcome has a shape of its own and a word, so that nothing is told by colour alone."""

from __future__ import annotations

import re

from oncron.web.pictures.facts import Outcome
from oncron.web.pictures.svg import element, number

WORDS = {
    Outcome.LOST: "Lost",
    Outcome.FAILED: "Failed",
    Outcome.MISSED: "Missed",
    Outcome.CANCELLED: "Cancelled",
    Outcome.SKIPPED: "Skipped",
    Outcome.RUNNING: "Running",
    Outcome.WAITING: "Waiting",
    Outcome.SUCCEEDED: "Succeeded",
    Outcome.COMING: "Not yet",
}
BADNESS = {outcome: place for place, outcome in enumerate(Outcome)}


def glyph(outcome: Outcome, x: float, y: float, r: float, *inside: str) -> str:
    """The outcome's shape around a point. `inside` is its tooltip."""
    name = f"o-{outcome.value}"
    match outcome:
        case Outcome.SUCCEEDED:
            return element("circle", *inside, class_=name, cx=x, cy=y, r=r)
        case Outcome.WAITING:
            return element("circle", *inside, class_=f"{name} ring", cx=x, cy=y, r=r - 0.7)
        case _:
            return element("path", *inside, class_=f"{name}{_LINED.get(outcome, '')}", d=_path(outcome, x, y, r))


_LINED = {
    Outcome.FAILED: " line",
    Outcome.COMING: " line",
    Outcome.SKIPPED: " ring",
    Outcome.MISSED: " ring",
    Outcome.CANCELLED: " ring",
}


def _path(outcome: Outcome, x: float, y: float, r: float) -> str:
    ring = r - 0.7
    match outcome:
        case Outcome.FAILED:
            return _drawn("M", x - r, y - r, "l", 2 * r, 2 * r, "m", 0, -2 * r, "l", -2 * r, 2 * r)
        case Outcome.LOST:
            return _drawn("M", x - r - 1, y - r, "h", 2 * r + 2, "l", -r - 1, 2 * r, "z")
        case Outcome.RUNNING:
            return _drawn("M", x - r, y - r - 1, "v", 2 * r + 2, "l", 2 * r, -r - 1, "z")
        case Outcome.SKIPPED:
            return _drawn("M", x - ring, y - ring, "h", 2 * ring, "v", 2 * ring, "h", -2 * ring, "z")
        case Outcome.MISSED:
            side = r + 0.5
            return _drawn("M", x, y - side, "l", side, side, -side, side, -side, -side, "z")
        case Outcome.CANCELLED:
            across = r * 0.65
            around = _drawn(
                "M", x - ring, y, "a", ring, ring, 0, 1, 0, 2 * ring, 0, "a", ring, ring, 0, 1, 0, -2 * ring, 0
            )
            return around + _drawn("M", x - across, y + across, "l", 2 * across, -2 * across)
        case _:
            return _drawn("M", x, y - r, "v", 2 * r)


def _drawn(*parts: str | float) -> str:
    """A path's text: a letter needs no space beside it."""
    return re.sub(" ?([A-Za-z]) ?", r"\1", " ".join(p if isinstance(p, str) else number(p) for p in parts))
