"""Where an app runs: signals, the loop behind `with app`, the lifespan, and leaving with a stuck thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from oncron.errors import DefinitionError

log = logging.getLogger("oncron.engine")
T = TypeVar("T")

in_sync: contextvars.ContextVar[bool] = contextvars.ContextVar("oncron_in_sync", default=False)
"""Whether this runs under `app.sync(...)`, on a loop that ends with it."""

_CLOSE_WITHIN = 3.0
"""Seconds that a loop may take to close after everything has stopped: threads that tasks made with
`asyncio.to_thread` are waited for there."""


@contextmanager
def stop_signals(loop: asyncio.AbstractEventLoop, heard: Callable[[signal.Signals], None]) -> Generator[None]:
    """SIGTERM and SIGINT go to `heard`, on the loop. The former handlers are back afterwards. Without
    effect outside of the main thread, where signals cannot be handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, heard, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


class BackgroundLoop:
    """An event loop in a daemon thread of its own: where async tasks run under `with app`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="oncron-tasks", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_WITHIN)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel_all())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class InBackground(ABC):
    """`with` for an async context: it is entered and left on a loop in a thread of its own."""

    _block: ClassVar[str]
    """As its users write it, for messages."""
    _behind: BackgroundLoop | None = None

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __enter__(self) -> Self:
        refuse_on_loop(f"with {self._block}:", f"async with {self._block}:")
        behind = BackgroundLoop()
        try:
            behind.run(self.__aenter__())
        except BaseException:
            behind.close()
            raise
        self._behind = behind
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        behind, self._behind = self._behind, None
        if behind is not None:
            try:
                behind.run(self.__aexit__(kind, error, trace))
            finally:
                behind.close()


class Lifespan:
    """Holds an async context manager open from start to stop, in one task of one loop, as cancel scopes
    and task groups inside of it need."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._make = make
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def enter(self) -> Any:
        """What it yields. Raises what its entry raised."""
        entered: asyncio.Future[Any] = self._loop.create_future()
        self._task = self._loop.create_task(self._hold(entered), name="oncron-lifespan")
        try:
            await asyncio.wait({self._task, entered}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not entered.done():
            await self._task
        return entered.result()

    async def leave(self) -> None:
        """From any loop. Raises what its exit raised; one that was cancelled has been left."""
        task = self._task
        if task is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._leave.set)
        if asyncio.get_running_loop() is self._loop:
            await _ended(task)
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_ended(task), self._loop))

    async def _hold(self, entered: asyncio.Future[Any]) -> None:
        async with self._make() as state:
            entered.set_result(state)
            await self._leave.wait()


async def in_thread(fn: Callable[[], T]) -> T:
    """`fn()` in a daemon thread, so that a slow one holds up neither the loop nor the end of the process."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(fn())
        except BaseException as error:  # noqa: BLE001 - carried to the caller
            future.set_exception(error)

    threading.Thread(target=work, name="oncron-aside", daemon=True).start()
    return await asyncio.wrap_future(future)


def run_to_the_end(work: Coroutine[Any, Any, None], stuck: Callable[[], list[str]]) -> None:
    """`asyncio.run(work)`; but a thread that does not return cannot keep the process: once `work` has
    ended it leaves by `os._exit(0)`."""
    runner = asyncio.Runner()
    watch = threading.Timer(_CLOSE_WITHIN, _exit_now, ["threads made by tasks do not return"])
    watch.daemon = True
    try:
        runner.run(work)
        if unfinished := stuck():
            _exit_now(f"a thread still runs {', '.join(unfinished)}; its lease will expire")
        watch.start()
    finally:
        runner.close()
        watch.cancel()


def _exit_now(why: str) -> None:
    log.error("leaving at once: %s", why, extra={"event": "worker.stuck"})
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def refuse_on_loop(what: str, instead: str) -> None:
    """Raises DefinitionError on a thread whose event loop is running: waiting there would stop the loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise DefinitionError(f"{what} would block the event loop of this thread; write `{instead}`")
