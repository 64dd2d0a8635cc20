"""One connection on one thread of its own, and what may go wrong with it.

Work is done in the order it was handed in. The thread is a daemon: a process never waits
for it at exit. A fork closes the connection first (SQLite's locks do not survive one) and
both sides open a new one with their next call.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from typing_extensions import TypeVar

from oncron._clock import SECOND, boot_us
from oncron.errors import StoreUnavailable, StoreUnsafe
from oncron.stores.sqlite._errors import is_busy, translated

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection, default=sqlite3.Connection)
Identity = tuple[int, int]
"""A file's device and inode."""

_OPS_PER_LOOK = 20_000
"""Virtual machine steps between two looks at the deadline: some milliseconds."""
_TIDY_EVERY = 1000
"""Changed rows between two checkpoints."""
TURN = (200, 1200)
"""Microseconds between two tries for the write lock. It does not grow: whoever waits longest
has the same chance as the others, where SQLite's own handler starves them."""


class Deadline:
    """Until when a call may work, on this process's own clock. Moved to 0, it ends at once."""

    def __init__(self, within: int) -> None:
        self.until = boot_us() + within

    def is_past(self) -> bool:
        return boot_us() >= self.until


class Lane:
    """A thread and its connection to one file. Once `leave` was called it takes no more work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = os.getpid()
        self._inbox: queue.SimpleQueue[tuple[Future[object], Callable[[], object]] | None] = queue.SimpleQueue()
        self._working = threading.Lock()
        self._gone = threading.Event()
        self._ended: Future[None] = Future()
        self._connection: sqlite3.Connection | None = None
        self._file: Identity | None = None
        self._log: tuple[Identity | None, ...] = ()
        self._deadline = Deadline(0)
        self._tidied_at = 0
        self._thread = threading.Thread(target=self._work, name="oncron-sqlite", daemon=True)
        self._thread.start()
        _lanes.add(self)

    async def call(self, work: Callable[[sqlite3.Connection], T], within: int) -> T:
        """What `work` returns for the connection, run on the thread. Raises StoreError only,
        apart from errors of the work itself; StoreUnavailable once the time is up."""
        deadline = Deadline(within)
        future: Future[T] = Future()
        self._inbox.put((future, lambda: self._guarded(work, deadline)))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout((within + SECOND // 2) / SECOND):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            self.leave()
            raise StoreUnavailable(
                f"SQLite file {self.path}: no answer within {within / SECOND:g} s; is its disk stuck?"
            ) from None
        except asyncio.CancelledError:
            deadline.until = 0
            raise

    def is_gone(self) -> bool:
        return self._gone.is_set()

    def leave(self) -> None:
        """Let the thread end after what it is doing, which is broken off where SQLite allows it."""
        self._gone.set()
        self._deadline.until = 0
        self._inbox.put(None)

    async def end(self) -> None:
        """Let the thread end after everything that was handed in, and wait for that, a while at most."""
        self._inbox.put(None)
        await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=2)

    def pause(self) -> bool:
        """Close the connection and begin nothing until `resume`; False if the thread is busy for long."""
        if not self._working.acquire(timeout=2):
            return False
        self._close()
        return True

    def resume(self) -> None:
        self._working.release()

    def _work(self) -> None:
        while (item := self._inbox.get()) is not None:
            future, work = item
            if future.set_running_or_notify_cancel():
                with self._working:
                    _settle(future, work)
                    self._tidy()
            del item, future, work
        with self._working:
            self._close()
        self._refuse_rest()
        self._ended.set_result(None)

    def _tidy(self) -> None:
        """Move the log into the file when enough has come together, after the answer was given: a
        commit that did it would be late. SQLite's own threshold, higher, stays as a backstop."""
        connection = self._connection
        if connection is None or connection.total_changes - self._tidied_at < _TIDY_EVERY:
            return
        self._tidied_at = connection.total_changes
        try:
            connection.execute("pragma wal_checkpoint(passive)")
        except sqlite3.Error:
            pass  # whoever writes next tries again

    def _refuse_rest(self) -> None:
        while not self._inbox.empty():
            item = self._inbox.get()
            if item is not None and item[0].set_running_or_notify_cancel():
                item[0].set_exception(StoreUnavailable(f"SQLite file {self.path}: the connection was dropped; repeat"))

    def _guarded(self, work: Callable[[sqlite3.Connection], T], deadline: Deadline) -> T:
        self._deadline = deadline
        if self._gone.is_set():
            deadline.until = 0
        try:
            return work(self._opened())
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None:
            self._refuse_exchanged(self._connection)
        if self._connection is None:
            connection = connect(self.path)
            connection.set_progress_handler(self._is_over, _OPS_PER_LOOK)
            try:
                self.until_free(lambda: prepare(connection, self.path))
                # The first read opens the log; from then on nobody else is the last, who removes it.
                self.until_free(lambda: connection.execute("pragma schema_version").fetchone())
            except BaseException:
                connection.close()
                raise
            self._connection, self._file, self._log = connection, _identity(self.path), _log_of(self.path)
            self._tidied_at = 0
        return self._connection

    def _refuse_exchanged(self, connection: sqlite3.Connection) -> None:
        """Raises StoreUnavailable if others who open the path now would not see what is written here."""
        if _identity(self.path) != self._file:
            self._close()
            raise StoreUnavailable(
                f"SQLite file {self.path}: was moved, removed or replaced while in use; the next call opens what is "
                "there now. Stop all replicas before the file is exchanged"
            )
        log = _log_of(self.path)
        if log == self._log:
            return
        if log == (None, None):
            # Nobody has opened the file since: what the removed log holds can still be brought into it. Once
            # somebody has, that would write over newer pages.
            _save(connection)
        self._close()
        raise StoreUnavailable(
            f"SQLite file {self.path}: its -wal or -shm file was removed or replaced while in use; the next call opens "
            "what is there now. They are part of the database: stop all replicas before they are touched"
        )

    def _is_over(self) -> bool:
        return self._deadline.is_past()

    def until_free(self, act: Callable[[], T]) -> T:
        """What `act` returns once no lock of others stands in its way; the busy error once the
        deadline is past. Waits a random turn between tries."""
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or self._deadline.is_past():
                    raise
            self._gone.wait(random.randint(*TURN) / SECOND)

    def roll_back(self, connection: sqlite3.Connection) -> None:
        """End the transaction without a trace, whatever state the connection is in."""
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            self._close()  # its transaction goes with it

    def _close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error:
                pass  # a broken connection: the file is as its last commit left it
            self._connection = None


