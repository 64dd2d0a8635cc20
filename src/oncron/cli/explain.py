"""`oncron explain`: an expression in words, its next instants, and what clock changes do to it."""

from __future__ import annotations

import click

from oncron import cron
from oncron._clock import wall_us
from oncron._clock_changes import YEARS, clock_changes
from oncron.cli import render
from oncron.cli.instants import coming
from oncron.triggers import Trigger, parse, surprises
from oncron.triggers.local import LocalTrigger
from oncron.triggers.zones import load_zone


@click.command("explain")
@click.argument("words", nargs=-1, required=True, metavar="EXPRESSION")
@click.option("--timezone", metavar="ZONE", help="The schedule's zone, an IANA name; UTC if not given.")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many instants.")
@click.option("--seconds", is_flag=True, help="Six fields, seconds first.")
@click.option("--name", metavar="SCHEDULE", help="The schedule's name, from which H and between= are drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(
    words: tuple[str, ...], timezone: str | None, count: int, seconds: bool, name: str | None, as_json: bool
) -> None:
    """Say in words what EXPRESSION means, when it ticks next, and what coming clock changes do to it.

    EXPRESSION is a cron expression, "0 3 * * mon-fri", or any trigger's text as `oncron show` prints
    it, 'every(minutes=5)'. Nothing is read from a store.
    """
    expression, *others = words
    if others:
        raise click.UsageError(f'{len(words)} words were given: quote the expression, oncron explain "0 3 * * *"')
    trigger = _read(expression, timezone, seconds, name)
    now = wall_us()
    instants = coming(trigger, now, count)
    zone = trigger.timezone or (load_zone(timezone).name if timezone else "UTC")
    changes = clock_changes(trigger, now)
    warnings = surprises.coming(trigger, now)
    if as_json:
        render.as_json(
            {
                "trigger": str(trigger),
                "words": trigger.describe(),
                "timezone": trigger.timezone,
                "next": [
                    {"at": render.iso(at), "local": render.local(at, zone).replace(" ", "T", 1)} for at in instants
                ],
                "clock_changes": [change.plain() for change in changes],
                "warnings": warnings,
            }
        )
        return
    render.lines([trigger.describe()], style="bold")
    render.lines([""])
    render.table(*_instants_table(instants, zone, now), empty="It never ticks again.")
    if changes:
        render.lines(["", "Coming clock changes"], style="bold")
        render.table(["AT", "CLOCK", "+WHAT HAPPENS"], [change.row() for change in changes])
    elif isinstance(trigger, LocalTrigger):
        render.lines(["", f"The clocks of {zone} do not change in the coming {YEARS} years."])
    else:
        render.lines(["", "Counted in elapsed time: clock changes do not touch it."])
    # What clock changes do is said above, with the coming dates.
    said = surprises.of_local(trigger, now) if isinstance(trigger, LocalTrigger) else []
    if warnings := [warning for warning in warnings if warning not in said]:
        render.lines(["", *(f"! {warning}" for warning in warnings)], style="yellow")


def _read(expression: str, timezone: str | None, seconds: bool, name: str | None) -> Trigger:
    trigger: Trigger
    if "(" in expression:
        trigger = parse(expression)
        if timezone is not None and trigger.timezone not in (None, timezone):
            raise click.UsageError(f"{expression} has its own zone; leave out --timezone")
    else:
        trigger = cron(expression, seconds=seconds)
    # Names no schedule can have: what is drawn from the name stays undrawn.
    bound = trigger.bind(name or "", timezone)
    if name is None and str(bound) != str(trigger.bind("?", timezone)):
        raise click.UsageError(f"{expression!r} is drawn from the schedule's name; give it with --name")
    return bound


def _instants_table(instants: list[int], zone: str, now: int) -> tuple[list[str], list[tuple[str, ...]]]:
    if zone == "UTC":
        return ["UTC", ""], [(render.utc(at), render.away(at, now)) for at in instants]
    return ["UTC", zone, ""], [(render.utc(at), render.local(at, zone), render.away(at, now)) for at in instants]
