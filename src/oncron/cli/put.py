"""`oncron put`: a schedule that lives in the store, created or changed at run time."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import Any

import click

from oncron import Schedule
from oncron._model import ScheduleRecord, Status
from oncron._unclaimable import nobody_takes
from oncron.cli import render
from oncron.cli.act import read_arguments
from oncron.cli.foreground import MISSED, OVERLAPS, with_zone
from oncron.cli.instants import read_duration, read_instant, ticks
from oncron.cli.look import json_option
from oncron.cli.target import Target, takes_target
from oncron.cli.when import takes_trigger
from oncron.triggers import Trigger

_SHOWN = 3


@click.command("put")
@takes_target("name")
@takes_trigger
@click.option("--task", required=True, metavar="NAME", help="What its runs run.")
@click.option("--args", "arguments", default="{}", metavar="JSON", help="By name: '{\"tenant\": 7}'.")
@click.option("--queue", metavar="NAME", help="Another queue than the task's.")
@click.option("--priority", type=int, metavar="N", help="Higher goes first.")
@click.option("--retries", type=click.IntRange(min=0), metavar="N", help="Tries after the first one.  [default: 3]")
@click.option("--timeout", metavar="DURATION", help="Of one attempt: 90s, 10min, 2h.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="While the last run is open.  [default: skip]")
@click.option("--missed", type=click.Choice(MISSED), help="Ticks while nobody fired.  [default: latest]")
@click.option("--missed-within", metavar="DURATION", help="Older missed ticks are not made up for.")
@click.option("--missed-limit", type=click.IntRange(min=1), metavar="N", help="With --missed all: the newest N.")
@click.option("--jitter", metavar="DURATION", help="Start up to so much later, drawn from name and tick.")
@click.option("--start-at", metavar="INSTANT", help="No ticks before; on the zone's clocks unless it has an offset.")
@click.option("--end-at", metavar="INSTANT", help="No ticks after.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="So many runs in all.")
@click.option("--unique", metavar="KEY", help="No run while one of the task with this key is open.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be given several times.")
@click.option("--paused", is_flag=True, help="A new one starts paused.")
@json_option
def put_command(
    target: Target,
    name: str,
    trigger: Trigger,
    timezone: str | None,
    task: str,
    arguments: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Create the schedule NAME, or change it into this one. It lives in the store, and ticks until it is removed.
    The same call again changes nothing.

    With TARGET the task is one of its code, and the arguments are checked. With --store any task is taken: replicas
    that have it run it.
    """
    target.import_all()
    if target.in_code:
        _refuse_unknown(target, task, name)
    options = _options(given, timezone or trigger.timezone or target.timezone)
    if timezone is not None and trigger.timezone is None and trigger.bind("", timezone).timezone is not None:
        options["timezone"] = timezone
    options["args"] = read_arguments(arguments)
    before, schedule, waits = target.app.sync(_put(target, name, trigger, task, options))
    what = _what(before, schedule.record)
    if as_json:
        coming = [render.iso(tick) for tick, _ in _coming(schedule, target.now_us())]
        render.as_json(render.plain(schedule.record) | {"what": what, "words": schedule.describe(), "next": coming})
    else:
        _tell(schedule, what, target.now_us())
    if waits is not None:
        click.echo(f"Note: nobody would take its runs now: {waits}", err=True)


def _refuse_unknown(target: Target, task: str, name: str) -> None:
    if name in target.declared:
        raise click.UsageError(
            f"{target.name} declares schedule {name!r} in code: change it there, or take another name"
        )
    if task not in target.tasks:
        near = difflib.get_close_matches(task, target.tasks, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name the store alone (--store) for a task of another service"
        raise click.UsageError(f"{target.name} has no task {task!r}; {hint}")


def _options(given: dict[str, Any], zone: str) -> dict[str, Any]:
    """As `put_schedule` takes them; those that were not given are left out."""
    found = {option: value for option, value in given.items() if value is not None}
    for option in found.keys() & {"timeout", "missed_within", "jitter"}:
        found[option] = read_duration(found[option], f"--{option.replace('_', '-')}")
    for option in found.keys() & {"start_at", "end_at"}:
        found[option] = _moment(found[option], zone, f"--{option.replace('_', '-')}")
    return found


def _moment(text: str, zone: str, option: str) -> datetime:
    found = read_instant(text, zone, option)
    if found.note:
        click.echo(f"Note: {found.note}", err=True)
    return found.moment


async def _put(
    target: Target, name: str, trigger: Trigger, task: str, options: dict[str, Any]
) -> tuple[ScheduleRecord | None, Schedule, str | None]:
    """The row before; the schedule; why nobody would take its runs."""
    rows = await target.ask(lambda store: store.schedules([name]))
    schedule = await target.app.put_schedule(name, trigger, task, **options)
    workers = await target.ask(lambda store: store.workers())
    queue = schedule.record.definition.queue
    return (rows[0] if rows else None), schedule, nobody_takes(task, queue, workers, target.now_us())


def _what(before: ScheduleRecord | None, after: ScheduleRecord) -> str:
    if before is None or before.status is Status.REMOVED:
        return "created"
    return "unchanged" if before.revision == after.revision else "changed"


def _coming(schedule: Schedule, now: int) -> list[tuple[int, str]]:
    row = schedule.record
    return ticks(row.definition, now, _SHOWN, row.created_count) if row.status is Status.ACTIVE else []


def _tell(schedule: Schedule, what: str, now: int) -> None:
    row = schedule.record
    render.lines([f"Schedule {row.name} is {what}: {schedule.describe()}, task {row.definition.task}."])
    if row.status is not Status.ACTIVE:
        render.lines([f"  {row.status.value}: `oncron resume {row.name}` lets it tick"])
    coming = _coming(schedule, now)
    render.lines(f"  next {with_zone(tick, zone)}, {render.away(tick, now)}" for tick, zone in coming)
    if row.status is Status.ACTIVE and not coming:
        render.lines(["  it never ticks again"])
