"""All the runs of a listing, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec.structs import replace

from oncron._model import RunFilter, RunRecord

_PAGE = 1000


async def every_run(
    read: Callable[[RunFilter], Awaitable[list[RunRecord]]], where: RunFilter
) -> AsyncIterator[RunRecord]:
    """Newest first; `read` reads a page. Pages are read one after the other while runs go on."""
    while True:
        page = await read(replace(where, limit=_PAGE))
        for run in page:
            yield run
        if len(page) < _PAGE:
            return
        where = replace(where, before=page[-1].id)
