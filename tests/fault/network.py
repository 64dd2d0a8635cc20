"""Faults of the network and of clocks: every replica has a way to the server of its own, which can be cut, swallowed,
narrowed and closed, and a wall clock that can be set while it runs."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterator, Sequence

from oncron.cli.ledger import Line
from tests.fault.faults import Fault
from tests.fault.fleet import Fleet, Replica
from tests.fault.proxy import Direction, Proxy

Links = dict[str, Proxy]
"""By replica."""


@contextlib.contextmanager
def linked(fleet: Fleet, port: int) -> Iterator[Links]:
    """Replicas that are started inside reach the server on `port` each by a proxy of its own."""
    with contextlib.ExitStack() as stack:
        links = {replica.name: stack.enter_context(Proxy(port)) for replica in fleet.replicas}
        for replica in fleet.replicas:
            replica.environment["ONCRON_STORE"] = fleet.url.replace(f":{port}/", f":{links[replica.name].port}/")
            replica.environment["FAULT_CLOCK"] = str(fleet.home / f"{replica.name}.clock")
        yield links


def to_network(links: Links) -> Sequence[tuple[str, Fault]]:
    return (
        ("cut", cut(links)),
        ("black hole", swallow(links)),
        ("answers swallowed", swallow(links, "down")),
        ("questions swallowed", swallow(links, "up")),
        ("connections forgotten", forget(links)),
        ("slow link", slow(links)),
        ("refused", refuse(links)),
    )


def cut(links: Links) -> Fault:
    """Every connection of a replica that holds a run is reset."""

    def act(fleet: Fleet, chance: random.Random) -> None:
        time.sleep(0.2 - time.time() % 0.2 + chance.uniform(0, 0.02))
        replica = fleet.holder()
        with fleet.disturbing("cut", replica.worker, echo=1):
            links[replica.name].cut()

    return act


def swallow(links: Links, *directions: Direction) -> Fault:
    """A black hole before a replica that holds a run, longer than its lease. Afterwards what went in comes out late,
    or is lost with the connections."""

    def act(fleet: Fleet, chance: random.Random) -> None:
        replica = fleet.holder()
        with fleet.disturbing(" ".join(("black hole", *directions)), replica.worker, echo=1):
            links[replica.name].swallow(*directions)
            time.sleep(fleet.load.lease * chance.uniform(1.1, 1.5))
            if chance.random() < 0.5:
                links[replica.name].cut()
            links[replica.name].heal()

    return act


def forget(links: Links) -> Fault:
    """A router loses its table: the connections of this moment stay silent, new ones are welcome."""

    def act(fleet: Fleet, chance: random.Random) -> None:
        replica = fleet.holder()
        with fleet.disturbing("forgotten", replica.worker, echo=fleet.load.lease):
            links[replica.name].forget()
            time.sleep(fleet.load.lease * chance.uniform(1.1, 1.5))
            links[replica.name].heal()

    return act


def slow(links: Links) -> Fault:
    """A replica's link has 50 to 150 ms more latency and 20 kB/s: nothing gets lost, so it excuses nothing."""

    def act(fleet: Fleet, chance: random.Random) -> None:
        link = links[chance.choice(fleet.replicas).name]
        link.slow(chance.uniform(0.05, 0.15), 20_000)
        time.sleep(fleet.load.lease)
        link.heal()

    return act


def refuse(links: Links) -> Fault:
    """A replica that holds a run is cut off and refused for longer than its lease."""

    def act(fleet: Fleet, chance: random.Random) -> None:
        replica = fleet.holder()
        with fleet.disturbing("refused", replica.worker, echo=1):
            links[replica.name].refuse()
            links[replica.name].cut()
            time.sleep(fleet.load.lease * chance.uniform(1.1, 1.5))
            links[replica.name].heal()

    return act


def jump(replica: Replica, seconds: float) -> None:
    """Its wall clock jumps, now."""
    replica.fleet.until(lambda: replica.up, 20, f"{replica.worker} to start")
    (replica.fleet.home / f"{replica.name}.clock").write_text(str(seconds))
    replica.signal(signal.SIGUSR1)


def jump_clock(leases: float = 0, seconds: float = 0) -> Fault:
    """The wall clock of a replica that holds a run jumps there and later back, first in a drawn direction. By less
    than a third of a lease that excuses nothing."""

    def act(fleet: Fleet, chance: random.Random) -> None:
        size = (leases * fleet.load.lease + seconds) * chance.choice((1, -1))
        replica = fleet.holder()
        for by in (size, -size):
            excused = abs(by) > fleet.load.lease / 3
            with fleet.disturbing("clock jump", replica.worker, echo=1) if excused else contextlib.nullcontext():
                jump(replica, by)
            time.sleep(chance.uniform(0.2, 1))

    return act


CLOCK_JUMPS: Sequence[tuple[str, Fault]] = (
    ("clock jumps by a sixth of a lease", jump_clock(leases=1 / 6)),
    ("clock jumps by two thirds of a lease", jump_clock(leases=2 / 3)),
    ("clock jumps by an hour", jump_clock(seconds=3600)),
)


def two_at_once(fleet: Fleet) -> list[str]:
    """Runs of async tasks that one worker was still executing when the next had started, and no SIGSTOP explains it:
    whoever is cut off has to stop its tasks before its lease is over."""
    executions: dict[str, dict[int, tuple[Line, Line]]] = {}
    for line in fleet.lines():
        if line.schedule.startswith(("fast", "skip")):
            start, _ = executions.setdefault(line.run, {}).get(line.token, (line, line))
            executions[line.run][line.token] = start, line
    stops = [disturbance for disturbance in fleet.journal if disturbance.kind == "stop"]
    found: list[str] = []
    for run, claims in executions.items():
        for token, (start, last) in claims.items():
            after = [first for later, (first, _) in claims.items() if later > token]
            if any(first.at < last.at for first in after) and not any(
                stop.touches(start.worker, start.at, last.at) for stop in stops
            ):
                found.append(f"two at once: run {run} went on in {start.worker} when {after[0].worker} had started")
    return found
