"""Seeing that another process has written, without asking the disk all the time.

The write-ahead log's file status tells cheaply that somebody wrote; SQLite's data version
then tells whether it was somebody else. Both are hints (G9).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

from oncron._clock import SECOND, boot_us, sleep_us
from oncron._model import RunRecord

QUICK = 20_000
"""Between two looks while something is going on here (20 ms all the time costs 1.8 % of a core)."""
SLOW = 200_000
BUSY_FOR = 1 * SECOND


class Activity:
    """Whether something is going on in this process: it wrote lately, or holds runs."""

    def __init__(self) -> None:
        self._wrote_at = -BUSY_FOR
        self._held: set[str] = set()
        self.is_over = False
        """The store was closed: nobody listens any more."""

    def wrote(self) -> None:
        self._wrote_at = boot_us()

    def took(self, runs: Iterable[RunRecord]) -> None:
        self._held.update(run.id for run in runs)

    def gave(self, run_ids: Iterable[str]) -> None:
        self._held.difference_update(run_ids)

    def holds(self, run_ids: set[str]) -> None:
        """Just these: what a heartbeat says."""
        self._held = run_ids

    def is_busy(self) -> bool:
        return bool(self._held) or boot_us() - self._wrote_at < BUSY_FOR


async def changes(path: Path, activity: Activity, data_version: Callable[[], Awaitable[int]]) -> AsyncIterator[None]:
    """One item whenever others may have written. Ends when the store is closed; raises
    StoreUnavailable if the file cannot be asked."""
    log = path.with_name(path.name + "-wal")
    seen, version = _status(log), await data_version()
    ask = False
    while True:
        await sleep_us(QUICK if activity.is_busy() else SLOW)
        if activity.is_over:
            return
        status = _status(log)
        # Once more after a change: two writes within one tick of the file system's clock look like one.
        ask, seen, again = status != seen, status, ask
        if ask or again:
            newest = await data_version()
            if newest != version:
                version = newest
                yield


def _status(log: Path) -> tuple[int, int, int]:
    """Never opens the file: closing it would drop this process's locks on it."""
    try:
        status = log.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)
