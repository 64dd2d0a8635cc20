"""Lines of a crontab as schedules of commands. oncron reads them as Debian's cron does, clock changes included."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from oncron.cli import crontab_file, render
from oncron.cli.crontab_file import Entry
from oncron.cli.foreground import read_options
from oncron.cli.moving.moved import Found, Moved, Refused, TaskCode
from oncron.cli.moving.source import Call, Extended, written

_SHELL = "/bin/sh"


def read(text: str, file: str, *, timezone: str | None, system: bool) -> Found:
    """Every line that runs something; what is wrong with the others."""
    table = crontab_file.read(text, timezone=timezone, system=system)
    found = Found(f"the crontab {file}")
    found.refused += [Refused(f"line {remark.number}", remark.text) for remark in table.broken]
    found.note("cron repeats nothing: retries=0, where oncron's default is 3")
    found.note(
        "cron starts a command although the last one still runs; here such a tick is skipped (overlap='allow' is as "
        "cron)"
    )
    found.note("ticks while no host ran: cron ran none of them, oncron the newest one (missed='skip' is as cron)")
    for notice in table.notices:
        found.note(f"line {notice.number}: {notice.text}")
    for entry in table.entries:
        if entry.number in table.zoneless:
            why = "its zone is the host's, which oncron never takes: give --timezone ZONE, or CRON_TZ=ZONE above it"
            found.refused.append(Refused(f"line {entry.number}", why))
            continue
        try:
            found.moved.append(_moved(entry))
        except click.UsageError as error:
            found.refused.append(Refused(f"line {entry.number}", error.message))
    return found


def _moved(entry: Entry) -> Moved:
    options = read_options(entry.options, "")
    for name in {"timeout", "jitter"} & options.keys():
        options[name] = int(options[name]) if options[name] == int(options[name]) else options[name]
    differs = [] if entry.user is None else [f"it ran as user {entry.user}; it runs as whoever runs the replica"]
    return Moved(
        entry.name,
        entry.trigger,
        TaskCode(entry.name, _modules(entry.environment), _source(entry, options.get("timeout"))),
        options,
        f"line {entry.number}: {render.printable(entry.command)}",
        tuple(differs),
    )


def _modules(environment: Mapping[str, str]) -> tuple[str, ...]:
    return ("os", "subprocess") if _given(environment) else ("subprocess",)


def _given(environment: Mapping[str, str]) -> dict[str, str]:
    """What the command finds, and its shell does not choose."""
    return {name: value for name, value in environment.items() if name not in {"SHELL", "CRON_TZ", "MAILTO"}}


def _source(entry: Entry, timeout: float | None) -> str:
    """A function that runs the command as cron would. A thread cannot be stopped from outside: the command gets the
    limit as well."""
    options: dict[str, Any] = {"check": True}
    if timeout is not None:
        options["timeout"] = timeout
    if entry.stdin:
        options |= {"input": entry.stdin, "text": True}
    if given := _given(entry.environment):
        options["env"] = Extended("os.environ", given)
    shell = entry.environment.get("SHELL", _SHELL)
    call = written(Call("subprocess.run", [[shell, "-c", entry.command]], options), "    ")
    name = re.sub(r"\W", "_", entry.name, flags=re.ASCII)
    return f"@app.task(name={written(entry.name)})\ndef run_{name}() -> None:\n    {call}"
