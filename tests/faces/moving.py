"""What `oncron import` printed, run as a program that somebody would start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

_SHOW = """
import json, sys
import printed
schedules = {
    name: {"trigger": rule.trigger, "task": rule.task, "args": json.loads(rule.args), "start_at": rule.start_at}
    for name, rule in ((found.definition.name, found.definition) for found in printed.app._registry.schedules.values())
}
tasks = {name: task.settings.max_running for name, task in printed.app._registry.tasks.items()}
print(json.dumps({"schedules": schedules, "tasks": tasks}))
"""


def run(source: str, folder: Path) -> Any:
    """What the printed program declares, in a process of its own; the formatter has nothing to change in it."""
    (folder / "printed.py").write_text(source)
    formatted = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", "printed.py"]
    unused = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "I,F", "printed.py"]
    for command in (formatted, unused):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    shown = subprocess.run(
        [sys.executable, "-c", _SHOW], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert shown.returncode == 0, shown.stderr
    return msgspec.json.decode(shown.stdout)
