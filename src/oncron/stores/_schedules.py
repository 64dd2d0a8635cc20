"""A schedule's row as a change makes it: pure, from what was declared to the record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from oncron._model import Change, Definition, ScheduleRecord, Status

log = logging.getLogger("oncron.store")


def readable(name: str, read: Callable[[Any], ScheduleRecord], row: Any) -> ScheduleRecord | None:
    """The record, or None, which is said, for a row that this release cannot read: a newer one wrote it, or
    somebody by hand. It must not keep the others from being read."""
    try:
        return read(row)
    except (msgspec.MsgspecError, ValueError) as error:
        log.error(
            "the row of schedule %r cannot be read by this release and is left as it is: %s",
            name, error, extra={"event": "record.unreadable", "schedule": name},
        )  # fmt: skip
        return None


def declared(row: ScheduleRecord | None, change: Change, now: int) -> ScheduleRecord:
    """What stands there once the change is written in the place of `row` (None: nothing was there)."""
    record = ScheduleRecord(
        definition=change.definition,
        status=change.status,
        revision=1,
        cursor=change.new_cursor,
        next_at=change.next_at if change.status is Status.ACTIVE else None,
        created_at=now,
        changed_at=now,
        note=change.note,
    )
    if row is None:
        return record
    return replace(
        record,
        revision=row.revision + 1,
        cursor=max(row.cursor, change.new_cursor),
        last_token=row.last_token,
        created_count=row.created_count,
        created_at=row.created_at,
        previous=_previous(row, change.definition),
    )


def _previous(row: ScheduleRecord, definition: Definition) -> str:
    """Digest of the definition before the newest change of it."""
    before = row.definition.digest()
    return row.previous if before == definition.digest() else before
