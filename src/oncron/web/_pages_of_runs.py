"""Runs: all of them, page by page, and one with everything on record about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from starlette.responses import Response

from oncron import _options as check
from oncron._cipher import is_encrypted
from oncron._json import loads
from oncron._model import RunFilter, RunRecord, RunState, WorkerRecord
from oncron._unclaimable import unclaimable
from oncron._walk import walked
from oncron.errors import NotFound
from oncron.web._found import FoundRuns, find_runs
from oncron.web._page import Asked
from oncron.web._reading import Looks

PAGE = 50


async def runs(asked: Asked) -> Response:
    """`state`, `task`, `schedule`, `queue`, `batch`, `text` narrow it, `before` goes on."""
    where = wanted_runs(asked, PAGE)
    text = asked.text("text")
    found, workers = await asked.reading.ask(lambda looks: list_runs(looks, where, text))
    now = asked.reading.now_us
    return asked.page(
        "runs.html",
        rows=[(run, took(run, now), unclaimable(run, workers, now)) for run in found.rows],
        found=found,
        states=[state.value for state in RunState],
    )


def wanted_runs(asked: Asked, limit: int) -> RunFilter:
    """Raises InvalidOption."""
    state = asked.text("state")
    return RunFilter(
        schedule=check.sought_if(asked.text("schedule"), "schedule"),
        task=check.sought_if(asked.text("task"), "task"),
        state=None if state is None else check.choice(state, "state", RunState),
        queue=check.sought_if(asked.text("queue"), "queue"),
        batch=check.sought_if(asked.text("batch"), "batch"),
        before=check.sought_if(asked.text("before"), "before"),
        limit=limit,
    )


async def list_runs(looks: Looks, where: RunFilter, text: str | None) -> tuple[FoundRuns, list[WorkerRecord]]:
    """And who could take those that wait."""
    found = await find_runs(looks, where, text)
    waiting = any(run.state is RunState.PENDING for run in found.rows)
    return found, await looks.workers() if waiting else []


def took(run: RunRecord, now: int) -> int | None:
    """From the first start to the end, or to now; None if it waits."""
    if run.started_at is None or run.state is RunState.PENDING:
        return None
    return max(0, (now if run.ended_at is None else run.ended_at) - run.started_at)


# --- one run ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What the task said last."""

    done: float | None
    total: float | None
    note: str


async def run(asked: Asked) -> Response:
    """`id`."""
    run_id = check.sought(asked.needed("id"), "id")
    record, workers = await asked.reading.ask(lambda looks: read_run(looks, run_id))
    now = asked.reading.now_us
    return asked.page(
        "run.html",
        run=record,
        took=took(record, now),
        unclaimable=unclaimable(record, workers, now),
        progress=progress_of(record.progress),
        walks=walked(record.checkpoint),
        output=output_of(record.result),
    )


async def read_run(looks: Looks, run_id: str) -> tuple[RunRecord, list[WorkerRecord]]:
    """And who could take it, if it waits. Raises NotFound."""
    record = await looks.get_run(run_id)
    if record is None:
        raise NotFound(f"no run {run_id!r}: the id is wrong, or it ended and was pruned")
    return record, await looks.workers() if record.state is RunState.PENDING else []


def progress_of(text: str | None) -> Progress | None:
    found = _read(text)
    if found is None:
        return None
    return Progress(done=_number(found.get("done")), total=_number(found.get("total")), note=str(found.get("note", "")))


def output_of(text: str | None) -> dict[str, str]:
    """What a command printed, if its run kept that."""
    found = _read(text) or {}
    return {name: value for name in ("stdout", "stderr") if isinstance(value := found.get(name), str) and value}


def _read(text: str | None) -> Mapping[str, Any] | None:
    """Of a stored JSON text, if it is an object and readable."""
    if text is None or is_encrypted(text):
        return None
    try:
        found = loads(text)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
