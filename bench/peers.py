"""oncron beside its peers, on one machine, in turns. Usage: peers.py [ticks|runs ...] [--peers oncron pgqueuer ...]

ticks  a job each second on 3 replicas: how late it begins, ticks that ran twice, ticks that did not run;
       with --kill one replica is killed by SIGKILL after a third of the time
runs   jobs that do nothing, enqueued first, executed by one worker: how many a second, how fast they were enqueued

Each peer gets a virtual environment of its own under --venvs (made once, with the versions below) and, for each turn,
an empty PostgreSQL database or an empty Valkey; the servers are this program's own and end with it. What else the
machine does is in the figures of all: `busy` is how much of it others used, so compare what was measured in one run.
A job's mark is its beginning by the machine's clock. `ticks` looks at the whole seconds from 5 s after the first mark.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ADAPTERS = Path(__file__).with_name("peers")
VENVS = Path(tempfile.gettempdir()) / "oncron-peers"
EARLY = 0.1
"""A mark so little before a second belongs to that second."""
CAP = 30.0
"""Seconds after which a worker's rate is that of what it has done."""


@dataclass(frozen=True)
class Peer:
    store: str
    packages: tuple[str, ...] = ()
    """What its environment is made of; none: this one's."""
    does: tuple[str, ...] = ("ticks", "runs")


PEERS = {
    "oncron": Peer("postgres"),
    "oncron-valkey": Peer("valkey"),
    "pgqueuer": Peer("postgres", ("pgqueuer[asyncpg]==1.6.0", "croniter")),
    "procrastinate": Peer("postgres", ("procrastinate==3.10.0", "psycopg[binary,pool]")),
    "chancy": Peer("postgres", ("chancy[cron]==0.26.0", "psycopg[binary,pool]", "croniter")),
    "apscheduler": Peer("postgres", ("apscheduler==3.11.3", "sqlalchemy", "psycopg[binary]"), ("ticks",)),
    "arq": Peer("valkey", ("arq==0.28.0",)),
    "huey": Peer("valkey", ("huey==3.5.4", "redis"), ("runs",)),
    "celery": Peer("valkey", ("celery==5.7.0", "redis", "packaging")),
}


@dataclass
class Stores:
    """The servers, each started when it is first needed."""

    stack: ExitStack
    started: dict[str, Any] = field(default_factory=dict[str, Any])

    def empty(self, kind: str) -> str:
        """The URL of a store in which nothing is."""
        sys.path.insert(0, str(Path(__file__).parents[1]))
        if kind == "postgres":
            from tests.servers import PostgresServer

            if kind not in self.started:
                self.started[kind] = self.stack.enter_context(PostgresServer())
            return self.started[kind].create_database()
        from tests.redis_server import RedisServer

        previous = self.started.pop(kind, None)
        if previous is not None:
            previous.close()
        self.started[kind] = self.stack.enter_context(RedisServer("valkey"))
        return self.started[kind].url().partition("?")[0]


