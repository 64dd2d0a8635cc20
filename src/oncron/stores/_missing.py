"""What every store says of what is not there."""

from __future__ import annotations

from oncron.errors import NotFound


def no_schedule(name: str | None) -> NotFound:
    return NotFound(f"schedule {name!r} does not exist: declare it before a run of it is asked for")


def no_run(run_id: str) -> NotFound:
    return NotFound(f"run {run_id!r} does not exist: it was never created, or pruned")


def no_batch(batch_id: str) -> NotFound:
    return NotFound(f"batch {batch_id!r} does not exist: it was never opened, or it was deleted or pruned")


def takes_no_more(batch_id: str | None) -> NotFound:
    return NotFound(f"batch {batch_id!r} does not exist or is complete: nothing can be added to it")
