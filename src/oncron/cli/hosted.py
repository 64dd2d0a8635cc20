"""The command line inside of another one (`manage.py oncron ...`, `flask oncron ...`), whose app is the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from oncron._app import Oncron
from oncron.cli import cli, main
from oncron.cli.target import HOSTED, Hosted


def main_for(app: Callable[[], Oncron], arguments: Sequence[str], *, name: str, command: str) -> None:
    """Run a command on that app and leave the process with its exit code. `name` is how the app is called in messages,
    `module:attribute`; `command` is what its user types instead of `oncron`."""
    HOSTED[name] = Hosted(app, command)
    main(with_target(arguments, name), called=command)


def with_target(arguments: Sequence[str], name: str) -> list[str]:
    """The arguments with the target where the command takes one, unless they name a store."""
    words = list(arguments)
    command: click.Command | None = cli
    at = 0
    with click.Context(cli) as ctx:
        while isinstance(command, click.Group) and at < len(words) and not words[at].startswith("-"):
            command = command.get_command(ctx, words[at])
            at += 1
    if command is None or isinstance(command, click.Group) or not _takes_target(command):
        return words
    if any(word == "--store" or word.startswith("--store=") for word in _before_double_dash(words)):
        return words
    return [*words[:at], name, *words[at:]]


def _takes_target(command: click.Command) -> bool:
    first = next((each for each in command.params if isinstance(each, click.Argument)), None)
    if first is None:
        return False
    return first.name == "target" or (first.metavar or "").startswith("[TARGET]")


def _before_double_dash(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words
