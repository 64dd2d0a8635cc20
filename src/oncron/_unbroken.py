"""Work that has to come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """What it answers. A cancellation does not break it off, and is passed on afterwards."""
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not doing.cancelled():
            doing.exception()  # it was looked at
        raise cancelled
    return doing.result()
