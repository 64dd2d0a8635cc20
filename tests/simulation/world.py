"""Virtual time: an event loop whose clock jumps to the next timer when everybody sleeps, and processes on it.

Nothing here really sleeps, and nothing depends on how fast the machine is: the same seed gives
the same story. A *process* is a part of the story that can be killed or stopped like one of the
operating system's: everything that it scheduled carries it in its context.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import random
import types
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from oncron import _clock, _model

T = TypeVar("T")
SECOND = 1_000_000
START = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z"""

_BUSY = 200_000
"""So many callbacks without the clock moving are a loop that spins."""


class Process:
    """Something that can die, or stop and go on. Its clocks are its own."""

    def __init__(self, name: str, *, wall_offset: int = 0, boot_offset: int = 0, drift_ppm: int = 0) -> None:
        self.name = name
        self.wall_offset, self.boot_offset, self.drift_ppm = wall_offset, boot_offset, drift_ppm
        self.dead = False
        self.stopped = False
        self.backlog: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def kill(self) -> None:
        """As by SIGKILL: nothing of it runs any more, not even a `finally`."""
        self.dead = True
        self.backlog.clear()

    def stop(self) -> None:
        """As by SIGSTOP: what comes in waits."""
        self.stopped = True

    def go_on(self, loop: VirtualLoop) -> None:
        self.stopped = False
        loop._ready.extend(self.backlog)
        self.backlog.clear()

    def context(self) -> contextvars.Context:
        context = contextvars.Context()
        context.run(PROCESS.set, self)
        return context


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Spinning(AssertionError):
    """A loop of the code under test goes round without ever sleeping."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, but for what it waits with."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self.now_us = START
        self.callbacks = 0
        self._busy = 0
        self.outside = contextvars.Context()
        """Where servers run: no process, so that nobody's death stops them."""
        self.hears: Callable[[str], None] = lambda _text: None
        """Told what no handler caught."""
        self.set_exception_handler(self._complain)
        self.set_task_factory(_task)

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.hears(f"{context.get('message')}: {context.get('exception')!r}")

    def time(self) -> float:
        return (self.now_us - START) / SECOND

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            self._jump()
        now = self.time()
        while self._scheduled and self._scheduled[0]._when <= now:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            self._ready.append(timer)
        self._busy += len(self._ready)
        if self._busy > _BUSY:
            names = [repr(handle)[:200] for handle in list(self._ready)[:3]]
            raise Spinning(f"{self._busy} callbacks without the clock moving: {names}")
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None and (process.dead or process.stopped):
                if not process.dead:
                    process.backlog.append(handle)
                continue
            self.callbacks += 1
            handle._run()

    def _jump(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._scheduled:
            raise AssertionError("nothing will ever happen again: everybody waits for somebody else")
        when = START + math.ceil(self._scheduled[0]._when * SECOND - 0.001)
        if when > self.now_us:
            self.now_us, self._busy = when, 0
        # a float's last bit must not make the loop turn without its timer
        self._scheduled[0]._when = min(self._scheduled[0]._when, self.time())

    def _write_to_self(self) -> None: ...

    def _process_events(self, event_list: list[Any]) -> None: ...

    def in_process(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return process.context().run(self.create_task, work)

    def at(self, delay: int, call: Callable[..., object], *args: object) -> None:
        """Call something outside of every process, so many microseconds from now."""
        self.call_at(self.time() + delay / SECOND, call, *args, context=self.outside)


async def passes(seconds: float) -> None:
    """So much virtual time passes for the caller."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    done: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, lambda: done.done() or done.set_result(None))
    try:
        await done
    finally:
        timer.cancel()


def _task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
    process = PROCESS.get()
    if process is not None:
        process.tasks = (
            [other for other in process.tasks if not other.done()] if len(process.tasks) > 99 else process.tasks
        )
        process.tasks.append(task)  # what a killed process leaves must not be collected: its `finally` would run
    return task


class _Time:
    """Stands in for the module `time` inside `oncron._clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def time_ns(self) -> int:
        process = PROCESS.get()
        return (self._loop.now_us + (0 if process is None else process.wall_offset)) * 1000

    def clock_gettime_ns(self, _clock_id: int) -> int:
        process = PROCESS.get()
        now = self._loop.now_us
        if process is not None:
            now += process.boot_offset - START + (now - START) * process.drift_ppm // 1_000_000
        return now * 1000

    def sleep(self, seconds: float) -> None:
        self._loop.now_us += round(seconds * SECOND)
        self._loop._busy = 0


@contextmanager
def virtual_time(seed: int) -> Iterator[VirtualLoop]:
    """A loop in virtual time; inside, oncron's clocks and its chance are the story's own."""
    loop = VirtualLoop()
    chance = random.Random(seed)
    state = random.getstate()
    random.seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_clock, "time", _Time(loop))
        patch.setattr(_model, "os", types.SimpleNamespace(urandom=chance.randbytes))
        patch.setattr(_model, "_newest", _model._Newest())
        try:
            yield loop
        finally:
            random.setstate(state)
            _bury(loop)


def _bury(loop: VirtualLoop) -> None:
    """Close what is left without letting it run on, so that nothing is told about it later."""
    loop.set_exception_handler(lambda *_: None)
    for task in asyncio.all_tasks(loop):
        work = task.get_coro()
        try:
            if isinstance(work, types.CoroutineType):
                work.close()
        except BaseException:  # noqa: BLE001 - the story is over, whatever its tasks still think
            pass
    loop._ready.clear()
    loop._scheduled.clear()
    loop.close()
