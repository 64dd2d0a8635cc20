"""The pictures are those that `docs/_draw` draws from oncron itself, and what they show is so."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from oncron import _defaults as limits
from oncron.triggers import parse
from tests.docs.snippets import REPOSITORY, pages

DRAW = REPOSITORY / "docs" / "_draw"
PICTURES = REPOSITORY / "docs" / "explanation" / "pictures"
BERLIN = ZoneInfo("Europe/Berlin")
SVG = "{http://www.w3.org/2000/svg}"
MOST = 20_000
"""Bytes: small enough to be read in a diff."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    subprocess.run([sys.executable, str(DRAW), str(folder)], check=True, timeout=60)
    return folder


def test_the_pictures_are_what_is_drawn_today(drawn: Path) -> None:
    names = sorted(picture.name for picture in drawn.iterdir())
    assert sorted(picture.name for picture in PICTURES.iterdir()) == names
    for name in names:
        assert (PICTURES / name).read_text(encoding="utf-8") == (drawn / name).read_text(encoding="utf-8"), (
            f"{name} is not what `python docs/_draw` draws"
        )


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda picture: picture.stem)
def test_a_picture_is_small_loads_nothing_says_what_it_shows_and_is_on_a_page(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert len(text) <= MOST
    assert re.findall(r"(?:href|url|@import|<script|<image)", text) == []
    root = ET.fromstring(text)
    assert len((root.findtext(f"{SVG}desc") or "").split()) > 15
    shown = [page.name for page in pages() if f"pictures/{picture.name}" in page.read_text(encoding="utf-8")]
    assert shown != []


# --- clock changes ----------------------------------------------------------------------


def rows(name: str) -> Iterator[tuple[str, list[datetime], list[str]]]:
    """A rule's text, the instants of its dots, and what stands above them."""
    for group in ET.parse(PICTURES / f"{name}.svg").getroot().iter(f"{SVG}g"):
        dots = [datetime.fromisoformat(dot.attrib["data-at"]) for dot in group.iter(f"{SVG}circle")]
        yield group.attrib["data-rule"], dots, ["".join(label.itertext()) for label in group.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["gap-day", "fold-day"])
def test_each_dot_is_a_tick_of_its_rule_and_its_label_is_the_clock_in_berlin(name: str) -> None:
    found = list(rows(name))
    assert len(found) == 5
    first = min(dot for _, dots, _ in found for dot in dots)
    last = max(dot for _, dots, _ in found for dot in dots)
    for rule, dots, labels in found:
        assert parse(rule).between(first - timedelta(microseconds=1), last) == dots, rule
        assert [f"{dot.astimezone(BERLIN):%H:%M}" for dot in dots] == labels, rule


def test_the_day_on_which_an_hour_is_missing() -> None:
    everything = ["01:00", "01:30", "03:00", "03:30", "04:00", "04:30"]
    assert [labels for _, _, labels in rows("gap-day")] == [everything, ["03:00"], [], ["03:30"], everything]
    assert datetime(2027, 3, 28, 1, tzinfo=UTC).astimezone(BERLIN).hour == 3


def test_the_day_on_which_an_hour_comes_twice() -> None:
    everything = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00", "03:30"]
    shown = list(rows("fold-day"))
    assert [labels for _, _, labels in shown] == [everything, ["02:30"], ["02:30"], ["02:30", "02:30"], everything]
    first, second = shown[1][1][0], shown[2][1][0]
    assert second - first == timedelta(hours=1)


# --- leases -----------------------------------------------------------------------------


def test_the_picture_of_a_lease_has_the_numbers_of_the_code() -> None:
    words = " ".join(ET.parse(PICTURES / "lease.svg").getroot().itertext())
    lease = limits.LEASE_FOR / limits.SECOND
    assert f"{lease:g} s after the last heartbeat: expired" in words
    assert f"in doubt {lease / 6:g} s before: its tasks are stopped" in words
