"""When something shall run, from the options of a command: a trigger."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from oncron import cron, daily, every, once, weekly
from oncron.cli.instants import read_duration, read_instant
from oncron.cli.target import Target
from oncron.triggers import Trigger, parse

_NAMES = ("expression", "seconds", "period", "times", "days", "instants", "text")


def takes_trigger(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say when, one kind of them; the command gets a `trigger`, and the `timezone` or None, which the
    trigger does not always have yet. Instants are read on the clocks of that zone, or of the target's."""

    @click.option("--cron", "expression", metavar="EXPR", help='A cron expression, "0 3 * * *".')
    @click.option("--seconds", is_flag=True, help="The expression has six fields, seconds first.")
    @click.option("--every", "period", metavar="DURATION", help="30s, 5min, 2h: on one grid for every host.")
    @click.option("--daily", "times", multiple=True, metavar="HH:MM", help="A time of day; may be given several times.")
    @click.option("--weekly", "days", metavar="'DAYS HH:MM'", help="'mon-fri 08:00', 'mon,thu 08:00'.")
    @click.option(
        "--once", "instants", multiple=True, metavar="INSTANT", help="2027-03-28T02:30, on the zone's clocks."
    )
    @click.option("--trigger", "text", metavar="TEXT", help="Any trigger, as `oncron show` prints it.")
    @click.option("--timezone", metavar="ZONE", help="An IANA name; never the host's.")
    @functools.wraps(command)
    def wrapped(*given: Any, timezone: str | None, **options: Any) -> Any:
        when = {name: options.pop(name) for name in _NAMES}
        default = given[0].timezone if given and isinstance(given[0], Target) else "UTC"
        trigger = read_trigger(timezone=timezone, default=default, **when)
        return command(*given, trigger=trigger, timezone=timezone, **options)

    return wrapped


def read_trigger(
    *,
    expression: str | None,
    seconds: bool,
    period: str | None,
    times: tuple[str, ...],
    days: str | None,
    instants: tuple[str, ...],
    text: str | None,
    timezone: str | None,
    default: str = "UTC",
) -> Trigger:
    """Raises click.UsageError, InvalidTrigger."""
    given = [
        option for option in (expression, period, times or None, days, instants or None, text) if option is not None
    ]
    if len(given) != 1:
        raise click.UsageError("say when by one of --cron, --every, --daily, --weekly, --once and --trigger")
    if seconds and expression is None:
        raise click.UsageError("--seconds goes with --cron")
    if instants:
        return once(*(_instant(text, timezone or default) for text in instants))
    if expression is not None:
        return cron(expression, seconds=seconds, timezone=timezone)
    if times:
        return daily(list(times), timezone=timezone)
    if days is not None:
        return _weekly(days, timezone)
    if period is not None:
        trigger: Trigger = every(timedelta(seconds=read_duration(period, "--every")))
    else:
        trigger = parse(text or "")
        if trigger.timezone is not None and timezone is not None:
            raise click.UsageError(f"--trigger {text} has its own zone: leave --timezone out")
    if timezone is not None and trigger.bind("", timezone).timezone is None:
        raise click.UsageError(f"{trigger} counts elapsed time, which has no zone: leave --timezone out")
    return trigger


def _weekly(text: str, timezone: str | None) -> Trigger:
    days, _, at = text.strip().rpartition(" ")
    if not days:
        raise click.UsageError(f"--weekly {text!r}: give days and a time of day, 'mon-fri 08:00'")
    return weekly(days.replace(" ", "").split(",") if "," in days else days.strip(), at, timezone=timezone)


def _instant(text: str, zone: str) -> Any:
    found = read_instant(text, zone, "--once")
    if found.note:
        click.echo(f"Note: {found.note}", err=True)
    return found.moment
