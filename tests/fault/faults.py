"""The kinds of faults, each as an action on a fleet with a seeded source of chance."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fault.disk import Fillable
from tests.fault.fleet import Fleet
from tests.servers import PostgresServer, StopMode

Fault = Callable[[Fleet, random.Random], None]
"""Afterwards all replicas are there again."""

_HOLD_LOCK = """
import sqlite3, sys, time
file = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
file.execute("begin immediate")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
file.execute("rollback")
"""


def kill_holder(fleet: Fleet, chance: random.Random) -> None:
    """SIGKILL while it holds a run; the next process has the same host name and comes at once."""
    del chance
    replica = fleet.holder()
    fleet.kill(replica)
    replica.start()


def kill_in_a_write(fleet: Fleet, chance: random.Random) -> None:
    """SIGKILL a moment after a tick, when replicas fire, claim and finish."""
    replica = chance.choice(fleet.replicas)
    time.sleep(0.2 - time.time() % 0.2 + chance.uniform(0, 0.02))
    fleet.kill(replica, "kill in a write")
    replica.start()


def stop_past_lease(fleet: Fleet, chance: random.Random) -> None:
    """SIGSTOP while it holds a run, for longer than its lease, then SIGCONT."""
    fleet.suspend(fleet.holder(), fleet.load.lease * chance.uniform(1.1, 1.5))


def restart_gracefully(fleet: Fleet, chance: random.Random) -> None:
    """SIGTERM, as a deploy does."""
    replica = chance.choice(fleet.replicas)
    time.sleep(chance.uniform(0, 0.2))
    fleet.terminate(replica)
    replica.start()


def restart_skewed(offset: float) -> Fault:
    """A replica whose clock is wrong comes into the fleet: it is the next process of its slot."""

    def restart(fleet: Fleet, chance: random.Random) -> None:
        replica = next(replica for replica in fleet.replicas if replica.offset == offset)
        (fleet.kill if chance.random() < 0.5 else fleet.terminate)(replica)
        replica.start()

    return restart


def deploy(fleet: Fleet, chance: random.Random) -> None:
    """A rolling restart of everybody with schedules that were changed: other retries, the same ticks."""
    fleet.load.release = (fleet.load.release or 0) + 1
    fleet.load.retries += 1
    for replica in fleet.replicas:
        fleet.terminate(replica)
        replica.start()
        time.sleep(chance.uniform(0, 0.2))


def fill_disk(disk: Fillable) -> Fault:
    """The disk of the store is full for one to three seconds."""

    def fill(fleet: Fleet, chance: random.Random) -> None:
        with fleet.disturbing("disk full", echo=1 + fleet.load.lease), disk.full(fleet):
            time.sleep(chance.uniform(1, 3))

    return fill


def end_sessions(server: PostgresServer) -> Fault:
    """`pg_terminate_backend` of everybody."""

    def end(fleet: Fleet, chance: random.Random) -> None:
        time.sleep(0.2 - time.time() % 0.2 + chance.uniform(0, 0.02))
        with fleet.disturbing("end sessions", echo=2):
            server.terminate_backends(fleet.url)

    return end


def restart_server(server: PostgresServer, mode: StopMode) -> Fault:
    """The server goes away and comes back: `fast` with a checkpoint, `immediate` as after a crash."""

    def restart(fleet: Fleet, chance: random.Random) -> None:
        time.sleep(chance.uniform(0, 0.2))
        with fleet.disturbing(f"restart server {mode}", echo=2 + fleet.load.lease):
            server.restart(mode)

    return restart


def kill_server(server: PostgresServer) -> Fault:
    """SIGKILL to the server; it recovers from its log."""

    def kill(fleet: Fleet, chance: random.Random) -> None:
        time.sleep(chance.uniform(0, 0.2))
        with fleet.disturbing("kill server", echo=2 + fleet.load.lease):
            server.kill()
            server.start()

    return kill


def hold_lock(file: Path) -> Fault:
    """Somebody else's process holds SQLite's only write lock for one to three seconds."""

    def hold(fleet: Fleet, chance: random.Random) -> None:
        with fleet.disturbing("hold lock", echo=1):
            done = subprocess.run(
                [sys.executable, "-c", _HOLD_LOCK, str(file), str(chance.uniform(1, 3))],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return hold


def storm(
    fleet: Fleet, faults: Sequence[tuple[str, Fault]], *, rounds: int, seed: int, calm: float = 0.5
) -> dict[str, int]:
    """Every fault `rounds` times, in an order drawn anew each round, with a moment of calm between two.
    Returns how often each was done."""
    chance = random.Random(seed)
    done = dict.fromkeys((name for name, _ in faults), 0)
    for _ in range(rounds):
        for name, fault in chance.sample(list(faults), len(faults)):
            fault(fleet, chance)
            done[name] += 1
            time.sleep(chance.uniform(0.2, 2 * calm))
    return done