def _settle(future: Future[object], work: Callable[[], object]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whoever awaits the future gets it
        future.set_exception(error)
    else:
        future.set_result(result)


def _identity(path: Path) -> Identity | None:
    """Which file the path means now. Never opens it: closing it would drop this process's locks."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _log_of(path: Path) -> tuple[Identity | None, ...]:
    """The files beside it, which are there while anybody has it open."""
    return tuple(_identity(path.with_name(path.name + end)) for end in ("-wal", "-shm"))


def _save(connection: sqlite3.Connection) -> None:
    """Bring what was committed into the file itself."""
    try:
        connection.execute("pragma wal_checkpoint(full)")
    except sqlite3.Error:
        pass  # another connection does it, or nobody can


def connect(path: Path, kind: type[C] = sqlite3.Connection) -> C:
    """A connection that commits each statement by itself and waits for no lock. Raises StoreUnsafe where a
    connection would not be safe, sqlite3.Error."""
    if path in _open_at_fork:
        raise StoreUnsafe(
            f"SQLite file {path}: this process was forked while a call on the file was in flight, and shares its "
            "parent's locks; start such processes by spawn"
        )
    if sqlite3.sqlite_version_info < (3, 35):
        raise StoreUnsafe(f"SQLite {sqlite3.sqlite_version} is too old: oncron needs 3.35 or newer")
    return sqlite3.connect(
        path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256, factory=kind
    )


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Durable, in write-ahead mode. Raises StoreUnsafe, sqlite3.Error (busy among them)."""
    mode = connection.execute("pragma journal_mode").fetchone()[0]
    if mode != "wal":
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if mode != "wal":
        raise StoreUnsafe(
            f"SQLite file {path}: its file system cannot do write-ahead logging (journal mode {mode!r}); "
            "put it on a local disk"
        )
    connection.execute("pragma synchronous = full")  # what was acknowledged survives a power cut
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma cache_size = -16000")
    connection.execute("pragma wal_autocheckpoint = 8000")
    connection.execute("pragma journal_size_limit = 67108864")


_lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
_paused: list[Lane] = []
_open_at_fork: set[Path] = set()
"""In a child: files whose connection the parent could not close in time before the fork."""


def _before_fork() -> None:
    # A connection that is open across a fork() lets the child share, and lose, the parent's locks.
    _open_at_fork.clear()
    for lane in list(_lanes):
        if lane.pause():
            _paused.append(lane)
        elif not lane.is_gone():
            _open_at_fork.add(lane.path)


def _resume() -> None:
    while _paused:
        _paused.pop().resume()


def _after_fork_in_parent() -> None:
    _open_at_fork.clear()
    _resume()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_resume)
