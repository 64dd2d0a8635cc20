"""SQL lives in `.sql` files beside the store that runs it; this reads them.

A file of queries is a sequence of named statements::

    -- name: fire.insert_run
    -- What it does, its parameters, what it returns, which guarantees rest on it.
    insert into ...;

The name is what the store asks for; the comment lines under it are for the reader and
are not sent. A folder of migrations holds files `0001_what.sql`, `0002_what.sql`.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_HEADER = re.compile(r"^-- name: *(\S+) *$", re.MULTILINE)


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


def statements(package: str, file: str = "queries.sql") -> dict[str, str]:
    """The statements of a package's query file by name. Raises ValueError for a name that
    comes twice and for text above the first name that is not a comment."""
    preamble, *parts = _HEADER.split(files(package).joinpath(file).read_text(encoding="utf-8"))
    if _without_comments(preamble):
        raise ValueError(f"{package}/{file}: a statement without a `-- name:` line above it")
    found: dict[str, str] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"{package}/{file}: two statements are named {name!r}")
        found[name] = _without_comments(text)
    return found


def migrations(package: str, folder: str = "migrations") -> list[Migration]:
    """The numbered files of a package's folder, in order. Raises ValueError where a number is missing."""
    found = sorted(
        Migration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in files(package).joinpath(folder).iterdir()
        if re.fullmatch(r"\d{4}_\w+\.sql", entry.name)
    )
    for place, migration in enumerate(found, start=1):
        if migration.number != place:
            raise ValueError(f"{package}/{folder}: {migration.name} stands where number {place:04} should")
    return found


def _without_comments(text: str) -> str:
    """The text from its first line that is neither empty nor a comment."""
    lines = text.splitlines()
    while lines and (not lines[0].strip() or lines[0].lstrip().startswith("--")):
        del lines[0]
    return "\n".join(lines).strip()
