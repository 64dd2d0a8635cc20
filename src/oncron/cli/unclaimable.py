"""What `runs`, `show` and `enqueue` say of runs that nobody would take."""

from __future__ import annotations

from collections.abc import Sequence

from oncron._model import RunRecord, RunState
from oncron._unclaimable import unclaimable
from oncron.cli.target import Target


async def why_unclaimable(target: Target, runs: Sequence[RunRecord]) -> list[str | None]:
    """For each run, why nobody who is alive would take it; None if somebody may."""
    if all(run.state is not RunState.PENDING for run in runs):
        return [None] * len(runs)
    workers = await target.ask(lambda store: store.workers())
    return [unclaimable(run, workers, target.now_us()) for run in runs]
