"""Wake-ups inside one process: any thread rings, every listening event loop wakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator


class Bell:
    """Rings are hints (G9): several before a listener looks are one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def ring(self) -> None:
        with self._lock:
            listeners = list(self._listeners.items())
        for event, loop in listeners:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                # That loop closed without ending its iterator: nobody is there to be woken.
                self._forget(event)

    async def rings(self) -> AsyncIterator[None]:
        """One item per ring, or per several that came together."""
        event = asyncio.Event()
        with self._lock:
            self._listeners[event] = asyncio.get_running_loop()
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            self._forget(event)

    def _forget(self, event: asyncio.Event) -> None:
        with self._lock:
            self._listeners.pop(event, None)
