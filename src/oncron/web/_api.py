"""The JSON API: the records that `--json` prints, page by page, and the wishes that a page can have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from oncron import _options as check
from oncron._model import Record, RunRecord, ScheduleRecord
from oncron._shown import done, iso, plain
from oncron._unclaimable import unclaimable
from oncron.web import _fleet
from oncron.web._actions import ACTIONS, Action
from oncron.web._found import find_schedules, histories, words
from oncron.web._openapi import document, operations
from oncron.web._page import Asked
from oncron.web._pages_of_runs import list_runs, read_run, wanted_runs
from oncron.web._pages_of_schedules import read_instant, read_schedule, wanted_schedules
from oncron.web._reading import Looks

Handler = Callable[[Asked], Awaitable[Response]]

_PAGE, _MOST = 100, 1000


def _schedule(row: ScheduleRecord, last: RunRecord | None) -> dict[str, Any]:
    return plain(row) | {
        "words": words(row.definition),
        "done": done(row),
        "last_run": None if last is None else plain(last),
    }


async def schedules(asked: Asked) -> Response:
    wanted, after, limit = wanted_schedules(asked), asked.text("after"), asked.number("limit", _PAGE, most=_MOST)

    async def read(looks: Looks) -> tuple[list[dict[str, Any]], str | None]:
        found = await find_schedules(looks, wanted, after, limit)
        told = await histories(looks, found.rows)
        return [_schedule(row, told[row.name].last) for row in found.rows], found.after

    items, after = await asked.reading.ask(read)
    return JSONResponse({"items": items, "after": after})


async def schedule(asked: Asked) -> Response:
    name = check.sought(asked.needed("name"), "name")
    past = await asked.reading.ask(lambda looks: read_schedule(looks, name))
    return JSONResponse(
        _schedule(past.row, past.history.last)
        | {"runs": [plain(run) for run in past.runs], "gaps": [plain(gap) for gap in past.gaps]}
    )


async def runs(asked: Asked) -> Response:
    where, text = wanted_runs(asked, asked.number("limit", _PAGE, most=_MOST)), asked.text("text")
    found, workers = await asked.reading.ask(lambda looks: list_runs(looks, where, text))
    now = asked.reading.now_us
    items = [plain(run) | {"unclaimable": unclaimable(run, workers, now)} for run in found.rows]
    return JSONResponse({"items": items, "before": found.before})


async def run(asked: Asked) -> Response:
    run_id = check.sought(asked.needed("id"), "id")
    record, workers = await asked.reading.ask(lambda looks: read_run(looks, run_id))
    return JSONResponse(plain(record) | {"unclaimable": unclaimable(record, workers, asked.reading.now_us)})


async def queues(asked: Asked) -> Response:
    return JSONResponse({"items": [plain(row) for row in await asked.reading.ask(lambda looks: looks.queues())]})


async def replicas(asked: Asked) -> Response:
    rows = await asked.reading.ask(lambda looks: looks.workers())
    now = asked.reading.now_us
    return JSONResponse({"items": [plain(row) | {"alive": row.is_counted_on(now)} for row in rows]})


async def locks(asked: Asked) -> Response:
    return JSONResponse({"items": [plain(row) for row in await asked.reading.ask(lambda looks: looks.locks())]})


async def batches(asked: Asked) -> Response:
    dead, before = asked.text("dead") is not None, check.sought_if(asked.text("before"), "before")
    limit = asked.number("limit", _PAGE, most=_MOST)
    rows = await asked.reading.ask(lambda looks: _fleet.read_batches(looks, dead=dead, before=before, limit=limit + 1))
    more = rows[limit - 1].id if len(rows) > limit else None
    return JSONResponse({"items": [plain(row) for row in rows[:limit]], "before": more})


async def batch(asked: Asked) -> Response:
    batch_id = check.sought(asked.needed("id"), "id")
    return JSONResponse(plain(await asked.reading.ask(lambda looks: _fleet.read_batch(looks, batch_id))))


async def stats(asked: Asked) -> Response:
    return JSONResponse(plain(await asked.reading.ask(lambda looks: looks.stats())))


async def why(asked: Asked) -> Response:
    told = await asked.app.why(asked.needed("schedule"), read_instant(asked.needed("instant")))
    return JSONResponse({
        "schedule": told.schedule, "instant": told.instant.isoformat().replace("+00:00", "Z"), "verdict": told.verdict,
        "reason": told.reason, "run": told.run, "sentence": told.sentence,
    })  # fmt: skip


async def load(asked: Asked) -> Response:
    counted = await asked.pages.load.read()
    return JSONResponse({
        "first": iso(counted.first), "ticks": counted.per_minute, "schedules": counted.schedules,
        "left_out": counted.left_out,
    })  # fmt: skip


async def openapi(asked: Asked) -> Response:
    return JSONResponse(document(asked.pages.title))


async def page(asked: Asked) -> Response:
    """For people."""
    return asked.page("api.html", operations=operations())


READS: Mapping[str, Handler] = {
    "/api/schedules": schedules,
    "/api/schedule": schedule,
    "/api/runs": runs,
    "/api/run": run,
    "/api/queues": queues,
    "/api/replicas": replicas,
    "/api/locks": locks,
    "/api/batches": batches,
    "/api/batch": batch,
    "/api/stats": stats,
    "/api/why": why,
    "/api/load": load,
    "/api/openapi.json": openapi,
}


def _writes(act: Action) -> Handler:
    async def post(asked: Asked) -> Response:
        return JSONResponse(_told(await act(asked)))

    return post


def _told(record: Record) -> dict[str, Any]:
    return _schedule(record, None) if isinstance(record, ScheduleRecord) else plain(record)


WRITES: Mapping[str, Handler] = {
    "/api/schedule/fire": _writes(ACTIONS["fire"]),
    "/api/schedule/pause": _writes(ACTIONS["pause"]),
    "/api/schedule/resume": _writes(ACTIONS["resume"]),
    "/api/run/retry": _writes(ACTIONS["retry"]),
    "/api/run/cancel": _writes(ACTIONS["cancel"]),
    "/api/queue/pause": _writes(ACTIONS["pausequeue"]),
    "/api/queue/resume": _writes(ACTIONS["resumequeue"]),
}
