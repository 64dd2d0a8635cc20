"""Tasks for worker processes: a module of its own, as they import it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from oncron import GiveUp, Oncron, RetryIn, RunContext, Skip, current_run

app = Oncron("memory://", namespace="chores")
imported_by = os.getpid()


@dataclass
class Point:
    x: int
    y: int


class Odd(ValueError):
    """Cannot be pickled, as many exceptions of drivers cannot."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(f"{number} is odd")
        self.number, self.why, self.callback = number, why, lambda: number


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def wait() -> NoReturn:
    """For good, at a place where Python can do other things."""
    threading.Event().wait()
    raise AssertionError


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.01)


@app.task(executor="process")
def mirror(point: Point) -> Point:
    return Point(point.y, point.x)


@app.task(executor="process")
def promise() -> Any:
    return asyncio.sleep(0)


@app.task(executor="process")
def who() -> dict[str, int]:
    return {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "imported_by": imported_by}


@app.task(executor="process")
def facts(ctx: RunContext, word: str = "hi") -> dict[str, Any]:
    return {
        "run_id": ctx.run_id,
        "task": ctx.task,
        "schedule": ctx.schedule,
        "tick": ctx.tick,
        "due_at": ctx.due_at,
        "late_by": ctx.late_by,
        "attempt": ctx.attempt,
        "is_last_attempt": ctx.is_last_attempt,
        "token": ctx.token,
        "is_catchup": ctx.is_catchup,
        "missed_count": ctx.missed_count,
        "args": dict(ctx.args),
        "deadline": ctx.deadline,
        "stopping": ctx.stopping,
        "last_checkpoint": ctx.last_checkpoint,
        "is_current": current_run() is ctx,
    }


@app.task(executor="process")
async def on_a_loop() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


@app.task(executor="process")
def large(size: int) -> str:
    return "x" * size


@app.task(executor="process")
def measure(word: str) -> int:
    return len(word)


@app.task(executor="process")
def not_json() -> object:
    return threading.Lock()


@app.task(executor="process")
def open_sockets() -> int:
    files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink() and file.exists()]
    return sum(str(file).startswith("socket:") for file in files)


# --- saying ---------------------------------------------------------------------------


@app.task(executor="process")
def tell_and_wait(ctx: RunContext) -> str:
    ctx.progress(1, 3, note=str(os.getpid()))
    ctx.checkpoint({"page": 7})
    wait_until(lambda: ctx.stopping)
    return "stopped nicely"


@app.task(executor="process")
def chatter(ctx: RunContext, times: int) -> None:
    for i in range(times):
        ctx.progress(i + 1, times)
        ctx.checkpoint(i)


@app.task(executor="process")
def checkpoint_and_die(ctx: RunContext) -> None:
    ctx.checkpoint("before")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def fan_out(ctx: RunContext, fail: bool) -> None:
    for i in range(3):
        ctx.enqueue(mirror, Point(i, 0))
    if fail:
        raise ValueError("no")


@app.task(executor="process")
def leave_a_thread(ctx: RunContext) -> None:
    def go_on() -> None:
        while not threading.Event().wait(0.005):
            ctx.progress(9)

    threading.Thread(target=go_on, daemon=True).start()


@app.task(executor="process")
def wants_state(ctx: RunContext) -> None:
    _ = ctx.state


@app.task(executor="process")
def wants_transaction(ctx: RunContext) -> None:
    getattr(ctx, "transaction")()  # noqa: B009


@app.task(executor="process")
def wants_store() -> None:
    mirror.enqueue_sync(Point(1, 2))


# --- failing --------------------------------------------------------------------------


@app.task(executor="process", retry_on=ValueError)
def odd() -> None:
    raise Odd(3, why="it is")


@app.task(executor="process", retry_on=(KeyError, TypeError))
def odd_is_not_repeated() -> None:
    raise Odd(3, why="it is")


@app.task(executor="process")
def mute() -> None:
    raise Mute


@app.task(executor="process")
def raise_control(kind: str) -> None:
    raise {
        "RetryIn": RetryIn(7.5, spend_attempt=False),
        "GiveUp": GiveUp("no use"),
        "Skip": Skip("nothing to do"),
    }[kind]


@app.task(executor="process")
def leave() -> None:
    sys.exit("bye")


@app.task(executor="process")
def misused_control() -> None:
    raise RetryIn("soon")  # type: ignore[arg-type]


# --- dying ----------------------------------------------------------------------------


@app.task(executor="process")
def die(how: str) -> None:
    match how:
        case "abort":
            os.abort()
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case _:
            raise AssertionError(how)


# --- not ending -----------------------------------------------------------------------


@app.task(executor="process")
def spin(ctx: RunContext) -> None:
    ctx.progress(0, note=str(os.getpid()))
    while True:
        pass


@app.task(executor="process")
def block_the_interpreter(ctx: RunContext) -> None:
    """No other thread of this process gets to run."""
    ctx.progress(0)
    ctypes.PyDLL(None).sleep(1000)


@app.task(executor="process")
def spawn_and_wait(ctx: RunContext) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    ctx.progress(0, note=str(child.pid))
    child.wait()


@app.task(executor="process")
async def clean_up(ctx: RunContext) -> None:
    ctx.progress(0)
    try:
        await asyncio.Event().wait()
    finally:
        ctx.checkpoint("clean")


@app.task(executor="process")
def deaf() -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return "still here"


@app.task(executor="process", on_doubt="continue")
def fenced(ctx: RunContext) -> str:
    ctx.progress(0)
    wait_until(lambda: ctx.stopping)
    return "went on"
