"""`oncron import`: schedules of other schedulers, as Python source or written to a store."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from oncron import Oncron
from oncron.cli import render
from oncron.cli.moving import write as writing
from oncron.cli.moving.moved import Found, Refused
from oncron.cli.moving.source import Call, program, trigger_source, written
from oncron.cli.target import Target, bare
from oncron.errors import OncronError
from oncron.triggers.zones import load_zone


@click.group("import")
def import_command() -> None:
    """Bring schedules along from a crontab, APScheduler 3, Celery or django-celery-beat: printed as Python source, or
    written to a store. Says for each what will differ, and for one that cannot come along why."""


def _outputs(reads: Callable[..., Found]) -> Callable[..., Any]:
    """What to do with what was found."""

    @click.option("--write", is_flag=True, help="Put them into --store; a dry run unless --yes is there.")
    @click.option("--print", "as_source", is_flag=True, help="Print Python source.  [default]")
    @click.option("--store", metavar="URL", help="With --write.  [default: $ONCRON_STORE]")
    @click.option("--namespace", metavar="NAME", help="With --write: 'oncron' if not given.")
    @click.option(
        "--task-map", "renamed", multiple=True, metavar="OLD=NEW", help="Another name for a task; repeatable."
    )
    @click.option("--yes", is_flag=True, help="With --write: do it.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
    @functools.wraps(reads)
    def command(
        write: bool,
        as_source: bool,
        store: str | None,
        namespace: str | None,
        renamed: tuple[str, ...],
        yes: bool,
        as_json: bool,
        **options: Any,
    ) -> int:
        if write and as_source:
            raise click.UsageError("--print and --write exclude each other")
        if not write and (store or namespace or yes or renamed):
            raise click.UsageError("--store, --namespace, --task-map and --yes go with --write")
        names = _renamed(renamed)
        url = store or os.environ.get("ONCRON_STORE")
        if write and url is None:
            raise click.UsageError("--write needs --store URL, or $ONCRON_STORE")
        found = reads(**options)
        _check(found)
        stands = False
        if write:
            stands = _write(found, bare(url or "", namespace, creates=False), names, yes=yes, as_json=as_json)
        elif as_json:
            render.as_json(_plain(found))
        else:
            sys.stdout.write(program(found))
        if not as_json:
            _tell(found, in_source=not write)
        return 1 if found.refused or stands else 0

    return command


def _check(found: Found) -> None:
    """What oncron would not declare is refused here, and not by the program that was printed."""
    app = Oncron("memory://")
    for moved in list(found.moved):
        try:
            app.add_schedule(moved.name, moved.trigger, moved.task.name, **cast("Any", moved.options))
        except OncronError as error:
            found.moved.remove(moved)
            found.refused.append(Refused(moved.name, str(error)))


def _renamed(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise click.UsageError(f"--task-map {pair!r}: write OLD=NEW, names of a task")
        found[old] = new
    return found


def _zone(timezone: str | None) -> str | None:
    return None if timezone is None else load_zone(timezone).name


_timezone = click.option("--timezone", metavar="ZONE", help="Where the source took the host's zone: its IANA name.")


@import_command.command("crontab")
@click.argument("file")
@_timezone
@click.option("--system", is_flag=True, help="The sixth column is a user, as in /etc/crontab.")
@_outputs
def from_crontab_command(file: str, timezone: str | None, system: bool) -> Found:
    """The lines of the crontab FILE (- is standard input), as schedules of functions that run the commands."""
    from oncron.cli.crontab import text_of
    from oncron.cli.moving import from_crontab

    return from_crontab.read(text_of(file), Path(file).name, timezone=_zone(timezone), system=system)


@import_command.command("apscheduler")
@click.argument("scheduler", required=False, metavar="[MODULE:SCHEDULER]")
@click.option("--jobstore", metavar="URL", help="Instead: its SQLAlchemy job store.")
@click.option("--table", default="apscheduler_jobs", show_default=True, help="With --jobstore.")
@click.option("--trust", is_flag=True, help="With --jobstore: import the functions that the jobs name.")
@_timezone
@_outputs
def from_apscheduler_command(
    scheduler: str | None, jobstore: str | None, table: str, trust: bool, timezone: str | None
) -> Found:
    """The jobs of an APScheduler 3 scheduler in code, or of a job store.

    MODULE is imported, which runs its code; its scheduler is not started. Of a job store nothing that is pickled there
    is run.
    """
    from oncron.cli.moving import from_apscheduler

    if (scheduler is None) == (jobstore is None):
        raise click.UsageError("give MODULE:SCHEDULER or --jobstore URL, one of them")
    if jobstore is not None:
        return from_apscheduler.from_store(jobstore, table, _zone(timezone), trusted=trust)
    if trust:
        raise click.UsageError("--trust goes with --jobstore; MODULE is imported anyway")
    return from_apscheduler.from_code(scheduler or "", _zone(timezone))


@import_command.command("celery")
@click.argument("app", metavar="MODULE:APP")
@_timezone
@_outputs
def from_celery_command(app: str, timezone: str | None) -> Found:
    """The beat_schedule of a Celery app. MODULE and the app's tasks are imported, which runs their code."""
    from oncron.cli.moving import from_celery

    return from_celery.from_code(app, _zone(timezone))


