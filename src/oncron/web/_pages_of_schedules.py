"""Schedules: all of them, and one with its past and its future."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from starlette.responses import Response

from oncron import _defaults as limits, _options as check
from oncron._clock import SECOND
from oncron._clock_changes import UNTOUCHED, ClockChange, clock_changes
from oncron._model import Gap, RunFilter, RunRecord, RunState, ScheduleRecord, Status, tick_run_id
from oncron._plan import next_tick
from oncron._shown import done, local
from oncron._why import of_gap
from oncron.errors import InvalidOption, NotFound
from oncron.triggers import Trigger
from oncron.web._drawn import coming_picture, past_pictures
from oncron.web._found import (
    FoundSchedules,
    History,
    WantedSchedules,
    find_schedules,
    histories,
    readable,
    runs_by_id,
    words,
)
from oncron.web._page import Asked
from oncron.web._pages_of_runs import took
from oncron.web._reading import Looks

PAGE = 50
_COMING = 10
_PAST_TICKS = 500
_NEWEST = 20
_GAPS = 200
_OWED = 500


async def schedules(asked: Asked) -> Response:
    """`text`, `tag`, `status` narrow it, `after` goes on."""
    wanted = wanted_schedules(asked)
    found, told = await asked.reading.ask(lambda looks: _listed(looks, wanted, asked.text("after"), PAGE))
    now = asked.reading.now_us
    return asked.page(
        "schedules.html",
        rows=[line(row, told[row.name], now) for row in found.rows],
        found=found,
        statuses=[status.value for status in Status],
    )


def wanted_schedules(asked: Asked) -> WantedSchedules:
    """Raises InvalidOption."""
    status = asked.text("status")
    return WantedSchedules(
        text=asked.text("text"),
        tag=check.sought_if(asked.text("tag"), "tag"),
        status=None if status is None else check.choice(status, "status", Status),
    )


async def _listed(
    looks: Looks, wanted: WantedSchedules, after: str | None, limit: int
) -> tuple[FoundSchedules, dict[str, History]]:
    found = await find_schedules(looks, wanted, after, limit)
    return found, await histories(looks, found.rows)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One schedule in the list."""

    row: ScheduleRecord
    words: str
    done: str | None
    overdue: bool
    """Its tick is past, and nobody fires it."""
    overrun: RunRecord | None
    """A run of it that still runs, though the next tick has come."""
    history: History

    @property
    def last_success_at(self) -> int | None:
        """None as far as the newest ticks tell."""
        return None if self.history.last_success is None else self.history.last_success.ended_at


def line(row: ScheduleRecord, history: History, now: int) -> Line:
    late = row.next_at is not None and row.next_at < now - limits.OVERDUE_AFTER
    overrun = next((run for run in history.running if run.tick is not None and run.tick < row.cursor), None)
    return Line(
        row=row,
        words=words(row.definition),
        done=done(row),
        overdue=row.status is Status.ACTIVE and late,
        overrun=overrun,
        history=history,
    )


# --- one schedule -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Past:
    """What is on record of a schedule."""

    row: ScheduleRecord
    history: History
    runs: list[RunRecord]
    """Newest first, those that no tick asked for included."""
    of_ticks: list[RunRecord]
    known_from: int
    """The oldest tick whose run was looked for."""
    gaps: list[Gap]


