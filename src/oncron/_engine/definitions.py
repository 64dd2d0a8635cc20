"""What a replica knows of the schedules that are due soon: rows and triggers, and which of them it cannot read."""

from __future__ import annotations

import logging
from collections.abc import Container

from oncron._engine.door import Door, is_for_the_operator
from oncron._model import Due, ScheduleRecord
from oncron.errors import InvalidTrigger, StoreError
from oncron.triggers import Trigger, parse

log = logging.getLogger("oncron.scheduler")

_CHUNK = 500
_UNREADABLE = "cannot be read by this release and is left to others"


class Definitions:
    """One that this release cannot read is left alone, shown, and kept out of the way of the others: another
    replica may fire it."""

    def __init__(self, door: Door, tzdata: str) -> None:
        self._door, self._tzdata = door, tzdata
        self._known: dict[str, tuple[ScheduleRecord, Trigger]] = {}
        self._left_alone: set[str] = set()
        self._said: dict[str, int] = {}
        """Schedules that were complained of, by the revision that they had."""

    @property
    def left_alone(self) -> tuple[str, ...]:
        return tuple(self._left_alone)

    def get(self, name: str) -> tuple[ScheduleRecord, Trigger] | None:
        return self._known.get(name)

    def keep(self, names: Container[str]) -> None:
        """Forget all others."""
        self._known = {name: known for name, known in self._known.items() if name in names}

    def try_again(self) -> None:
        """What could not be read may be mended."""
        self._left_alone.clear()

    async def learn(self, dues: list[Due]) -> None:
        """Fetch those that are not known as they are now."""
        new = [due for due in dues if not self._knows(due)]
        for at in range(0, len(new), _CHUNK):
            revisions = {due.name: due.revision for due in new[at : at + _CHUNK]}
            rows = {row.name: row for row in await self._fetched(list(revisions))}
            for name in revisions.keys() - rows.keys():
                self.leave_alone(name, revisions[name], _UNREADABLE)
            for row in rows.values():
                try:
                    self._known[row.name] = row, parse(row.definition.trigger)
                except InvalidTrigger as error:
                    self.leave_alone(row.name, row.revision, f"{_UNREADABLE}: {error}")
                else:
                    self._warn_of_older_zones(row)

    def leave_alone(self, name: str, revision: int, why: str) -> None:
        self._known.pop(name, None)
        self._left_alone.add(name)
        if self._is_new(name, revision):
            log.warning("schedule %r %s", name, why, extra={"event": "schedule.unreadable", "schedule": name})

    def _knows(self, due: Due) -> bool:
        known = self._known.get(due.name)
        return known is not None and known[0].revision == due.revision

    async def _fetched(self, names: list[str]) -> list[ScheduleRecord]:
        """Those that the store can tell. One that it refuses to tell is looked for by halves."""
        try:
            return await self._door(lambda store: store.schedules(names))
        except StoreError as error:
            if is_for_the_operator(error):
                raise
            half = len(names) // 2
            return [*await self._fetched(names[:half]), *await self._fetched(names[half:])] if half else []

    def _warn_of_older_zones(self, row: ScheduleRecord) -> None:
        """The newer replica may be gone for good: then this one fires, by what it knows."""
        if row.definition.tzdata > self._tzdata and self._is_new(row.name, row.revision):
            log.warning(
                "schedule %r was declared with zone data %s, this replica has %s: update the tzdata package here",
                row.name,
                row.definition.tzdata,
                self._tzdata,
                extra={"event": "tzdata.downgraded", "schedule": row.name},
            )

    def _is_new(self, name: str, revision: int) -> bool:
        """Whether nothing was said yet of that revision."""
        before = self._said.get(name)
        self._said[name] = revision
        return before != revision