def python_of(name: str, venvs: Path) -> Path:
    packages = PEERS[name].packages
    if not packages:
        return Path(sys.executable)
    home, wanted = venvs / name, "\n".join(packages)
    made = home / "made-of.txt"
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        print(f"{name}: an environment with {', '.join(packages)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        made.write_text(wanted, encoding="utf-8")
    return home / "bin" / "python"


class PeerFailed(Exception):
    """With the end of what it said."""


class Turn:
    """One peer on an empty store."""

    def __init__(self, name: str, python: Path, store: str, folder: Path) -> None:
        self.marks_file, self.log = folder / "marks", folder / "log"
        script = f"with_{name.partition('-')[0]}.py"
        self._command = [str(python), str(ADAPTERS / script)]
        self._folder = folder
        self._environment = os.environ | {"BENCH_STORE": store, "BENCH_MARKS": str(self.marks_file)}
        self.processes: list[subprocess.Popen[bytes]] = []

    def do(self, *role: str) -> float:
        """Seconds that it took, the start of a Python included."""
        begun = time.perf_counter()
        with self.log.open("ab") as log:
            subprocess.run(
                [*self._command, *role], env=self._environment, cwd=ADAPTERS, check=True, timeout=300,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        return time.perf_counter() - begun

    def start(self, role: str) -> None:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*self._command, role], env=self._environment, cwd=ADAPTERS, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                try:
                    os.killpg(process.pid, sign)  # each was started as a group of its own
                except ProcessLookupError:
                    continue
            until = time.monotonic() + 5
            while time.monotonic() < until and any(process.poll() is None for process in self.processes):
                time.sleep(0.05)
        for process in self.processes:
            process.wait()

    def marked(self) -> int:
        return self.marks_file.stat().st_size // 16 if self.marks_file.exists() else 0

    def marks(self) -> list[float]:
        if not self.marks_file.exists():
            return []
        return sorted(at for at, _ in struct.iter_unpack("<dq", self.marks_file.read_bytes()))

    def until_marked(self, count: int, within: float) -> bool:
        until = time.monotonic() + within
        while self.marked() < count and time.monotonic() < until:
            if all(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.005)
        return self.marked() >= count


@contextmanager
def turn(name: str, stores: Stores, venvs: Path) -> Generator[Turn]:
    with tempfile.TemporaryDirectory(prefix="oncron-peers-") as folder:
        played = Turn(name, python_of(name, venvs), stores.empty(PEERS[name].store), Path(folder))
        try:
            played.do("setup")
            yield played
        except (subprocess.SubprocessError, RuntimeError) as error:
            said = played.log.read_text(encoding="utf-8", errors="replace") if played.log.exists() else ""
            raise PeerFailed(f"{name}: {error}\n{said[-2000:]}") from None
        finally:
            played.stop()


def ticks(played: Turn, replicas: int, seconds: int, *, kill: bool) -> dict[str, float]:
    for _ in range(replicas):
        played.start("tick")
    if not played.until_marked(1, 40):
        raise RuntimeError("no tick ran within 40 s")
    begin = int(time.time()) + 6
    until = begin + seconds
    if kill:
        time.sleep(max(0.0, begin + seconds // 3 + 0.5 - time.time()))
        played.kill(played.processes[0])
    time.sleep(max(0.0, until + 2.5 - time.time()))
    played.stop()
    late, seen = [], Counter[int]()
    for at in played.marks():
        second = int(at + EARLY)
        if begin <= second < until:
            late.append((at - second) * 1e3)
            seen[second] += 1
    return {
        "p50 ms": percentile(late, 50),
        "p99 ms": percentile(late, 99),
        "max ms": max(late, default=float("nan")),
        "twice": sum(seen.values()) - len(seen),
        "missed": seconds - len(seen),
    }


def runs(played: Turn, count: int) -> dict[str, float]:
    start = played.do("enqueue", "0")
    enqueued = played.do("enqueue", str(count)) - start
    played.start("work")
    played.until_marked(count, CAP)
    time.sleep(0.3)
    played.stop()
    marks = played.marks()
    if len(marks) < 2:
        raise RuntimeError("no job ran")
    return {
        "runs/s": (len(marks) - 1) / (marks[-1] - marks[0]),
        "enqueued/s": count / max(enqueued, 1e-3),
        "twice": max(0, len(marks) - count),
        "undone": max(0, count - len(marks)),
    }


def percentile(values: Iterable[float], which: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * which // 100)] if ordered else float("nan")


def cpu_used() -> tuple[int, int]:
    """Of the whole machine, in ticks: used, and used or not."""
    with Path("/proc/stat").open(encoding="ascii") as stat:
        fields = [int(each) for each in stat.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def measured(what: str, name: str, stores: Stores, given: argparse.Namespace) -> dict[str, float]:
    before = cpu_used()
    with turn(name, stores, given.venvs) as played:
        if what == "ticks":
            found = ticks(played, given.replicas, given.seconds, kill=given.kill)
        else:
            found = runs(played, given.runs)
    after = cpu_used()
    return found | {"busy %": 100 * (after[0] - before[0]) / max(1, after[1] - before[1])}


def show(what: str, found: dict[str, list[dict[str, float]]]) -> None:
    columns = list(next(iter(found.values()))[0])
    print(f"\n{what:15}" + "".join(f"{column:>14}" for column in columns))
    for name, turns in found.items():
        total = ("twice", "missed", "undone")
        cells = [
            sum(turn[c] for turn in turns) if c in total else statistics.median(turn[c] for turn in turns)
            for c in columns
        ]
        print(f"{name:15}" + "".join(f"{cell:>14,.1f}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="what", help="ticks, runs  [default: both]")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="PEER")
    parser.add_argument("--turns", type=int, default=3, help="of each peer, in turn with the others")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30, help="of ticks that are looked at")
    parser.add_argument("--kill", action="store_true", help="kill one replica on the way")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--venvs", type=Path, default=VENVS, help="where the peers' environments are kept")
    given = parser.parse_args()
    for what in given.what or ["ticks", "runs"]:
        if what not in ("ticks", "runs"):
            parser.error(f"{what!r}: ticks or runs")
        names = [name for name in given.peers if what in PEERS[name].does]
        for name in names:
            python_of(name, given.venvs)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        with ExitStack() as stack:
            stores = Stores(stack)
            for _ in range(given.turns):
                for name in [name for name in names if name in found]:
                    try:
                        found[name].append(measured(what, name, stores, given))
                    except PeerFailed as error:
                        print(f"left out: {error}", file=sys.stderr)
                        del found[name]
                        continue
                    print(f"{what} {name}: {found[name][-1]}", file=sys.stderr)
        if found:
            show(what, found)


if __name__ == "__main__":
    main()
