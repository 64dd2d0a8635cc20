"""A run as its users hold it: what the store knew when it was read, and a way to wait for its end."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from oncron import _options as check
from oncron._cipher import readable
from oncron._clock import SECOND, boot_us, from_us, from_us_if, wait_us
from oncron._json import loads
from oncron._model import RunRecord, RunState
from oncron._store import ReadableStore
from oncron.errors import NotFound, RunFailed

R = TypeVar("R", default=Any)
T = TypeVar("T")

_FIRST_LOOK = SECOND // 50
_LAST_LOOK = SECOND


class Desk(Protocol):
    """What runs need from the app that they came from."""

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do `work` with the store, on the loop where the store lives."""
        ...

    def watch(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake`, from any thread, when this process sees the run end. May miss it."""
        ...

    def decode_result(self, task: str, text: str) -> Any: ...


class Run(Generic[R]):
    """The durable record that a tick, or a call, asked for work; as it was when it was read.

    Instants are aware UTC datetimes. `state` is `pending`, `running`, `succeeded`, `failed`,
    `lost`, `cancelled` or `skipped`.
    """

    def __init__(self, record: RunRecord, desk: Desk, *, is_new: bool = False) -> None:
        self._record = record
        self._desk = desk
        self.is_new = is_new
        """False if the call found an open run with its unique key and made none."""

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def task(self) -> str:
        return self._record.task

    @property
    def schedule(self) -> str | None:
        return self._record.schedule

    @property
    def tick(self) -> datetime | None:
        """The nominal instant it is for; None outside a schedule."""
        return from_us_if(self._record.tick)

    @property
    def due_at(self) -> datetime:
        return from_us(self._record.due_at)

    @property
    def state(self) -> RunState:
        return self._record.state

    @property
    def attempt(self) -> int:
        """Claims so far; 0 if it was never started."""
        return self._record.attempt

    @property
    def created_at(self) -> datetime:
        return from_us(self._record.created_at)

    @property
    def started_at(self) -> datetime | None:
        return from_us_if(self._record.started_at)

    @property
    def ended_at(self) -> datetime | None:
        return from_us_if(self._record.ended_at)

    @property
    def worker(self) -> str | None:
        """Who holds it, or held it last."""
        return self._record.worker

    @property
    def queue(self) -> str:
        return self._record.queue

    @property
    def priority(self) -> int:
        return self._record.priority

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by name, as plain JSON. Raises WrongKey."""
        return loads(readable(self._record.args, f"the arguments of run {self.id}"))

    @property
    def result(self) -> R | None:
        """What the task returned; None until it has succeeded. A result that was not JSON, or too
        large, is its shortened repr. Raises WrongKey."""
        if self._record.result is None:
            return None
        text = readable(self._record.result, f"the result of run {self.id}")
        return self._desk.decode_result(self._record.task, text)

    @property
    def error(self) -> str | None:
        """The newest traceback."""
        return self._record.error

    @property
    def log(self) -> str | None:
        """What it said with `ctx.log` at INFO or above, and how its attempts went: dated lines, the newest 16 KiB; None
        while there is nothing to tell. Raises WrongKey."""
        log = self._record.log
        return None if log is None else readable(log, f"the log of run {self.id}")

    @property
    def reason(self) -> str | None:
        """Why it is in this state, in one line."""
        return self._record.reason

    @property
    def progress(self) -> Any:
        """What `ctx.progress` last said: done, total, note."""
        return None if self._record.progress is None else loads(self._record.progress)

    @property
    def record(self) -> RunRecord:
        """The row, with instants in microseconds."""
        return self._record

    async def wait(self, within: check.Duration | None = None) -> R:
        """The result, once the run has ended; this object then shows the end.

        Raises RunFailed if it ended otherwise than succeeded, TimeoutError if it has not ended
        `within` that time, a timedelta or seconds (it goes on running), NotFound if it was pruned meanwhile.
        """
        limit = check.duration(within, "within", none=True)
        until = None if limit is None else boot_us() + limit
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:
                pass  # the loop closed in this very moment: nobody waits any more

        with self._desk.watch(self.id, wake):
            pause = _FIRST_LOOK
            while not await self._look():
                left = pause if until is None else min(pause, until - boot_us())
                if left <= 0:
                    seconds = 0 if limit is None else limit / SECOND
                    raise TimeoutError(f"run {self.id} of task {self.task!r} has not ended within {seconds:g} s")
                await wait_us(woken, left)
                woken.clear()
                pause = min(pause * 2, _LAST_LOOK)
        if self.state is not RunState.SUCCEEDED:
            why = f": {self.reason}" if self.reason else ""
            raise RunFailed(f"run {self.id} of task {self.task!r} ended as {self.state.value}{why}", self)
        return self.result  # pyright: ignore[reportReturnType] - None is R's None here

    async def _look(self) -> bool:
        """Read the row again; whether the run has ended."""
        if self._record.state.is_open:
            run_id = self.id
            record = await asyncio.wrap_future(self._desk.call(lambda store: store.get_run(run_id)))
            if record is None:
                raise NotFound(f"run {run_id} is no longer on record: it ended and was pruned")
            self._record = record
        return not self._record.state.is_open

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.task} {self.state.value}>"
