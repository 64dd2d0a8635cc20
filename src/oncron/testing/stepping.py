"""The engine of an app whose clock is moved by hand, and the store it works on."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from msgspec.structs import replace as replace_record
from typing_extensions import Unpack

from oncron import _defaults as limits
from oncron._clock import sleep_us
from oncron._context import current_run, in_run
from oncron._engine.engine import Engine
from oncron._engine.spec import Settings
from oncron._engine.stepped import SteppedReplica, StillClock
from oncron._events import Fields
from oncron._hosting import in_sync
from oncron._model import EnqueueResult, RunRecord
from oncron._store import ReadableStore
from oncron.errors import Stopped
from oncron.testing.hand import Hand

T = TypeVar("T")

_LEASE_AT_LEAST = 3600 * limits.SECOND
"""Nobody is there to take over, and a debugger may hold everything up."""
_PASSES = 20
"""Turns of the loop after which a task that woke is taken to be where it waits next."""
_TOLD = frozenset({
    "run.claimed", "run.succeeded", "run.failed", "run.lost", "run.cancelled", "run.skipped", "run.retried",
})  # fmt: skip


class BenchStore(ReadableStore, Protocol):
    """A store that shows its runs in the order in which they came."""

    def all_runs(self) -> list[RunRecord]: ...


class SteppedEngine(Engine):
    """Moves the hand from due instant to due instant, and lets the replica do what is due. With `eager` whatever is
    enqueued is executed before the call returns."""

    def __init__(self, *, settings: Settings, hand: Hand, store: BenchStore, patience: int, eager: bool, **parts: Any):
        super().__init__(
            settings=_patient(settings),
            make_store=lambda: store,
            make_clock=lambda: StillClock(hand.now),
            make_replica=SteppedReplica,
            **parts,
        )
        self._hand, self._store, self._patience, self._eager = hand, store, patience, eager
        self._told: dict[str, None] = {}
        self._turn = asyncio.Lock()
        self.default_loop: asyncio.AbstractEventLoop | None = None
        """Where async tasks run for callers that have no lasting loop of their own."""
        self._tasks_on: asyncio.AbstractEventLoop | None = None

    def walk(self, duration: int, *, at_once: bool = False) -> concurrent.futures.Future[list[str]]:
        """Move the hand so far, executing all that becomes due, at its instant, and at the end if `at_once`. The ids
        of the runs that began or ended, in that order. Raises Stopped, TimeoutError."""
        return self._submit(self._walk(duration, self.tasks_loop(), at_once=at_once))

    async def sleep(self, duration: int) -> None:
        """Until the hand has moved so far."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            loop.call_soon_threadsafe(lambda: woken.done() or woken.set_result(None))

        in_thread = in_run() and loop not in (self.default_loop, self._tasks_on)
        with self._hand.asleep(run_here(), self._hand.now() + duration, wake, in_thread=in_thread):
            self.stir()
            await woken

    def stir(self) -> None:
        """A task fell asleep."""
        if self._replica is not None:
            self._soon(self._replica.look)

    def tasks_loop(self) -> asyncio.AbstractEventLoop | None:
        """The caller's, if it lasts."""
        if in_sync.get():
            return self.default_loop
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return self.default_loop

    def say(self, name: str, about: RunRecord | None = None, /, **fields: Unpack[Fields]) -> None:
        if about is not None and name in _TOLD:
            self._told[about.id] = None
        super().say(name, about, **fields)

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        if self._eager and self.running and not in_run():
            return self._submit(self._call_eagerly(work, self.tasks_loop()))
        return self._submit(self._call(work))

    def let_go(self) -> concurrent.futures.Future[None]:
        """Whatever runs is told to stop, at once."""
        return self._submit(self._let_go())

    async def _let_go(self) -> None:
        self.hurry()
        if isinstance(self._replica, SteppedReplica):
            self._replica.worker.wind_down()
            self._replica.worker.stop_all()

    async def _start(self, scheduler: bool, worker: bool, user_loop: asyncio.AbstractEventLoop) -> None:
        self._turn = asyncio.Lock()
        await super()._start(scheduler, worker, user_loop)

    async def _walk(self, duration: int, loop: asyncio.AbstractEventLoop | None, *, at_once: bool) -> list[str]:
        async with self._turn:
            self._told = {}
            end = self._hand.now() + duration
            if at_once:
                await self._settle(loop)  # what was declared and due before
                self._hand.move(end)
            while True:
                at = await self._settle(loop)
                if at is None or at > end:
                    if self._hand.now() >= end:
                        return list(self._told)
                    at = end
                self._hand.move(at)

    async def _settle(self, loop: asyncio.AbstractEventLoop | None) -> int | None:
        """Everything that is due is done. When something is due next, a sleeper's time included."""
        replica = self._stepped()
        if loop is not None:
            self._tasks_on = loop
            replica.run_tasks_on(loop)
        while True:
            due = await replica.settle(self._hand.is_asleep, self._patience)
            if not await self._somebody_stirs(replica):
                return min((at for at in (due, self._hand.next_wake()) if at is not None), default=None)

    async def _somebody_stirs(self, replica: SteppedReplica) -> bool:
        """Whether a run that sleeps in one of its tasks does something in another: that is not known, so the loop is
        given some turns."""
        loop, before = self._tasks_on or self.default_loop, self._hand.stirs
        if self._hand.next_wake() is None or loop is None or not loop.is_running():
            return False
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_pass(), loop))
        return self._hand.stirs != before or replica.worker.moved.is_set()

    def _stepped(self) -> SteppedReplica:
        if not self.running or not isinstance(self._replica, SteppedReplica):
            raise Stopped("the app was stopped inside of its ManualClock; nothing runs until it is started again")
        return self._replica

    async def _call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """What was declared before is in the store by then."""
        door = await self._ready()
        if self.running and isinstance(self._replica, SteppedReplica):
            await self._replica.declare_what_is_new()
        return await door.persist(work, limits.CALL_DEADLINE)

    async def _call_eagerly(
        self, work: Callable[[ReadableStore], Awaitable[Any]], loop: asyncio.AbstractEventLoop | None
    ) -> Any:
        answer = await self._call(work)
        written = _enqueued(answer)
        if not written:
            return answer
        async with self._turn:
            await self._settle(loop)
        rows = {row.id: row for row in await self._store.get_runs([result.run.id for result in written])}
        now = [replace_record(result, run=rows.get(result.run.id, result.run)) for result in written]
        return now if isinstance(answer, list) else now[0]


def run_here() -> str | None:
    """The run whose task calls."""
    return current_run().run_id if in_run() else None


def _enqueued(answer: object) -> list[EnqueueResult]:
    """The answer, if it is one to enqueueing."""
    many = cast("list[object]", answer if isinstance(answer, list) else [answer])
    return [result for result in many if isinstance(result, EnqueueResult)]


def _patient(settings: Settings) -> Settings:
    return replace(settings, lease_for=max(settings.lease_for, _LEASE_AT_LEAST))


async def _pass() -> None:
    for _ in range(_PASSES):
        await sleep_us(0)
