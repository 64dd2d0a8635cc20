"""Pages for people: links lead somewhere, decisions fit a screen, change notes have a kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
DECISIONS = REPOSITORY / "docs" / "decisions"
SCREEN = 60


def pages() -> list[Path]:
    tops = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "changes").glob("*.md")]
    return sorted(tops)


def links(page: Path) -> Iterator[str]:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", prose)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    broken: list[str] = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_dead_link_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, here\n[a](#a-title-here) [b](page.md#no) [c](gone.md) `[d](code)` [e](https://x.org)\n")
    assert broken_links(page) == ["page.md#no", "gone.md"]


@pytest.mark.parametrize("decision", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda page: page.stem)
def test_a_decision_fits_a_screen_and_says_what_was_rejected(decision: Path) -> None:
    text = decision.read_text(encoding="utf-8")
    number, title = decision.stem.split("-", 1)
    assert re.fullmatch(r"[a-z0-9-]+", title)
    assert f"# {int(number)}. " in text
    assert len(text.splitlines()) <= SCREEN
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences", "Rejected"]


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(page.name.split("-")[0]) for page in DECISIONS.glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_change_notes_have_a_kind_and_few_words() -> None:
    notes = [note for note in (REPOSITORY / "changes").glob("*.md") if note.name != "README.md"]
    for note in notes:
        assert re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md", note.name), note.name
        assert 0 < len(note.read_text(encoding="utf-8").split()) <= 80, note.name
