"""What can be done from a page. Each goes through the app's public operations, and says whose wish it was."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import Response

from oncron._model import Record, RunRecord
from oncron._run import Run
from oncron.web._page import Asked, link

Action = Callable[[Asked], Awaitable[Record]]
"""Done when it returns, with the record as it is then."""

_BACK = re.compile(r"[a-z]{1,20}(\?[!-~]{0,2000})?")


async def fire(asked: Asked) -> Record:
    """A run of the schedule, now. Raises NotFound, Occupied."""
    run = await asked.app.fire(asked.needed("name"), reason=_signed(asked, asked.optional("reason") or "run now"))
    return run.record


async def pause(asked: Asked) -> Record:
    name = asked.needed("name")
    await asked.app.pause(name, note=_signed(asked, asked.optional("note")))
    return (await asked.app.get_schedule(name)).record


async def resume(asked: Asked) -> Record:
    name = asked.needed("name")
    await asked.app.resume(name)
    return (await asked.app.get_schedule(name)).record


async def retry(asked: Asked) -> Record:
    run: Run[Any] = await asked.app.retry(asked.needed("id"))
    return run.record


async def cancel(asked: Asked) -> Record:
    run: Run[Any] = await asked.app.cancel(asked.needed("id"))
    return run.record


async def pause_queue(asked: Asked) -> Record:
    return (await asked.app.pause_queue(asked.needed("name"), note=_signed(asked, asked.optional("note")))).record


async def resume_queue(asked: Asked) -> Record:
    return (await asked.app.resume_queue(asked.needed("name"))).record


ACTIONS: Mapping[str, Action] = {
    "fire": fire,
    "pause": pause,
    "resume": resume,
    "retry": retry,
    "cancel": cancel,
    "pausequeue": pause_queue,
    "resumequeue": resume_queue,
}
"""By the address of their form."""


def form(name: str) -> Callable[[Asked], Awaitable[Response]]:
    """The handler of a form: it does, and goes back to where it was asked for."""
    act = ACTIONS[name]

    async def post(asked: Asked) -> Response:
        record = await act(asked)
        back = asked.optional("back")
        if name == "fire" and isinstance(record, RunRecord):
            back = link("run", id=record.id)
        # Only to pages of this dashboard, whatever the field says.
        location = back if _BACK.fullmatch(back) else "schedules"
        return Response(status_code=303, headers={"location": location})

    return post


def _signed(asked: Asked, said: str) -> str:
    """With the name of who said it, where that is known."""
    if not asked.user:
        return said
    return f"{said} ({asked.user})" if said else f"by {asked.user}"
