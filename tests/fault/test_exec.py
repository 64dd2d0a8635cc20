"""Three `oncron exec` on one store, two of them killed while they run a command: the commands' own ledger tells.

A line is (start or end, tick, run, attempt, host, the command's process). Duplicate: two runs of a tick, or two ends of
a run. Missed: a tick between the first and the last one without an end.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faces.commands import Oncron, is_alive, wait_until

PERIOD = timedelta(seconds=1)
LEDGER = """
line="$ONCRON_TICK $ONCRON_RUN_ID $ONCRON_ATTEMPT $HOST $$"
echo "start $line" >> ledger; sleep 0.5; echo "end $line" >> ledger
"""


class Line(NamedTuple):
    what: str
    tick: str
    run: str
    attempt: int
    host: str
    pid: int


class Fleet:
    def __init__(self, folder: Path, store: str) -> None:
        self._ledger = folder / "ledger"
        self.hosts = {
            name: Oncron(
                folder, "exec", "--name", "job", "--every", "1s", "--overlap", "allow", "--missed", "all",
                "--retries", "9", "--lease-for", "2s", "--store", store, "--", "sh", "-c", LEDGER,
                environment={"HOST": name},
            )
            for name in ("a", "b", "c")
        }  # fmt: skip

    @property
    def lines(self) -> list[Line]:
        text = self._ledger.read_text() if self._ledger.exists() else ""
        parts = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [Line(what, tick, run, int(attempt), host, int(pid)) for what, tick, run, attempt, host, pid in parts]

    def ticks(self) -> set[str]:
        return {line.tick for line in self.lines if line.what == "end"}

    def kill_while_it_runs_one(self) -> Line:
        """SIGKILL to a host, of which a command has begun and not ended; that command."""
        seen = len(self.lines)

        def begun() -> list[Line]:
            alive = [name for name, host in self.hosts.items() if host.process.poll() is None]
            return [line for line in self.lines[seen:] if line.what == "start" and line.host in alive]

        wait_until(begun)
        line = begun()[-1]
        self.hosts[line.host].tell(signal.SIGKILL)
        self.hosts[line.host].ends()
        return line

    def stop(self) -> None:
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.tell(signal.SIGTERM)
        for host in self.hosts.values():
            host.ends()

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    store = "sqlite:///jobs.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    fleet = Fleet(tmp_path, store)
    yield fleet
    fleet.close()


def test_three_hosts_run_each_tick_once_although_two_are_killed_and_no_command_outlives_its_host(fleet: Fleet) -> None:
    wait_until(lambda: len(fleet.ticks()) >= 3)
    killed = []
    for _ in range(2):
        killed.append(fleet.kill_while_it_runs_one())
        begun = len(fleet.ticks())
        wait_until(lambda begun=begun: len(fleet.ticks()) >= begun + 2)
    for line in killed:
        assert not is_alive(line.pid)
        wait_until(lambda line=line: any(other.run == line.run and other.what == "end" for other in fleet.lines))
    fleet.stop()

    ends = [line for line in fleet.lines if line.what == "end"]
    runs = {(line.tick, line.run) for line in fleet.lines}
    assert [tick for tick, count in Counter(tick for tick, _ in runs).items() if count > 1] == []
    assert [run for run, count in Counter(line.run for line in ends).items() if count > 1] == []
    done = {datetime.fromisoformat(line.tick) for line in ends}
    due = {min(done) + n * PERIOD for n in range((max(done) - min(done)) // PERIOD + 1)}
    assert due - done == set()
    assert all(line.attempt > 1 for line in ends if line.run in {each.run for each in killed})
