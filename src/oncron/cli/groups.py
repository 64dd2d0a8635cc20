"""Commands that read what runs share: `batches`, `locks`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from oncron._groups import BatchRecord, LockRecord
from oncron._json import loads
from oncron.cli import render
from oncron.cli.look import json_option
from oncron.cli.target import Target, takes_target

# --- locks ------------------------------------------------------------------------------------


@click.command("locks")
@takes_target()
@json_option
def locks_command(target: Target, as_json: bool) -> None:
    """List the locks that are held, of `app.lock`, `app.lead`, `oncron lock` and limiters with slots: by whom, since
    when, and until when if nobody renews them."""
    locks = target.app.sync(target.ask(lambda store: store.locks()))
    if as_json:
        render.as_json([_lock_json(lock) for lock in locks])
        return
    now = target.now_us()
    render.table(
        ["+NAME", "+HELD BY", "SINCE", "LEASE ENDS", "-TOKEN"],
        [
            (
                lock.name,
                holder(lock.owner),
                render.away(min(lock.since, now), now),
                render.away(lock.lease_until, now),
                str(lock.token),
            )
            for lock in locks
        ],
        empty="No lock is held.",
    )


def _lock_json(lock: LockRecord) -> dict[str, Any]:
    return render.plain(lock) | {"since": render.iso(lock.since)}


def holder(owner: str) -> str:
    """Who holds a lock, for people: what a holder calls itself has parts that only tell it from others."""
    found = re.fullmatch(r"(.+):(\d+):\w{8}(?:/\w{8})?", owner)
    return f"process {found[2]} on {found[1]}" if found else owner


# --- batches ----------------------------------------------------------------------------------


@click.command("batches")
@takes_target()
@click.option("--dead", is_flag=True, help="Only those in which a run failed or was lost.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many.")
@click.option("--before", metavar="BATCH_ID", help="Page on: only batches older than this one.")
@json_option
def batches_command(target: Target, dead: bool, limit: int, before: str | None, as_json: bool) -> None:
    """List batches, newest first: how far their runs are. `oncron runs --batch ID` lists those."""
    rows = target.app.sync(target.ask(lambda store: store.batches(dead=dead, before=before, limit=limit)))
    if as_json:
        render.as_json([_batch_json(row) for row in rows])
        return
    now = target.now_us()
    render.table(
        ["ID", "STATUS", "CREATED", "RUNS", "+BY STATE", "+DATA"],
        [
            (
                row.id,
                _status(row),
                render.away(min(row.created_at, now), now),
                f"{row.total - row.pending} of {row.total}",
                _by_state(row.runs) + _inside(row.children),
                "" if row.data == "null" else row.data,
            )
            for row in rows
        ],
        empty="No batches." if not dead else "No batch in which a run failed or was lost.",
    )


def _status(row: BatchRecord) -> render.Cell:
    if row.succeeded_at is not None:
        return render.styled("succeeded")
    if row.died_at is not None:
        return render.styled("failed").append("" if row.completed_at is not None else ", goes on", style="default")
    if row.completed_at is not None:
        return "complete"
    return "being filled" if not row.closed else render.styled("running")


def _by_state(runs: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(runs.items()) if count)


def _inside(children: int) -> str:
    return f"; {children} open {'batch' if children == 1 else 'batches'} in it" if children else ""


_CALLBACKS = ("on_complete", "on_success", "on_death")


def _batch_json(row: BatchRecord) -> dict[str, Any]:
    """As the record has it; of a callback, which task it is."""
    callbacks = {name: getattr(row, name) for name in _CALLBACKS}
    fields = {name: getattr(row, name) for name in row.__struct_fields__ if name not in _CALLBACKS}
    instants = {name: render.iso(value) for name, value in fields.items() if name.endswith("_at")}
    tasks = {name: None if run is None else run.task for name, run in callbacks.items()}
    return fields | instants | {"data": loads(row.data), "total": row.total, "pending": row.pending} | tasks
