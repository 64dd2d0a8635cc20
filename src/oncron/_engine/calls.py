"""Calls of the user's function, where it belongs: in a thread or on the user's loop. What it returns or raises comes
back as a value."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any


class Raised:
    """What the user's function raised, carried as a value: an exception set on the user's loop
    would be re-raised there if it is a KeyboardInterrupt or SystemExit."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Returned:
    """What the user's function returned, as text: made where it ran, so that a large or slow one holds up no other."""

    __slots__ = ("text",)

    def __init__(self, text: str | None) -> None:
        self.text = text


class NoLoop(Exception):
    """The user's loop does not run, and the function was not entered."""


class Post:
    """Calls on a loop from other threads, in their order. Those that come before it has looked cost it one
    wake-up together: with thousands of runs a second, waking is what they would pay most for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_coming = False

    def __call__(self, call: Callable[[], object]) -> None:
        """Raises RuntimeError if the loop is closed."""
        self._calls.append(call)
        if self._is_coming:
            return
        self._is_coming = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            self._is_coming = False
            raise

    def _deliver(self) -> None:
        self._is_coming = False  # before looking: what comes from here on wakes it again
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception as error:  # noqa: BLE001 - as the loop does with a call of its own
                self._loop.call_exception_handler({"message": "a call from another thread failed", "exception": error})


class Started:
    """A function that runs: its end, on the engine's loop, and how to cancel it (None for a thread)."""

    __slots__ = ("cancel", "done")

    def __init__(self, done: asyncio.Future[Any], cancel: Callable[[], None] | None) -> None:
        self.done, self.cancel = done, cancel


def caught(
    enter: Callable[[], bool], call: Callable[[], Any], encode: Callable[[Any], str | None]
) -> Raised | Returned:
    if not enter():
        return Raised(asyncio.CancelledError())
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - see Raised
        return Raised(error)
    return Returned(encoded(value, encode))


async def caught_async(
    enter: Callable[[], bool], call: Callable[[], Any], encode: Callable[[Any], str | None]
) -> Raised | Returned:
    if not enter():
        return Raised(asyncio.CancelledError())
    try:
        value = await call()
    except BaseException as error:  # noqa: BLE001 - see Raised
        return Raised(error)
    return Returned(encoded(value, encode))


def encoded(value: Any, encode: Callable[[Any], str | None]) -> str | None:
    """Whatever the value's own code raises: the task has succeeded."""
    try:
        return encode(value)
    except BaseException:  # noqa: BLE001 - a SystemExit or CancelledError of the value's own, too
        return '"(a result whose text could not be made)"'


def on_loop(
    there: Post,
    here: Post,
    call: Callable[[], Coroutine[Any, Any, Raised | Returned]],
    stop: Callable[[asyncio.Task[Any]], object] = lambda task: task.cancel(),
) -> Started:
    """Starts a coroutine function on the user's loop; `stop` is how its task is cancelled there. `done` is set when
    the task has truly ended: `run_coroutine_threadsafe` calls a future cancelled while its task still cleans up.
    Raises RuntimeError if the loop is closed."""
    done = asyncio.get_running_loop().create_future()
    tasks: list[asyncio.Task[Any]] = []

    def begin() -> None:
        task = asyncio.get_running_loop().create_task(call())
        tasks.append(task)
        task.add_done_callback(end)

    def end(task: asyncio.Task[Any]) -> None:
        value = Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
        with contextlib.suppress(RuntimeError):  # the engine is gone
            here(lambda: done.cancelled() or done.set_result(value))

    def cancel() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: its tasks are gone with it
            there(lambda: [stop(task) for task in tasks])

    there(begin)
    return Started(done, cancel)
