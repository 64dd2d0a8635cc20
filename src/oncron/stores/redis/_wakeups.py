"""Hints (G9): a message without content, on a channel of the namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from oncron._defaults import CALL_DEADLINE
from oncron.errors import StoreUnavailable
from oncron.stores.redis import _errors
from oncron.stores.redis._link import Link

ASK_EVERY_S = 45.0
"""A silent connection is asked this often whether it is still there: it may be dead unnoticed."""
_DEADLINE_S = CALL_DEADLINE / 1_000_000


async def wakeups(link: Link, channel: str, where: str) -> AsyncIterator[None]:
    """Yields at each message. Raises StoreUnavailable when the connection is lost."""
    try:
        async with link.subscribed(channel) as subscription:
            while True:
                if await _said(subscription, ASK_EVERY_S) == "message":
                    yield
                elif not await _answers(subscription):
                    raise StoreUnavailable(f"{where}: the connection that listens for hints is dead; listen anew")
    except _errors.DRIVER as error:
        raise _errors.translated(error, where) from error


async def _said(subscription: Any, within: float) -> str | None:
    """The kind of the next message; None if there is none in time, or it is about subscribing."""
    message = await subscription.get_message(ignore_subscribe_messages=True, timeout=within)
    return None if message is None else message["type"]


async def _answers(subscription: Any) -> bool:
    """Whether the server still does. A hint that comes first says so as well."""
    await subscription.ping()
    until = asyncio.get_running_loop().time() + _DEADLINE_S
    while (left := until - asyncio.get_running_loop().time()) > 0:
        if await _said(subscription, left) is not None:
            return True
    return False
