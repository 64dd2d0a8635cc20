"""The command line: `oncron COMMAND [TARGET] [ARGS] [--store URL]`.

Exit codes: 0 done, 1 it failed, 2 wrong use (one line on stderr says what, which, what to do); `lock` has
those of its command, and 75 when somebody else holds the lock.
Each command lives in a module of its group and is imported when it is called, so that
`oncron --help` is quick.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence

import click

COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run": {
        "run": ("run", "Run a replica until SIGTERM or SIGINT."),
        "exec": ("exec", "Run a command on a schedule, each tick on one of several hosts."),
        "crontab": ("crontab", "Run a whole crontab, each tick on one of several hosts."),
        "lock": ("lock", "Run a command while this host holds a lock; 75 if somebody else does."),
        "demo": ("demo", "Real replicas on one store, one of them killed: every tick runs once."),
    },
    "Look": {
        "schedules": ("look", "List schedules: when, next tick, last run."),
        "next": ("look", "List the next instants, in UTC and in each schedule's zone."),
        "runs": ("look", "List runs, newest first."),
        "show": ("look", "Everything on record about a run or a schedule."),
        "web": ("web", "Serve the dashboard, and a JSON API, from this machine."),
        "queues": ("queues", "List queues: what waits, since when, what is paused."),
        "batches": ("groups", "List batches: how far their runs are."),
        "locks": ("groups", "List locks that are held: by whom, since when."),
    },
    "Act": {
        "fire": ("act", "Run a schedule now; its ticks stay as they are."),
        "put": ("put", "Create or change a schedule that lives in the store."),
        "pause": ("act", "No ticks of a schedule until it is resumed."),
        "resume": ("act", "Let a paused schedule tick again, from now on."),
        "remove": ("act", "No ticks of a schedule ever again."),
        "backfill": ("backfill", "Run the instants of a stretch of the past that never ran."),
        "enqueue": ("act", "Enqueue a run of a task."),
        "retry": ("act", "Open an ended run again, or all that failed."),
        "dead": ("dead", "List runs that failed or were lost; open them again, or drop them."),
        "cancel": ("act", "Cancel a pending run; ask a running one to stop."),
        "queue": ("queues", "Pause or resume a queue for the whole fleet."),
    },
    "Understand": {
        "why": ("why", "Say what became of a tick, or will."),
        "explain": ("explain", "Say an expression in words, with its next instants."),
        "check": ("check", "List what a target declares, and what may surprise."),
        "plan": ("plan", "Say what a deploy of a target would change in its store."),
        "doctor": ("doctor", "Check a live store: what stands still, what is wrong, what to do."),
        "bench": ("bench", "Measure a store: runs and ticks per second, lateness."),
        "migrate": ("act", "Create or upgrade the store's schema."),
        "import": ("moving", "Bring schedules along from cron, APScheduler, Celery."),
    },
}
_MODULES = {name: module for group in COMMANDS.values() for name, (module, _) in group.items()}


class _Lazy(click.Group):
    """Commands by name, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        return getattr(importlib.import_module(f"oncron.cli.{module}"), f"{cmd_name}_command")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _MODULES:
            import difflib

            near = difflib.get_close_matches(args[0], _MODULES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"commands are {', '.join(_MODULES)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for title, group in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in group.items()], col_max=12)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from oncron._version import version

    click.echo(f"oncron {version()}")
    ctx.exit()


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="TARGET is module:attribute, or module alone if it holds one Oncron; with --store URL it is left out.",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Scheduled jobs that run once per tick, however many replicas schedule them."""


def main(arguments: Sequence[str] | None = None, *, called: str = "oncron") -> None:
    """Run a command and leave the process with its exit code. Never shows a traceback for what a user
    or an operator got wrong. `called` is what the user typed for it."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot spell is shown escaped; it does not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # What the library logs is for replicas; a command says what it has to say itself.
    logging.getLogger("oncron").addHandler(logging.NullHandler())
    code = _call(arguments, called)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    sys.exit(code)


def _call(arguments: Sequence[str] | None, called: str) -> int:
    try:
        code = cli.main(None if arguments is None else list(arguments), prog_name=called, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        _say(_where(error), error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough of it; click leaves the same way.
        _forget_stdout()
        return 1
    except Exception as error:  # noqa: BLE001 - told apart, and raised again unless a user can mend it
        return _failed(error)
    return code if isinstance(code, int) else 0


def _failed(error: Exception) -> int:
    """One line for an error of the tree; anything else is a fault of ours and keeps its traceback."""
    from oncron.errors import LeaseLost, LimitExceeded, Occupied, OncronError, RunFailed

    if not isinstance(error, OncronError):
        raise error
    _say("oncron", str(error))
    return 1 if isinstance(error, Occupied | RunFailed | LimitExceeded | LeaseLost) else 2


def _where(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return ctx.command_path if ctx is not None else "oncron"


def _say(where: str, message: str) -> None:
    line = " ".join(message.split())
    print(f"{where}: {line}", file=sys.stderr)


def _forget_stdout() -> None:
    """Nothing can be written any more: the interpreter's last flush must not say so either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
