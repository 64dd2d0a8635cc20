"""A program in a process of its own, that says on its output where it is and what it does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN = 30


class Program:
    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        path = os.pathsep.join([str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.said = ""
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def until(self, pattern: str) -> re.Match[str]:
        """Read what it prints until it has said this."""
        until = time.monotonic() + WITHIN
        while (found := re.search(pattern, self.said)) is None:
            ready = self._read(until)
            assert ready, f"{pattern!r} was not said; but:\n{self.said}"
        return found

    def _read(self, until: float) -> bool:
        out = self.process.stdout
        assert out is not None
        left = until - time.monotonic()
        if left <= 0 or not select.select([out], [], [], left)[0]:
            return False
        text = os.read(out.fileno(), 1 << 16)
        self.said += text.decode(errors="replace")
        return bool(text)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code. What it has started hears the signal, too, as on a terminal."""
        os.killpg(self.process.pid, number)
        return self.ended()

    def ended(self) -> int:
        """Its exit code, when it has come to its end."""
        until = time.monotonic() + WITHIN
        while self._read(until):
            pass
        return self.process.wait(WITHIN)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WITHIN)
        if self.process.stdout is not None:
            self.process.stdout.close()


def call(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=WITHIN) as answer:
        return json.load(answer)
