"""Pending runs that nobody who is alive would take: shown with the reason, never dropped."""

from __future__ import annotations

from collections.abc import Sequence

from oncron._model import RunRecord, RunState, WorkerRecord


def unclaimable(run: RunRecord, workers: Sequence[WorkerRecord], now: int) -> str | None:
    """Why, in a line; None if somebody may take it, or if it waits for none. `now` is the store's clock."""
    if run.state is not RunState.PENDING:
        return None
    live = [each for each in workers if "worker" in each.roles and each.is_counted_on(now)]
    if not live:
        return "no worker is alive"
    able = [each for each in live if not each.tasks or run.task in each.tasks]
    if not able:
        return f"no live worker has task {run.task!r}"
    if not any(each.queues is None or run.queue in each.queues for each in able):
        return f"no live worker that has task {run.task!r} serves queue {run.queue!r}"
    return None
