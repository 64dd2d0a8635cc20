"""`oncron crontab`: a whole crontab, on as many hosts as start it: each tick runs on one of them."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from oncron.cli import crontab_file, logs, render
from oncron.cli.command import Command
from oncron.cli.crontab_file import Crontab, Entry, Remark
from oncron.cli.foreground import Foreground, Job, read_options, shared_options
from oncron.errors import OncronError
from oncron.triggers.zones import load_zone

_SHELL = "/bin/sh"


@click.command("crontab")
@click.argument("file")
@click.option("--timezone", metavar="ZONE", help="For lines above which no CRON_TZ= stands; an IANA name.")
@click.option("--system", is_flag=True, help="The sixth column is a user, as in /etc/crontab.")
@click.option("--timeout", metavar="DURATION", help="For every line that names none.")
@click.option("--overlap", metavar="POLICY", help="For every line that names none.  [default: skip]")
@click.option("--missed", metavar="POLICY", help="For every line that names none.  [default: latest]")
@click.option("--retries", metavar="N", help="For every line that names none.  [default: 0]")
@click.option("--check", is_flag=True, help="Read the file, say what it means, and leave.")
@click.option("--json", "as_json", is_flag=True, help="The same as --check, as a JSON array.")
@shared_options
def crontab_command(
    file: str,
    timezone: str | None,
    system: bool,
    check: bool,
    as_json: bool,
    log_format: logs.LogFormat | None,
    timeout: str | None,
    overlap: str | None,
    missed: str | None,
    retries: str | None,
    **where: Any,
) -> int:
    """Run the commands of the crontab FILE (- is standard input), in the foreground, until SIGTERM or SIGINT. Start it
    on several hosts with one --store: each tick runs on one of them.

    A schedule's name is made of its line; a comment above it gives another, and options: `# oncron: name=backup
    timeout=30min overlap=wait retries=2`. If a line is broken, all of them are told and none runs.
    """
    zone = None if timezone is None else load_zone(timezone).name
    found = crontab_file.read(text_of(file), timezone=zone, system=system)
    for notice in found.notices:
        _say(file, notice, "note: ")
    common = {"timeout": timeout, "overlap": overlap, "missed": missed, "retries": retries}
    read_options(common)
    foreground = Foreground(Path(file).name, **where)
    broken = [*found.broken, *_add(foreground, found, common)]
    for remark in sorted(broken, key=lambda remark: remark.number):
        _say(file, remark)
    faults = [f"{render.count(len(broken), 'broken line')} in {file}: nothing runs"] if broken else []
    if found.zoneless:
        faults.append(_without_zone(file, found.zoneless))
    if faults:
        raise click.UsageError("; and ".join(faults))
    if not found.entries:
        raise click.UsageError(f"{file} runs nothing: it has no line with a schedule and a command")
    for remark in _users(found):
        _say(file, remark, "note: ")
    if as_json:
        render.as_json([
            {"line": entry.number, **shown, "stdin": entry.stdin, "user": entry.user, "environment": entry.environment}
            for entry, shown in zip(found.entries, foreground.plain(), strict=True)
        ])  # fmt: skip
        return 0
    foreground.announce()
    sys.stdout.flush()
    if not check:
        foreground.run(log_format)
    return 0


def _without_zone(file: str, lines: list[int]) -> str:
    return (
        f"no zone is known for {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines[:5]))}"
        f"{', ...' if len(lines) > 5 else ''} of {file}: give --timezone ZONE, or CRON_TZ=ZONE above them. cron used "
        "the host's zone; oncron never does, as hosts may differ"
    )


def text_of(file: str) -> str:
    """What the file, or standard input, says. Raises click.UsageError."""
    if file == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    try:
        return Path(file).read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror or error}") from None


def _say(file: str, remark: Remark, what: str = "") -> None:
    click.echo(f"{file}:{remark.number}: {what}{render.printable(remark.text)}", err=True)


def _add(foreground: Foreground, found: Crontab, common: dict[str, str | None]) -> Iterable[Remark]:
    """All of them; what is wrong with the options of some."""
    for entry in found.entries:
        try:
            foreground.add(
                Job(entry.name, entry.trigger, _command(entry), read_options({**common, **entry.options}, ""))
            )
        except (OncronError, click.UsageError) as error:
            yield Remark(entry.number, error.message if isinstance(error, click.UsageError) else str(error))


def _command(entry: Entry) -> Command:
    shell = entry.environment.get("SHELL", _SHELL)
    home = entry.environment.get("HOME", os.environ.get("HOME", ""))
    return Command(
        (shell, "-c", entry.command),
        render.printable(entry.command),
        {"SHELL": shell, **entry.environment},
        home if Path(home).is_dir() else None,
        entry.stdin,
    )


def _users(found: Crontab) -> Iterable[Remark]:
    """Of lines that cron would have run as somebody else."""
    try:
        me = getpass.getuser()
    except (KeyError, OSError):
        me = str(os.getuid())
    for entry in found.entries:
        if entry.user is not None and entry.user != me:
            yield Remark(entry.number, f"the user column says {entry.user!r}; it runs as {me!r}, who runs oncron")
