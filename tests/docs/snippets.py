"""What the pages show as code, and how it is run.

A fenced `python` block is run in a directory of its page's own, each in a fresh module, in the order of
the page; an `output` block right after it is what it printed. Of a `console` block the lines that begin
with `$ oncron ` are run there too, but for `oncron run` and `oncron demo`, and the lines below each are what
it printed. `...` in an output stands for anything. A comment on the line above a fence says more:

    <!-- continues -->          python: in the same module as the block before
    <!-- file: jobs.py -->      also written to that file, for the commands of the page
    <!-- exits 1 -->            console: with that code
    <!-- not run: why -->       shown only
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
WITHIN = 20
"""Seconds that the blocks of one page may take together, or one command."""

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    mark: str
    line: int
    """Of the fence, in its page."""

    def is_marked(self, word: str) -> bool:
        return self.mark.startswith(word)

    @property
    def file(self) -> str | None:
        return self.mark.removeprefix("file: ") if self.is_marked("file: ") else None


@dataclass(frozen=True)
class Command:
    line: str
    shown: str
    """What the page shows below it; empty if nothing."""
    exits: int
    at: int


def pages() -> list[Path]:
    """Every page for people: at the top and below `docs`."""
    return sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            language=found["language"],
            text=re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            mark=found["mark"] or "",
            line=text.count("\n", 0, found.start("language")) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def snippets(page: Path) -> list[tuple[Block, str | None]]:
    """The python blocks that are run, each with the output that the page shows for it."""
    every = blocks(page)
    found: list[tuple[Block, str | None]] = []
    for index, block in enumerate(every):
        following = every[index + 1] if index + 1 < len(every) else None
        if block.language == "python" and not block.is_marked("not run"):
            shown = following.text if following is not None and following.language == "output" else None
            found.append((block, shown))
    return found


def commands(page: Path) -> Iterator[Command]:
    """The commands of the page that are run."""
    for block in blocks(page):
        if block.language != "console" or block.is_marked("not run"):
            continue
        exits = int(block.mark.removeprefix("exits ")) if block.is_marked("exits ") else 0
        parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
        at = block.line + 1
        for part in parts:
            line, _, shown = part.partition("\n")
            if line.startswith("oncron ") and not line.startswith(("oncron run ", "oncron demo")):
                yield Command(line.split("  #")[0].strip(), shown.strip("\n"), exits, at)
            at += part.count("\n")


def same(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed, `...` standing for anything, ends of lines left aside."""
    pattern = r".*?".join(re.escape(part) for part in _trimmed(shown).split("..."))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def write_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """As a reader's shell in that directory; the store, where the code names none, is a file there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONCRON", "COV", "PYTEST"))}
    return {
        **kept,
        "ONCRON_STORE": f"sqlite:///{folder}/oncron.db",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "TZ": "UTC",
    }


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A shell command of a page; stdout and stderr come together, as on a terminal."""
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN,
        check=False,
    )
