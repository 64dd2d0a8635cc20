"""Commands that change something: `fire`, `pause`, `resume`, `remove`, `retry`, `cancel`, `enqueue`, `migrate`."""

from __future__ import annotations

import difflib
import json
from typing import Any, cast

import click

from oncron import Run, Schedule
from oncron.cli import render
from oncron.cli.dead import retry_all
from oncron.cli.instants import read_duration
from oncron.cli.look import json_option
from oncron.cli.target import Target, takes_target
from oncron.cli.unclaimable import why_unclaimable


@click.command("fire")
@takes_target("schedule")
@click.option("--reason", default="", help="Kept with the run.")
@json_option
def fire_command(target: Target, schedule: str, reason: str, as_json: bool) -> None:
    """Run SCHEDULE now. Its ticks stay as they are; its overlap policy holds, a pause does not.

    Exits 1 if another run has its place.
    """
    _tell_run(target.app.sync(target.app.fire(schedule, reason=reason)), as_json, "fired")


_tag_option = click.option("--tag", metavar="TAG", help="Every schedule that carries this tag, instead of one.")


@click.command("pause")
@takes_target("schedule", unless="tag")
@_tag_option
@click.option("--note", default="", help="Why; shown with the schedule.")
@json_option
def pause_command(target: Target, schedule: str | None, tag: str | None, note: str, as_json: bool) -> None:
    """No ticks of SCHEDULE until it is resumed; those that fall in the pause owe nothing.

    Runs that exist go on.
    """
    app = target.app
    if schedule is None:
        _tell_tagged(app.sync(app.pause_tagged(tag or "", note=note)), "paused", tag, as_json)
        return

    async def pause() -> Schedule:
        await app.pause(schedule, note=note)
        return await app.get_schedule(schedule)

    _tell_schedule(app.sync(pause()), as_json)


@click.command("resume")
@takes_target("schedule", unless="tag")
@_tag_option
@json_option
def resume_command(target: Target, schedule: str | None, tag: str | None, as_json: bool) -> None:
    """Let SCHEDULE tick again, from now on."""
    app = target.app
    if schedule is None:
        _tell_tagged(app.sync(app.resume_tagged(tag or "")), "active", tag, as_json)
        return

    async def resume() -> Schedule:
        await app.resume(schedule)
        return await app.get_schedule(schedule)

    _tell_schedule(app.sync(resume()), as_json)


@click.command("remove")
@takes_target("schedule", unless="tag")
@_tag_option
@json_option
def remove_command(target: Target, schedule: str | None, tag: str | None, as_json: bool) -> None:
    """No ticks of SCHEDULE ever again; its runs stay on record, and so does how far it got.

    A schedule that code declares stays removed until a higher release declares it.
    """
    app = target.app
    if schedule is not None:
        app.sync(app.remove_schedule(schedule))
    names = app.sync(app.remove_tagged(tag or "")) if schedule is None else [schedule]
    _tell_tagged(names, "removed", tag, as_json)


def _tell_tagged(names: list[str], what: str, tag: str | None, as_json: bool) -> None:
    if as_json:
        render.as_json(names)
    else:
        render.lines([f"Schedule {name} is {what}." for name in names] or [f"No schedule carries the tag {tag!r}."])


@click.command("retry")
@takes_target("run_id", unless="failed")
@click.option("--failed", is_flag=True, help="Every failed or lost run, instead of one.")
@click.option("--schedule", metavar="NAME", help="With --failed: only runs of this schedule.")
@click.option("--task", metavar="NAME", help="With --failed: only runs of this task.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many at most.")
@json_option
def retry_command(
    target: Target,
    run_id: str | None,
    failed: bool,
    schedule: str | None,
    task: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """Open the ended run RUN_ID again, due now, with all its attempts; or every failed and lost one.

    Exits 1 if another run has its place.
    """
    if not failed and (schedule is not None or task is not None):
        raise click.UsageError("--schedule and --task choose among failed runs: add --failed")
    if run_id is not None:
        run = target.app.sync(target.app.retry(run_id))
        _tell_run(run, as_json, "open again" if run.is_new else "was open already")
        return 0
    return retry_all(target, {"schedule": schedule, "task": task}, limit, as_json)


@click.command("enqueue")
@takes_target("task")
@click.option("--args", "arguments", default="{}", metavar="JSON", help='By name: \'{"to": "a@example.org"}\'.')
@click.option("--delay", metavar="DURATION", help="Due so much later: seconds, or 90s, 10min, 2h, 1d.")
@click.option("--queue", metavar="NAME", help="Another queue than the task's.")
@click.option("--unique", metavar="KEY", help="If an open run of the task has this key, that one is the answer.")
@click.option("--priority", type=int, metavar="N", help="Higher goes first.")
@json_option
def enqueue_command(
    target: Target, task: str, arguments: str, delay: str | None, as_json: bool, **options: Any
) -> None:
    """Enqueue a run of TASK. Its arguments are checked if TARGET has the task.

    With --store, any name is taken: a replica that has the task runs it. Its queue is `default`
    then, unless --queue says otherwise, since the task's own is in the code.
    """
    target.import_all()
    values, known = read_arguments(arguments), set(target.tasks)
    if delay is not None:
        options["delay"] = read_duration(delay, "--delay")
    if target.in_code and task not in known:
        near = difflib.get_close_matches(task, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "only a replica of another service can run it"
        click.echo(f"Note: {target.name} has no task {task!r}; {hint}", err=True)
    run = target.app.sync(target.app.enqueue(task, args=values, **options))
    _tell_run(run, as_json, "enqueued" if run.is_new else "was there already, with this key")
    (waits,) = target.app.sync(why_unclaimable(target, [run.record]))
    if waits is not None:
        unnamed = run.is_new and options["queue"] is None and task not in known
        hint = f"; its queue is {run.queue!r}: without TARGET only --queue names another" if unnamed else ""
        click.echo(f"Note: nobody would take it now: {waits}{hint}", err=True)


def read_arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--args {text!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"--args {text!r}: give an object, arguments by name")
    return cast("dict[str, Any]", found)


@click.command("cancel")
@takes_target("run_id")
@json_option
def cancel_command(target: Target, run_id: str, as_json: bool) -> None:
    """Cancel the run RUN_ID: a pending one ends at once, a running one is asked to stop."""
    run = target.app.sync(target.app.cancel(run_id))
    if not run.state.is_open:
        what = "cancelled" if run.state.value == "cancelled" else f"had ended already: {run.state.value}"
    else:
        what = "asked to stop"
    _tell_run(run, as_json, what)


@click.command("migrate")
@takes_target(creates=True)
@json_option
def migrate_command(target: Target, as_json: bool) -> None:
    """Create the store's schema, or bring it up to this release. Safe to repeat, and beside running replicas."""
    target.app.sync(target.app.migrate())
    if as_json:
        render.as_json({"store": target.store_url, "migrated": True})
    else:
        render.lines([f"{target.store_url} has the schema of this release."])


def _tell_run(run: Run[Any], as_json: bool, what: str) -> None:
    if as_json:
        render.as_json(render.plain(run.record))
    else:
        render.lines([f"Run {run.id} of task {run.task}: {what}."])


def _tell_schedule(schedule: Schedule, as_json: bool) -> None:
    row = schedule.record
    if as_json:
        render.as_json(render.plain(row))
        return
    next_at = "" if row.next_at is None else f"; next tick {render.utc(row.next_at)}"
    note = f" ({row.note})" if row.note and schedule.paused else ""
    render.lines([f"Schedule {row.name} is {row.status.value}{note}{next_at}."])
