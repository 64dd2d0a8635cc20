# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""`manage.py oncron ...`: every command of `oncron`, on this project's app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from oncron.contrib.django._project import TARGET, the_app

_OF_DJANGO = ("--settings", "--pythonpath")
"""What manage.py itself has taken care of."""


class Command(BaseCommand):
    help = "Scheduled jobs: run, schedules, runs, fire, ...; `manage.py oncron --help` lists them."
    requires_system_checks: list[str] = []  # noqa: RUF012 - as BaseCommand has it

    def run_from_argv(self, argv: list[str]) -> None:
        _main(own(argv[2:]), f"{Path(argv[0]).name} oncron")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs="*", help="as of `oncron`, without TARGET")

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """For call_command("oncron", "fire", "nightly"). Raises CommandError if the command failed."""
        try:
            _main(arguments, "oncron")
        except SystemExit as left:
            if left.code:
                raise CommandError(f"oncron {' '.join(arguments)} failed", returncode=int(left.code)) from None


def own(words: list[str]) -> list[str]:
    """Without the options that manage.py has for every command."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*kept, word, *rest]
        if word in _OF_DJANGO:
            next(rest, None)
        elif not word.startswith(tuple(f"{option}=" for option in _OF_DJANGO)):
            kept.append(word)
    return kept


def _main(arguments: list[str], called: str) -> None:
    from oncron.cli.hosted import main_for

    main_for(the_app, arguments, name=TARGET, command=called)
