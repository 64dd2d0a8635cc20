"""The site is built strictly: links lead somewhere, every page is found, and a reader's browser asks nobody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.snippets import REPOSITORY

CONTENTS = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return folder


class Reads(HTMLParser):
    """What a browser loads for a page without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and "canonical" in (given.get("rel") or ""):
            return
        if tag in {"script", "link", "img", "iframe", "source", "video", "audio", "object", "embed", "use", "image"}:
            self.loads += [given.get(name) or "" for name in ("src", "href", "data", "xlink:href") if name in given]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: Path) -> Reads:
    found = Reads()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def remote(found: Reads) -> list[str]:
    return [url for url in found.loads if re.match(r"(?:[a-z]+:)?//", url)]


def built(site: Path) -> Iterator[Path]:
    return site.rglob("*.html")


def test_a_page_of_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    assert {str(page.relative_to(site)): urls for page in built(site) if (urls := remote(read(page)))} == {}


def test_a_style_of_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\s]*", style.read_text(encoding="utf-8")) == []


def test_a_page_that_loads_from_elsewhere_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<link rel="canonical" href="https://a.example"><script src="//b.example/x.js"></script><img src="c.svg">'
    )
    assert remote(read(page)) == ["//b.example/x.js"]


def test_every_picture_and_script_of_a_page_is_in_the_site(site: Path) -> None:
    missing = [
        f"{page.relative_to(site)}: {url}"
        for page in built(site)
        if page.name != "404.html"
        for url in read(page).loads
        if url and not url.startswith(("#", "data:")) and not (page.parent / url.split("#")[0].split("?")[0]).exists()
    ]
    assert missing == []


def test_the_search_needs_nothing_but_the_site_and_finds_every_kind_of_page(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for page in ("tutorial", "how-to/deploy", "reference/cli", "explanation/guarantees", "decisions/README", "changes"):
        assert f'"location":"{page.replace("README", "index")}.html' in index.replace('": "', '":"'), page


def test_the_page_of_changes_has_every_note(site: Path) -> None:
    shown = " ".join(" ".join(read(site / "changes.html").text).split())
    notes = [note for note in (REPOSITORY / "changes").glob("*.md") if note.name != "README.md"]
    assert notes
    for note in notes:
        first = re.split(r"[`*\[]", " ".join(note.read_text(encoding="utf-8").split()))[0].strip()
        assert first in shown, note.name


def test_every_page_of_the_contents_is_on_the_first_page_too() -> None:
    contents = re.findall(r": ((?:how-to|reference|explanation)/[\w-]+\.md)$", CONTENTS, re.MULTILINE)
    assert len(contents) > 30
    assert len(contents) == len(set(contents)), "a page is there twice"
    first = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page for page in contents if f"({page})" not in first] == []