async def read_schedule(looks: Looks, name: str) -> Past:
    """A removed one too: its ticks have a history. Raises NotFound."""
    rows = await looks.schedules([name])
    if not rows:
        raise NotFound(f"no schedule {name!r}; the list of schedules has those there are")
    (row,) = rows
    trigger = readable(row.definition)
    ticks = [] if trigger is None else trigger.latest_in_us(row.created_at - limits.DAY, row.cursor, _PAST_TICKS)
    runs = await looks.runs(RunFilter(schedule=name, limit=_NEWEST))
    of_ticks = await runs_by_id(looks, (tick_run_id(name, tick) for tick in ticks))
    history = (await histories(looks, rows))[name]
    succeeded = [run for run in (*runs, *of_ticks) if run.state is RunState.SUCCEEDED]
    return Past(
        row=row,
        # Runs by hand count as well.
        history=replace(history, last_success=max(succeeded, key=lambda run: run.ended_at or 0, default=None)),
        runs=runs,
        known_from=ticks[0] if len(ticks) == _PAST_TICKS else 0,
        of_ticks=of_ticks,
        gaps=await looks.gaps(name, limit=_GAPS),
    )


async def schedule(asked: Asked) -> Response:
    """`name`; `why` is an instant that somebody asks about."""
    name = check.sought(asked.needed("name"), "name")
    past = await asked.reading.ask(lambda looks: read_schedule(looks, name))
    now = asked.reading.now_us
    row, trigger = past.row, readable(past.row.definition)
    changes = [] if trigger is None else clock_changes(trigger, now)
    zone = (None if trigger is None else trigger.timezone) or "UTC"
    ticks = [] if trigger is None or row.status is not Status.ACTIVE else _coming(row, trigger, now, changes)
    on_record = list({run.id: run for run in (*past.of_ticks, *past.runs)}.values())
    owed = [] if trigger is None else _owed(row, trigger, now)
    drawn = past_pictures(row, zone, on_record, past.gaps, past.known_from, owed, now)
    asked_about = asked.text("why")
    told = None if asked_about is None else await asked.app.why(name, read_instant(asked_about))
    return asked.page(
        "schedule.html",
        line=line(row, past.history, now),
        row=row,
        rule=row.definition,
        runs=[(run, took(run, now), None) for run in past.runs],
        gaps=[(gap, of_gap(gap)) for gap in past.gaps if gap.count or gap.at_least],
        coming=ticks,
        coming_picture=coming_picture(row, zone, [tick.at for tick in ticks], changes, now) if ticks else "",
        zone=zone,
        changes=changes,
        told=told,
        asked_about=asked_about,
        pictures=drawn,
    )


@dataclass(frozen=True, kw_only=True)
class Tick:
    at: int
    local: str
    """"" where that is UTC."""
    change: ClockChange | None
    """A change of the clock that touches it."""


def _coming(row: ScheduleRecord, trigger: Trigger, now: int, changes: list[ClockChange]) -> list[Tick]:
    left = _COMING if row.definition.limit is None else min(_COMING, row.definition.limit - row.created_count)
    zone = trigger.timezone or "UTC"
    found: list[Tick] = []
    tick = next_tick(row.definition, trigger, now)
    while tick is not None and len(found) < left:
        there = "" if zone == "UTC" else local(tick, zone)
        found.append(Tick(at=tick, local=there, change=_touching(tick, changes)))
        tick = next_tick(row.definition, trigger, tick)
    return found


def _owed(row: ScheduleRecord, trigger: Trigger, now: int) -> list[int]:
    """Ticks that should have been fired long since, the oldest first."""
    if row.status is not Status.ACTIVE or row.definition.is_used_up(row.created_count):
        return []
    found: list[int] = []
    tick = next_tick(row.definition, trigger, row.cursor)
    while tick is not None and tick < now - limits.OVERDUE_AFTER and len(found) < _OWED:
        found.append(tick)
        tick = next_tick(row.definition, trigger, tick)
    return found


def _touching(tick: int, changes: list[ClockChange]) -> ClockChange | None:
    for change in changes:
        size = abs(change.after - change.before) * SECOND
        if change.what != UNTOUCHED and change.at - size <= tick <= change.at + size:
            return change
    return None


def read_instant(text: str) -> datetime:
    """ISO 8601; without an offset in UTC. Raises InvalidOption."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"{check.shown(text)} is no instant; write 2027-03-28T02:30:00Z, or with another offset"
        ) from None
