"""What a type checker tells users: nothing about a right file, and every mistake in a wrong one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """File name -> what pyright strict says about it, with oncron installed as users have it."""
    project = tmp_path_factory.mktemp("user")
    for name in ("good.py", "bad.py"):
        shutil.copy(HERE / name, project)
    settings = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(SOURCE)]}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(project)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    found: dict[str, list[dict[str, Any]]] = {"good.py": [], "bad.py": []}
    for finding in json.loads(done.stdout)["generalDiagnostics"]:
        found[Path(finding["file"]).name].append(finding)
    return found


def lines(findings: list[dict[str, Any]]) -> dict[int, str]:
    return {finding["range"]["start"]["line"] + 1: finding["message"] for finding in findings}


@pytest.mark.timeout(240)
def test_a_right_file_passes_pyright_strict(said: dict[str, list[dict[str, Any]]]) -> None:
    assert lines(said["good.py"]) == {}


@pytest.mark.timeout(240)
def test_every_mistake_is_an_error_on_its_line_and_nothing_else_is(said: dict[str, list[dict[str, Any]]]) -> None:
    source = (HERE / "bad.py").read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(source, 1) if "# wrong:" in line}
    assert set(lines(said["bad.py"])) == wrong


@pytest.mark.timeout(240)
def test_a_type_error_names_the_parameter_and_not_our_machinery(said: dict[str, list[dict[str, Any]]]) -> None:
    source = (HERE / "bad.py").read_text(encoding="utf-8").splitlines()
    messages = lines(said["bad.py"])
    at = next(number for number, line in enumerate(source, 1) if "send_mail.enqueue(to=3)" in line)
    assert re.search(r'"Literal\[3\]" cannot be assigned to parameter "to" of type "str"', messages[at])
    assert not any("@" in message or "overload" in message.lower() for message in (messages[at],))
