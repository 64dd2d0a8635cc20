"""The only wall clock and sleep of the package.

Instants inside oncron are `int` microseconds since 1970-01-01T00:00Z (UTC, leap
seconds ignored as POSIX does): exact, comparable, 64 bits wide in every store.
The outside sees aware `datetime`s in UTC; this module converts.

Only the store's clock decides what is due and what has expired. A process uses its
own clocks to sleep and to bound how long it trusts what the store said: `boot_us`
runs on while the machine is suspended where the system has such a clock
(CLOCK_BOOTTIME), so a lease is not trusted after a night in a closed laptop.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
"""One second in the unit of instants (microseconds)."""

_MICROSECOND = timedelta(microseconds=1)
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_OFFSET = round(float(os.environ.get("ONCRON_CLOCK_OFFSET") or 0) * SECOND)


def wall_us() -> int:
    """This replica's wall clock, in microseconds. Never decides what is due.

    `ONCRON_CLOCK_OFFSET` (seconds) shifts it, so that a test can run replicas whose clocks
    disagree on one machine."""
    return time.time_ns() // 1000 + _OFFSET


def machine_us() -> int:
    """The machine's own clock, for stores that have no server to ask (SQLite, memory): the
    replicas' offsets never touch it."""
    return time.time_ns() // 1000


def boot_us() -> int:
    """Microseconds on a clock that never steps and runs on during suspend."""
    return time.clock_gettime_ns(_BOOT) // 1000


def to_us(instant: datetime) -> int:
    """Microseconds of an aware datetime. A naive one raises ValueError."""
    if instant.tzinfo is None:
        raise ValueError(
            f"naive datetime {instant.isoformat()}: oncron takes instants with a zone; "
            "write datetime(..., tzinfo=ZoneInfo('Europe/Berlin')) or datetime.now(UTC)"
        )
    return (instant - EPOCH) // _MICROSECOND


def from_us(instant: int) -> datetime:
    """The aware UTC datetime of microseconds. Raises OverflowError past year 9999."""
    return EPOCH + timedelta(microseconds=instant)


def from_us_if(instant: int | None) -> datetime | None:
    """The same of an instant that may be missing."""
    return None if instant is None else from_us(instant)


def delta_us(duration: timedelta | float) -> int:
    """Microseconds of a timedelta or of a number of seconds."""
    if isinstance(duration, timedelta):
        return duration // _MICROSECOND
    return round(duration * SECOND)


async def sleep_us(duration: int) -> None:
    """Sleep on the running loop; nothing for a duration that is not positive."""
    await asyncio.sleep(max(0, duration) / SECOND)


async def wait_us(event: asyncio.Event, at_most: int) -> bool:
    """Sleep until the event is set, so long at most; whether it was."""
    try:
        async with asyncio.timeout(at_most / SECOND):
            await event.wait()
    except TimeoutError:
        return False
    return True


def nap_us(duration: int) -> None:
    """Block this thread for at most a few milliseconds: finer than an event loop's timers."""
    if duration > 0:
        time.sleep(duration / SECOND)
