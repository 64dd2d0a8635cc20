"""`oncron run`: one replica, until a signal."""

from __future__ import annotations

import logging

import click

from oncron import Event, Oncron, _defaults as limits
from oncron._clock import boot_us, sleep_us
from oncron._model import ScheduleRecord
from oncron._options import queue_name
from oncron._version import version
from oncron.cli import logs, render
from oncron.cli.target import Target, load
from oncron.errors import OncronError, StoreUnavailable

log = logging.getLogger("oncron")

_LOOK_EVERY = 250_000
_AHEAD = 100


@click.command("run")
@click.argument("target")
@click.option(
    "--queues", metavar="NAMES", help="Serve these only: critical=10,default=5 by weight, a,b in strict order."
)
@click.option("--concurrency", type=click.IntRange(1, 100_000), metavar="N", help="Runs at once.")
@click.option("--only", type=click.Choice(["scheduler", "worker"]), help="Fire ticks only, or execute runs only.")
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics; 0 takes a free port, and says which.",
)  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How to log, on stderr.  [default: text]")
def run_command(
    target: str,
    queues: str | None,
    concurrency: int | None,
    only: str | None,
    metrics_port: int | None,
    log_format: logs.LogFormat | None,
) -> None:
    """Run a replica of TARGET until SIGTERM or SIGINT: fire ticks, execute runs.

    The first signal stops gracefully (what runs may end), the second at once. TARGET is
    module:attribute, or module alone if it holds one Oncron. Start as many as you like.
    """
    found = load(target)
    found.app.sync(wait_for(found))
    logs.start(log_format)
    if queues is not None:
        found.override(queues=read_queues(queues))
    if concurrency is not None:
        found.override(concurrency=concurrency)

    if metrics_port is not None:
        serve_metrics(found.app, metrics_port)

    @found.app.on("worker.started")
    def say(event: Event) -> None:  # pyright: ignore[reportUnusedFunction] - the app calls it
        greet(found, event)

    found.app.run(scheduler=only != "worker", worker=only != "scheduler")


def serve_metrics(app: Oncron, port: int) -> None:
    """Until the process ends. Raises InvalidOption."""
    from oncron import metrics

    served = metrics.serve(app, port)
    log.info("metrics at http://0.0.0.0:%d/metrics", served.port, extra={"event": "metrics.served"})


async def wait_for(target: Target) -> None:
    """Give a store that is just starting some seconds. Raises StoreError."""
    until = boot_us() + limits.CALL_DEADLINE
    while True:
        try:
            return await target.reach()
        except StoreUnavailable:
            if boot_us() > until:
                raise
        await sleep_us(_LOOK_EVERY)


def read_queues(text: str) -> tuple[str, ...] | dict[str, int]:
    """`a=10,b=5` as weights, `a,b` as strict order."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise click.UsageError("--queues names no queue; leave it out to serve every one")
    weights: dict[str, int] = {}
    for part in parts:
        name, equals, weight = part.partition("=")
        if bool(equals) != ("=" in parts[0]):
            raise click.UsageError(f"--queues {text}: give every queue a weight, or none")
        if equals and not (weight.isascii() and weight.isdigit() and int(weight) > 0):
            raise click.UsageError(f"--queues {text}: the weight of {name!r} is a whole number from 1 on")
        if name in weights:
            raise click.UsageError(f"--queues {text}: {name!r} is there twice")
        weights[queue_name(name)] = int(weight) if equals else 1
    return weights if "=" in parts[0] else tuple(weights)


def greet(target: Target, event: Event) -> None:
    """Who this is, which store, how many schedules, and the next tick."""
    try:
        known, tick = target.app.sync(_outlook(target))
    except OncronError as error:
        known, tick = f"the store does not answer: {error}", "unknown"
    tasks = render.count(len(target.tasks), "task")
    log.info(
        "oncron %s, replica %s of %s on %s: %s, %s here; next tick: %s",
        version(), event.worker, target.name, target.store_url, known, tasks, tick,
        extra={"event": event.name, "worker": event.worker},
    )  # fmt: skip


async def _outlook(target: Target) -> tuple[str, str]:
    stats = await target.app.stats()
    row = await _next_of_ours(target)
    active = stats.schedules.get("active", 0)
    idle = sum(stats.schedules.values()) - active - stats.schedules.get("removed", 0)
    known = render.count(active, "schedule") + (f" ({idle} more paused or dormant)" if idle else "")
    if row is None or row.next_at is None:
        return known, "none"
    now, tick = target.now_us(), row.next_at
    stands = render.away(tick, now) if tick > now else f"due since {render.span(now - tick)}"
    return known, f"{row.name} at {render.utc(tick)}, {stands}"


async def _next_of_ours(target: Target) -> ScheduleRecord | None:
    """The schedule that ticks next among those that this code declares or has the task of: a namespace may be
    shared. Of schedules that code does not declare, the next few are looked at."""
    ahead = await target.ask(lambda store: store.due(2**62, limit=_AHEAD))
    names = {*target.declared, *(due.name for due in ahead)}
    rows = await target.ask(lambda store: store.schedules(sorted(names)))
    ours = [row for row in rows if row.name in target.declared or row.definition.task in target.tasks]
    return min((row for row in ours if row.next_at is not None), key=lambda row: row.next_at or 0, default=None)
