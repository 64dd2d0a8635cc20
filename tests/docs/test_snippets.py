"""Every snippet and command that a page shows is run, and prints what the page says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import snippets
from tests.docs.snippets import REPOSITORY, Block, blocks, commands, environment, pages, same, write_files

DRIVER = Path(__file__).parent / "driver.py"


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def run_python(page: Path, folder: Path) -> list[dict[str, str | None]]:
    given = [
        {"line": block.line, "text": block.text, "continues": block.is_marked("continues")}
        for block, _ in snippets.snippets(page)
    ]
    answer = folder / "answer.json"
    subprocess.run(
        [sys.executable, str(DRIVER), page.name, str(answer)],
        input=json.dumps(given),
        text=True,
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.PIPE,
        timeout=snippets.WITHIN + 10 * len(given),
        check=True,
    )
    return json.loads(answer.read_text(encoding="utf-8"))


def wrong_python(page: Path, folder: Path) -> list[str]:
    write_files(page, folder)
    wrong: list[str] = []
    for (block, shown), got in zip(snippets.snippets(page), run_python(page, folder), strict=True):
        printed = got["printed"] or ""
        if got["error"] is not None:
            wrong.append(f"{page.name}:{block.line}: {got['error']}")
        elif shown is not None and not same(shown, printed):
            wrong.append(f"{page.name}:{block.line}: printed\n{printed}\nbut the page shows\n{shown}")
    return wrong


def wrong_commands(page: Path, folder: Path) -> list[str]:
    write_files(page, folder)
    wrong: list[str] = []
    for command in commands(page):
        done = snippets.run(command.line, folder)
        if done.returncode != command.exits:
            wrong.append(f"{page.name}:{command.at}: {command.line} exits {done.returncode}\n{done.stdout}")
        elif command.shown and not same(command.shown, done.stdout):
            wrong.append(f"{page.name}:{command.at}: {command.line} prints\n{done.stdout}")
    return wrong


@pytest.mark.parametrize("page", [page for page in pages() if snippets.snippets(page)], ids=named)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    assert not (wrong := wrong_python(page, tmp_path)), "\n".join(wrong)


@pytest.mark.parametrize("page", [page for page in pages() if any(commands(page))], ids=named)
def test_the_commands_of_a_page_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    assert not (wrong := wrong_commands(page, tmp_path)), "\n".join(wrong)


def test_what_is_only_shown_says_why() -> None:
    for page in pages():
        for block in blocks(page):
            if block.is_marked("not run"):
                assert len(block.mark) > len("not run: "), f"{page.name}:{block.line}"


PAGE = """
```python
x = 1
print("one", x)
```
```output
one ...
```
<!-- continues -->
```python
import asyncio
await asyncio.sleep(0)
print(x + 1)
```
```output
3
```
```python
x
```
<!-- not run: it would never end -->
```python
while True: ...
```
<!-- exits 2 -->
```console
$ oncron explain "61 * * * *"
oncron: ...61... is outside 0-59...
$ echo not ours
$ oncron explain "5 * * * *" -n 1
nonsense
```
"""


def test_a_page_that_is_wrong_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    printed, failed = wrong_python(page, tmp_path)
    assert printed.startswith("page.md:10: printed\n2\n")
    assert failed.startswith("page.md:18: ")
    assert "NameError: name 'x' is not defined" in failed
    (code,) = wrong_commands(page, tmp_path)
    assert "exits 0" in code


def test_marks_are_read() -> None:
    block = Block("python", "x", "file: jobs.py", 1)
    assert (block.file, block.is_marked("continues")) == ("jobs.py", False)
    assert same("a ... c\n", "a b  \n c")
    assert not same("a b", "a c")
