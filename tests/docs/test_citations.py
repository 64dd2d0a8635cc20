"""What the pages say of tests, files and names is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.snippets import REPOSITORY, pages

DOCS = [page for page in pages() if "docs" in page.parts and "decisions" not in page.parts]


ROWS = {
    "G": [*range(1, 19), *range(20, 36), *range(40, 51), *range(60, 78)],
    "S": [
        *range(1, 7), *range(10, 24), *range(30, 37), *range(40, 48), *range(50, 58), *range(60, 64),
        *range(70, 85), *range(85, 88), *range(90, 93),
    ],
}  # fmt: skip
"""Every behaviour of gocron (G) and Senna (S) that the page of parity answers for."""


@cache
def known_tests() -> frozenset[str]:
    """The name of every test."""
    files = (REPOSITORY / "tests").rglob("*.py")
    return frozenset(name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))


def unknown(page: Path) -> list[str]:
    code = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    names = [name for name in code if re.fullmatch(r"test_\w+", name) and name not in known_tests()]
    files = [name for name in code if re.fullmatch(r"(?:tests|src|bench|docs|changes)/[\w./-]+", name)]
    return names + [name for name in files if not (REPOSITORY / name).exists()]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_a_test_that_a_page_names_exists(page: Path) -> None:
    assert unknown(page) == []


def test_a_test_that_does_not_exist_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`test_nothing_of_the_kind` `tests/gone.py` `tests/docs` `test_nothing`\n")
    assert unknown(page) == ["test_nothing_of_the_kind", "test_nothing", "tests/gone.py"]


def test_every_fault_is_listed_with_the_tests_that_name_it() -> None:
    page = (REPOSITORY / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")
    lines = dict(re.findall(r"^\| (B\d{3}) (.*)$", page, re.MULTILINE))
    assert list(lines) == [f"B{number:03}" for number in range(1, 190, 2)]
    named = [(f"B{number}", test) for test in known_tests() for number in re.findall(r"_[bB](\d{3})(?=_|$)", test)]
    assert [(fault, test) for fault, test in named if f"`{test}`" not in lines[fault]] == []


def test_every_row_of_parity_is_listed_with_the_tests_that_name_it() -> None:
    page = (REPOSITORY / "docs" / "reference" / "parity.md").read_text(encoding="utf-8")
    lines = dict(re.findall(r"^\| ([GS]\d\d) (.*)$", page, re.MULTILINE))
    assert list(lines) == [f"{letter}{number:02}" for letter, numbers in ROWS.items() for number in numbers]
    assert [row for row, line in lines.items() if "`test_" not in line] == []
    named = [(row.upper(), test) for test in known_tests() for row in re.findall(r"_([GSgs]\d\d)(?=_|$)", test)]
    assert [(row, test) for row, test in named if f"`{test}`" not in lines[row]] == []


def test_s87_every_figure_has_a_command_that_measures_it_again() -> None:
    page = (REPOSITORY / "docs" / "reference" / "figures.md").read_text(encoding="utf-8")
    targets = re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        commands = re.findall(r"`(python|make) ([\w./]+)", section)
        assert commands, section.partition("\n")[0]
        for tool, what in commands:
            assert what in targets if tool == "make" else (REPOSITORY / what).exists(), what
