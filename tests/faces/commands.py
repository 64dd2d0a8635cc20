"""`oncron exec` and `oncron crontab` as processes: start them, read what their commands wrote, see what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

PATIENCE = 20.0
_LOOK_EVERY = 0.02


def wait_until(holds: Callable[[], object], within: float = PATIENCE) -> None:
    for _ in range(round(within / _LOOK_EVERY)):
        if holds():
            return
        threading.Event().wait(_LOOK_EVERY)
    raise AssertionError(f"it did not come to hold within {within} s")


def is_alive(pid: int) -> bool:
    """Whether it runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Oncron:
    """A command of oncron's that stays in the foreground."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oncron", *arguments],
                cwd=folder, env=os.environ | dict(environment or {}), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self.log.read_text()

    def hears(self, text: str) -> None:
        wait_until(lambda: text in self.said)

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, within: float = PATIENCE) -> int:
        return self.process.wait(within)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
