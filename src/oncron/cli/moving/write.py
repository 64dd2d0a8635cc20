"""Writing schedules to a store: what it would do is said first, and repeating it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncron._model import Definition, ScheduleRecord, Status
from oncron.cli.moving.moved import Found, Moved, Refused
from oncron.cli.plan import Planned
from oncron.cli.target import Target
from oncron.errors import OncronError

_WORDS = {
    "added": "created", "changed": "changed", "revived": "created", "refused": "refused", "unchanged": "as it is",
}  # fmt: skip


@dataclass(frozen=True)
class Writing:
    """One schedule, and what becomes of it."""

    moved: Moved
    task: str
    definition: Definition
    planned: Planned

    @property
    def word(self) -> str:
        return _WORDS[self.planned.what]


async def plan(target: Target, found: Found, names: Mapping[str, str]) -> list[Writing]:
    """What writing them would do; `names` are new names of tasks. What put_schedule would not take is moved to
    `found.refused`."""
    defined: list[tuple[Moved, str, Definition]] = []
    for moved in list(found.moved):
        task = names.get(moved.task.name, moved.task.name)
        try:
            defined.append((moved, task, target.define(moved.name, moved.trigger, task, moved.options)))
        except OncronError as error:
            found.moved.remove(moved)
            found.refused.append(Refused(moved.name, str(error)))
    async with target.own_store() as store:
        await store.check()
        rows = {row.name: row for row in await store.schedules([moved.name for moved, _, _ in defined])}
    return [Writing(moved, task, new, _planned(new, rows.get(new.name))) for moved, task, new in defined]


def _planned(new: Definition, row: ScheduleRecord | None) -> Planned:
    if row is None:
        return Planned(new.name, "added", after=new)
    if row.status is Status.REMOVED:
        return Planned(new.name, "revived", "it was removed; its ticks begin anew", row.definition, new)
    if row.definition.origin != new.origin:
        return Planned(new.name, "refused", "code declares a schedule of this name; rename one of them")
    if row.definition.digest() == new.digest() and row.status in (Status.ACTIVE, Status.PAUSED):
        return Planned(new.name, "unchanged", before=row.definition, after=new)
    note = "it stays paused" if row.status is Status.PAUSED else ""
    return Planned(new.name, "changed", note, row.definition, new)


async def write(target: Target, writings: list[Writing]) -> None:
    """Those that would be created or changed."""
    for writing in writings:
        if writing.planned.what in ("added", "changed", "revived"):
            options: Any = writing.moved.options
            await target.app.put_schedule(writing.moved.name, writing.moved.trigger, writing.task, **options)
