"""What the fleet shares: queues, replicas, locks, batches, and the load of the coming day."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from starlette.responses import Response

from oncron import _options as check
from oncron._groups import BatchRecord, LockRecord, QueueRecord
from oncron._model import RunFilter, RunRecord, RunState, WorkerRecord
from oncron.errors import InvalidOption, NotFound
from oncron.web._drawn import load_picture
from oncron.web._page import Asked
from oncron.web._pages_of_runs import took
from oncron.web._reading import Looks

PAGE = 50
_RUNNING = 1000


# --- queues -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QueueLine:
    row: QueueRecord
    served_by: int
    """Live replicas that take from it."""
    weight: str
    limit: int | None


async def queues(asked: Asked) -> Response:
    rows, workers = await asked.reading.ask(_queues_and_workers)
    return asked.page("queues.html", rows=queue_lines(asked, rows, workers), weighted=bool(asked.reading.queues))


async def _queues_and_workers(looks: Looks) -> tuple[list[QueueRecord], list[WorkerRecord]]:
    return await looks.queues(), await looks.workers()


def queue_lines(asked: Asked, rows: list[QueueRecord], workers: list[WorkerRecord]) -> list[QueueLine]:
    """Those with open runs and those that are paused, and beside them those that code or replicas name."""
    now = asked.reading.now_us
    live = [each for each in workers if "worker" in each.roles and each.is_counted_on(now)]
    named = asked.reading.queue_names | {queue for worker in live for queue in worker.queues or ()}
    there = {row.name: row for row in rows}
    every = there | {name: QueueRecord(name=name) for name in named if name not in there}
    limits = asked.reading.queue_limits
    return [
        QueueLine(
            row=row,
            served_by=sum(worker.queues is None or name in worker.queues for worker in live),
            weight=_weight(asked, name),
            limit=limits.get(name),
        )
        for name, row in sorted(every.items())
    ]


def _weight(asked: Asked, name: str) -> str:
    """What this code gives it: a weight, or a place in the order."""
    given = asked.reading.queues
    if given is None:
        return "as due"
    if isinstance(given, dict):
        return str(given[name]) if name in given else "not served"
    return f"{list(given).index(name) + 1}." if name in given else "not served"


# --- replicas ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReplicaLine:
    row: WorkerRecord
    alive: bool
    holds: int
    """Runs under its lease."""


async def replicas(asked: Asked) -> Response:
    rows, running = await asked.reading.ask(_workers_and_runs)
    return asked.page("replicas.html", rows=replica_lines(rows, running, asked.reading.now_us), skew=asked.reading.skew)


async def _workers_and_runs(looks: Looks) -> tuple[list[WorkerRecord], list[RunRecord]]:
    return await looks.workers(), await looks.runs(RunFilter(state=RunState.RUNNING, limit=_RUNNING))


def replica_lines(rows: list[WorkerRecord], running: list[RunRecord], now: int) -> list[ReplicaLine]:
    holds = Counter(run.worker for run in running)
    lines = [ReplicaLine(row=row, alive=row.is_counted_on(now), holds=holds[row.id]) for row in rows]
    return sorted(lines, key=lambda each: (not each.alive, each.row.host, each.row.pid, each.row.id))


# --- locks and batches ------------------------------------------------------------------------


async def locks(asked: Asked) -> Response:
    rows: list[LockRecord] = await asked.reading.ask(lambda looks: looks.locks())
    return asked.page("locks.html", rows=rows)


async def batches(asked: Asked) -> Response:
    """`dead` is 1 for those in which a run failed, `before` goes on."""
    dead, before = asked.text("dead") is not None, check.sought_if(asked.text("before"), "before")
    rows = await asked.reading.ask(lambda looks: read_batches(looks, dead=dead, before=before, limit=PAGE + 1))
    more = rows[PAGE - 1].id if len(rows) > PAGE else None
    return asked.page("batches.html", rows=rows[:PAGE], before=more, dead=dead)


async def read_batches(looks: Looks, *, dead: bool, before: str | None, limit: int) -> list[BatchRecord]:
    """Raises InvalidOption for a `before` that is no batch."""
    if before is not None and await looks.get_batch(before) is None:
        raise InvalidOption(f"before={before!r} is no batch on record; begin at the newest")
    return await looks.batches(dead=dead, before=before, limit=limit)


async def batch(asked: Asked) -> Response:
    """`id`."""
    batch_id = check.sought(asked.needed("id"), "id")
    record, runs = await asked.reading.ask(lambda looks: _batch_and_runs(looks, batch_id))
    now = asked.reading.now_us
    return asked.page("batch.html", batch=record, rows=[(run, took(run, now), None) for run in runs])


async def read_batch(looks: Looks, batch_id: str) -> BatchRecord:
    """Raises NotFound."""
    record = await looks.get_batch(batch_id)
    if record is None:
        raise NotFound(f"no batch {batch_id!r}: the id is wrong, or it completed and was pruned")
    return record


async def _batch_and_runs(looks: Looks, batch_id: str) -> tuple[BatchRecord, list[RunRecord]]:
    return await read_batch(looks, batch_id), await looks.runs(RunFilter(batch=batch_id, limit=PAGE))


# --- load -------------------------------------------------------------------------------------


async def load(asked: Asked) -> Response:
    counted = await asked.pages.load.read()
    return asked.page("load.html", load=counted, picture=load_picture(counted))