@import_command.command("django-celery-beat")
@click.option("--database", metavar="URL", required=True, help="Django's: sqlite:///db.sqlite3, postgresql://...")
@click.option("--app", metavar="MODULE:APP", help="A Celery app, whose tasks name positional arguments; imported.")
@_outputs
def from_django_command(database: str, app: str | None) -> Found:
    """The tables of django-celery-beat, read by themselves: neither Django nor Celery has to be there."""
    from oncron.cli.moving import from_celery, from_django

    return from_django.from_database(database, None if app is None else from_celery.load(app))


# --- what is said -----------------------------------------------------------------------------


def _tell(found: Found, *, in_source: bool) -> None:
    """On stderr: what came along, what will differ unless the source says it, what did not come along."""
    counts = f"{render.count(len(found.moved), 'schedule')} from {found.origin}"
    if found.refused:
        counts += f", {len(found.refused)} refused"
    _say(counts)
    if not in_source:
        for note in found.notes:
            _say(f"note: {note}")
        for moved in found.moved:
            for text in moved.differs:
                _say(f"{moved.name}: {text}")
    for refused in found.refused:
        _say(f"refused: {refused.name}: {refused.why}")


def _say(text: str) -> None:
    click.echo(render.printable(" ".join(text.split())), err=True)


def _write(found: Found, target: Target, names: dict[str, str], *, yes: bool, as_json: bool) -> bool:
    """Whether another schedule stands in the way of one."""
    try:
        if unknown := sorted(set(names) - {moved.task.name for moved in found.moved}):
            raise click.UsageError(f"--task-map: no imported schedule has the task {unknown[0]!r}")
        written_ones = target.app.sync(writing.plan(target, found, names))
        if yes:
            target.app.sync(writing.write(target, written_ones))
    finally:
        target.close()
    stands = any(item.planned.what == "refused" for item in written_ones)
    if as_json:
        done = {item.moved.name: {"task": item.task, "what": item.word, "written": yes} for item in written_ones}
        plain = _plain(found)
        plain["schedules"] = [row | done[row["name"]] for row in plain["schedules"]]
        render.as_json(plain)
        return stands
    render.table(
        ["", "SCHEDULE", "TASK", "+WHEN"],
        [(item.word, item.moved.name, item.task, item.moved.trigger.describe()) for item in written_ones],
        empty="Nothing to write.",
    )
    for item in written_ones:
        changes = [f"{name}: {old} -> {new}" for name, old, new in item.planned.differences]
        for text in [*([item.planned.note] if item.planned.note else []), *changes]:
            render.lines([f"{item.moved.name}: {text}"])
    if any(item.planned.what != "unchanged" for item in written_ones) and not yes:
        render.lines(["", "A dry run: nothing is written. Add --yes to write."])
    return stands


def _plain(found: Found) -> dict[str, Any]:
    return {
        "origin": found.origin,
        "notes": found.notes,
        "schedules": [
            {
                "name": moved.name,
                "task": moved.task.name,
                "trigger": str(moved.trigger),
                "words": moved.trigger.describe(),
                "timezone": moved.trigger.timezone,
                "options": {name: _json(value) for name, value in moved.options.items()},
                "task_options": dict(moved.task.options),
                "was": moved.was,
                "differs": list(moved.differs),
                "source": written(Call("app.add_schedule", [moved.name, trigger_source(moved.trigger)], {})),
            }
            for moved in found.moved
        ],
        "refused": [{"name": refused.name, "why": refused.why} for refused in found.refused],
    }


def _json(value: Any) -> Any:
    """As JSON has it."""
    return msgspec.to_builtins(value)
