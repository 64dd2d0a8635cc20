"""Who listens to events, and how they hear of them without holding anybody up.

Every listener has a queue and a daemon thread of its own: one that is slow, or raises, or
never returns delays neither the engine nor the other listeners. Its queue is bounded; what
does not fit is dropped, counted and logged.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import difflib
import inspect
import logging
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from oncron._clock import SECOND, boot_us
from oncron._eventlog import is_logged, log_event
from oncron._events import NAMES, Event
from oncron._model import NewRun
from oncron.errors import InvalidOption, StoreError

log = logging.getLogger("oncron.listener")

_HOLDS = 10_000
_GROUPS = frozenset(name.split(".")[0] + ".*" for name in NAMES) | {"*"}
_ENDS = frozenset({"run.succeeded", "run.failed", "run.lost", "run.cancelled", "run.skipped"})


class Listener:
    """One function and the events that wait for it."""

    def __init__(self, pattern: str, fn: Callable[[Event], Any], user_loop: Callable[[], Any]) -> None:
        self.pattern, self.fn = pattern, fn
        self.dropped = 0
        self._user_loop = user_loop
        self._waiting: queue.Queue[Event | concurrent.futures.Future[bool]] = queue.Queue(_HOLDS)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wants(self, name: str) -> bool:
        return self.pattern in ("*", name) or (self.pattern[-2:] == ".*" and name.startswith(self.pattern[:-1]))

    def tell(self, item: Event | concurrent.futures.Future[bool]) -> None:
        """Never blocks, never raises."""
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            self._drop(item)
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name=f"oncron-on-{self.pattern}", daemon=True)
                    self._thread.start()

    def forget_thread(self) -> None:
        """In a forked child: the thread stayed with the parent, and what it was to hear with it."""
        self._lock, self._thread = threading.Lock(), None
        self._waiting = queue.Queue(_HOLDS)

    def _drop(self, item: Event | concurrent.futures.Future[bool]) -> None:
        if isinstance(item, concurrent.futures.Future):
            item.set_result(False)
            return
        self.dropped += 1
        if self.dropped == 1 or self.dropped % 1000 == 0:
            log.warning(
                "listener %s for %r is too slow: %d events were not delivered",
                _name(self.fn), self.pattern, self.dropped, extra={"event": "listener.overrun"},
            )  # fmt: skip

    def _serve(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, concurrent.futures.Future):
                if item.set_running_or_notify_cancel():
                    item.set_result(True)
                continue
            try:
                self._deliver(item)
            except Exception:
                log.exception(
                    "listener %s failed for %s", _name(self.fn), item.name, extra={"event": "listener.failed"}
                )

    def _deliver(self, event: Event) -> None:
        answer = self.fn(event)
        if not inspect.iscoroutine(answer):
            return
        loop = self._user_loop()
        if loop is None:
            asyncio.run(answer)
        else:
            asyncio.run_coroutine_threadsafe(answer, loop).result()


class Listeners:
    """All of an app's listeners, and those who wait for a run to end."""

    def __init__(self, user_loop: Callable[[], Any]) -> None:
        self._user_loop = user_loop
        self._all: tuple[Listener, ...] = ()
        self._producers: tuple[Callable[[Sequence[NewRun]], None], ...] = ()
        self._meters: tuple[Callable[[int, StoreError | None], None], ...] = ()
        self._watches: dict[str, list[Callable[[], None]]] = {}
        self._lock = threading.Lock()

    def add(self, pattern: str, fn: Callable[[Event], Any]) -> None:
        if not callable(fn):
            raise InvalidOption(f"on({pattern!r}) decorates a function of one Event, not {fn!r}")
        self._all = (*self._all, Listener(pattern, fn, self._user_loop))

    @contextmanager
    def kept(self) -> Generator[None]:
        """Who begins to listen meanwhile is forgotten afterwards."""
        before = self._all, self._meters, self._producers
        try:
            yield
        finally:
            self._all, self._meters, self._producers = before

    def producer(self, fn: Callable[[Sequence[NewRun]], None]) -> None:
        """Call `fn(runs)` in the thread and context that enqueues, before they are written. It must not raise."""
        self._producers = (*self._producers, fn)

    def asked_for(self, runs: Sequence[NewRun]) -> None:
        for fn in self._producers:
            fn(runs)

    def meter(self, fn: Callable[[int, StoreError | None], None]) -> None:
        """Call `fn(microseconds, error)` after each call of the store, on the engine's thread: it must be quick."""
        self._meters = (*self._meters, fn)

    def store_called(self, took: int, error: StoreError | None) -> None:
        """Never raises."""
        for fn in self._meters:
            try:
                fn(took, error)
            except Exception:
                log.exception("a meter of store calls failed and is left out")
                self._meters = tuple(other for other in self._meters if other is not fn)

    def hears(self, name: str) -> bool:
        """Whether `emit` would do anything with such an event."""
        waited_for = name in _ENDS and bool(self._watches)
        return waited_for or is_logged(name) or any(listener.wants(name) for listener in self._all)

    def emit(self, event: Event) -> None:
        """The Observer that the engine gets: takes an event without blocking and without raising."""
        log_event(event)
        if event.name in _ENDS and event.run is not None and event.run in self._watches:
            with self._lock:
                wakes = tuple(self._watches.get(event.run, ()))
            for wake in wakes:
                wake()
        for listener in self._all:
            if listener.wants(event.name):
                listener.tell(event)

    @contextmanager
    def watch(self, run_id: str, wake: Callable[[], None]) -> Generator[None]:
        """`wake` is called, from any thread, when this process sees the run end."""
        with self._lock:
            self._watches.setdefault(run_id, []).append(wake)
        try:
            yield
        finally:
            with self._lock:
                left = self._watches.get(run_id, [])
                if wake in left:
                    left.remove(wake)
                if not left:
                    self._watches.pop(run_id, None)

    def flush(self, within: int) -> bool:
        """Wait until everything told so far was delivered, `within` microseconds at most."""
        until = boot_us() + within
        marks: list[concurrent.futures.Future[bool]] = []
        for listener in self._all:
            mark: concurrent.futures.Future[bool] = concurrent.futures.Future()
            listener.tell(mark)
            marks.append(mark)
        done, late = concurrent.futures.wait(marks, max(0, until - boot_us()) / SECOND)
        for mark in late:
            mark.cancel()
        return not late and all(mark.result() for mark in done)

    def after_fork(self) -> None:
        self._lock, self._watches = threading.Lock(), {}
        for listener in self._all:
            listener.forget_thread()


def checked_pattern(pattern: Any) -> str:
    """An event's name, or a group such as `run.*`. Raises InvalidOption with the nearest."""
    if isinstance(pattern, str) and (pattern in NAMES or pattern in _GROUPS):
        return pattern
    words = sorted(NAMES | _GROUPS)
    near = difflib.get_close_matches(str(pattern), words, n=3, cutoff=0.6)
    mend = f"did you mean {' or '.join(map(repr, near))}?" if near else f"events are {', '.join(words)}"
    raise InvalidOption(f"on({pattern!r}): no such event; {mend}")


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", repr(fn))
