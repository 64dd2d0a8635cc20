"""What the replicas of a fault run execute: `oncron run tests.fault.app:app`, told by the environment.

ONCRON_STORE     the store
FAULT_LEDGER     the file that every execution appends to
FAULT_WORKER     this replica's name in it (its process id is added)
FAULT_LEASE      lease_for, seconds
FAULT_STOP       stop_within, seconds
FAULT_FAST       number of schedules every 200 ms (async tasks)
FAULT_SECOND     number of schedules every second (tasks in threads)
FAULT_SKIP       number of schedules every 500 ms with overlap="skip"
FAULT_QUEUE      number of schedules every second with overlap="queue" (tasks in threads)
FAULT_LONG       share of the runs of these two that take longer than until the next tick
FAULT_STOPS      the file that these append to when one is stopped before its end
FAULT_WORK       least and most milliseconds that a task takes
FAULT_RETRIES    retries of the schedules: another number is another definition with the same ticks
FAULT_NAMESPACE  where in the store it meets the others
FAULT_RELEASE    release of this replica's code; none if empty
FAULT_LISTEN     a direct way to the server for notifications, if the store's URL leads through a pooler
FAULT_CLOCK      a file with seconds: SIGUSR1 makes this replica's wall clock jump by them
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path
from typing import Literal

from oncron import Oncron, RunContext, Task, _clock, backoff, every
from oncron.cli import ledger
from oncron.triggers import Trigger

_worker = f"{os.environ['FAULT_WORKER']}:{os.getpid()}"
_least, _most = (int(part) / 1000 for part in os.environ.get("FAULT_WORK", "20 200").split())
_long = float(os.environ.get("FAULT_LONG", "0.15"))
_retries = int(os.environ.get("FAULT_RETRIES", "1000"))
_release = os.environ.get("FAULT_RELEASE", "")
_TO_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_file = os.open(os.environ["FAULT_LEDGER"], _TO_APPEND, 0o644)
_stops = os.open(os.environ.get("FAULT_STOPS", os.devnull), _TO_APPEND, 0o644)

app = Oncron(
    lease_for=float(os.environ.get("FAULT_LEASE", "3")),
    stop_within=float(os.environ.get("FAULT_STOP", "10")),
    concurrency=20,
    listen_url=os.environ.get("FAULT_LISTEN") or None,
    namespace=os.environ.get("FAULT_NAMESPACE", "oncron"),
    release=int(_release) if _release else None,
)


def jump(*_: object) -> None:
    """The wall clock of this process is set by hand."""
    _clock._OFFSET += round(float(Path(os.environ["FAULT_CLOCK"]).read_text()) * _clock.SECOND)


signal.signal(signal.SIGUSR1, jump)


def mark(ctx: RunContext, what: str, file: int = _file) -> None:
    """One line. Its time is the machine's clock: the stores of a fault run live on this machine, so it
    is theirs, whatever this replica was made to believe."""
    line = ledger.Line(
        schedule=ctx.schedule or "",
        tick=0 if ctx.tick is None else round(ctx.tick.timestamp() * 1_000_000),
        run=ctx.run_id,
        attempt=ctx.attempt,
        token=ctx.token,
        what=what,
        worker=_worker,
        at=time.time_ns() // 1000,
    )
    while True:
        try:
            os.write(file, ledger.write(line))
        except OSError:
            time.sleep(0.05)  # under a quota the ledger is too long as well: what happened is told later
        else:
            return


@app.task(retries=1000, backoff=backoff.fixed(0.1))
async def work(ctx: RunContext) -> None:
    mark(ctx, "start")
    await asyncio.sleep(random.uniform(_least, _most))
    mark(ctx, "end")


@app.task(retries=1000, backoff=backoff.fixed(0.1))
def work_in_thread(ctx: RunContext) -> None:
    mark(ctx, "start")
    time.sleep(random.uniform(_least, _most))
    mark(ctx, "end")


def takes(long: float) -> float:
    return long if random.random() < _long else 0.05


@app.task(retries=1000, backoff=backoff.fixed(0.1))
async def alone(ctx: RunContext) -> None:
    mark(ctx, "start")
    try:
        await asyncio.sleep(takes(0.8))
    except asyncio.CancelledError:
        mark(ctx, "end", _stops)
        raise
    mark(ctx, "end")


@app.task(retries=1000, backoff=backoff.fixed(0.1))
def in_turn(ctx: RunContext) -> None:
    mark(ctx, "start")
    time.sleep(takes(1.4))
    mark(ctx, "end")


@app.task
async def nap(ctx: RunContext, seconds: float) -> None:
    mark(ctx, "start")
    await asyncio.sleep(seconds)
    mark(ctx, "end")


@app.task
def nap_in_thread(ctx: RunContext, seconds: float) -> None:
    mark(ctx, "start")
    time.sleep(seconds)
    mark(ctx, "end")


def declare(
    name: str,
    trigger: Trigger,
    task: Task[..., None],
    retries: int = _retries,
    overlap: Literal["allow", "skip", "queue"] = "allow",
) -> None:
    """A schedule whose every tick has to run, whatever happens; under "skip", or to be skipped for an overlap."""
    app.add_schedule(name, trigger, task, overlap=overlap, missed="all", missed_limit=10_000, retries=retries)


for number in range(int(os.environ.get("FAULT_FAST", "2"))):
    declare(f"fast-{number}", every(seconds=0.2), work)
for number in range(int(os.environ.get("FAULT_SECOND", "1"))):
    declare(f"second-{number}", every(seconds=1), work_in_thread)
for number in range(int(os.environ.get("FAULT_SKIP", "0"))):
    declare(f"skip-{number}", every(seconds=0.5), alone, overlap="skip")
for number in range(int(os.environ.get("FAULT_QUEUE", "0"))):
    declare(f"queue-{number}", every(seconds=1), in_turn, overlap="queue")
