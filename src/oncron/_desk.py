"""The desk where tasks and runs come with their wishes: it hands them to the engine, which has the store."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from typing_extensions import Unpack

from oncron._chain import Layer
from oncron._clock import SECOND, from_us
from oncron._engine.door import Door
from oncron._events import Event, Fields, of_run
from oncron._json import loads
from oncron._life import Life
from oncron._listeners import Listeners
from oncron._model import EnqueueResult, NewRun
from oncron._registry import Registry
from oncron._store import ReadableStore, Transactions

T = TypeVar("T")

_CHUNK = 1000


class FrontDesk:
    """One per app."""

    def __init__(self, life: Life, listeners: Listeners, registry: Registry) -> None:
        self._life, self._listeners, self._registry = life, listeners, registry
        self.state: Any = None
        """What tasks find as `ctx.state`."""

    @property
    def middleware(self) -> Sequence[Layer]:
        return self._registry.middleware

    def refuse_if_stopped(self, what: str) -> None:
        """Raises Stopped."""
        self._life.refuse_if_stopped(what)

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do `work` with the store, on the loop where the store lives. It must be repeatable (G7)."""
        return self._life.engine.call(work)

    def at_door(self, work: Callable[[Door], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Do `work` on the loop where the store lives, however long it takes."""
        return self._life.engine.at_door(work)

    @property
    def replica(self) -> str:
        """Host and process, for operators."""
        return self._life.engine.worker_id

    async def ask(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """`call`, awaited."""
        return await asyncio.wrap_future(self.call(work))

    async def sleep(self, duration: int) -> None:
        """Microseconds, of the time in which this app lives: a test may move it."""
        await self._life.engine.sleep(duration)

    async def change(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """`ask`, after which everybody is told to look."""
        answer = await self.ask(work)
        self._life.engine.hint()
        return answer

    def write(self, runs: Sequence[NewRun]) -> concurrent.futures.Future[list[EnqueueResult]]:
        """Enqueue; when it is done, the runs are in the store. Raises Stopped."""
        self._life.refuse_if_stopped("enqueue")
        self._listeners.asked_for(runs)
        future = self.call(lambda store: _enqueue(store, runs))

        def done(written: concurrent.futures.Future[list[EnqueueResult]]) -> None:
            if not written.cancelled() and written.exception() is None:
                self.written(written.result())

        future.add_done_callback(done)
        return future

    def write_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        """Enqueue inside the transaction of a caller's connection. Raises Stopped, StoreError, DefinitionError."""
        self._life.refuse_if_stopped("enqueue")
        self._listeners.asked_for(runs)
        results = self.transactions.enqueue_in(connection, runs)
        self._hint_after(connection, results)
        return results

    async def write_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        """The same; also for async connections."""
        self._life.refuse_if_stopped("enqueue")
        self._listeners.asked_for(runs)
        results = await self.transactions.enqueue_in_async(connection, runs)
        self._hint_after(connection, results)
        return results

    def _hint_after(self, connection: Any, results: Sequence[EnqueueResult]) -> None:
        """Whether it commits is the caller's: no event tells of these runs, and the hint is one to look."""
        still_open = self.transactions.still_open(connection)
        now = self._life.engine.now_us()
        if still_open is not None and any(result.is_new and result.run.due_at <= now + SECOND for result in results):
            self._life.engine.hint_after(still_open)

    @property
    def transactions(self) -> Transactions:
        """The store, for transactions on other threads, loops and connections than the engine's."""
        return self._life.engine.transactions

    @property
    def lease_for(self) -> int:
        return self._life.engine.settings.lease_for

    def look_around(self) -> None:
        """Somebody may have been waiting for what was committed just now."""
        self._life.engine.hint()

    def written(self, results: Sequence[EnqueueResult]) -> None:
        """Tell of new runs: listeners, and whoever may claim what is due."""
        new = [result.run for result in results if result.is_new]
        for run in new:
            self.say("run.enqueued", **of_run(run))
        now = self._life.engine.now_us()
        if any(run.due_at <= now + SECOND for run in new):
            self._life.engine.hint()

    def say(self, name: str, /, **fields: Unpack[Fields]) -> None:
        self._listeners.emit(Event(name=name, at=from_us(self._life.engine.now_us()), **fields))

    def watch(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake`, from any thread, when this process sees the run end. May miss it."""
        return self._listeners.watch(run_id, wake)

    def decode_result(self, task: str, text: str) -> Any:
        """As the task's annotation says, if the task is known here."""
        known = self._registry.tasks.get(task)
        return loads(text) if known is None else known.parameters.decode_result(text)


async def _enqueue(store: ReadableStore, runs: Sequence[NewRun]) -> list[EnqueueResult]:
    """One result per run, in order."""
    results: list[EnqueueResult] = []
    for at in range(0, len(runs), _CHUNK):
        results += await store.enqueue(runs[at : at + _CHUNK])
    return results
