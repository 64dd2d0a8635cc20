"""`oncron why`: what became of a tick."""

from __future__ import annotations

import click

from oncron._clock import to_us
from oncron._model import ScheduleRecord
from oncron.cli import render
from oncron.cli.instants import read_instant, zone_of
from oncron.cli.look import json_option
from oncron.cli.target import Target, takes_target
from oncron.errors import NotFound


@click.command("why")
@takes_target("schedule", "instant")
@json_option
def why_command(target: Target, schedule: str, instant: str, as_json: bool) -> None:
    """Say what became of a tick of SCHEDULE, or will: ran, skipped because, not due, not yet, paused, pruned.

    INSTANT is 2027-03-28T02:30:00Z, or a local time in the schedule's zone, 2027-03-28T02:30.
    """
    zone = zone_of(target.app.sync(_row(target, schedule)))
    meant = read_instant(instant, zone, "INSTANT")
    told = target.app.sync(target.app.why(schedule, meant.moment))
    at = to_us(told.instant)
    if as_json:
        render.as_json(
            {
                "schedule": told.schedule,
                "instant": render.iso(at),
                "local": render.local(at, zone).replace(" ", "T", 1),
                "timezone": zone,
                "verdict": told.verdict,
                "reason": told.reason,
                "run": told.run,
                "sentence": told.sentence,
                "note": meant.note or None,
            }
        )
        return
    if meant.note:
        click.echo(f"Note: {meant.note}", err=True)
    render.lines([f"{told}."])
    if zone != "UTC":
        render.lines([f"({render.local(at, zone)} in {zone})"])
    if told.run is not None:
        render.lines([f"`oncron show {told.run}` has everything about that run."])


async def _row(target: Target, schedule: str) -> ScheduleRecord:
    """A removed one too: its ticks have a history. Raises NotFound."""
    rows = await target.ask(lambda store: store.schedules([schedule]))
    if not rows:
        raise NotFound(f"no schedule {schedule!r}; `oncron schedules` lists them")
    return rows[0]
