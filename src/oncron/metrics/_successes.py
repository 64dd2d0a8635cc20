"""When each schedule last succeeded, from what is on record.

The runs of its newest ticks are looked up by their ids, which follow from (schedule, tick): reads by primary key, few
of them, whatever lies in the store. Only a schedule whose newest ticks all went wrong is searched for by listing.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncron import _defaults as limits
from oncron._model import RunFilter, RunRecord, RunState, ScheduleRecord, tick_run_id
from oncron._store import Reader
from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, parse

_NEWEST = 10
_CHUNK = 500
_AGAIN = 600 * limits.SECOND
"""What changed without a new tick (an operator's retry) is seen so much later at most."""
_SEARCHES = 5
"""By listing, in one update: a store without an index for that may have to read much."""
_AHEAD = 32


class Success(NamedTuple):
    tick: int
    """0 for a run that no tick asked for."""
    at: int


class Heard(NamedTuple):
    """A success that happened here; its run's row tells when it ended, by the store's own clock."""

    run_id: str
    at: int


class Looked(NamedTuple):
    cursor: int
    at: int


class Successes:
    """Instants in microseconds. `heard` may be called from any thread."""

    def __init__(self, keep_for: int) -> None:
        self._keep_for = keep_for
        self._known: dict[str, Success] = {}
        self._heard: dict[str, Heard] = {}
        self._bounds: dict[str, int] = {}
        self._looked: dict[str, Looked] = {}
        self._searched: dict[str, int] = {}
        self._triggers: dict[str, tuple[int, Trigger | None]] = {}
        self._lock = threading.Lock()

    def of(self, schedule: str) -> int:
        """When it last succeeded; 0: never. If runs may have been pruned since, the latest instant at which it may have
        been: had it succeeded later, that would be on record."""
        known, heard = self._known.get(schedule), self._heard.get(schedule)
        if heard is not None and (known is None or heard.at > known.at):
            return heard.at
        return self._bounds.get(schedule, 0) if known is None else known.at

    def heard(self, schedule: str, run_id: str, at: int) -> None:
        """A run of it has succeeded about then."""
        with self._lock:
            self._heard[schedule] = Heard(run_id, at)

    def _learn(self, schedule: str, tick: int | None, at: int) -> None:
        with self._lock:
            known = self._known.get(schedule)
            if known is None or at > known.at:
                self._known[schedule] = Success(max(tick or 0, 0 if known is None else known.tick), at)

    def interval(self, row: ScheduleRecord) -> int | None:
        """The longest distance between two of its coming ticks; None if there are not two."""
        trigger = self._trigger(row)
        ticks = [] if trigger is None else _coming(row, trigger)
        return max((later - tick for tick, later in itertools.pairwise(ticks)), default=None)

    async def update(self, store: Reader, rows: Sequence[ScheduleRecord], now: int) -> None:
        self._forget_others({row.name for row in rows})
        await self._look_up(store, rows, now)
        unknown = [row for row in rows if row.name not in self._known and self._may_be_searched(row, now)]
        for row in unknown[:_SEARCHES]:
            await self._search(store, row, now)

    def _forget_others(self, names: set[str]) -> None:
        with self._lock:
            for table in (self._known, self._heard, self._bounds, self._looked, self._searched, self._triggers):
                for name in [name for name in table if name not in names]:
                    del table[name]

    async def _look_up(self, store: Reader, rows: Iterable[ScheduleRecord], now: int) -> None:
        """The runs of the newest ticks that may have succeeded since."""
        heard = dict(self._heard)
        wanted = {each.run_id for each in heard.values()}
        for row in rows:
            looked = self._looked.get(row.name)
            if looked is not None and looked.cursor == row.cursor and now - looked.at < _AGAIN:
                continue
            self._looked[row.name] = Looked(row.cursor, now)
            wanted |= {tick_run_id(row.name, tick) for tick in self._newest(row)}
        ids = list(wanted)
        for at in range(0, len(ids), _CHUNK):
            for run in await store.get_runs(ids[at : at + _CHUNK]):
                self._take(run)
        with self._lock:
            self._heard = {name: each for name, each in self._heard.items() if heard.get(name) != each}

    def _take(self, run: RunRecord) -> None:
        if run.schedule is None:
            return
        if run.state.is_open:
            self._looked.pop(run.schedule, None)  # it may succeed before the next tick
        elif run.state is RunState.SUCCEEDED and run.ended_at is not None:
            self._learn(run.schedule, run.tick, run.ended_at)

    def _newest(self, row: ScheduleRecord) -> list[int]:
        trigger, known = self._trigger(row), self._known.get(row.name)
        after = row.created_at - limits.DAY if known is None else known.tick
        return [] if trigger is None else trigger.latest_in_us(after, row.cursor, _NEWEST)

    def _may_be_searched(self, row: ScheduleRecord, now: int) -> bool:
        return row.created_count > 0 and now - self._searched.get(row.name, 0) >= _AGAIN

    async def _search(self, store: Reader, row: ScheduleRecord, now: int) -> None:
        self._searched[row.name] = now
        for run in await store.runs(RunFilter(schedule=row.name, state=RunState.SUCCEEDED, limit=1)):
            self._take(run)
        if row.created_at < now - self._keep_for:
            self._bounds.setdefault(row.name, now - self._keep_for)

    def _trigger(self, row: ScheduleRecord) -> Trigger | None:
        """None for a text that this release cannot read."""
        cached = self._triggers.get(row.name)
        if cached is None or cached[0] != row.revision:
            try:
                cached = row.revision, parse(row.definition.trigger)
            except InvalidTrigger:
                cached = row.revision, None
            self._triggers[row.name] = cached
        return cached[1]


def _coming(row: ScheduleRecord, trigger: Trigger) -> list[int]:
    ticks: list[int] = []
    tick = row.next_at
    while tick is not None and len(ticks) < _AHEAD:
        if row.definition.end_at is not None and tick > row.definition.end_at:
            break
        ticks.append(tick)
        tick = trigger.next_after_us(tick)
    return ticks
