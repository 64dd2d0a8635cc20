"""The reference says what the code says: limits, events, errors, signatures, options."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path

import pytest

from oncron import Oncron, _defaults, _eventlog, _events, _options, errors
from tests.docs.snippets import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "reference"

_UNITS = {
    "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "KiB": 1024, "MiB": 1024 * 1024,
}  # fmt: skip
_UNUSED = {"SECOND", "DAY", "SKEW_WARNING"}
"""Units; and a warning that nobody gives yet."""


def rows(page: Path) -> list[list[str]]:
    """The cells of every table row, without heads."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not line.startswith("|--") and not following.startswith("|--")
    ]


def value(text: str) -> int:
    """`10 s`, `256 KiB`, `10 000`."""
    digits, unit = re.fullmatch(r"([\d ]+?) ?([a-zA-Z]*)", text).groups()  # type: ignore[union-attr]
    return int(digits.replace(" ", "")) * (_UNITS[unit] if unit else 1)


def test_the_table_of_limits_is_that_of_the_code() -> None:
    said = {name.strip("`"): value(cell) for _, cell, _, name in rows(REFERENCE / "limits.md")}
    code = {name: found for name, found in vars(_defaults).items() if name.isupper() and name not in _UNUSED}
    assert said == code


def test_the_table_of_events_has_each_with_its_log_level() -> None:
    said = {cells[0].strip("`"): cells[-1] for cells in rows(REFERENCE / "events.md") if "." in cells[0]}
    assert set(said) == set(_events.NAMES)
    code = {name: logging.getLevelName(level) for name, level in _eventlog._LEVELS.items()}
    assert {name: level for name, level in said.items() if name in code} == code


def test_the_table_of_errors_is_the_tree() -> None:
    said = [cells[0].strip("`") for cells in rows(REFERENCE / "errors.md") if len(cells) == 4]
    code = [
        name for name, found in vars(errors).items() if inspect.isclass(found) and found.__module__ == errors.__name__
    ]
    assert said == code


def under(page: str, title: str) -> str:
    """The text below a title, to the next one of its kind."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def option_names(title: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]*`) \|", under("options.md", title), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_tables_of_options_are_complete() -> None:
    assert option_names("Of a task") == _options.TASK
    assert option_names("Of a schedule") == _options.TIMING | _options.RUN | {"name"}
    assert option_names("Of one call") == _options.CALL
    assert option_names("Of the app") == set(inspect.signature(Oncron).parameters)
