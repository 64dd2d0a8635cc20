"""What became of a tick, or will: the answer to "why did it not run at three?".

The answer is put together from what is on record: the tick's run (its id is a function of
schedule and instant), the gap that covers the instant, the schedule's cursor and status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from oncron._backfill import backfill_run_id
from oncron._clock import from_us
from oncron._model import Gap, GapReason, RunRecord, RunState, ScheduleRecord, Status, tick_run_id
from oncron._plan import next_tick
from oncron._store import ReadableStore
from oncron.errors import InvalidTrigger, NotFound
from oncron.triggers import Trigger, parse

Verdict = Literal["run", "gap", "not_a_tick", "not_yet", "owed", "paused", "dormant", "removed", "before", "pruned"]


@dataclass(frozen=True, kw_only=True)
class Why:
    """`str()` is the sentence. `verdict` says the same to programs: `run` (there is a run: see `run`),
    `gap` (passed without one: see `reason`), `not_a_tick`, `not_yet`, `owed` (due, to be fired at any
    moment), `paused`, `dormant`, `removed`, `before` (older than the schedule), `pruned` (settled, its
    record is gone)."""

    schedule: str
    instant: datetime
    verdict: Verdict
    sentence: str
    reason: str | None = None
    run: str | None = None
    """The run's id; of the backfilled one if the tick itself had none."""

    def __str__(self) -> str:
        return self.sentence


async def why(store: ReadableStore, name: str, instant: int) -> Why:
    """Raises NotFound for a schedule that never was."""
    rows = await store.schedules([name])
    if not rows:
        raise NotFound(f"no schedule {name!r}; `oncron schedules` lists them")
    of_tick, of_backfill = tick_run_id(name, instant), backfill_run_id(name, instant)
    found = {run.id: run for run in await store.get_runs([of_tick, of_backfill])}
    gaps = await store.gaps(name, since=instant, until=instant)
    told = explain(rows[0], instant, found.get(of_tick), gaps, await store.now())
    made_up = found.get(of_backfill)
    if made_up is None or told.run is not None:
        return told
    return replace(told, run=made_up.id, sentence=f"{told.sentence}; backfilled: {_of_run(made_up)}")


def explain(row: ScheduleRecord, instant: int, run: RunRecord | None, gaps: Sequence[Gap], now: int) -> Why:
    """The pure part: from what is on record of the schedule's own run to the sentence."""
    at = f"{_shown(instant)} of {row.name!r}"
    if run is not None:
        return _answer(row, instant, "run", f"{at}: {_of_run(run)}", reason=run.reason, run=run.id)
    trigger = _readable(row)
    if gaps and not _is_surely_no_tick(row, trigger, instant, gaps[0]):
        return _answer(row, instant, "gap", f"{at}: {of_gap(gaps[0])}", reason=gaps[0].reason.value)
    if trigger is not None and next_tick(row.definition, trigger, instant - 1) != instant:
        return _answer(
            row, instant, "not_a_tick", f"{_shown(instant)} is no tick of {row.name!r}: {_near(row, trigger, instant)}"
        )
    if instant <= row.created_at and instant <= row.cursor:
        return _answer(row, instant, "before", f"{at}: the schedule was declared later, at {_shown(row.created_at)}")
    if instant > row.cursor:
        return _after_cursor(row, instant, now, at)
    return _answer(
        row, instant, "pruned", f"{at}: settled (the cursor is at {_shown(row.cursor)}), but its record was pruned"
    )


def _after_cursor(row: ScheduleRecord, instant: int, now: int, at: str) -> Why:
    note = f": {row.note}" if row.note else ""
    if row.status is Status.PAUSED:
        return _answer(row, instant, "paused", f"{at}: the schedule is paused{note}; ticks in a pause owe nothing")
    if row.status is Status.DORMANT:
        return _answer(row, instant, "dormant", f"{at}: no replica has declared the schedule for an hour; it sleeps")
    if row.status is Status.REMOVED:
        return _answer(row, instant, "removed", f"{at}: the schedule was removed{note}")
    if row.definition.is_used_up(row.created_count):
        reached = f"{at}: the schedule's limit of {row.definition.limit} runs is reached"
        return _answer(row, instant, "gap", reached, reason=GapReason.LIMIT.value)
    if instant > now:
        return _answer(row, instant, "not_yet", f"{at}: not yet; it is {_shown(now)} by the store's clock")
    return _answer(row, instant, "owed", f"{at}: due, and not fired yet; if that lasts, no scheduler is running")


