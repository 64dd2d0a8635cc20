"""One replica: the loops of scheduler, worker, keeper and janitor on a loop and thread of their own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from oncron import _defaults as limits
from oncron._clock import boot_us, from_us, sleep_us, wait_us, wall_us
from oncron._engine import registrar
from oncron._engine.door import Door
from oncron._engine.executor import Executor
from oncron._engine.janitor import Janitor
from oncron._engine.keeper import Keeper
from oncron._engine.scheduler import Scheduler
from oncron._engine.shards import Shards
from oncron._engine.spec import Settings, TaskSpec
from oncron._engine.worker import Worker
from oncron._events import Event, Observer
from oncron._model import Definition, Poll, RunRecord, WorkerRecord, new_id
from oncron._store import ReadableStore, Transactions
from oncron.errors import AlreadyRunning, StoreError, StoreUnavailable

log = logging.getLogger("oncron.engine")
T = TypeVar("T")

_RESTART_FIRST = 50_000
_RESTART_CAP = 5 * limits.SECOND
_HINT_GAP = 20_000
"""Hints closer together than this cost one poll."""
_LOOK_FIRST, _LOOK_CAP, _LOOK_UNTIL = 5_000, limits.SECOND // 4, 60 * limits.SECOND
"""How often, and how long, a caller's open transaction is looked at."""
_CLEAN_UP_WITHIN = 700_000
"""How long tasks that were cancelled at the end of a stop may take to clean up: a process that was told
to leave is gone within a second of its limit."""
_LEAVE_WITHIN = 5 * limits.SECOND
"""How long a stopping replica tries to write its last outcomes to a store that does not answer."""


