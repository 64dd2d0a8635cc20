"""The Lua scripts: one file a method, what several need in `shared/`. A file's first line may be
`-- include: a b`: those are put before it, each once, with what they include themselves."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDES = re.compile(r"-- include: (.+)\n")
_FOLDER = "lua"


@dataclass(frozen=True)
class Script:
    """What is sent: by its digest where the server knows it, else whole."""

    name: str
    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """The script of a method. Raises ValueError for a circle of includes, FileNotFoundError for a missing file."""
    parts: list[str] = []
    _collect(f"{name}.lua", parts, [], ())
    text = "\n".join(parts)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def names() -> list[str]:
    """All methods that have a script."""
    folder = files(__package__ or "").joinpath(_FOLDER)
    return sorted(entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua"))


def _collect(path: str, parts: list[str], done: list[str], open_: tuple[str, ...]) -> None:
    if path in open_:
        raise ValueError(f"{path} includes itself, by way of {' and '.join(open_)}")
    if path in done:
        return
    text = files(__package__ or "").joinpath(_FOLDER, *path.split("/")).read_text(encoding="utf-8")
    included = _INCLUDES.match(text)
    for name in included[1].split() if included else ():
        _collect(f"shared/{name}.lua", parts, done, (*open_, path))
    done.append(path)
    parts.append(_without_comments(text))


def _without_comments(text: str) -> str:
    """The code alone: the server needs no more of it."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))
    return "\n".join(lines)
