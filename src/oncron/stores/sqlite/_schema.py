"""The tables: made, upgraded, checked; and which machine the file belongs to."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from oncron._clock import machine_us
from oncron.errors import SchemaOutdated, SchemaTooNew, StoreUnsafe
from oncron.stores import _sql
from oncron.stores.sqlite._step import Step, filled, store_now

MAJOR = 1
"""Raised when an older release must not touch the file any more. Within a major version
migrations only add, so that old and new replicas work on one file side by side."""

_PACKAGE = "oncron.stores.sqlite"


def minor() -> int:
    return len(_sql.migrations(_PACKAGE))


def stored(step: Step) -> tuple[int, int] | None:
    """(major, minor) of the file's schema; None if it has none of this namespace."""
    if step.row("schema.has") is None:
        return None
    row = step.row("schema.get")
    return None if row is None else (row[0], row[1])


def check(found: tuple[int, int] | None, where: str) -> None:
    """Raise SchemaOutdated or SchemaTooNew unless this release can work with that schema."""
    if found is None:
        raise SchemaOutdated(f"{where}: has no tables of oncron's yet; run `oncron migrate`")
    if found[0] > MAJOR:
        raise SchemaTooNew(
            f"{where}: its schema is of version {found[0]}, this release knows {MAJOR}; upgrade oncron here"
        )
    if found < (MAJOR, minor()):
        raise SchemaOutdated(
            f"{where}: its schema is {found[0]}.{found[1]}, this release needs {MAJOR}.{minor()}; run `oncron migrate`"
        )


def upgrade(step: Step, prefix: str, where: str) -> None:
    """Run what is missing, inside the caller's transaction: wholly or not at all."""
    found = stored(step)
    if found is not None and found[0] > MAJOR:
        check(found, where)
    done = 0 if found is None else found[1]
    for migration in _sql.migrations(_PACKAGE):
        if migration.number > done:
            for statement in _split(filled(migration.sql, prefix)):
                step.connection.execute(statement)
    step.do("schema.begin" if found is None else "schema.raise", major=MAJOR, minor=minor())


def begin(step: Step, now: int | None, where: str) -> None:
    """What every writing step looks at first: whether it may write here, and what time it is.

    The file is taken for this machine, since this boot. Raises StoreUnsafe while a worker of
    another machine has a live lease (over a network SQLite's locks cannot be trusted),
    SchemaTooNew for a schema that this release must not touch, StoreUnavailable while the
    clock is wrong."""
    major, stored_now, stored_boot, _ = meta(step, where)
    if major > MAJOR:
        check((major, 0), where)
    step.now = store_now(stored_now, where) if now is None else now
    if stored_boot == boot_id():
        return
    live = step.value("worker.live_until")
    if stored_boot and live is not None and live > step.now:
        raise StoreUnsafe(
            f"{where}: in use by another machine (or by this one before it started anew); its lease lasts "
            f"{(live - step.now) / 1_000_000:.0f} s more. An SQLite file serves one machine: "
            "wait until then, or use PostgreSQL or Redis for several"
        )
    step.do("meta.take", boot_id=boot_id())


def look(step: Step, now: int | None, where: str) -> None:
    """What a reading step looks at first. A clock far ahead does not keep anybody from looking."""
    step.now = max(machine_us(), meta(step, where)[1]) if now is None else now


def meta(step: Step, where: str) -> tuple[int, int, str, int]:
    """(schema's major, the clock's last word, boot id, version of the schedules)."""
    row = step.row("meta.get")
    if row is None:
        raise SchemaOutdated(f"{where}: its meta table is empty; run `oncron migrate`")
    return row[0], row[1], row[2], row[3]


@cache
def boot_id() -> str:
    """What tells this machine since its start from every other: two containers on it agree."""
    for source in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        try:
            return Path(source).read_bytes().decode().strip()
        except OSError:
            continue  # not on this system: the next source
    return f"node-{uuid.getnode():x}"


def _split(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
