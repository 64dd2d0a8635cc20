"""What `mkdocs build` does besides: the page of changes is made of their notes, and a file that a reader is to save
carries its name."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_NOTES = Path(__file__).parents[1] / "changes"
_KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
_NAMED = re.compile(r"^<!-- file: (\S+) -->\n( *```\w+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "changes.md", content=changes()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    return _NAMED.sub(r'\2 title="\1"', markdown)


def changes() -> str:
    """Every note, by its kind."""
    lines = ["# Changes to come", "", "What the next release brings, note by note."]
    for kind, title in _KINDS.items():
        notes = [note.read_text(encoding="utf-8").split() for note in sorted(_NOTES.glob(f"*.{kind}.md"))]
        if notes:
            lines += ["", f"## {title}", "", *(f"* {' '.join(words)}" for words in notes)]
    # Notes lie beside `docs`, this page in it.
    return "\n".join(lines).replace("](../docs/", "](") + "\n"