def _of_run(run: RunRecord) -> str:
    late = (
        ""
        if run.started_at is None or run.tick is None or run.backfill is not None
        else f", {(run.started_at - run.tick) / 1e6:.3f} s after the tick"
    )
    reason = f" ({run.reason})" if run.reason else ""
    if run.state is RunState.PENDING:
        waits = "waits for a retry" if run.attempt else "waits for its place" if run.parked else "waits for a worker"
        return f"its run {run.id} {waits}, due {_shown(run.due_at)}{reason}"
    if run.state is RunState.RUNNING:
        return f"it is running in {run.worker}, attempt {run.attempt}{late}: run {run.id}"
    return f"its run {run.id} {_ENDED[run.state]}{reason}, attempt {run.attempt}{late}"


_ENDED = {
    RunState.SUCCEEDED: "succeeded",
    RunState.FAILED: "failed",
    RunState.LOST: "was lost",
    RunState.CANCELLED: "was cancelled",
    RunState.SKIPPED: "was skipped",
}

_REASONS = {
    GapReason.MISSED: "no replica fired it in time, and the schedule's missed policy ran none or a newer one",
    GapReason.TOO_OLD: "no replica fired it in time, and it was older than missed_within when one came",
    GapReason.OVERLAP: "skipped: an earlier run of the schedule was still open",
    GapReason.GUARD: "skipped: another scheduler had the tick's slot",
    GapReason.UNIQUE: "skipped: an open run had the schedule's unique key",
    GapReason.LIMIT: "skipped: the schedule's limit of runs was reached",
    GapReason.PAUSED: "it fell in a pause",
    GapReason.CHANGED: "the schedule's instants were changed then; the cursor moved on",
    GapReason.DORMANT: "no replica had declared the schedule for an hour",
    GapReason.REMOVED: "the schedule was removed then",
    GapReason.STORE_ROLLED_BACK: "it had been settled before the store went back to an older state",
}


def of_gap(gap: Gap) -> str:
    """Why its ticks did not run, in words."""
    detail = f" ({gap.detail})" if gap.detail else ""
    number = f"at least {gap.count}" if gap.at_least else f"{gap.count}"
    others = f"; one of {number} ticks from {_shown(gap.first)} to {_shown(gap.last)}"
    return _REASONS[gap.reason] + detail + (others if gap.count > 1 else "")


def _is_surely_no_tick(row: ScheduleRecord, trigger: Trigger | None, instant: int, gap: Gap) -> bool:
    """A gap may be of an earlier definition, whose instants nobody knows any more; one of this
    definition's time covers its ticks only."""
    if trigger is None or gap.created_at < row.changed_at:
        return False
    return next_tick(row.definition, trigger, instant - 1) != instant


def _readable(row: ScheduleRecord) -> Trigger | None:
    try:
        return parse(row.definition.trigger)
    except InvalidTrigger:
        return None


def _near(row: ScheduleRecord, trigger: Trigger, instant: int) -> str:
    before = trigger.latest_in_us(max(0, instant - 400 * 86_400_000_000), instant, 1)
    after = next_tick(row.definition, trigger, instant)
    words = f"it ticks {trigger.describe()}"
    if before:
        words += f"; the one before is {_shown(before[-1])}"
    if after is not None:
        words += f"; the next one is {_shown(after)}"
    return words


def _answer(
    row: ScheduleRecord,
    instant: int,
    verdict: Verdict,
    sentence: str,
    *,
    reason: str | None = None,
    run: str | None = None,
) -> Why:
    return Why(schedule=row.name, instant=from_us(instant), verdict=verdict, sentence=sentence, reason=reason, run=run)


def _shown(instant: int) -> str:
    moment = from_us(instant)
    return moment.isoformat(timespec="seconds" if instant % 1_000_000 == 0 else "milliseconds").replace("+00:00", "Z")
