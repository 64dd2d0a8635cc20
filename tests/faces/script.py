"""A script with an app, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

HEAD = """
import asyncio, logging, sys, threading, time
from oncron import Oncron, RunContext, every
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
app = Oncron("sqlite:///jobs.db", lease_for=2, stop_within={stop_within})
def say(*words):  # in one piece: print() writes a line and its end apart, and two threads may say something
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
"""

Start = Callable[..., "Process"]
"""`start(body)`: that body as the rest of a script that makes `app`, in a process of its own."""


class Process:
    def __init__(self, folder: Path, body: str, stop_within: float, *options: str) -> None:
        script = folder / "jobs.py"
        script.write_text(HEAD.format(stop_within=stop_within) + textwrap.dedent(body))
        self._errors = (folder / "errors").open("w+")
        self.popen = subprocess.Popen(
            [sys.executable, *(options or [str(script)])],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def hear(self, line: str) -> None:
        """Read until the process has said that line."""
        assert self.popen.stdout is not None
        for said in self.popen.stdout:
            if said.strip() == line:
                return
        raise AssertionError(f"never said {line!r}: {self.errors()}")

    def next_line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().rstrip("\n")

    def tell(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def ends(self, within: float) -> tuple[int, str]:
        """Exit code, and what it said after the last line heard."""
        out, _ = self.popen.communicate(timeout=within)
        return self.popen.returncode, out

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()
        self._errors.close()