class Engine:
    """Made once per process start (a fork makes its own). `tasks` and `definitions` are read anew
    whenever needed, so that what is declared while it runs takes effect."""

    def __init__(
        self,
        *,
        make_store: Callable[[], ReadableStore],
        settings: Settings,
        tasks: Mapping[str, TaskSpec],
        definitions: Callable[[], Sequence[Definition]],
        emit: Observer,
    ) -> None:
        self.worker_id = f"{socket.gethostname()}:{os.getpid()}:{new_id()[:8]}"
        self.running = False
        self._settings, self._tasks, self._definitions, self._emit = settings, tasks, definitions, emit
        self._make_store = make_store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_lock = threading.Lock()
        self._door: Door | None = None
        self._apart: ReadableStore | None = None
        self._opening: asyncio.Lock | None = None
        self._replica: _Replica | None = None
        self._hurry = False
        self._hinted = False
        self._hinting: asyncio.Future[None] | None = None

    # --- the thread -------------------------------------------------------------------

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._thread_lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(loop,), name="oncron-engine", daemon=True).start()
                self._loop = loop
            return self._loop

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._own_loop())

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do something with the store, on the engine's loop; it is opened at first use. `work` must be
        repeatable (G7): it is tried again while the store is unavailable, within the call deadline."""

        async def go() -> T:
            door = await self._ready()
            return await door.persist(work, limits.CALL_DEADLINE)

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
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._door is None:
                store = self._make_store()
                door = Door(store, self._contact, silence=self._settings.lease_for // 2)
                try:
                    await door.persist(lambda opened: opened.open(), limits.CALL_DEADLINE)
                    if self._settings.auto_migrate:
                        await door.persist(lambda opened: opened.migrate(), 6 * limits.CALL_DEADLINE)
                    else:
                        await door.persist(lambda opened: opened.check(), limits.CALL_DEADLINE)
                    await door.keep_trying(door.sync_clock, limits.CALL_DEADLINE)
                except BaseException:
                    await store.close()
                    raise
                self._door = door
        return self._door

    def close(self) -> None:
        """The store is closed and the thread ends. Further use opens anew."""
        with self._thread_lock:
            loop, self._loop = self._loop, None
            apart, self._apart = self._apart, None
        if apart is not None:
            apart.close_transactions()
        if loop is None:
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)

    async def _close(self) -> None:
        door, self._door, self._opening, self._hinting = self._door, None, None, None
        if door is not None:
            await door.store.close()

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
        self._replica = replica = _Replica(self, door, scheduler=scheduler, worker=worker, user_loop=user_loop)
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
            await replica.stop()
        self.running = False

    def hurry(self) -> None:
        """The second signal: wait no longer."""
        self._hurry = True
        if self._loop is not None and self._replica is not None:
            self._loop.call_soon_threadsafe(self._replica.hurry)

    @property
    def hurried(self) -> bool:
        return self._hurry

    @property
    def unfinished(self) -> list[RunRecord]:
        """Runs whose threads did not return by the end of `stop`."""
        return [] if self._replica is None else self._replica.worker.unfinished

    # --- hearing and telling ----------------------------------------------------------

    def now_us(self) -> int:
        """The store's clock as this replica estimates it (the machine's until the store was asked)."""
        door = self._door
        return door.clock.now_us() if door is not None and door.clock.known else wall_us()

    def changed(self) -> None:
        """Tasks or schedules were declared: they take effect within a second."""
        if self._loop is not None and self.running and self._replica is not None:
            self._loop.call_soon_threadsafe(self._replica.declare_again)

    def hint(self) -> None:
        """Something was written that this replica and the others may want to look at."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._hint)

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
            self._hint()

    def _hint(self) -> None:
        if self._replica is not None and self.running:
            self._replica.look()
            self._replica.tell_others()
        elif self._door is not None:
            self._hinted = True
            if self._hinting is None or self._hinting.done():
                self._hinting = asyncio.ensure_future(self._tell(self._door))

    async def _tell(self, door: Door) -> None:
        """One hint on its way at a time: a producer that enqueues fast does not hint as often."""
        while self._hinted:
            self._hinted = False
            with contextlib.suppress(StoreError):
                await door(lambda store: store.hint())

    def say(
        self,
        name: str,
        *,
        schedule: str | None = None,
        tick: datetime | None = None,
        run: str | None = None,
        reason: str | None = None,
        worker: str | None = None,
    ) -> None:
        self._emit(
            Event(
                name=name,
                at=from_us(self.now_us()),
                schedule=schedule,
                tick=tick,
                run=run,
                reason=reason,
                worker=worker or self.worker_id,
            )
        )

    def _contact(self, up: bool, reason: str) -> None:
        if up:
            log.warning("the store answers again", extra={"event": "store.back"})
            self.say("store.back")
        else:
            log.warning("%s", reason, extra={"event": "store.lost"})
            self.say("store.lost", reason=reason)

    # --- for the replica --------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def tasks(self) -> Mapping[str, TaskSpec]:
        return self._tasks

    def definitions(self) -> Sequence[Definition]:
        return self._definitions()


