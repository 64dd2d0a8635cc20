"""`dead list|retry|prune`: runs that failed or were lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from oncron import _options as check
from oncron._clock import SECOND
from oncron._model import RunFilter, RunRecord, RunState
from oncron.cli import render
from oncron.cli.instants import read_duration
from oncron.cli.look import json_option
from oncron.cli.paging import every_run
from oncron.cli.target import Target, takes_target
from oncron.errors import NotFound, Occupied


class _WithDefault(click.Group):
    """`oncron dead TARGET` is `oncron dead list TARGET`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["list", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("dead", cls=_WithDefault, no_args_is_help=False)
def dead_command() -> None:
    """Runs that failed or were lost: list them (if nothing else is said), open them again, or drop them."""


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--schedule", metavar="NAME", help="Only runs of this schedule."),
        click.option("--task", metavar="NAME", help="Only runs of this task."),
        click.option("--older-than", metavar="DURATION", help="Only those that ended longer ago: 90s, 10min, 2h, 7d."),
    ):
        command = option(command)
    return command


@dead_command.command("list")
@takes_target()
@_filters
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many.")
@json_option
def list_command(target: Target, limit: int, as_json: bool, **filters: Any) -> None:
    """List runs that failed or were lost, newest first, with the reason."""
    runs = target.app.sync(_dead(target, filters, limit))
    if as_json:
        render.as_json([render.plain(run) for run in runs])
        return
    now = target.now_us()
    render.table(
        ["ID", "+TASK", "STATE", "ENDED", "-ATTEMPTS", "~REASON"],
        [_row(run, now) for run in runs],
        empty="No run is dead.",
    )


@dead_command.command("retry")
@takes_target()
@_filters
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many at most.")
@json_option
def retry_command(target: Target, limit: int, as_json: bool, **filters: Any) -> int:
    """Open them again, oldest first: due now, with all their attempts.

    Exits 1 if another run has the place of one of them.
    """
    return retry_all(target, filters, limit, as_json)


@dead_command.command("prune")
@takes_target()
@click.option("--older-than", metavar="DURATION", help="Drop those that ended longer ago: 90s, 10min, 2h, 7d.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Drop all but the newest N.")
@json_option
def prune_command(target: Target, older_than: str | None, keep: int | None, as_json: bool) -> None:
    """Drop runs that failed or were lost from the record, by age or by number. They cannot be retried then."""
    if older_than is None and keep is None:
        raise click.UsageError("say which: --older-than DURATION, --keep N, or both")
    older = None if older_than is None else read_duration(older_than, "--older-than")
    dropped = target.app.sync(target.app.prune_dead(older_than=older, keep=keep))
    if as_json:
        render.as_json({"dropped": dropped})
    else:
        render.lines([f"{render.count(dropped, 'run')} dropped."])


def retry_all(target: Target, filters: dict[str, Any], limit: int, as_json: bool) -> int:
    """Open all again that match, and tell; the exit code."""
    opened, refused, more = target.app.sync(_retry(target, filters, limit))
    if as_json:
        render.as_json({"retried": opened, "refused": refused, "more": more})
    else:
        render.lines([f"{render.count(len(opened), 'run')} {'is' if len(opened) == 1 else 'are'} open again."])
        render.lines([f"Left alone: {text}" for text in refused.values()])
        if more:
            render.lines([f"There are more than {limit}; call again, or raise --limit."])
    return 1 if refused else 0


async def _retry(target: Target, filters: dict[str, Any], limit: int) -> tuple[list[str], dict[str, str], bool]:
    """The ids of those that are open again, why each other one is not, and whether there are more."""
    found = await _dead(target, filters, None)
    opened: list[str] = []
    refused: dict[str, str] = {}
    # Oldest first, so that a schedule's place goes to the run that has waited longest.
    for run in sorted(found, key=lambda run: (run.position, run.id))[:limit]:
        try:
            opened.append((await target.app.retry(run.id)).id)
        except (Occupied, NotFound) as error:
            refused[run.id] = str(error)
    return opened, refused, len(found) > limit


async def _dead(target: Target, filters: dict[str, Any], limit: int | None) -> list[RunRecord]:
    """Newest first; the newest `limit`, or all."""
    older_than = filters.get("older_than")
    age = 0 if older_than is None else round(read_duration(older_than, "--older-than") * SECOND)

    schedule, task = (check.sought_if(filters[name], name) for name in ("schedule", "task"))

    async def page(where: RunFilter) -> list[RunRecord]:
        return await target.ask(lambda store: store.runs(where))

    found: list[RunRecord] = []
    for state in (RunState.FAILED, RunState.LOST):
        of_state = 0
        async for run in every_run(page, RunFilter(state=state, schedule=schedule, task=task)):
            if run.ended_at is not None and run.ended_at <= target.now_us() - age:
                found.append(run)
                of_state += 1
                if of_state == limit:
                    break
    return sorted(found, key=lambda run: (run.created_at, run.id), reverse=True)[:limit]


def _row(run: RunRecord, now: int) -> list[render.Cell]:
    name = run.task if run.schedule in (None, run.task) else f"{run.schedule} ({run.task})"
    ended = "-" if run.ended_at is None else render.away(run.ended_at, now)
    return [run.id, name, render.styled(run.state.value), ended, str(run.attempt), run.reason or ""]
