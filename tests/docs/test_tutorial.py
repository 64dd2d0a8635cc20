"""The tutorial's story, told by three real replicas of the file that the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.docs.snippets import REPOSITORY, blocks, environment, run, write_files

PAGE = REPOSITORY / "docs" / "tutorial.md"
PATIENCE = 40


class Terminals:
    """Replicas, and what they print, line by line as it comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replicas: list[subprocess.Popen[str]] = []
        self.seen: list[str] = []
        self._lines: SimpleQueue[str] = SimpleQueue()

    def start(self) -> None:
        replica = subprocess.Popen(
            ["oncron", "run", "jobs"],
            cwd=self.folder,
            env=environment(self.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.replicas.append(replica)
        threading.Thread(target=self._read, args=(replica,), daemon=True).start()

    def _read(self, replica: subprocess.Popen[str]) -> None:
        assert replica.stdout is not None
        for line in replica.stdout:
            self._lines.put(line.rstrip())

    def until(self, pattern: str) -> re.Match[str]:
        """The next line like that."""
        while True:
            line = self._lines.get(timeout=PATIENCE)
            self.seen.append(line)
            if found := re.search(pattern, line):
                return found

    def heartbeats(self) -> list[int]:
        """Those seen so far, in seconds of the day."""
        found = [re.match(r"heartbeat of (\d\d):(\d\d):(\d\d)", line) for line in self.seen]
        return [int(beat[1]) * 3600 + int(beat[2]) * 60 + int(beat[3]) for beat in found if beat is not None]

    def clean_up(self) -> None:
        for replica in self.replicas:
            replica.kill()
            replica.wait()
            if replica.stdout is not None:
                replica.stdout.close()


def block_with(words: str) -> str:
    (found,) = (block.text for block in blocks(PAGE) if words in block.text)
    return found


def fields(shown: str) -> set[str]:
    """What `oncron show` has a line for."""
    return {line.split("  ")[0] for line in shown.splitlines() if "  " in line}


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    write_files(PAGE, tmp_path)
    found = Terminals(tmp_path)
    yield found
    found.clean_up()


@pytest.fixture
def oncron(tmp_path: Path) -> Callable[..., str]:
    def call(*words: str) -> str:
        done = run(f"oncron {' '.join(words)}", tmp_path)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return call


def test_a_killed_replica_is_taken_over_and_no_heartbeat_is_lost(
    terminals: Terminals, oncron: Callable[..., str]
) -> None:
    for _ in range(3):
        terminals.start()
    for _ in range(3):
        terminals.until("2 schedules, 2 tasks here; next tick: ")
    (run_id,) = re.findall(r"Run (\S+) of task export: fired", oncron("fire", "jobs", "export"))
    holder = int(terminals.until(r"export, attempt 1: part 2 of 10 in process (\d+)")[1])
    os.kill(holder, signal.SIGKILL)
    taken = terminals.until(r"export, attempt 2: part (\d+) of 10 in process (\d+)")
    assert int(taken[2]) != holder
    assert int(taken[1]) <= 3, "what the store did not hear of is done again"
    shown = oncron("show", "jobs", run_id)
    assert re.search(r"^attempt +2; 2 of 4 spent$", shown, re.MULTILINE)
    assert fields(block_with("first started")) - {"checkpoint", "ended", "result"} <= fields(shown)

    terminals.until("heartbeat of")
    beats = terminals.heartbeats()
    assert sorted(beats) == sorted((beats[0] + 2 * k) % 86400 for k in range(len(beats)))

    assert (
        oncron("pause", "jobs", "heartbeat", "--note", "'trying it'") == "Schedule heartbeat is paused (trying it).\n"
    )
    assert "Schedule heartbeat is active; next tick" in oncron("resume", "jobs", "heartbeat")
