"""Disks that are full for a while: a tmpfs of a few megabytes where this user may mount one, else a quota on files."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.fault.fleet import Fleet

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
            yield
        finally:
            filler.unlink(missing_ok=True)


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
