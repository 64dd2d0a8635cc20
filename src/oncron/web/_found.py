"""Schedules and runs as pages list them: a page's worth, found without reading more than a bounded number of rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from oncron._cipher import is_encrypted
from oncron._model import Definition, RunFilter, RunRecord, RunState, ScheduleRecord, Status, tick_run_id
from oncron._store import Reader
from oncron.errors import InvalidOption, InvalidTrigger
from oncron.triggers import Trigger, parse

SCHEDULES_LOOKED_AT = 20_000
RUNS_LOOKED_AT = 5_000
"""Rows that one request goes through to find what a text names; the next page goes on after them."""
_CHUNK = 1000
_RUN_CHUNK = 500
_NEWEST = 10
"""Ticks whose runs are looked up for each schedule."""
_BY_HAND = 200
"""Newest runs among which those by hand are looked for."""
_UNLUCKY, _FURTHER = 10, 200
"""Schedules of a page of which more are, as none of those has succeeded, and how many."""
_MOST_IDS = 500
_RUNNING = 1000


@dataclass(frozen=True, kw_only=True)
class WantedSchedules:
    text: str | None = None
    """In the name or in the task's, capitals aside."""
    tag: str | None = None
    status: Status | None = None
    """None: all but removed ones."""

    def has(self, row: ScheduleRecord) -> bool:
        if self.status is None and row.status is Status.REMOVED:
            return False
        if self.status is not None and row.status is not self.status:
            return False
        return self.text is None or any(
            self.text.casefold() in name.casefold() for name in (row.name, row.definition.task)
        )


@dataclass(frozen=True, kw_only=True)
class FoundSchedules:
    rows: list[ScheduleRecord]
    after: str | None
    """Go on after this name; None at the end."""
    stopped: bool = False
    """Whether so many rows were looked at that the rest is for the next page."""


async def find_schedules(reader: Reader, wanted: WantedSchedules, after: str | None, limit: int) -> FoundSchedules:
    """By name."""
    found: list[ScheduleRecord] = []
    looked_at = 0
    size = limit + 1 if wanted.text is None and wanted.status is None else _CHUNK
    while looked_at < SCHEDULES_LOOKED_AT:
        page = await reader.schedules(tag=wanted.tag, after=after, limit=size)
        looked_at += len(page)
        for row in page:
            if wanted.has(row):
                if len(found) == limit:
                    return FoundSchedules(rows=found, after=found[-1].name)
                found.append(row)
        if len(page) < size:
            return FoundSchedules(rows=found, after=None)
        after = page[-1].name
    return FoundSchedules(rows=found, after=after, stopped=True)


@dataclass(frozen=True, kw_only=True)
class FoundRuns:
    rows: list[RunRecord]
    before: str | None
    """Go on with older ones than this run."""
    stopped: bool = False


async def find_runs(reader: Reader, where: RunFilter, text: str | None) -> FoundRuns:
    """Newest first: at most `where.limit`. Raises InvalidOption for a `before` that is no run."""
    if where.before is not None and await reader.get_run(where.before) is None:
        raise InvalidOption(
            f"before={where.before!r} is no run on record: the address is wrong, or the run was pruned meanwhile; "
            "begin at the newest"
        )
    if text is not None and where.before is None and (exact := await reader.get_run(text)) is not None:
        return FoundRuns(rows=[exact], before=None)
    limit, found, looked_at = where.limit, list[RunRecord](), 0
    size = limit + 1 if text is None else _RUN_CHUNK
    before = where.before
    while looked_at < RUNS_LOOKED_AT:
        page = await reader.runs(replace(where, before=before, limit=size))
        looked_at += len(page)
        for run in page:
            if text is None or _speaks_of(run, text.casefold()):
                if len(found) == limit:
                    return FoundRuns(rows=found, before=found[-1].id)
                found.append(run)
        if len(page) < size:
            return FoundRuns(rows=found, before=None)
        before = page[-1].id
    return FoundRuns(rows=found, before=before, stopped=True)


def _speaks_of(run: RunRecord, text: str) -> bool:
    args = None if is_encrypted(run.args) else run.args
    told = (run.id, run.task, run.schedule, run.reason, run.error, run.worker, run.unique, args)
    return any(part is not None and text in part.casefold() for part in told)


# --- what became of schedules -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class History:
    """Of one schedule, as far as its newest ticks tell, and the newest runs of all."""

    last: RunRecord | None = None
    """Of the newest tick that has a run, or by hand since."""
    last_success: RunRecord | None = None
    running: list[RunRecord] = field(default_factory=list[RunRecord])


async def histories(reader: Reader, rows: Sequence[ScheduleRecord]) -> dict[str, History]:
    """By name. The runs of the newest ticks are read by their ids, which follow from (schedule, tick): a few reads by
    primary key, however many runs there are."""
    by_name = await _runs_of_ticks(reader, rows, _NEWEST)
    for run in await reader.runs(RunFilter(limit=_BY_HAND)) if rows else ():
        if run.tick is None and run.schedule in by_name:
            by_name[run.schedule].append(run)
    # One that goes wrong again and again: how long has it done so?
    unlucky = [row for row in rows if row.created_count and not any(map(_is_success, by_name[row.name]))]
    for name, further in (await _runs_of_ticks(reader, unlucky[:_UNLUCKY], _FURTHER)).items():
        by_name[name] += further
    for of_schedule in by_name.values():
        of_schedule.sort(key=lambda run: run.position, reverse=True)
    running: dict[str, list[RunRecord]] = {}
    for run in await reader.runs(RunFilter(state=RunState.RUNNING, limit=_RUNNING)) if rows else ():
        if run.schedule is not None:
            running.setdefault(run.schedule, []).append(run)
    return {
        name: History(
            last=next(iter(of_schedule), None),
            last_success=next(filter(_is_success, of_schedule), None),
            running=running.get(name, []),
        )
        for name, of_schedule in by_name.items()
    }


async def _runs_of_ticks(reader: Reader, rows: Sequence[ScheduleRecord], count: int) -> dict[str, list[RunRecord]]:
    """Of each one's newest ticks."""
    found: dict[str, list[RunRecord]] = {row.name: [] for row in rows}
    runs = await runs_by_id(reader, (tick_run_id(row.name, tick) for row in rows for tick in newest_ticks(row, count)))
    for run in runs:
        if run.schedule in found:
            found[run.schedule].append(run)
    return found


def _is_success(run: RunRecord) -> bool:
    return run.state is RunState.SUCCEEDED


async def runs_by_id(reader: Reader, ids: Iterable[str]) -> list[RunRecord]:
    wanted, found = list(ids), list[RunRecord]()
    for at in range(0, len(wanted), _MOST_IDS):
        found += await reader.get_runs(wanted[at : at + _MOST_IDS])
    return found


def newest_ticks(row: ScheduleRecord, count: int) -> list[int]:
    """Of those that are settled, ascending. A trigger of a newer release has none that could be told."""
    trigger = readable(row.definition)
    low = row.created_at - 86_400_000_000
    return [] if trigger is None or row.cursor <= low else trigger.latest_in_us(low, row.cursor, count)


def readable(definition: Definition) -> Trigger | None:
    return _parsed(definition.trigger)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Trigger | None:
    try:
        return parse(text)
    except InvalidTrigger:
        return None


def words(definition: Definition) -> str:
    """When it ticks, as `oncron explain` says it."""
    trigger = readable(definition)
    return definition.trigger if trigger is None else trigger.describe()
