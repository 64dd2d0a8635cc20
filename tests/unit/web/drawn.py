"""Pictures read back: what an XML parser finds in them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from oncron._clock import SECOND, to_us
from oncron.web.pictures import Mark, Outcome

SVG = "{http://www.w3.org/2000/svg}"
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
BERLIN = "Europe/Berlin"


def on(day: int, hour: int = 0, minute: int = 0, month: int = 10, zone: str = BERLIN) -> int:
    """An instant of 2026 by the clocks of a zone."""
    return to_us(datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo(zone)))


def ran(at: int, outcome: Outcome = Outcome.SUCCEEDED, *, late: int = 5000, took: int = SECOND, **more: object) -> Mark:
    return Mark(at=at, outcome=outcome, started_at=at + late, ended_at=at + late + took, **more)  # type: ignore[arg-type]


class Drawn:
    """A picture, parsed: that it can be parsed is the first thing a test asks."""

    def __init__(self, markup: str) -> None:
        self.markup = markup
        self.root = ET.fromstring(markup)  # our own text

    @property
    def title(self) -> str:
        return self.root.findtext(f"{SVG}title") or ""

    @property
    def desc(self) -> str:
        return self.root.findtext(f"{SVG}desc") or ""

    @property
    def texts(self) -> list[str]:
        """What is written in it."""
        return [element.text or "" for element in self.root.iter(f"{SVG}text")]

    @property
    def told(self) -> list[str]:
        """What its marks say when they are pointed at."""
        return [found.text or "" for element in self.root.iter() if element is not self.root
                for found in element.findall(f"{SVG}title")]  # fmt: skip

    def of_class(self, name: str) -> list[ET.Element]:
        return [element for element in self.root.iter() if name in element.get("class", "").split()]

    def attributes(self) -> Iterator[tuple[str, str]]:
        for element in self.root.iter():
            yield from element.items()
