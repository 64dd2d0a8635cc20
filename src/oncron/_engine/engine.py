"""The engine of one process: the store and the replica, on a loop and thread of their own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from typing_extensions import Unpack

from oncron import _defaults as limits
from oncron._clock import boot_us, from_us, sleep_us, wall_us
from oncron._engine.door import Door, StoreClock
from oncron._engine.replica import Replica
from oncron._engine.spec import Settings, TaskSpec
from oncron._events import Event, Fields, Observer, of_run
from oncron._model import Definition, RunRecord, new_id
from oncron._store import ReadableStore, Transactions
from oncron.errors import AlreadyRunning, StoreError, StoreUnavailable

log = logging.getLogger("oncron.engine")
T = TypeVar("T")

_LOOK_FIRST, _LOOK_CAP, _LOOK_UNTIL = 5_000, limits.SECOND // 20, 60 * limits.SECOND
"""How often, and how long, a caller's open transaction is looked at."""
_TELL_WITHIN = 1.0
"""Seconds that a hint on its way may take when the engine is closed. What it told of would wait for the next poll."""
_END_WITHIN = 2.0
"""Seconds that what is under way may take to end when the engine is closed."""


class Home:
    """The engine's loop, from first use to `close`, and what lives on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.opening = asyncio.Lock()
        self.door: Door | None = None
        self.hinted = False
        self.hinting: asyncio.Future[None] | None = None


class Engine:
    """Made once per process start (a fork makes its own). `make_clock` and `make_replica` are for one whose time is
    moved by hand (`stepped`)."""

    def __init__(
        self,
        *,
        make_store: Callable[[], ReadableStore],
        settings: Settings,
        tasks: Mapping[str, TaskSpec],
        definitions: Callable[[], Sequence[Definition]],
        emit: Observer,
        hears: Callable[[str], bool] = lambda _: True,
        on_call: Callable[[int, StoreError | None], None] | None = None,
        make_clock: Callable[[], StoreClock] = StoreClock,
        make_replica: type[Replica] = Replica,
    ) -> None:
        self._on_call, self._hears = on_call, hears
        self._make_clock, self._make_replica = make_clock, make_replica
        self.worker_id = _new_identity()
        self.running = False
        self.settings, self._tasks, self._definitions, self._emit = settings, tasks, definitions, emit
        self._make_store = make_store
        self._home: Home | None = None
        self._thread_lock = threading.Lock()
        self._apart: ReadableStore | None = None
        self._replica: Replica | None = None
        self._hurry = False

    # --- the thread -------------------------------------------------------------------

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """On the engine's loop. What `close` interrupts raises StoreUnavailable."""
        with self._thread_lock:  # so that `close` finds all that was ever submitted
            if self._home is None:
                self._home = Home(asyncio.new_event_loop())
                threading.Thread(target=_serve, args=(self._home.loop,), name="oncron-engine", daemon=True).start()
            return asyncio.run_coroutine_threadsafe(self._unless_closed(work), self._home.loop)

    async def _unless_closed(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except asyncio.CancelledError:
            self._here()
            raise

    def _here(self) -> Home:
        """Where this coroutine runs. Raises StoreUnavailable if that was closed."""
        home = self._home
        if home is None or home.loop is not asyncio.get_running_loop():
            raise StoreUnavailable(
                "the app was stopped during this call, whose outcome is unknown; repeat it if it still matters"
            ) from None
        return home

    def _soon(self, fn: Callable[[], None]) -> None:
        """On the engine's loop, if there is one."""
        with self._thread_lock:
            if self._home is not None:
                self._home.loop.call_soon_threadsafe(fn)

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do something with the store, on the engine's loop; it is opened at first use. `work` must be
        repeatable (G7): it is tried again while the store is unavailable, within the call deadline."""

        async def go() -> T:
            door = await self._ready()
            return await door.persist(work, limits.CALL_DEADLINE)

        return self._submit(go())

    def at_door(self, work: Callable[[Door], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Do something through the store's door on the engine's loop, however long it takes."""

        async def go() -> T:
            return await work(await self._ready())

        return self._submit(go())

    @property
    def transactions(self) -> Transactions:
        """For transactions on other threads and loops than the engine's: a store of its own, never opened."""
        with self._thread_lock:
            if self._apart is None:
                self._apart = self._make_store()
            return self._apart

    async def _ready(self) -> Door:
        """The open store. The first caller opens and migrates it, the others wait for that."""
        home = self._here()
        async with home.opening:
            if home.door is None:
                store = self._make_store()
                door = Door(
                    store,
                    self._contact,
                    silence=self.settings.lease_for // 2,
                    clock=self._make_clock(),
                    on_call=self._on_call,
                )
                try:
                    await door.persist(lambda opened: opened.open(), limits.CALL_DEADLINE)
                    if self.settings.auto_migrate:
                        await door.persist(lambda opened: opened.migrate(), 6 * limits.CALL_DEADLINE)
                    else:
                        await door.persist(lambda opened: opened.check(), limits.CALL_DEADLINE)
                    await door.keep_trying(door.sync_clock, limits.CALL_DEADLINE)
                except BaseException:
                    await store.close()
                    raise
                home.door = door
        return home.door

    def close(self) -> None:
        """The store is closed and the thread ends; whoever still waits for a call gets StoreUnavailable.
        Further use opens anew."""
        with self._thread_lock:
            self.running = False
            home, self._home = self._home, None
            apart, self._apart = self._apart, None
        if apart is not None:
            apart.close_transactions()
        if home is None:
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(_close(home), home.loop).result(5)
        home.loop.call_soon_threadsafe(home.loop.stop)

    # --- start and stop ---------------------------------------------------------------

    async def start(self, *, scheduler: bool, worker: bool, user_loop: asyncio.AbstractEventLoop) -> None:
        """Register, declare, and go. Raises StoreError if the store cannot be used, AlreadyRunning."""
        if self.running:
            raise AlreadyRunning("this app is already running; stop it before starting it again")
        self.running = True
        self._hurry = False
        try:
            await asyncio.wrap_future(self._submit(self._start(scheduler, worker, user_loop)))
        except BaseException:
            self.running = False
            raise

    async def _start(self, scheduler: bool, worker: bool, user_loop: asyncio.AbstractEventLoop) -> None:
        door = await self._ready()
        if self.unfinished:
            # Threads of the life before hold runs under the old name: its lease ends, instead of this life
            # giving back (or starting again) what is still being executed.
            self.worker_id = _new_identity()
        self._replica = replica = self._make_replica(
            door,
            self.worker_id,
            self.settings,
            tasks=self._tasks,
            definitions=self._definitions,
            say=self.say,
            scheduler=scheduler,
            worker=worker,
            user_loop=user_loop,
        )
        await replica.start()

    async def stop(self) -> None:
        """Stop firing and claiming, wait for what runs, give back what has stopped. What is still executing
        then (threads that did not return) is in `unfinished`."""
        if not self.running:
            return
        await asyncio.wrap_future(self._submit(self._stop()))

    async def _stop(self) -> None:
        replica = self._replica
        if replica is not None:
            if self._hurry:
                replica.hurry()
            await replica.stop()
        self.running = False

    def hurry(self) -> None:
        """The second signal: wait no longer."""
        self._hurry = True
        if self._replica is not None:
            self._soon(self._replica.hurry)

    @property
    def unfinished(self) -> list[RunRecord]:
        """Runs whose threads did not return by the end of `stop`."""
        return [] if self._replica is None else self._replica.worker.unfinished

    @property
    def slots(self) -> tuple[int, int]:
        """How many of this worker's slots are taken, of how many; none while it executes nothing."""
        if self._replica is None or not self.running:
            return 0, 0
        return self._replica.worker.slots

    # --- hearing and telling ----------------------------------------------------------

    def now_us(self) -> int:
        """The store's clock as this replica estimates it (the machine's until the store was asked)."""
        home = self._home
        door = None if home is None else home.door
        return door.clock.now_us() if door is not None and door.clock.known else wall_us()

    def turns(self, within: int) -> bool:
        """Whether the engine's loop comes round within so many microseconds; True while there is none. Waits that
        long at most, on the caller's thread, and asks no store."""
        with self._thread_lock:
            if self._home is None:
                return True
            came_round = threading.Event()
            with contextlib.suppress(RuntimeError):  # closed under us: it will not come round
                self._home.loop.call_soon_threadsafe(came_round.set)
        return came_round.wait(within / limits.SECOND)

    def silent_for(self) -> int | None:
        """Microseconds since the store answered last; None if it never did."""
        home = self._home
        return None if home is None or home.door is None else boot_us() - home.door.last_contact

    async def sleep(self, duration: int) -> None:
        """On the caller's loop, microseconds."""
        await sleep_us(duration)

    def changed(self) -> None:
        """Tasks or schedules were declared: they take effect within a second."""
        if self.running and self._replica is not None:
            self._soon(self._replica.declare_again)

    def hint(self) -> None:
        """Something was written that this replica and the others may want to look at. It is told also if `close`
        comes next: a command writes, and ends."""
        with self._thread_lock:
            home = self._home
            if home is not None:
                home.loop.call_soon_threadsafe(self._hint, home)

    def hint_after(self, still_open: Callable[[], bool]) -> None:
        """`hint` once a caller's transaction has ended, if that is soon."""
        self._submit(self._hint_after(still_open))

    async def _hint_after(self, still_open: Callable[[], bool]) -> None:
        pause, until = _LOOK_FIRST, boot_us() + _LOOK_UNTIL
        while still_open():
            if boot_us() > until:
                return
            await sleep_us(pause)
            pause = min(2 * pause, _LOOK_CAP)
        with contextlib.suppress(StoreError):
            await self._ready()
            self._hint(self._here())

    def _hint(self, home: Home) -> None:
        if self._replica is not None and self.running:
            self._replica.look()
            self._replica.tell_others()
        elif home.door is not None:
            home.hinted = True
            if home.hinting is None or home.hinting.done():
                home.hinting = asyncio.ensure_future(_tell(home, home.door))

    def say(self, name: str, about: RunRecord | None = None, /, **fields: Unpack[Fields]) -> None:
        """From any thread. What nobody hears is not even put together: there are some for each run."""
        if not self._hears(name):
            return
        said: Fields = fields if about is None else {**of_run(about), **fields}
        said.setdefault("worker", self.worker_id)
        self._emit(Event(name=name, at=from_us(self.now_us()), **said))

    def _contact(self, up: bool, reason: str) -> None:
        if up:
            log.warning("the store answers again", extra={"event": "store.back"})
            self.say("store.back")
        else:
            log.warning("%s", reason, extra={"event": "store.lost"})
            self.say("store.lost", reason=reason)


def _new_identity() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{new_id()[:8]}"


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_others())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _close(home: Home) -> None:
    if home.hinting is not None:
        await asyncio.wait([home.hinting], timeout=_TELL_WITHIN)
    await _cancel_others()
    if home.door is not None:
        await home.door.store.close()


async def _cancel_others() -> None:
    """Whatever else runs on this loop ends, so that nobody waits for it for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_END_WITHIN)


async def _tell(home: Home, door: Door) -> None:
    """One hint on its way at a time: a producer that enqueues fast does not hint as often."""
    while home.hinted:
        home.hinted = False
        with contextlib.suppress(StoreError):
            await door(lambda store: store.hint())
