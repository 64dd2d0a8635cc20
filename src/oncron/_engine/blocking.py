"""The one door for blocking code: user functions that are not async, in daemon threads.

Daemon threads, because a task that never returns must not keep the process from leaving
(the standard pool joins its threads at exit).
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Work = tuple["concurrent.futures.Future[Any]", Callable[[], Any]]


class Threads:
    """Runs each submitted function in a thread of its own choosing; grows on demand up to what
    is submitted at once, so a function never waits for another one's thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def submit(self, fn: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        context = contextvars.copy_context()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._count}", daemon=True).start()
        self._work.put((future, lambda: context.run(fn)))
        return future

    def close(self) -> None:
        """Idle threads end; a busy one ends when its function returns."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)
            self._count = self._idle = 0

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, fn = work
            try:
                result = fn()
            except BaseException as error:  # noqa: BLE001 - SystemExit in a task must not end its thread unrecorded
                self._back()
                future.set_exception(error)
            else:
                self._back()
                future.set_result(result)
                del result  # an idle thread must not keep the last one alive
            del work, future, fn

    def _back(self) -> None:
        with self._lock:
            self._idle += 1
