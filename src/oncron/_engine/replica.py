"""One replica from start to stop: the loops of scheduler, worker, keeper and janitor, supervised."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from oncron import _defaults as limits
from oncron._clock import boot_us, sleep_us, wait_us, wall_us
from oncron._engine import registrar
from oncron._engine.door import Door
from oncron._engine.executor import Executor
from oncron._engine.followers import Followers
from oncron._engine.guard import Guards
from oncron._engine.janitor import Janitor
from oncron._engine.keeper import Keeper
from oncron._engine.scheduler import Scheduler
from oncron._engine.shards import Shards
from oncron._engine.spec import Settings, TaskSpec
from oncron._engine.worker import Worker
from oncron._events import Say
from oncron._model import Definition, Poll, WorkerRecord
from oncron.errors import StoreError, StoreUnavailable

log = logging.getLogger("oncron.engine")

_RESTART_FIRST = 50_000
_RESTART_CAP = 5 * limits.SECOND
_HINT_GAP = 20_000
"""Hints closer together than this cost one poll."""
_CLEAN_UP_WITHIN = 700_000
"""How long tasks that were cancelled at the end of a stop may take to clean up: a process that was told
to leave is gone within a second of its limit."""
_TOLD_TASKS = 500
"""With more tasks than this a worker does not tell which it has: it would with each heartbeat."""
_LEAVE_WITHIN = 5 * limits.SECOND
"""How long a stopping replica tries to write its last outcomes to a store that does not answer."""


class Replica:
    """What lives from start to stop. `tasks` and `definitions` are read anew whenever needed, so that what is
    declared while it runs takes effect."""

    def __init__(
        self,
        door: Door,
        worker_id: str,
        settings: Settings,
        *,
        tasks: Mapping[str, TaskSpec],
        definitions: Callable[[], Sequence[Definition]],
        say: Say,
        scheduler: bool,
        worker: bool,
        user_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._door, self._worker_id, self._settings = door, worker_id, settings
        self._tasks, self._definitions, self._say = tasks, definitions, say
        self._runs_scheduler, self._runs_worker = scheduler, worker
        self._started_at = boot_us()
        self._version: int | None = None
        self._skewed = False
        self._overruled: set[str] = set()
        """Schedules that were complained of: another release has the word."""
        self._look = asyncio.Event()
        self._tell = asyncio.Event()
        self._declare = asyncio.Event()
        self._hurried = asyncio.Event()
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._executor = Executor(user_loop, say)
        self._followers = Followers(door, tasks, due=self._left_due)
        self.worker = Worker(
            door,
            worker_id,
            settings,
            tasks if worker else {},
            self._executor,
            trust=self._trust,
            tell_others=self.tell_others,
            run_ended=self._followers.run_ended,
            has_settled=self._has_settled,
            say=say,
        )
        self._keeper = Keeper(
            door,
            settings,
            self._me,
            self.worker,
            tasks,
            on_trust=self._executor.processes.trust,
        )
        self._guards = Guards(door)
        self._shards = Shards(worker_id)
        self._scheduler = Scheduler(
            door,
            self._shards,
            reserve=self.worker.reserve,
            take=self.worker.take,
            left_due=self._left_due,
            say=say,
            tzdata=settings.tzdata,
        )
        self._janitor = Janitor(
            door,
            settings,
            definitions,
            due=lambda: self.worker.due_at(0),
            look_again=self._scheduler.look_again,
            declare_again=self._offer_again,
            run_ended=self._followers.run_ended,
            worker_died=self._followers.worker_died,
            say=say,
        )

    def _me(self) -> WorkerRecord:
        roles = [name for name, on in (("scheduler", self._runs_scheduler), ("worker", self._runs_worker)) if on]
        return WorkerRecord(
            id=self._worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._door.clock.now_us() - (boot_us() - self._started_at),
            release=self._settings.release,
            tzdata=self._settings.tzdata,
            roles=tuple(roles),
            tasks=tuple(self._tasks) if self._runs_worker and len(self._tasks) <= _TOLD_TASKS else (),
            queues=self._queue_names() if self._runs_worker else None,
            version=self._settings.version,
            skew=self._skew(),
        )

    def _has_settled(self, schedule: str, tick: int) -> None:
        if self._runs_scheduler:
            self._scheduler.has_settled(schedule, tick)

    def _trust(self, sent: int, lease_left: int) -> bool:
        return self._keeper.trust(sent, lease_left)

    # --- start ------------------------------------------------------------------------

    async def start(self) -> None:
        await self._door.keep_trying(self._keeper.once, limits.CALL_DEADLINE)
        await self._door.keep_trying(lambda: self._guards.refuse(self._definitions()), limits.CALL_DEADLINE)
        await self._door.keep_trying(self._declare_all, limits.CALL_DEADLINE)
        self._say("worker.started")
        self.worker.accepting = self._runs_worker
        self._spawn("keeper", self._keeper.run)
        self._spawn("watch", self._keeper.watch)
        self._spawn("finish", self.worker.endings.finish_loop)
        self._spawn("finish apart", self.worker.endings.finish_apart_loop)
        if self._runs_worker:
            self._executor.warm(self._tasks.values())
            self._spawn("claim", self.worker.claim_loop)
            self._spawn("follow", self._followers.look_loop)
        self._spawn("settle", self._followers.settle_loop)
        if self._runs_scheduler:
            self._spawn("scheduler", self._scheduler.run)
            self._spawn("audit", self._janitor.audit_loop)
        self._spawn("reap", self._janitor.reap_loop)
        self._spawn("prune", self._janitor.prune_loop)
        self._spawn("dormancy", self._janitor.dormancy_loop)
        self._spawn("revive", self._janitor.revive_loop)
        self._spawn("poll", self._poll_loop)
        self._spawn("hints", self._hint_loop)
        self._spawn("tell", self._tell_loop)
        self._spawn("declare", self._declare_loop)

    def _spawn(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loops[name] = asyncio.get_running_loop().create_task(self._supervised(name, loop), name=f"oncron-{name}")

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
        every = min(limits.POLL_EVERY, self._settings.lease_for // 3)
        while True:
            self._look.clear()
            self._heard(await self._door(lambda store: store.poll(tuple(self._tasks), self._queue_names())))
            await sleep_us(_HINT_GAP)
            await wait_us(self._look, every)

    def _queue_names(self) -> tuple[str, ...] | None:
        queues = self._settings.queues
        return None if queues is None else tuple(queues)

    def _heard(self, poll: Poll) -> None:
        if self._version is not None and poll.version != self._version:
            self._scheduler.schedules_changed()
            self._janitor.schedules_changed()
        self._version = poll.version
        self._look_at_skew()
        if self._shards.meet(frozenset(poll.workers), boot_us()):
            self._scheduler.regroup()
        if poll.expired:
            self._janitor.something_expired()
        self.worker.due_at(poll.next_due_at)
        if poll.next_tick_at is not None and poll.next_tick_at < poll.now - limits.SECOND:
            self._scheduler.look_again()

    def _skew(self) -> int:
        return wall_us() - self._door.clock.now_us()

    def _look_at_skew(self) -> None:
        """A wrong clock here decides nothing, but whoever reads this machine's logs should know."""
        skew = self._skew()
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

    def _offer_again(self) -> None:
        """As they were declared before: whoever refuses that once more need not be told of again."""
        self._overruled.update(definition.name for definition in self._definitions())
        self.declare_again()

    async def _declare_loop(self) -> None:
        while True:
            await self._declare.wait()
            self._declare.clear()
            try:
                await self._declare_all(await self._guards.kept(self._definitions()))
            except BaseException:
                self._declare.set()  # not declared yet: the loop starts again and does it then
                raise
            self._scheduler.look_again()
            self.worker.due_at(0)

    async def _declare_all(self, definitions: Sequence[Definition] | None = None) -> None:
        definitions = self._definitions() if definitions is None else definitions
        if not definitions:
            return
        for name, what in await self._door(
            lambda store: registrar.declare(store, definitions, self._overruled), deadline=6 * limits.CALL_DEADLINE
        ):
            reason = "do two versions of the code run? give Oncron(release=...)" if what == "flapped" else None
            self._say(f"schedule.{what}", schedule=name, reason=reason)
            self.tell_others()

    # --- stop -------------------------------------------------------------------------

    def hurry(self) -> None:
        self._hurried.set()

    async def stop(self) -> None:
        """Fire and claim no more; wait up to `stop_within` (heartbeats go on); then cancel; give back
        only what has stopped; leave if nothing is held."""
        self.worker.wind_down()
        # A fire or claim on its way may already have leased runs to this worker: its answer is waited for,
        # so that they are given back now instead of when the lease expires.
        await self._until(self.worker.answered, limits.CALL_DEADLINE)
        await self._end("scheduler", "claim", "audit", "declare", "reap", "prune", "dormancy", "revive", "follow")
        await self._until(self.worker.quiet, self._settings.stop_within)
        if self.worker.executions:
            self.worker.stop_all()
            await wait_us(self.worker.quiet, _CLEAN_UP_WITHIN)
        if self.worker.has_unwritten:
            await wait_us(self.worker.quiet, _LEAVE_WITHIN if not self._hurried.is_set() else limits.SECOND)
        await self._end(*self._loops)
        with contextlib.suppress(StoreError):
            # The others look at once for what was given back, and for ticks that this one fired last.
            await self._door(lambda store: store.hint(), deadline=2 * limits.SECOND)
            if not self.worker.executions:
                await self._door(lambda store: store.leave(self._worker_id), deadline=2 * limits.SECOND)
        await self._executor.close()
        self._say("worker.stopped")

    async def _until(self, event: asyncio.Event, within: int) -> None:
        """Wait for it: so long at most, and no longer once the second signal came."""
        waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._hurried.wait())}
        await asyncio.wait(waits, timeout=within / 1_000_000, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _end(self, *names: str) -> None:
        tasks = [task for name in names if (task := self._loops.pop(name, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
