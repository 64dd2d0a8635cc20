"""`oncron backfill`: runs for a stretch of the past."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any, Literal

import click

from oncron._backfill import Backfill
from oncron._clock import to_us
from oncron._model import Overlap
from oncron.cli import render
from oncron.cli.instants import Instant, read_instant, zone_of
from oncron.cli.look import json_option
from oncron.cli.target import Target, takes_target

_SHOWN = 10


@click.command("backfill")
@takes_target("schedule")
@click.option("--from", "start", required=True, metavar="INSTANT", help="The first instant.")
@click.option("--to", "end", metavar="INSTANT", help="The last instant; now if not given.")
@click.option("--dry-run", is_flag=True, help="Tell what would happen; write nothing.")
@click.option("--rate", type=float, metavar="N", help="Due times N runs per second apart, instead of all at once.")
@click.option(
    "--overlap",
    type=click.Choice([policy.value for policy in Overlap]),
    help="Take the schedule's place as this policy says; without it they run beside it and each other.",
)
@click.option("--again", is_flag=True, help="Run instants that have a run on record once more, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def backfill_command(
    target: Target,
    schedule: str,
    start: str,
    end: str | None,
    dry_run: bool,
    rate: float | None,
    overlap: Literal["skip", "wait", "queue", "cancel", "allow"] | None,
    again: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Make a run for every instant of SCHEDULE in a stretch of the past that has none on record.

    INSTANT is 2027-03-28T02:30:00Z, or a local time or date in the schedule's zone. Both ends are included. When
    the schedule starts, ends or was paused does not matter. The same call again makes only what is missing: repeat
    one that died.
    """
    first, last = target.app.sync(_stretch(target, schedule, start, end))
    if not (dry_run or yes) and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("nobody is here to be asked: add --yes, or look first with --dry-run")

    def call(*, dry: bool) -> Backfill:
        made = target.app.backfill(
            schedule, first, last, dry_run=dry, rate=rate, overlap=overlap, again=again
        )  # fmt: skip
        return target.app.sync(made)

    if not (dry_run or yes):
        told = call(dry=True)
        render.lines([_sentence(told)])
        if not told.created:
            return 0
        if not click.confirm(f"Create {told.created} run{'s' * (told.created != 1)}?", err=True):
            render.lines(["Nothing was done."])
            return 1
    done = call(dry=dry_run)
    if as_json:
        render.as_json(plain(done))
    else:
        _print(done)
    return 0


async def _stretch(target: Target, schedule: str, start: str, end: str | None) -> tuple[datetime, datetime]:
    row = (await target.app.get_schedule(schedule)).record
    zone = zone_of(row)
    first = read_instant(start, zone, "--from")
    last = read_instant(end, zone, "--to") if end is not None else Instant(await target.ask(lambda store: store.now()))
    for note in (first.note, last.note):
        if note:
            click.echo(f"Note: {note}", err=True)
    return first.moment, last.moment


def _sentence(done: Backfill) -> str:
    text = str(done)
    return text[0].upper() + text[1:] + "."


def _print(done: Backfill) -> None:
    render.lines([_sentence(done)])
    if done.refused:
        render.lines([""])
        render.table(
            ["TICK", "LEFT ALONE", "RUN"],
            [(render.utc(to_us(item.tick)), item.reason, item.run or "") for item in done.refused[:_SHOWN]],
        )
        left = done.on_record + done.occupied + done.owed - _SHOWN
        if left > 0:
            render.lines([f"... and {left} more."])


def plain(done: Backfill) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "schedule": done.schedule,
        "id": done.id,
        "dry_run": done.dry_run,
        "ticks": done.ticks,
        "created": done.created,
        "on_record": done.on_record,
        "occupied": done.occupied,
        "owed": done.owed,
        "first": None if done.first is None else render.iso(to_us(done.first)),
        "last": None if done.last is None else render.iso(to_us(done.last)),
        "runs": list(done.runs),
        "refused": [
            {"tick": render.iso(to_us(item.tick)), "reason": item.reason, "run": item.run} for item in done.refused
        ],
    }
