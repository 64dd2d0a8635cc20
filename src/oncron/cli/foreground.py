"""Schedules of commands, run in the foreground: what `oncron exec` and `oncron crontab` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from oncron import Event, Oncron, RunContext, tracing
from oncron._clock import SECOND, wall_us
from oncron.cli import logs, render
from oncron.cli.command import Command, Commands
from oncron.cli.instants import coming, read_duration
from oncron.cli.run import greet, serve_metrics, wait_for
from oncron.cli.target import Target
from oncron.triggers import Trigger

_SHOWN = 3
OVERLAPS = ("skip", "wait", "queue", "cancel", "allow")
MISSED = ("latest", "all", "skip")


@dataclass(frozen=True)
class Job:
    """A schedule and the command that it runs. The command is this host's: it is not written to the store."""

    name: str
    trigger: Trigger
    command: Command
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where, and how to stop."""
    for option in reversed(
        (
            click.option("--store", metavar="URL", help="Where hosts meet.  [default: $ONCRON_STORE]"),
            click.option("--namespace", metavar="NAME", default="oncron", help="'oncron' if not given."),
            click.option(
                "--concurrency", type=click.IntRange(1, 100_000), default=10, metavar="N", help="Runs at once."
            ),
            click.option(
                "--stop-within", default="30s", metavar="DURATION", help="How long SIGTERM lets commands go on.  [30s]"
            ),
            click.option(
                "--kill-after", default="10s", metavar="DURATION", help="From SIGTERM to SIGKILL, for a command.  [10s]"
            ),
            click.option(
                "--lease-for",
                default="15s",
                metavar="DURATION",
                help="Without a sign of life for so long, another host may take over.  [15s]",
            ),
            click.option(
                "--metrics-port",
                type=click.IntRange(0, 65535),
                metavar="PORT",
                help="Serve Prometheus metrics; 0 takes a free port, and says which.",
            ),
            click.option("--log-format", type=click.Choice(["text", "json"]), help="How to log, on stderr."),
        )
    ):
        command = option(command)
    return command


def read_options(given: Mapping[str, str | None], where: str = "--") -> dict[str, Any]:
    """Options of a schedule from their texts; those that are None are left out. Raises click.UsageError."""
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name in {"timeout", "jitter"} & found.keys():
        found[name] = read_duration(found[name], f"{where}{name}")
    for name, words in (("overlap", OVERLAPS), ("missed", MISSED)):
        if name in found and found[name] not in words:
            raise click.UsageError(f"{where}{name} {found[name]!r}: give one of {', '.join(words)}")
    if "retries" in found and not (found["retries"].isascii() and found["retries"].isdigit()):
        raise click.UsageError(f"{where}retries {found['retries']!r}: give a whole number from 0 on")
    found["retries"] = int(found.get("retries", 0))
    return found


class Foreground:
    """An app whose tasks are commands."""

    def __init__(
        self,
        name: str,
        *,
        store: str | None,
        namespace: str,
        concurrency: int,
        stop_within: str,
        kill_after: str,
        lease_for: str,
        metrics_port: int | None = None,
    ) -> None:
        stopping, killing = read_duration(stop_within, "--stop-within"), read_duration(kill_after, "--kill-after")
        lease = read_duration(lease_for, "--lease-for")
        self._commands = Commands(
            stop_within=round(stopping * SECOND), kill_after=round(killing * SECOND), lease_for=round(lease * SECOND)
        )
        self._app = Oncron(
            store,
            namespace=namespace,
            concurrency=concurrency,
            stop_within=stopping,
            lease_for=lease,
            lifespan=self._commands.forwarding,
        )
        self._target = Target(self._app, name, in_code=True)
        self._metrics_port = metrics_port
        self._jobs: list[Job] = []

    def add(self, job: Job) -> None:
        """Raises InvalidTrigger, InvalidOption, DuplicateName."""
        self._app.schedule(job.trigger, name=job.name, **job.options)(self._body(job.command))
        self._jobs.append(job)

    def ping(self, schedule: str, url: str) -> None:
        """Tell somebody outside of each start, success and failure. Raises InvalidOption."""
        tracing.pings(self._app, {schedule: url})

    def announce(self) -> None:
        """Each schedule in words with its zone, and its next instants."""
        now = wall_us()
        for job in self._jobs:
            bound = job.trigger.bind(job.name, "UTC")
            zone = bound.timezone
            render.lines([f"{job.name}: {bound.describe()}: {job.command.shown}"], style="bold")
            render.lines([f"  zone {zone}" if zone else "  elapsed time, in no zone"])
            render.lines(f"  next {with_zone(at, zone)}, {render.away(at, now)}" for at in coming(bound, now, _SHOWN))

    def plain(self) -> list[dict[str, Any]]:
        """The same as JSON has it."""
        now = wall_us()
        return [
            {
                "schedule": job.name,
                "trigger": str(bound := job.trigger.bind(job.name, "UTC")),
                "words": bound.describe(),
                "timezone": bound.timezone,
                "command": job.command.shown,
                "options": dict(job.options),
                "next": [render.iso(at) for at in coming(bound, now, _SHOWN)],
            }
            for job in self._jobs
        ]

    def run(self, log_format: logs.LogFormat | None) -> None:
        """Until SIGTERM or SIGINT. Raises StoreError."""
        self._app.sync(wait_for(self._target))
        logs.start(log_format)
        if self._metrics_port is not None:
            serve_metrics(self._app, self._metrics_port)

        @self._app.on("worker.started")
        def say(event: Event) -> None:  # pyright: ignore[reportUnusedFunction] - the app calls it
            greet(self._target, event)

        self._app.run()

    def _body(self, command: Command) -> Callable[..., Any]:
        async def run(ctx: RunContext) -> dict[str, Any]:
            return await self._commands.run(command, ctx)

        return run


def with_zone(at: int, zone: str | None) -> str:
    return render.utc(at) + (f" ({render.local(at, zone)} in {zone})" if zone not in (None, "UTC") else "")
