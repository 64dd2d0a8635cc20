# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Django's own connections around each run, as around each request: what the server has closed, or what is older than
CONN_MAX_AGE, is not kept by threads that live as long as the replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from oncron._context import RunContext

Around = AbstractContextManager[None] | AbstractAsyncContextManager[None]


def closed_when_old(ctx: RunContext[Any]) -> Around:
    """Middleware: in the task's own thread, or for an async task in the thread where Django's async calls are."""
    del ctx
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _in_thread()
    return _on_loop()


@contextmanager
def _in_thread() -> Generator[None]:
    from django.db import close_old_connections

    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def _on_loop() -> AsyncGenerator[None]:
    from asgiref.sync import sync_to_async
    from django.db import close_old_connections

    close: Any = sync_to_async(close_old_connections)
    await close()
    try:
        yield
    finally:
        await close()
