"""What all adapters share. An adapter is run by the Python of its peer: with_NAME.py setup | enqueue N | work | tick.

`work` and `tick` go on until SIGTERM. The store is $BENCH_STORE, empty before `setup`. Jobs do nothing but leave a
mark: when they began, by this machine's clock, and in which process, 16 bytes appended to $BENCH_MARKS in one write.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

STORE = os.environ.get("BENCH_STORE", "")
TICKS = sys.argv[1:] == ["tick"]
AT_ONCE = 100
"""Jobs that a worker executes at the same time, where the peer lets one say so."""
_open: dict[int, int] = {}


def mark() -> None:
    process = os.getpid()
    if process not in _open:
        _open[process] = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_open[process], struct.pack("<dq", time.time(), process))


def address() -> tuple[str, int]:
    """Host and port of the store."""
    parts = urlsplit(STORE)
    return parts.hostname or "127.0.0.1", parts.port or 0


def play(**roles: Callable[..., Any]) -> None:
    """Do what the command line says; `enqueue` is given how many."""
    role, *count = sys.argv[1:]
    answer = roles[role](*map(int, count)) if role in roles else None
    if asyncio.iscoroutine(answer):
        asyncio.run(_awaited(answer))


async def _awaited(answer: Awaitable[Any]) -> None:
    await answer
