"""`oncron exec`: a cron for one command, on as many hosts as start it: each tick runs on one of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from oncron.cli import logs
from oncron.cli.command import Command
from oncron.cli.foreground import MISSED, OVERLAPS, Foreground, Job, read_options, shared_options
from oncron.cli.when import takes_trigger
from oncron.triggers import Trigger


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("--name", required=True, metavar="NAME", help="The schedule's name, the same on every host.")
@takes_trigger
@click.option("--timeout", metavar="DURATION", help="SIGTERM after so long, SIGKILL after --kill-after.")
@click.option("--overlap", metavar="POLICY", help=f"While the last one runs: {', '.join(OVERLAPS)}.  [default: skip]")
@click.option("--missed", metavar="POLICY", help=f"Ticks while no host ran: {', '.join(MISSED)}.  [default: latest]")
@click.option("--retries", metavar="N", help="Runs again after a failure or a dead host.  [default: 0]")
@click.option("--jitter", metavar="DURATION", help="Start up to so much later, drawn from name and tick.")
@click.option("--ping", metavar="URL", help="POST there, as healthchecks.io has it: URL/start, URL, URL/fail.")
@shared_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def exec_command(
    name: str,
    trigger: Trigger,
    timezone: str | None,
    command: tuple[str, ...],
    log_format: logs.LogFormat | None,
    timeout: str | None,
    overlap: str | None,
    missed: str | None,
    retries: str | None,
    jitter: str | None,
    ping: str | None,
    **where: Any,
) -> None:
    """Run COMMAND on a schedule, in the foreground, until SIGTERM or SIGINT. Start it on several hosts with one
    --store: each tick runs on one of them.

    The command finds ONCRON_SCHEDULE, ONCRON_TICK, ONCRON_RUN_ID, ONCRON_ATTEMPT and ONCRON_TOKEN. Exit code 0 is
    success; the end of its output is kept with the run (`oncron runs`, `oncron show`).
    """
    found = Command(command, shlex.join(command))
    if found.missing():
        raise click.UsageError(f"no command {command[0]!r} here ({Path.cwd()}) or on the PATH; check its spelling")
    given = {"timeout": timeout, "overlap": overlap, "missed": missed, "retries": retries, "jitter": jitter}
    options = read_options(given)
    foreground = Foreground(name, **where)
    foreground.add(Job(name, trigger.bind(name, timezone or "UTC"), found, options))
    if ping is not None:
        foreground.ping(name, ping)
    foreground.announce()
    foreground.run(log_format)
