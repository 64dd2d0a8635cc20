"""`queues`, and `queue pause|resume`."""

from __future__ import annotations

import click

from oncron._queue import Queue
from oncron.cli import render
from oncron.cli.look import json_option
from oncron.cli.target import Target, takes_target


@click.command("queues")
@takes_target()
@json_option
def queues_command(target: Target, as_json: bool) -> None:
    """List the queues that have open runs or are paused: how many runs wait, since when, how many are executed."""
    queues = target.app.sync(target.app.queues())
    if as_json:
        render.as_json([render.plain(queue.record) for queue in queues])
        return
    now = target.now_us()
    render.table(
        ["NAME", "READY", "OLDEST", "WAITING", "RUNNING", "~STATUS"],
        [_row(queue, now) for queue in queues],
        empty="No queue has open runs or is paused.",
    )


def _row(queue: Queue, now: int) -> list[render.Cell]:
    row = queue.record
    oldest = "-" if row.oldest_due_at is None else render.away(min(row.oldest_due_at, now), now)
    status = "open" if not row.paused else f"paused ({row.note})" if row.note else "paused"
    return [row.name, str(row.ready), oldest, str(row.waiting), str(row.running), status]


@click.group("queue")
def queue_command() -> None:
    """Pause or resume a queue for the whole fleet; `oncron queues` lists them."""


@queue_command.command("pause")
@takes_target("queue")
@click.option("--note", default="", help="Why; shown with the queue.")
@json_option
def pause_command(target: Target, queue: str, note: str, as_json: bool) -> None:
    """Nobody takes runs from QUEUE until it is resumed. What runs goes on; more may be enqueued."""
    _tell(target.app.sync(target.app.pause_queue(queue, note=note)), as_json)


@queue_command.command("resume")
@takes_target("queue")
@json_option
def resume_command(target: Target, queue: str, as_json: bool) -> None:
    """Let workers take runs from QUEUE again."""
    _tell(target.app.sync(target.app.resume_queue(queue)), as_json)


def _tell(queue: Queue, as_json: bool) -> None:
    if as_json:
        render.as_json(render.plain(queue.record))
        return
    note = f" ({queue.note})" if queue.note else ""
    waits = f"; {render.count(queue.ready, 'run')} ready" if queue.ready else ""
    render.lines([f"Queue {queue.name} is {'paused' if queue.paused else 'open'}{note}{waits}."])
