"""Runs the python blocks of one page: JSON in from stdin, JSON out to the file named.

In: a list of {"line": n, "text": code, "continues": bool}. Out: a list of {"printed": text, "error": traceback or
null}. A block may await at its top level. Blocks that continue one another share a module and a loop.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import Any

BLOCK_WITHIN = 10


def main(page: str, answer: Path) -> None:
    sys.path.insert(0, "")
    given = json.load(sys.stdin)
    done: list[dict[str, str | None]] = []
    module = types.ModuleType("page")
    runner = asyncio.Runner()
    for index, block in enumerate(given):
        if not block["continues"]:
            runner.close()
            module, runner = types.ModuleType(f"page_{index}"), asyncio.Runner()
            sys.modules[module.__name__] = module
        # The traceback then names the page's own line.
        code = compile(
            "\n" * block["line"] + block["text"], page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        done.append(execute(code, module, runner))
        answer.write_text(json.dumps(done), encoding="utf-8")
    runner.close()


def execute(code: types.CodeType, module: types.ModuleType, runner: asyncio.Runner) -> dict[str, str | None]:
    printed, error = io.StringIO(), None
    signal.signal(signal.SIGALRM, late)
    signal.alarm(BLOCK_WITHIN)
    try:
        with contextlib.redirect_stdout(printed):
            answer: Any = eval(code, vars(module))
            if inspect.iscoroutine(answer):
                runner.run(answer)
    except BaseException:  # noqa: BLE001 - carried to the test
        error = traceback.format_exc()
    finally:
        signal.alarm(0)
    return {"printed": printed.getvalue(), "error": error}


def late(*_: object) -> None:
    raise TimeoutError(f"the block took longer than {BLOCK_WITHIN} s")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
