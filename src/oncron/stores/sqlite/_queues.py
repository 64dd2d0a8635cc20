"""Queues: paused by the whole fleet, and how much waits in them."""

from __future__ import annotations

from msgspec.structs import replace

from oncron._groups import QueueRecord
from oncron.stores.sqlite._step import Step


def set_queue(step: Step, name: str, *, paused: bool, note: str) -> int:
    """The step's now."""
    said = step.row("queue.get", name=name) or (0, "")
    if said != (paused, note):
        step.do("queue.put", name=name, paused=paused, note=note, now=step.now)
    return step.now


def queues(step: Step, name: str | None = None) -> list[QueueRecord]:
    """By name: those that have open runs, and those that are paused; or the one that is named."""
    records = {
        name: QueueRecord(name=name, paused=paused == 1, note=note, changed_at=changed_at)
        for name, paused, note, changed_at in step.rows("queue.said")
    }
    counted = {row[0]: row[1:] for row in step.rows("queue.counts", name=name, now=step.now)}
    wanted = counted.keys() | {record.name for record in records.values() if record.paused}
    if name is not None:
        wanted = {name}
    found: list[QueueRecord] = []
    for each in sorted(wanted):
        ready, waiting, running, oldest_due_at = counted.get(each, (0, 0, 0, None))
        record = records.get(each) or QueueRecord(name=each)
        found.append(replace(record, ready=ready, waiting=waiting, running=running, oldest_due_at=oldest_due_at))
    return found
