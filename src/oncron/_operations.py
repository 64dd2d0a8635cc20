"""What an app does to schedules and runs in the store. Async; each opens the store if it has to.

What is tried again after an unknown outcome carries ids that were made before (G7).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from typing_extensions import Unpack

from oncron import _defaults as limits, _options as check
from oncron._arguments import by_name, unchecked
from oncron._backfill import Backfill, backfill, checked_wish
from oncron._batch import Batch, BatchOfRun, Callback, new_batch, read_batch
from oncron._clock import SECOND
from oncron._desk import FrontDesk
from oncron._engine import registrar
from oncron._lock import Leadership, Lock
from oncron._model import (
    EnqueueResult,
    NewRun,
    RunFilter,
    RunRecord,
    RunState,
    ScheduleRecord,
    Status,
    checked_name,
    new_run_id,
)
from oncron._queue import Queue
from oncron._registry import Registry
from oncron._run import Run
from oncron._schedule import Schedule, Stats, stats_of
from oncron._store import ReadableStore
from oncron._task import Settings, Task, Timing, call_options, new_run
from oncron._why import Why, why
from oncron.errors import InvalidOption, NotFound, Occupied
from oncron.stores.open import Opener
from oncron.triggers import Trigger

_PAGE = 500


class Operations:
    """The part of Oncron that does things, for live apps and for those that never start."""

    _desk: FrontDesk
    _registry: Registry
    _open: Opener

    async def put_schedule(
        self, name: str, trigger: Trigger, task: Task[..., Any] | str, **options: Unpack[check.ScheduleOptions]
    ) -> Schedule:
        """Create or replace a schedule that lives in the store until it is removed. Safe to repeat.

        Raises InvalidOption for a name that code declares, InvalidTrigger, InvalidArguments, Stopped; NotSupported,
        StoreUnsafe for a guard that would keep nobody out here."""
        self._desk.refuse_if_stopped("put a schedule")
        definition = self._registry.define(name, trigger, task, dict(options), origin="api").definition
        if (guard := definition.guard) is not None:
            await self._desk.ask(lambda store: store.refuse_guard(guard))
        return Schedule(await self._desk.change(lambda store: registrar.put(store, definition)))

    async def remove_schedule(self, name: str) -> None:
        """No ticks any more; its runs and its cursor stay on record. Raises NotFound."""
        name = check.sought(name, "name")
        await self._desk.change(lambda store: registrar.remove(store, name))
        self._desk.say("schedule.removed", schedule=name)

    async def schedules(self, *, tag: str | None = None) -> list[Schedule]:
        """All of them, by name; with `tag` those that carry it. Raises InvalidOption for a tag that is no text."""
        tag = check.sought_if(tag, "tag")
        return [Schedule(row) for row in await self._desk.ask(lambda store: _schedules(store, tag))]

    async def get_schedule(self, name: str, /) -> Schedule:
        """Raises NotFound."""
        name = check.sought(name, "name")
        return Schedule(await self._desk.ask(lambda store: _schedule(store, name)))

    async def enqueue(
        self, task: str, *, args: Mapping[str, Any] | None = None, **options: Unpack[check.CallOptions]
    ) -> Run[Any]:
        """A run of a task by its name, which may be another service's. Arguments are checked if the task is
        known here. Raises as `Task.enqueue` does."""
        name = checked_name(task, "task")
        values = by_name({} if args is None else args, name)
        if name in self._registry.tasks:
            new = self._registry.tasks[name].options(**options).new_run(values)
        else:
            given = call_options(options, f"enqueue({name!r})")
            settings: Settings = self._registry.task_defaults.merged(given)
            new = new_run(name, unchecked(values, name), settings, Timing.of(given), values)
        connection = options.get("connection")
        if connection is not None:
            result = (await self._desk.write_in_async(connection, [new]))[0]
        else:
            result = (await asyncio.wrap_future(self._desk.write([new])))[0]
        return Run(result.run, self._desk, is_new=result.is_new)

    async def fire(self, schedule: str, *, reason: str = "") -> Run[Any]:
        """A run of the schedule, now. Moves no cursor, obeys its overlap policy, ignores its pause.

        Raises NotFound, Occupied with the run that is in the way, Stopped."""
        schedule = check.sought(schedule, "schedule")
        check.line(reason, "reason")
        self._desk.refuse_if_stopped("fire")
        run_id = new_run_id()
        result = await self._desk.ask(lambda store: _fire(store, schedule, run_id, reason))
        run = self._granted(result, run_id, f"schedule {schedule!r}")
        self._desk.written([result])
        return run

    async def pause(self, schedule: str, *, note: str = "") -> None:
        """No ticks until it is resumed; those that fall in the pause owe nothing. Raises NotFound."""
        schedule = check.sought(schedule, "schedule")
        check.line(note, "note")
        await self._desk.change(lambda store: registrar.pause(store, schedule, note))
        self._desk.say("schedule.paused", schedule=schedule, reason=note or None)

    async def resume(self, schedule: str) -> None:
        """Ticks again, from now on. Raises NotFound."""
        schedule = check.sought(schedule, "schedule")
        await self._desk.change(lambda store: registrar.resume(store, schedule))
        self._desk.say("schedule.resumed", schedule=schedule)

    async def pause_tagged(self, tag: str, *, note: str = "") -> list[str]:
        """Pause every schedule that carries the tag; their names, those that were paused already included. No such
        schedule is no error. Raises InvalidOption for a tag that is no text."""
        check.line(note, "note")
        return await self._each_tagged(tag, lambda name: self.pause(name, note=note))

    async def resume_tagged(self, tag: str) -> list[str]:
        """Resume every schedule that carries the tag; their names. Raises as `pause_tagged` does."""
        return await self._each_tagged(tag, self.resume)

    async def remove_tagged(self, tag: str) -> list[str]:
        """Remove every schedule that carries the tag; their names. Raises as `pause_tagged` does."""
        return await self._each_tagged(tag, self.remove_schedule)

    async def _each_tagged(self, tag: str, do: Callable[[str], Awaitable[None]]) -> list[str]:
        """One after the other, and each wholly or not at all: a call that was interrupted is repeated. One that
        somebody removes meanwhile is passed over."""
        checked_name(tag, "tag")
        done: list[str] = []
        after: str | None = None
        while page := await self._desk.ask(functools.partial(_tagged_page, tag, after)):
            for row in page:
                if row.status is not Status.REMOVED:
                    with contextlib.suppress(NotFound):
                        await do(row.name)
                        done.append(row.name)
            after = page[-1].name
        return done

    async def backfill(
        self,
        schedule: str,
        start: datetime,
        end: datetime,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        overlap: Literal["skip", "wait", "queue", "cancel", "allow"] | None = None,
        again: bool = False,
    ) -> Backfill:
        """A run for every instant of the schedule's trigger in [start, end] that has none on record. When the
        schedule starts, ends or was paused, its jitter, limit and unique key do not matter.

        All are due now, or `rate` a second. They take no place of the schedule unless `overlap` says as
        what. The same call again makes only what is missing, so one that died is repeated; `again=True` runs
        the others once more. `dry_run` writes nothing.

        Raises NotFound, InvalidOption for an end in the future or more than 100 000 instants, Stopped."""
        schedule = check.sought(schedule, "schedule")
        self._desk.refuse_if_stopped("backfill")
        wish = checked_wish(start, end, dry_run=dry_run, rate=rate, overlap=overlap, again=again)
        row, now = await self._desk.ask(lambda store: _schedule_now(store, schedule))
        return await backfill(self._desk, row, now, wish)

    async def cancel(self, run_id: str) -> Run[Any]:
        """A pending run ends as cancelled; a running one is asked to stop, and will not be tried again. An
        ended one stays as it is. Raises NotFound."""
        run_id = check.sought(run_id, "run_id")
        seen = await self._desk.ask(lambda store: _run(store, run_id))
        record = await self._desk.change(lambda store: store.cancel(run_id, opening=seen.opening))
        if seen.state.is_open and record.state is RunState.CANCELLED:
            self._desk.say("run.cancelled", schedule=record.schedule, run=run_id)
            if (batch := record.batch) is not None:
                await self._desk.change(lambda store: store.settle_batches([batch]))
        return Run(record, self._desk)

    async def retry(self, run_id: str) -> Run[Any]:
        """Open an ended run again, its attempts as new. An open one stays as it is, with `is_new` False.

        Raises NotFound, Occupied if its schedule's place or its unique key is taken, Stopped."""
        run_id = check.sought(run_id, "run_id")
        self._desk.refuse_if_stopped("retry")
        seen = await self._desk.ask(lambda store: _run(store, run_id))
        result = await self._desk.change(lambda store: store.retry(run_id, opening=seen.opening))
        return self._granted(result, run_id, f"run {run_id}")

    async def prune_dead(self, *, older_than: check.Duration | None = None, keep: int | None = None) -> int:
        """Drop failed and lost runs from the record: those that ended longer ago than `older_than` (a timedelta or
        seconds), and all but the newest `keep`; how many records. Runs of a batch stay as long as the batch; one that
        completed before `older_than` goes with them. Without it, retention does as much after `keep_failed_for`.

        Raises InvalidOption if neither is given."""
        if older_than is None and keep is None:
            raise InvalidOption("prune_dead() drops by age or by number: give older_than=, keep=, or both")
        age = check.duration(older_than, "older_than", none=True)
        most = check.number(keep, "keep", least=0, none=True)
        dropped = 0
        while True:
            count = await self._desk.ask(functools.partial(_prune_dead, age, most))
            dropped += count
            if not count:
                return dropped

    async def runs(
        self,
        *,
        schedule: str | None = None,
        task: str | None = None,
        state: str | None = None,
        queue: str | None = None,
        batch: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[Run[Any]]:
        """Newest first, `limit` at most; those that match everything given. `since` is an aware instant, by creation;
        `before` pages on from a run's id. Names that nobody has match nothing. Raises InvalidOption."""
        where = RunFilter(
            schedule=check.sought_if(schedule, "schedule"),
            task=check.sought_if(task, "task"),
            state=None if state is None else check.choice(state, "state", RunState),
            queue=check.sought_if(queue, "queue"),
            batch=check.sought_if(batch, "batch"),
            since=check.instant(since, "since"),
            before=check.sought_if(before, "before"),
            limit=check.number(limit, "limit", least=1, most=100_000),
        )
        return [Run(record, self._desk) for record in await self._desk.ask(lambda store: _runs(store, where))]

    async def get_run(self, run_id: str, /) -> Run[Any]:
        """Raises NotFound."""
        run_id = check.sought(run_id, "run_id")
        return Run(await self._desk.ask(lambda store: _run(store, run_id)), self._desk)

    async def why(self, schedule: str, instant: datetime) -> Why:
        """What became of a tick, or will: ran there, skipped because, not due, not yet, paused, pruned.

        Raises NotFound for a schedule that never was, InvalidOption for a naive instant."""
        schedule = check.sought(schedule, "schedule")
        at = check.instant(instant, "instant")
        if at is None:
            raise InvalidOption("why() takes an instant: datetime(2027, 1, 1, 3, tzinfo=UTC) say")
        return await self._desk.ask(lambda store: why(store, schedule, at))

    async def stats(self) -> Stats:
        """The store at a glance, as of now. Raises StoreError."""
        return await self._desk.ask(_stats)

    def batch(
        self,
        *,
        on_complete: Callback = None,
        on_success: Callback = None,
        on_death: Callback = None,
        parent: Batch | BatchOfRun | str | None = None,
        data: Any = None,
    ) -> Batch:
        """Runs that belong together: `async with app.batch(on_success=report) as batch: batch.add(task, ...)`.

        Callbacks are tasks, or (task, args); each is enqueued once: `on_complete` when all runs have ended,
        `on_success` when all have ended well, `on_death` when the first has failed for good. `parent` is a batch
        that does not complete before this one. `data` is any JSON, kept with it.

        Raises InvalidArguments, InvalidOption."""
        return new_batch(
            self._desk, on_complete=on_complete, on_success=on_success, on_death=on_death, parent=parent, data=data
        )

    async def get_batch(self, batch_id: str, /) -> Batch:
        """Raises NotFound."""
        batch_id = check.sought(batch_id, "batch_id")
        return Batch(self._desk, await self._desk.ask(lambda store: read_batch(store, batch_id)))

    async def batches(self, *, dead: bool = False, limit: int = 100, before: str | None = None) -> list[Batch]:
        """Newest first, `limit` at most; with `dead` those in which a run has failed for good. `before` pages on from
        an id. Raises InvalidOption."""
        most = check.number(limit, "limit", least=1, most=100_000)
        after = check.sought_if(before, "before")
        rows = await self._desk.ask(lambda store: store.batches(dead=dead, before=after, limit=most))
        return [Batch(self._desk, row) for row in rows]

    async def queues(self) -> list[Queue]:
        """By name: those with open runs, and those that are paused. Raises StoreError."""
        return [Queue(row) for row in await self._desk.ask(lambda store: store.queues())]

    async def pause_queue(self, queue: str, *, note: str = "") -> Queue:
        """Nobody in the fleet takes runs from this queue until it is resumed; what runs goes on, and more may be
        enqueued. Raises NotFound for a queue that nobody names: no task, schedule, worker or open run."""
        check.line(note, "note")
        await self._refuse_unknown_queue(queue)
        return Queue(await self._desk.ask(lambda store: store.set_queue(queue, paused=True, note=note)))

    async def resume_queue(self, queue: str) -> Queue:
        """Raises NotFound as `pause_queue` does."""
        await self._refuse_unknown_queue(queue)
        return Queue(await self._desk.change(lambda store: store.set_queue(queue, paused=False)))

    async def _refuse_unknown_queue(self, queue: str) -> None:
        name = check.queue_name(queue)
        known = self._registry.queue_names()
        if name not in known:
            known |= await self._desk.ask(_queue_names)
        if name not in known:
            near = ", ".join(map(repr, sorted(known)[:20]))
            raise NotFound(f"no queue {name!r}: no task, schedule, worker or open run names it; there are {near}")

    def lock(self, name: str, *, lease_for: check.Duration = 15, wait: check.Duration | None = 0) -> Lock:
        """One holder at a time in the whole fleet: `with` or `async with`. It waits so long at most, not at all unless
        said; `wait=None` waits as long as it takes. Its lease is renewed while the block runs; of a process that
        died the lock is free after `lease_for`. Both are timedeltas or seconds.

        Entering raises Occupied, leaving LeaseLost if the lock was lost meanwhile. Raises InvalidOption."""
        return Lock(
            self._desk,
            checked_name(name, "lock"),
            lease_for=check.span(lease_for, "lease_for", least=SECOND // 2),
            wait=check.duration(wait, "wait", none=True),
        )

    def lead(self, name: str) -> Leadership:
        """The fleet's one leader of that name: `async with app.lead("indexer"):` waits for it, and ends when it is
        lost. Raises InvalidOption."""
        return Leadership(self._desk, checked_name(name, "leadership"), lease_for=limits.LEASE_FOR, wait=None)

    async def migrate(self) -> None:
        """Create or upgrade the store's schema. Idempotent; replicas may do it at once. Raises SchemaTooNew."""
        store = self._open()
        try:
            await store.open()
            await store.migrate()
        finally:
            await store.close()

    def _granted(self, result: EnqueueResult, wanted: str, what: str) -> Run[Any]:
        """The run. Raises Occupied if another one has its schedule's place or its unique key."""
        run = Run[Any](result.run, self._desk, is_new=result.is_new)
        if result.occupied or run.id != wanted:
            why = "has its place" if result.occupied else "has its unique key"
            raise Occupied(f"{what}: run {run.id} ({run.state.value}) {why}; wait for its end or cancel it", run)
        return run


async def _prune_dead(age: int | None, keep: int | None, store: ReadableStore) -> int:
    before = 0 if age is None else await store.now() - age
    return await store.prune(ended_before=0, failed_before=before, keep_failed=keep)


async def _fire(store: ReadableStore, name: str, run_id: str, reason: str) -> EnqueueResult:
    """A run of the schedule now: its cursor stays, its overlap policy rules, its pause does not.

    Raises NotFound, Occupied with the run that is in the way."""
    definition = (await _schedule(store, name)).definition
    new = NewRun(
        id=run_id,
        task=definition.task,
        args=definition.args,
        queue=definition.queue,
        priority=definition.priority,
        retries=definition.retries,
        retry_delay=definition.retry_delay,
        timeout=definition.timeout,
        unique=definition.unique,
        guard=definition.guard,
        schedule=name,
        reason=reason or None,
    )
    return (await store.enqueue([new]))[0]


async def _tagged_page(tag: str, after: str | None, store: ReadableStore) -> list[ScheduleRecord]:
    return await store.schedules(tag=tag, after=after, limit=_PAGE)


async def _queue_names(store: ReadableStore) -> set[str]:
    """Of queues that have something to do with the store: paused once, with open runs, of schedules, of workers."""
    found = {row.name for row in await store.queues()}
    found |= {queue for worker in await store.workers() for queue in worker.queues or ()}
    return found | {row.definition.queue for row in await store.schedules()}


async def _schedule(store: ReadableStore, name: str) -> ScheduleRecord:
    """Raises NotFound, for a removed one too."""
    rows = await store.schedules([name])
    if not rows or rows[0].status is Status.REMOVED:
        raise NotFound(f"no schedule {name!r}; `oncron schedules` lists them")
    return rows[0]


async def _schedule_now(store: ReadableStore, name: str) -> tuple[ScheduleRecord, int]:
    """And the store's clock afterwards: what the row shows as settled was settled by then. Raises NotFound."""
    return await _schedule(store, name), await store.now()


async def _schedules(store: ReadableStore, tag: str | None) -> list[ScheduleRecord]:
    """By name, without removed ones."""
    rows = [row for row in await store.schedules() if row.status is not Status.REMOVED]
    return rows if tag is None else [row for row in rows if tag in row.definition.tags]


async def _run(store: ReadableStore, run_id: str) -> RunRecord:
    """Raises NotFound."""
    found = await store.get_run(run_id)
    if found is None:
        raise NotFound(f"no run {run_id!r}: the id is wrong, or it ended and was pruned")
    return found


async def _runs(store: ReadableStore, where: RunFilter) -> list[RunRecord]:
    """Newest first. Raises NotFound for a `before` that is no run."""
    if where.before is not None:
        await _run(store, where.before)
    return await store.runs(where)


async def _stats(store: ReadableStore) -> Stats:
    return stats_of(await store.stats(), await store.queues())
