"""Schedules: what is due, and changes of what they are (G1, G2, G3, G11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from oncron._model import Change, Changed, Due, Gap, Overlap, ScheduleRecord
from oncron.stores import _occupancy as occupancy
from oncron.stores._schedules import declared, readable
from oncron.stores.sqlite._rows import definition_text, schedule_of
from oncron.stores.sqlite._sheet import Sheet
from oncron.stores.sqlite._step import Step, listed

_NEVER = -(1 << 63)


def declare(step: Step, changes: Sequence[Change]) -> list[Changed]:
    rows = _rows(step, [change.name for change in changes])
    unreadable = {name for name, row in rows.items() if row is None}
    results: list[Changed] = []
    written: list[Change] = []
    reparked: list[str] = []
    for change in changes:
        row = rows.get(change.name)
        if change.name in unreadable:
            results.append(Changed(name=change.name, changed=False, record=None, unreadable=True))
            continue
        if not _is_as_declared(row, change) or _would_pass_the_future(row, change, step.now):
            results.append(Changed(name=change.name, changed=False, record=row))
            continue
        record = rows[change.name] = declared(row, change, step.now)
        written.append(change)
        if row is not None and row.definition.overlap is not change.definition.overlap:
            reparked.append(change.name)
        results.append(Changed(name=change.name, changed=True, record=record))
    records = {name: row for name, row in rows.items() if row is not None}
    _write(step, written, records)
    _repark(step, {name: records[name].definition.overlap for name in reparked})
    return results


def _is_as_declared(row: ScheduleRecord | None, change: Change) -> bool:
    if row is None:
        return change.seen_revision is None
    return (row.revision, row.cursor) == (change.seen_revision, change.seen_cursor)


def _would_pass_the_future(row: ScheduleRecord | None, change: Change, now: int) -> bool:
    """A cursor that stays where it is passes nothing, wherever that is."""
    stays = row is not None and change.new_cursor <= row.cursor
    return change.new_cursor > now and not stays


def _write(step: Step, written: Sequence[Change], rows: dict[str, ScheduleRecord]) -> None:
    if not written:
        return
    records = [rows[name] for name in dict.fromkeys(change.name for change in written)]
    step.each("schedule.put", map(_definition_values, records))
    step.each("schedule.put_cursor", [(r.name, r.revision, r.status, r.cursor, r.next_at) for r in records])
    step.do("meta.changed", changes=len(written))
    record_gaps(step, ((change.name, change.seen_cursor, change.gaps) for change in written))


def _definition_values(record: ScheduleRecord) -> tuple[Any, ...]:
    d = record.definition
    options = (d.queue, d.priority, d.retries, d.retry_delay, d.timeout, d.overlap, d.limit, d.unique, d.guard)
    times = (record.created_at, record.changed_at, record.note, record.previous)
    return (d.name, definition_text(d), d.task, d.args, *options, *times)


def _repark(step: Step, overlaps: dict[str, Overlap]) -> None:
    """The open runs take their places under the policy that the schedule has now."""
    if not overlaps:
        return
    sheet = Sheet(step)
    sheet.load_open_of(overlaps)
    for name, overlap in overlaps.items():
        serial = overlap is not Overlap.ALLOW
        runs = [run for run in sheet.open_of(name) if run.backfill is None]
        head = occupancy.next_head(runs)
        for run in runs:
            sheet.put(replace(run, serial=serial, parked=serial and run is not head))
    sheet.write()


def record_gaps(step: Step, found: Iterable[tuple[str, int | None, Sequence[Gap]]]) -> None:
    """(schedule, cursor before, gaps): each extends the schedule's newest one or is a new row (G11)."""
    with_gaps = [item for item in found if item[2]]
    if not with_gaps:
        return
    names = listed(sorted({name for name, _, _ in with_gaps}))
    newest = {name: (seq, last, reason) for seq, name, last, reason in step.rows("gap.newest", names=names)}
    for name, seen_cursor, gaps in with_gaps:
        for gap in gaps:
            seq, last, reason = newest.get(name, (0, None, ""))
            if seq and reason == gap.reason and last == seen_cursor:
                step.each("gap.extend", [(gap.last, gap.count, gap.at_least, seq)])
            else:
                seq = _insert_gap(step, name, gap)
            newest[name] = (seq, gap.last, gap.reason)


def _insert_gap(step: Step, schedule: str, gap: Gap) -> int:
    row = step.rows(
        "gap.insert",
        schedule=schedule,
        first=gap.first,
        last=gap.last,
        count=gap.count,
        reason=gap.reason,
        at_least=gap.at_least,
        detail=gap.detail,
        now=step.now,
    )
    return row[0][0]


def register(step: Step, set_id: str, names: Sequence[str] | None) -> bool:
    if names is None:
        return step.do("set.note", id=set_id, now=step.now) > 0
    step.do("set.put", id=set_id, names=listed(names), now=step.now)
    return True


def unheld(step: Step, before: int, limit: int) -> list[str]:
    step.do("set.forget", before=before)
    return [row[0] for row in step.rows("set.unheld", before=before, limit=limit)]


def schedules(
    step: Step,
    names: Sequence[str] | None,
    tag: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> list[ScheduleRecord]:
    found: list[ScheduleRecord] = []
    while True:
        left = -1 if limit is None else limit - len(found)
        rows = _rows(step, names, tag=tag, after=after or "", limit=left)
        found += [row for row in rows.values() if row is not None]
        if limit is None or len(rows) < left or len(found) == limit:
            return found
        after = max(rows)  # some of the page cannot be read: it is filled with what comes after


def _rows(
    step: Step, names: Sequence[str] | None, *, tag: str | None = None, after: str = "", limit: int = -1
) -> dict[str, ScheduleRecord | None]:
    """By name, in its order; None for one that cannot be read."""
    page: dict[str, Any] = {"tag": tag, "after": after, "limit": limit}
    if names is None:
        rows = step.rows("schedule.all", **page)
    else:
        rows = step.rows("schedule.get", names=listed(sorted(set(names))), **page)
    return {row[-1]: readable(row[-1], schedule_of, row) for row in rows}


def due(step: Step, horizon: int, after: tuple[int, str] | None, exclude: Sequence[str], limit: int) -> list[Due]:
    after_at, after_name = after or (_NEVER, "")
    rows = step.rows(
        "schedule.due",
        horizon=horizon,
        after_at=after_at,
        after_name=after_name,
        exclude=listed(exclude),
        limit=limit,
    )
    return [
        Due(name=name, revision=revision, cursor=cursor, next_at=next_at) for name, revision, cursor, next_at in rows
    ]
