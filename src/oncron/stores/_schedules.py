"""A schedule's row as a change makes it: pure, from what was declared to the record."""

from __future__ import annotations

from msgspec.structs import replace

from oncron._model import Change, Definition, ScheduleRecord, Status


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
