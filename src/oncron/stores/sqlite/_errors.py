"""SQLite's errors in oncron's words."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from oncron.errors import SchemaOutdated, StoreError, StoreUnavailable, StoreUnsafe


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else's lock was in the way."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The error that crosses the border: who has to look at it, which file, what to do."""
    code, where = _code(error), f"SQLite file {path}"
    if is_busy(error):
        return StoreUnavailable(
            f"{where}: another process has held its write lock for too long ({error}); "
            "end the transaction that does, and repeat"
        )
    if code == sqlite3.SQLITE_INTERRUPT:
        return StoreUnavailable(f"{where}: the call took too long and was broken off; nothing was written, repeat")
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path.absolute().parent)):
        return StoreUnavailable(f"{where}: the disk is full ({error}); make room")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreUnsafe(f"{where}: not writable ({error}); give this user the right to write file and directory")
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(error, path)
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreUnsafe(f"{where}: {error}; name another file or restore this one from a backup")
    if code == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        return SchemaOutdated(f"{where}: {error}; run `oncron migrate`")
    return StoreUnavailable(f"{where}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})")


def _code(error: sqlite3.Error) -> int:
    """The primary result code: the low byte of the extended one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_full(folder: Path) -> bool:
    """Whether the file system has no room for one more piece of the shared index: SQLite calls that an I/O error."""
    try:
        return shutil.disk_usage(folder).free < 1 << 16
    except OSError:
        return False


def _cannot_open(error: sqlite3.Error, path: Path) -> StoreError:
    where, folder = f"SQLite file {path}", path.absolute().parent
    if not folder.is_dir():
        return StoreUnsafe(f"{where}: there is no directory {folder}; create it")
    if path.is_dir():
        return StoreUnsafe(f"{where}: is a directory; name a file")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return StoreUnsafe(f"{where}: not writable ({error}); give this user the right to write file and directory")
    return StoreUnavailable(f"{where}: {error}")
