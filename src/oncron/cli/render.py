"""What commands print: tables for people, JSON for programs.

On a terminal, tables fit its width and have colours (not with NO_COLOR); into a pipe they are
plain text, one line a row, nothing shortened. What users named is never read as markup, and
control characters in it are shown, not sent to the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oncron._shown import away, count, iso, local, on_the_wall, plain, span, utc

__all__ = [
    "Cell", "as_json", "away", "count", "fields", "iso", "lines", "local", "on_the_wall", "plain", "printable", "put",
    "span", "styled", "table", "utc",
]  # fmt: skip

Cell = str | Text

_STYLES = {
    "succeeded": "green", "failed": "red", "lost": "red", "running": "cyan", "pending": "yellow",
    "cancelled": "magenta", "skipped": "magenta", "active": "green", "paused": "yellow", "dormant": "magenta",
    "removed": "red",
}  # fmt: skip
_WIDE = 100_000
_ROOMY, _TIGHT, _WORDS = 24, 12, 16
"""Characters that a column which wraps has at least: if possible, if need be, and if it wraps at words."""

# --- tables ---------------------------------------------------------------------------------


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str = "") -> None:
    """Print rows under headings; `empty` if there are none. A column without any content is left out.

    Where a terminal is too narrow, a column whose heading begins with `+` wraps, one with `~` wraps at words,
    those with `-` are left out, the first one first; no other one is ever broken. If that does not do, each row takes
    several lines."""
    cells = [[cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row] for row in rows]
    if not cells:
        lines([empty] if empty else [])
        return
    kept = [at for at in range(len(columns)) if any(row[at] for row in cells)]
    words: set[int] = set()
    if sys.stdout.isatty():
        natural = {at: max(_width(columns[at].lstrip("+~-"), row[at].cell_len) for row in cells) for at in kept}
        fitting = _fit(columns, natural, console().width)
        if fitting is None:
            _stack([[row[at] for at in kept] for row in cells])
            return
        kept, words = fitting
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for at in kept:
        grid.add_column(
            columns[at].lstrip("+~-"),
            overflow="fold",
            no_wrap=at not in words and not columns[at].startswith("+"),
            width=_WORDS if at in words else None,
        )
    for row in cells:
        grid.add_row(*(row[at] for at in kept))
    put(grid)


def _width(heading: str, cell: int) -> int:
    return max(len(heading), cell)


def _fit(columns: Sequence[str], natural: Mapping[int, int], width: int) -> tuple[list[int], set[int]] | None:
    """The columns that are shown, and those of them that wrap at words; None if nothing fits."""
    kept = list(natural)
    words: set[int] = set()

    def fits(least: int) -> bool:
        taken = [
            min(natural[at], least) if columns[at].startswith("+") else _WORDS if at in words else natural[at]
            for at in kept
        ]
        return sum(taken) + 2 * (len(taken) - 1) <= width

    if fits(_ROOMY):
        return kept, words
    words = {at for at in kept if columns[at].startswith("~") and natural[at] > _WORDS}
    for dropped in [at for at in kept if columns[at].startswith("-")]:
        if fits(_ROOMY):
            break
        kept.remove(dropped)
    return (kept, words) if fits(_TIGHT) else None


def _stack(rows: Iterable[Sequence[Text]]) -> None:
    """The first cell of each row on a line of its own, the others below it."""
    for row in rows:
        put(row[0])
        for cell in row[1:]:
            if cell:
                put(Text("  ").append_text(cell))


def fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one a line."""
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, value if isinstance(value, Text) else Text(printable(value)))
    put(grid)


def lines(texts: Iterable[str], *, style: str = "") -> None:
    """Print texts, each on a line of its own, wrapped on a terminal only."""
    for text in texts:
        put(Text(printable(text), style=style))


def put(what: Table | Text) -> None:
    if sys.stdout.isatty():
        console().print(what, crop=False)
        return
    # rich pads every cell of a column to one width; a pipe gets the lines without the blanks at their end.
    quiet = Console(width=_WIDE, highlight=False, markup=False, emoji=False, color_system=None)
    with quiet.capture() as captured:
        quiet.print(what)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def styled(word: str) -> Text:
    """A state or status in its colour."""
    return Text(word, style=_STYLES.get(word, ""))


def printable(text: str) -> str:
    """The text with control characters shown as escapes; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


# --- JSON -----------------------------------------------------------------------------------


def as_json(value: Any) -> None:
    """Print one JSON document: an object, or an array for lists."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=not utf8))
