"""Disks that are full for a while: a tmpfs of a few megabytes where this user may mount one, else a quota on files."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

from tests.fault.fleet import Fleet
from tests.servers import PostgresServer, ServerMissing, _as_owner, _owner

_BLOCK = bytes(64 * 1024)


class Fillable(Protocol):
    def full(self, fleet: Fleet) -> contextlib.AbstractContextManager[None]:
        """Nothing more can be written inside, and everything afterwards."""
        ...


class SmallDisk:
    """A tmpfs of so many megabytes at `place`. Only root may mount it: `refused` says why not. It is gone with the
    process that made it, even when that one is killed."""

    def __init__(self, place: Path, megabytes: int, *, owner: int = 0) -> None:
        self.place = place
        place.mkdir(exist_ok=True)
        options = f"size={megabytes}m,mode=700,uid={owner}"
        # The guard waits for the other end of its pipe to close, whatever closes it.
        script = 'mount -t tmpfs -o "$1" oncron-test "$0" 2>&1 && echo mounted && { read _; umount --lazy "$0"; }'
        self._guard = subprocess.Popen(
            ["sh", "-c", script, str(place), options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._guard.stdout is not None
        said = self._guard.stdout.readline().strip()
        self.refused = None if said == "mounted" else said or "mount said nothing"

    def close(self) -> None:
        self._guard.communicate(timeout=10)

    @contextlib.contextmanager
    def full(self, fleet: Fleet) -> Iterator[None]:
        """Filled to the last byte; an SQLite database on it loses its log first, which could be written over."""
        filler = self.place / "filler"
        try:
            _fill(filler)
            for database in self.place.glob("*.db"):
                # What is brought into the file frees the log's room; the filler takes it.
                with contextlib.closing(sqlite3.connect(database, timeout=5)) as connection:
                    with contextlib.suppress(sqlite3.OperationalError):
                        connection.execute("pragma wal_checkpoint(truncate)")
                    _fill(filler)
            with self._kept_full(filler):
                yield
        finally:
            filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _kept_full(self, filler: Path) -> Iterator[None]:
        """What others free meanwhile is taken, too."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(0.1):
                _fill(filler)

        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()


class Quota:
    """No file of a replica may grow past some kilobytes (RLIMIT_FSIZE): the database's log and its own."""

    def __init__(self, kilobytes: int = 4) -> None:
        self._bytes = kilobytes * 1024

    @contextlib.contextmanager
    def full(self, fleet: Fleet) -> Iterator[None]:
        replicas = [replica.pid for replica in fleet.replicas if replica.alive]
        try:
            for pid in replicas:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (self._bytes, resource.RLIM_INFINITY))
            yield
        finally:
            for pid in replicas:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _fill(filler: Path) -> None:
    """Everything that is left, in ever smaller pieces."""
    size = len(_BLOCK)
    file = os.open(filler, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        while size:
            try:
                os.write(file, _BLOCK[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    finally:
        os.close(file)


class PostgresOnSmallDisk(PostgresServer):
    """Its tables, or its write-ahead log, are on a disk of so many megabytes that can be filled."""

    def __init__(self, small: Literal["tables", "log"], megabytes: int) -> None:
        self._small, self._megabytes = small, megabytes
        super().__init__({"max_wal_size": "8MB", "min_wal_size": "2MB", "checkpoint_timeout": "30s"})

    def _initdb(self) -> None:
        owner = _owner()
        apart = self._home / "log"
        place = self._data if self._small == "tables" else apart
        self.disk = SmallDisk(place, self._megabytes, owner=0 if owner is None else owner.pw_uid)
        if self.disk.refused:
            raise ServerMissing(f"no small disk for PostgreSQL: {self.disk.refused}")
        command = [self._binaries / "initdb", "-D", self._data, "-X", apart, "--wal-segsize=1", "-U", "oncron"]
        command += ["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=self._home, **_as_owner())

    @contextlib.contextmanager
    def full(self, fleet: Fleet) -> Iterator[None]:
        """Filled to the last byte. A server that gave up is started again when there is room."""
        with self.disk.full(fleet):
            if self._small == "log":
                self._use_log(megabytes=20)
            yield
        with contextlib.suppress(RuntimeError):
            self.pid  # noqa: B018 - raises unless it runs
            return
        self.start()

    def _use_log(self, megabytes: int) -> None:
        """Segments of the log that are begun, as so much work would; whatever comes of it."""
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url(), autocommit=True) as connection:
            for _ in range(megabytes):
                connection.execute("select pg_switch_wal(), pg_logical_emit_message(false, 'test', 'x')")

    def close(self) -> None:
        super().close()
        if hasattr(self, "disk"):
            self.disk.close()
