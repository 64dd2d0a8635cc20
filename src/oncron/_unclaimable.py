"""Pending runs that nobody who is alive would take: shown with the reason, never dropped."""

from __future__ import annotations

from collections.abc import Sequence

from oncron._model import RunRecord, RunState, WorkerRecord


def unclaimable(run: RunRecord, workers: Sequence[WorkerRecord], now: int) -> str | None:
    """Why, in a line; None if somebody may take it, or if it waits for none. `now` is the store's clock."""
    return nobody_takes(run.task, run.queue, workers, now) if run.state is RunState.PENDING else None


def nobody_takes(task: str, queue: str, workers: Sequence[WorkerRecord], now: int) -> str | None:
    """Why nobody who is alive takes runs of the task from the queue; None if somebody may."""
    live = [each for each in workers if "worker" in each.roles and each.is_counted_on(now)]
    if not live:
        return "no worker is alive"
    able = [each for each in live if not each.tasks or task in each.tasks]
    if not able:
        return f"no live worker has task {task!r}"
    if not any(each.queues is None or queue in each.queues for each in able):
        return f"no live worker that has task {task!r} serves queue {queue!r}"
    return None
