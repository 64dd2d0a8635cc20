"""Calls of the user's function, where it belongs: in a thread or on the user's loop. What it returns or raises comes
back as a value."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
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


class Started:
    """A function that runs: its end, and how to cancel it (None for a thread)."""

    __slots__ = ("cancel", "future")

    def __init__(self, future: concurrent.futures.Future[Any], cancel: Callable[[], None] | None) -> None:
        self.future, self.cancel = future, cancel


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
    loop: asyncio.AbstractEventLoop,
    call: Callable[[], Coroutine[Any, Any, Raised | Returned]],
    stop: Callable[[asyncio.Task[Any]], object] = lambda task: task.cancel(),
) -> Started:
    """Starts a coroutine function on the user's loop; `stop` is how its task is cancelled there. The future is set
    when the task has truly ended: `run_coroutine_threadsafe` calls a future cancelled while its task still cleans
    up. Raises RuntimeError if the loop is closed."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    tasks: list[asyncio.Task[Any]] = []

    def begin() -> None:
        task = loop.create_task(call())
        tasks.append(task)
        task.add_done_callback(end)

    def end(task: asyncio.Task[Any]) -> None:
        future.set_result(Raised(asyncio.CancelledError()) if task.cancelled() else task.result())

    def cancel() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: its tasks are gone with it
            loop.call_soon_threadsafe(lambda: [stop(task) for task in tasks])

    loop.call_soon_threadsafe(begin)
    return Started(future, cancel)
