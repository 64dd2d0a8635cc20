"""Commands that read: `schedules`, `next`, `runs`, `show`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import click

from oncron import Run, Schedule
from oncron._cipher import is_encrypted
from oncron._model import Definition, Gap, RunFilter, RunRecord, RunState, ScheduleRecord, Status
from oncron._shown import done
from oncron._walk import walked
from oncron.cli import render
from oncron.cli.instants import ticks
from oncron.cli.target import Target, not_found, takes_target
from oncron.cli.unclaimable import why_unclaimable
from oncron.errors import NotFound

_AT_ONCE = 8
_RECENT = 10

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON: an object, or an array for lists.")


# --- schedules --------------------------------------------------------------------------------


@click.command("schedules")
@takes_target()
@click.option("--tag", help="Only schedules that carry this tag.")
@json_option
def schedules_command(target: Target, tag: str | None, as_json: bool) -> None:
    """List schedules: when, next tick, how the last run went.

    Reads the store of TARGET, or --store.
    """
    target.import_all()
    found = target.app.sync(_schedules(target, tag))
    if as_json:
        render.as_json([schedule_json(schedule, last) for schedule, last in found])
        return
    now = target.now_us()
    render.table(
        ["NAME", "+WHEN", "NEXT", "~LAST RUN", "~STATUS"],
        [_schedule_row(schedule, last, now) for schedule, last in found],
        empty="No schedules." if tag is None else f"No schedules with the tag {tag!r}.",
    )
    _tell_undeclared(target, (schedule.name for schedule, _ in found) if tag is None else target.declared)


async def _schedules(target: Target, tag: str | None) -> list[tuple[Schedule, RunRecord | None]]:
    schedules = await target.app.schedules(tag=tag)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def last_run(schedule: Schedule) -> RunRecord | None:
        async with turn:
            runs = await target.app.runs(schedule=schedule.name, limit=1)
        return runs[0].record if runs else None

    return list(zip(schedules, await asyncio.gather(*map(last_run, schedules)), strict=True))


def _schedule_row(schedule: Schedule, last: RunRecord | None, now: int) -> list[render.Cell]:
    row = schedule.record
    if row.next_at is None:
        next_at = "-"
    else:
        next_at = render.away(row.next_at, now) if row.next_at > now else f"due {render.away(row.next_at, now)}"
    return [row.name, schedule.describe(), next_at, _last(last, now), _status(row)]


def _status(row: ScheduleRecord) -> render.Cell:
    why = done(row)
    return render.styled(row.status.value) if why is None else f"done ({why})"


def _last(run: RunRecord | None, now: int) -> render.Cell:
    if run is None:
        return "-"
    when = run.ended_at or run.started_at or run.created_at
    return render.styled(run.state.value).append(f" {render.away(min(when, now), now)}", style="default")


def _tell_undeclared(target: Target, stored: Iterable[str]) -> None:
    missing = sorted(target.declared.keys() - set(stored))
    if missing:
        names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        click.echo(f"Declared in code, not in the store until a replica starts: {names}", err=True)


def schedule_json(schedule: Schedule, last: RunRecord | None) -> dict[str, Any]:
    return render.plain(schedule.record) | {
        "words": schedule.describe(),
        "done": done(schedule.record),
        "last_run": None if last is None else render.plain(last),
    }


# --- next -------------------------------------------------------------------------------------


@click.command("next")
@takes_target(optional="schedule")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Instants per schedule.")
@json_option
def next_command(target: Target, schedule: str | None, count: int, as_json: bool) -> None:
    """List the next instants of a schedule, or of all, in UTC and in each schedule's zone.

    What TARGET declares and the store does not have yet is listed too.
    """
    target.import_all()
    definitions = target.app.sync(_definitions(target))
    if schedule is not None and schedule not in definitions:
        raise NotFound(f"no schedule {schedule!r}; `oncron schedules` lists them")
    chosen = definitions if schedule is None else {schedule: definitions[schedule]}
    now = target.now_us()
    found = [
        (tick, name, zone, status)
        for name, (definition, status, created) in chosen.items()
        for tick, zone in ticks(definition, now, count, created)
    ]
    found.sort(key=lambda item: item[:2])
    if as_json:
        render.as_json(
            [
                {
                    "schedule": name,
                    "tick": render.iso(tick),
                    "local": render.local(tick, zone).replace(" ", "T", 1),
                    "timezone": zone,
                    "status": status,
                }
                for tick, name, zone, status in found
            ]
        )
        return
    render.table(
        ["UTC", "", "~LOCAL", "+SCHEDULE"],
        [
            (
                render.utc(tick),
                render.away(tick, now),
                "" if zone == "UTC" else render.on_the_wall(tick, zone),
                name if status in ("active", "declared") else f"{name} ({status})",
            )
            for tick, name, zone, status in found
        ],
        empty="No tick is to come." if chosen else "No schedules.",
    )


async def _definitions(target: Target) -> dict[str, tuple[Definition, str, int]]:
    """Schedules by name with their status and the runs they created, those that no replica has declared yet
    included."""
    declared = {name: (item.definition, "declared", 0) for name, item in target.declared.items()}
    rows = [item.record for item in await target.app.schedules()]
    stored = {row.name: (row.definition, row.status.value, row.created_count) for row in rows}
    return declared | stored


# --- runs -------------------------------------------------------------------------------------


@click.command("runs")
@takes_target()
@click.option("--schedule", metavar="NAME", help="Only runs of this schedule.")
@click.option("--task", metavar="NAME", help="Only runs of this task.")
@click.option("--state", type=click.Choice([state.value for state in RunState]), help="Only runs in this state.")
@click.option("--batch", metavar="ID", help="Only runs of this batch; `oncron batches` lists them.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many.")
@click.option("--before", metavar="RUN_ID", help="Page on: only runs older than this one.")
@json_option
def runs_command(target: Target, as_json: bool, **filters: Any) -> None:
    """List runs, newest first."""
    runs = target.app.sync(target.app.runs(**filters))
    unknown = (
        None if runs else target.app.sync(_unknown(target, filters["schedule"], filters["task"], filters["batch"]))
    )
    waits = target.app.sync(why_unclaimable(target, [run.record for run in runs]))
    if as_json:
        told = zip(runs, waits, strict=True)
        render.as_json([render.plain(run.record) | {"unclaimable": why} for run, why in told])
        if unknown:
            click.echo(f"Note: {unknown}", err=True)
        return
    now = target.now_us()
    render.table(
        ["ID", "+TASK", "TICK", "STATE", "-LATE", "-TOOK", "~NOTE"],
        [[*_run_row(run, now), why or ""] for run, why in zip(runs, waits, strict=True)],
        empty=f"No runs: {unknown}." if unknown else "No runs.",
    )


async def _unknown(target: Target, schedule: str | None, task: str | None, batch: str | None) -> str | None:
    """What to say of a task that nobody knows. Raises NotFound for such a schedule or batch."""
    if batch is not None and await target.ask(lambda store: store.get_batch(batch)) is None:
        raise NotFound(f"no batch {batch!r}; `oncron batches` lists them")
    if schedule is not None and not await target.ask(lambda store: store.schedules([schedule])):
        raise await not_found(target, NotFound(f"no schedule {schedule!r}; `oncron schedules` lists them"), schedule)
    if task is None or task in target.tasks:
        return None
    if any(row.definition.task == task for row in await target.ask(lambda store: store.schedules())):
        return None
    if await target.ask(lambda store: store.runs(RunFilter(task=task, limit=1))):
        return None
    return f"no task {task!r} is known, by code, a schedule or a run"


def _run_row(run: Run[Any], now: int) -> list[render.Cell]:
    record = run.record
    name = record.task if record.schedule in (None, record.task) else f"{record.schedule} ({record.task})"
    late = "-" if record.started_at is None else render.span(max(0, record.started_at - (record.tick or record.due_at)))
    return [record.id, name, _tick(record, now), render.styled(record.state.value), late, _took(record, now)]


def _tick(record: RunRecord, now: int) -> str:
    return render.away(record.tick or record.created_at, now)


def _took(record: RunRecord, now: int) -> str:
    """From the first start to the end, waits between attempts included; nothing of what waits now."""
    if record.started_at is None or record.state is RunState.PENDING:
        return "-"
    end = record.ended_at if record.ended_at is not None else now
    return render.span(max(0, end - record.started_at)) + ("" if record.ended_at is not None else " so far")


# --- show -------------------------------------------------------------------------------------


@click.command("show")
@takes_target("run_id|schedule")
@json_option
def show_command(target: Target, as_json: bool, **given: str) -> None:
    """Show everything on record about a run (by its id) or a schedule (by its name).

    A run: its state, times, arguments, result or traceback. A schedule: its policies, the next
    ticks, the newest runs, and gaps: ticks that were passed without a run, and why.
    """
    (wanted,) = given.values()
    run = target.app.sync(_find_run(target, wanted))
    if run is not None:
        (waits,) = target.app.sync(why_unclaimable(target, [run]))
        _show_run(run, waits, target.now_us(), as_json)
        return
    try:
        schedule = target.app.sync(target.app.get_schedule(wanted))
    except NotFound:
        raise NotFound(
            f"{wanted!r} is neither a run nor a schedule; `oncron runs` and `oncron schedules` list them"
        ) from None
    runs, gaps = target.app.sync(_history(target, schedule.name))
    _show_schedule(schedule, runs, gaps, target.now_us(), as_json)


async def _find_run(target: Target, run_id: str) -> RunRecord | None:
    return await target.ask(lambda store: store.get_run(run_id))


async def _history(target: Target, name: str) -> tuple[list[RunRecord], list[Gap]]:
    runs = await target.app.runs(schedule=name, limit=_RECENT)
    return [run.record for run in runs], await target.ask(lambda store: store.gaps(name, limit=_RECENT))


def _show_run(run: RunRecord, waits: str | None, now: int, as_json: bool) -> None:
    if as_json:
        render.as_json(render.plain(run) | {"unclaimable": waits})
        return
    pairs: list[tuple[str, render.Cell]] = [
        ("run", run.id),
        ("task", run.task),
        *([("schedule", run.schedule)] if run.schedule else []),
        *([("tick", _when(run.tick, now))] if run.tick is not None else []),
        ("state", render.styled(run.state.value)),
        *([("reason", run.reason)] if run.reason else []),
        *([("unclaimable", waits)] if waits else []),
        *([("asked to stop", "yes")] if run.cancel_requested and run.state.is_open else []),
        ("attempt", f"{run.attempt}; {run.attempts_spent} of {1 + run.retries} spent"),
        ("created", _when(run.created_at, now)),
        *_due_and_started(run, now),
        *([("ended", _when(run.ended_at, now))] if run.ended_at is not None else []),
        ("queue", run.queue + (f", priority {run.priority}" if run.priority else "")),
        *([("timeout", render.span(run.timeout))] if run.timeout is not None else []),
        *([("worker", run.worker)] if run.worker else []),
        *([("token", str(run.token))] if run.token else []),
        *([("unique key", run.unique)] if run.unique else []),
        *([("backfill", run.backfill)] if run.backfill else []),
        *([("missed", _missed_words(run))] if run.is_catchup or run.missed_count else []),
        ("arguments", _text(run.args)),
        *([("progress", run.progress)] if run.progress else []),
        *([("walked", words)] if (words := walked(run.checkpoint)) else []),
        *([("checkpoint", _text(run.checkpoint))] if run.checkpoint else []),
        *([("result", _text(run.result))] if run.result is not None else []),
    ]
    render.fields(pairs)
    if run.log:
        render.lines(["", *_text(run.log).split("\n")])
    if run.error:
        render.lines(["", *run.error.rstrip().split("\n")])


def _due_and_started(run: RunRecord, now: int) -> list[tuple[str, render.Cell]]:
    """In the order in which they came: a retry and a take-over make a run due anew, after it has started."""
    if run.started_at is None:
        return [("due", _when(run.due_at, now))]
    if run.started_at < run.due_at:
        return [("first started", _when(run.started_at, now)), ("due again", _when(run.due_at, now))]
    return [("due", _when(run.due_at, now)), ("started", _when(run.started_at, now))]


def _missed_words(run: RunRecord) -> str:
    stands_for = f"; stands for {run.missed_count} more" if run.missed_count else ""
    return ("a missed tick, made up for" if run.is_catchup else "its tick") + stands_for


def _show_schedule(schedule: Schedule, runs: list[RunRecord], gaps: list[Gap], now: int, as_json: bool) -> None:
    row = schedule.record
    coming = ticks(row.definition, now, 3, row.created_count) if row.status is Status.ACTIVE else []
    if as_json:
        render.as_json(
            render.plain(row)
            | {"words": schedule.describe(), "done": done(row), "next": [render.iso(tick) for tick, _ in coming]}
            | {"runs": [render.plain(run) for run in runs], "gaps": [render.plain(gap) for gap in gaps]}
        )
        return
    render.fields(_schedule_fields(schedule, now))
    if coming:
        render.lines(["", "Next"], style="bold")
        render.table(["UTC", "", "LOCAL"], [_coming(tick, zone, now) for tick, zone in coming])
    if runs:
        render.lines(["", "Newest runs"], style="bold")
        render.table(
            ["ID", "TICK", "STATE", "-TOOK"],
            [(run.id, _tick(run, now), render.styled(run.state.value), _took(run, now)) for run in runs],
        )
    # A cursor that was moved on purpose passed no tick that was owed.
    if gaps := [gap for gap in gaps if gap.count or gap.at_least]:
        render.lines(["", "Ticks without a run"], style="bold")
        render.table(["~FIRST", "~LAST", "COUNT", "REASON", "+DETAIL"], [_gap_row(gap) for gap in gaps])


def _coming(tick: int, zone: str, now: int) -> tuple[str, str, str]:
    return render.utc(tick), render.away(tick, now), "" if zone == "UTC" else f"{render.local(tick, zone)} {zone}"


def _gap_row(gap: Gap) -> tuple[str, str, str, str, str]:
    count = f"at least {gap.count}" if gap.at_least else str(gap.count)
    return render.utc(gap.first), render.utc(gap.last), count, gap.reason.value, gap.detail


def _schedule_fields(schedule: Schedule, now: int) -> list[tuple[str, render.Cell]]:
    row, rule = schedule.record, schedule.record.definition
    missed = rule.missed.value + (f", {rule.missed_limit} at most" if rule.missed.value == "all" else "")
    if rule.missed_within is not None:
        missed += f", not older than {render.span(rule.missed_within)}"
    return [
        ("schedule", row.name),
        ("when", schedule.describe()),
        ("trigger", rule.trigger),
        ("status", _status(row)),
        *([("note", row.note)] if row.note else []),
        ("task", rule.task),
        ("arguments", _text(rule.args)),
        ("settled up to", _when(row.cursor, now)),
        ("overlap", rule.overlap.value),
        ("missed", missed),
        ("retries", str(rule.retries)),
        ("timeout", "none" if rule.timeout is None else render.span(rule.timeout)),
        *([("jitter", render.span(rule.jitter))] if rule.jitter else []),
        *([("starts", render.utc(rule.start_at))] if rule.start_at is not None else []),
        *([("ends", render.utc(rule.end_at))] if rule.end_at is not None else []),
        *([("limit", f"{row.created_count} of {rule.limit} runs")] if rule.limit is not None else []),
        ("queue", rule.queue + (f", priority {rule.priority}" if rule.priority else "")),
        *([("tags", ", ".join(rule.tags))] if rule.tags else []),
        (
            "declared",
            f"in code, revision {row.revision}" if rule.origin == "code" else f"by API, revision {row.revision}",
        ),
    ]


def _when(instant: int | None, now: int) -> str:
    return "-" if instant is None else f"{render.utc(instant)}  ({render.away(instant, now)})"


def _text(text: str) -> str:
    """A JSON text; of one that no key here opens only that it is there."""
    return "<encrypted>" if is_encrypted(text) else text