class _Replica:
    """What lives from start to stop."""

    def __init__(
        self,
        engine: Engine,
        door: Door,
        *,
        scheduler: bool,
        worker: bool,
        user_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._engine, self._door = engine, door
        self._runs_scheduler, self._runs_worker = scheduler, worker
        self._started_at = boot_us()
        self._version: int | None = None
        self._skewed = False
        self._look = asyncio.Event()
        self._tell = asyncio.Event()
        self._declare = asyncio.Event()
        self._hurried = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        settings = engine.settings
        self._executor = Executor(user_loop, engine.say)
        self.worker = Worker(
            door,
            engine.worker_id,
            settings,
            engine.tasks if worker else {},
            self._executor,
            trust=self._trust,
            tell_others=self.tell_others,
            say=engine.say,
        )
        self._keeper = Keeper(
            door,
            settings,
            self._me,
            self.worker,
            engine.tasks,
            on_trust=self._executor.processes.trust,
        )
        self._shards = Shards(engine.worker_id)
        self._scheduler = Scheduler(
            door,
            self._shards,
            reserve=self.worker.reserve,
            take=self.worker.take,
            left_due=self._left_due,
            say=engine.say,
            tzdata=settings.tzdata,
        )
        self._janitor = Janitor(
            door,
            settings,
            lambda: [definition.name for definition in engine.definitions()],
            due=lambda: self.worker.due_at(0),
            look_again=self._scheduler.look_again,
            say=engine.say,
        )

    def _me(self) -> WorkerRecord:
        settings = self._engine.settings
        roles = [name for name, on in (("scheduler", self._runs_scheduler), ("worker", self._runs_worker)) if on]
        return WorkerRecord(
            id=self._engine.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._door.clock.now_us() - (boot_us() - self._started_at),
            release=settings.release,
            tzdata=settings.tzdata,
            roles=tuple(roles),
        )

    def _trust(self, sent: int, lease_left: int) -> bool:
        return self._keeper.trust(sent, lease_left)

    # --- start ------------------------------------------------------------------------

    async def start(self) -> None:
        await self._door.keep_trying(self._keeper.once, limits.CALL_DEADLINE)
        await self._door.keep_trying(self._declare_all, limits.CALL_DEADLINE)
        self._engine.say("worker.started")
        self.worker.accepting = self._runs_worker
        self._spawn("keeper", self._keeper.run)
        self._spawn("watch", self._keeper.watch)
        self._spawn("finish", self.worker.finish_loop)
        if self._runs_worker:
            self._executor.warm(self._engine.tasks.values())
            self._spawn("claim", self.worker.claim_loop)
        if self._runs_scheduler:
            self._spawn("scheduler", self._scheduler.run)
            self._spawn("audit", self._janitor.audit_loop)
        self._spawn("reap", self._janitor.reap_loop)
        self._spawn("prune", self._janitor.prune_loop)
        self._spawn("dormancy", self._janitor.dormancy_loop)
        self._spawn("poll", self._poll_loop)
        self._spawn("hints", self._hint_loop)
        self._spawn("tell", self._tell_loop)
        self._spawn("declare", self._declare_loop)

    def _spawn(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(self._supervised(name, loop), name=f"oncron-{name}")

    async def _supervised(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """No failure ends a loop: it starts again, after a capped and jittered wait."""
        pause = _RESTART_FIRST
        while True:
            began = boot_us()
            try:
                await loop()
            except StoreUnavailable as error:
                log.debug("%s: %s", name, error)
            except StoreError as error:
                log.error("%s: %s", name, error)
            except Exception:
                log.exception("the %s loop failed and starts again", name)
            if boot_us() - began > _RESTART_CAP:
                pause = _RESTART_FIRST
            back = await self._rest(pause // 2 + self._shards.own_hash % (pause // 2))
            pause = _RESTART_FIRST if back else min(pause * 2, _RESTART_CAP)

    async def _rest(self, pause: int) -> bool:
        """So long, or until a store that did not answer was heard by any loop: then True."""
        if self._door.up:
            await sleep_us(pause)
            return False
        return await wait_us(self._door.answers, pause)

    # --- looking and telling ----------------------------------------------------------

    def look(self) -> None:
        self._look.set()

    def tell_others(self) -> None:
        self._tell.set()

    def _left_due(self) -> None:
        """Runs were created that nobody has leased yet: no slot is free here, this replica only schedules,
        or their task is another service's. Somebody else may take them now rather than at its next poll."""
        self.worker.due_at(0)
        self.tell_others()

    async def _poll_loop(self) -> None:
        """Every five seconds (a third of a shorter lease) and after every hint: what changed, what is due,
        what expired (G8, G9)."""
        every = min(limits.POLL_EVERY, self._engine.settings.lease_for // 3)
        while True:
            self._look.clear()
            self._heard(await self._door(lambda store: store.poll(tuple(self._engine.tasks), self._queue_names())))
            await sleep_us(_HINT_GAP)
            await wait_us(self._look, every)

    def _queue_names(self) -> tuple[str, ...] | None:
        queues = self._engine.settings.queues
        return None if queues is None else tuple(queues)

    def _heard(self, poll: Poll) -> None:
        if self._version is not None and poll.version != self._version:
            self._scheduler.schedules_changed()
        self._version = poll.version
        self._look_at_skew()
        if self._shards.meet(frozenset(poll.workers), boot_us()):
            self._scheduler.regroup()
        if poll.expired:
            self._janitor.something_expired()
        self.worker.due_at(poll.next_due_at)
        if poll.next_tick_at is not None and poll.next_tick_at < poll.now - limits.SECOND:
            self._scheduler.look_again()

    def _look_at_skew(self) -> None:
        """A wrong clock here decides nothing, but whoever reads this machine's logs should know."""
        skew = wall_us() - self._door.clock.now_us()
        skewed = abs(skew) > limits.SKEW_WARNING
        if skewed and not self._skewed:
            log.warning(
                "this machine's clock is %.1f s %s the store's; ticks go by the store's",
                abs(skew) / limits.SECOND,
                "ahead of" if skew > 0 else "behind",
                extra={"event": "clock.skewed"},
            )
        self._skewed = skewed

    async def _hint_loop(self) -> None:
        async for _ in self._door.store.wakeups():
            self._look.set()

    async def _tell_loop(self) -> None:
        """One hint on its way at a time; those that come meanwhile become the next one."""
        while True:
            await self._tell.wait()
            self._tell.clear()
            await self._door(lambda store: store.hint())

    # --- declaring --------------------------------------------------------------------

    def declare_again(self) -> None:
        self._declare.set()

    async def _declare_loop(self) -> None:
        while True:
            await self._declare.wait()
            self._declare.clear()
            try:
                await self._declare_all()
            except BaseException:
                self._declare.set()  # not declared yet: the loop starts again and does it then
                raise
            self._scheduler.look_again()
            self.worker.due_at(0)

    async def _declare_all(self) -> None:
        definitions = self._engine.definitions()
        if not definitions:
            return
        for name, what in await self._door(
            lambda store: registrar.declare(store, definitions), deadline=6 * limits.CALL_DEADLINE
        ):
            reason = "do two versions of the code run? give Oncron(release=...)" if what == "flapped" else None
            self._engine.say(f"schedule.{what}", schedule=name, reason=reason)
            self.tell_others()

    # --- stop -------------------------------------------------------------------------

    def hurry(self) -> None:
        self._hurried.set()

    async def stop(self) -> None:
        """Fire and claim no more; wait up to `stop_within` (heartbeats go on); then cancel; give back
        only what has stopped; leave if nothing is held."""
        if self._engine.hurried:
            self._hurried.set()
        self.worker.wind_down()
        # A fire or claim on its way may already have leased runs to this worker: its answer is waited for,
        # so that they are given back now instead of when the lease expires.
        await self._until(self.worker.answered, limits.CALL_DEADLINE)
        await self._end("scheduler", "claim", "audit", "declare", "reap", "prune", "dormancy")
        await self._until(self.worker.quiet, self._engine.settings.stop_within)
        if self.worker.executions:
            self.worker.stop_all()
            await wait_us(self.worker.quiet, _CLEAN_UP_WITHIN)
        if self.worker.has_unwritten:
            await wait_us(self.worker.quiet, _LEAVE_WITHIN if not self._hurried.is_set() else limits.SECOND)
        await self._end(*self._tasks)
        with contextlib.suppress(StoreError):
            # The others look at once for what was given back, and for ticks that this one fired last.
            await self._door(lambda store: store.hint(), deadline=2 * limits.SECOND)
            if not self.worker.executions:
                await self._door(lambda store: store.leave(self._engine.worker_id), deadline=2 * limits.SECOND)
        await self._executor.close()
        self._engine.say("worker.stopped")

    async def _until(self, event: asyncio.Event, within: int) -> None:
        """Wait for it: so long at most, and no longer once the second signal came."""
        waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._hurried.wait())}
        await asyncio.wait(waits, timeout=within / 1_000_000, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _end(self, *names: str) -> None:
        tasks = [task for name in names if (task := self._tasks.pop(name, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
