"""Oncron: the registry, the decorators, the life cycle. The only place where the engine meets a store."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import importlib
import inspect
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import datetime, timedelta
from signal import Signals
from types import TracebackType
from typing import Any, Concatenate, Literal, Self, TypeVar, overload

from typing_extensions import ParamSpec, Unpack

from oncron import _defaults as limits, _operations as operations, _options as check
from oncron._arguments import by_name, unchecked
from oncron._clock import SECOND, from_us
from oncron._context import RunContext
from oncron._engine import registrar
from oncron._engine.engine import Engine
from oncron._engine.spec import Settings as EngineSettings
from oncron._events import Event
from oncron._hosting import BackgroundLoop, Lifespan, in_thread, run_to_the_end, stop_signals
from oncron._json import loads
from oncron._listeners import Listeners, checked_pattern
from oncron._model import EnqueueResult, NewRun, RunFilter, RunState, checked_name, new_run_id
from oncron._registry import Declared, Registry
from oncron._run import Run
from oncron._schedule import Schedule, Stats, stats_of
from oncron._store import ReadableStore
from oncron._task import (
    Settings,
    Task,
    TaskDecorator,
    Timing,
    _AsyncContextTask,  # pyright: ignore[reportPrivateUsage] - they keep type errors readable
    _AsyncTask,  # pyright: ignore[reportPrivateUsage]
    _SyncContextTask,  # pyright: ignore[reportPrivateUsage]
    _SyncTask,  # pyright: ignore[reportPrivateUsage]
    call_options,
    new_run,
    refuse_on_loop,
)
from oncron.errors import AlreadyRunning, DefinitionError, InvalidOption, OncronError, Stopped
from oncron.stores.open import DEFAULT_URL, opener
from oncron.triggers import Trigger, tzdata_version

log = logging.getLogger("oncron")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Event], Any])

_FLUSH_WITHIN = 2 * SECOND
_in_sync: contextvars.ContextVar[bool] = contextvars.ContextVar("oncron_in_sync", default=False)

Phase = Literal["new", "starting", "running", "stopping", "stopped"]


class Oncron:
    """An app: what it declares, and the replica that runs it.

    Declaring (`task`, `schedule`, `add_schedule`, `on`) does no I/O and raises mistakes at once.
    Everything else that touches the store is async and needs no `start()`: the store is opened at
    first use, per process. Sync code wraps calls in `app.sync(...)`.
    """

    state: Any
    """What `lifespan=` yielded, or what was set before start."""

    def __init__(
        self,
        store: str | None = None,
        *,
        timezone: str = "UTC",
        namespace: str = "oncron",
        imports: Sequence[str] = (),
        lifespan: Callable[[Oncron], AbstractAsyncContextManager[Any]] | None = None,
        concurrency: int = limits.CONCURRENCY,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        defaults: Mapping[str, Any] | None = None,
        release: int | None = None,
        keep_for: check.Duration = timedelta(days=7),
        keep_failed_for: check.Duration = timedelta(days=30),
        stop_within: check.Duration = 30,
        lease_for: check.Duration = 15,
        listen_url: str | None = None,
        auto_migrate: bool = True,
    ) -> None:
        url = store if store is not None else os.environ.get("ONCRON_STORE") or None
        self._by_default = url is None
        self._open = opener(url or DEFAULT_URL, namespace=namespace, listen_url=listen_url)
        self._registry = Registry(timezone=timezone, release=release, defaults=defaults)
        self._settings = EngineSettings(
            concurrency=check.number(concurrency, "concurrency", least=1, most=100_000),
            queues=_queues(queues),
            lease_for=check.span(lease_for, "lease_for", least=SECOND // 2),
            stop_within=check.span(stop_within, "stop_within"),
            keep_for=check.span(keep_for, "keep_for"),
            keep_failed_for=check.span(keep_failed_for, "keep_failed_for"),
            release=release,
            tzdata=tzdata_version(),
            auto_migrate=check.truth(auto_migrate, "auto_migrate"),
        )
        self._imports = _modules(imports)
        self._make_lifespan = lifespan
        self._lifespan: Lifespan | None = None
        self.state = None
        self._listeners = Listeners(lambda: self._user_loop)
        self._user_loop: asyncio.AbstractEventLoop | None = None
        self._phase: Phase = "new"
        self._lock = threading.Lock()
        self._live: Engine | None = None
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._behind: BackgroundLoop | None = None
        _apps.add(self)

    # --- declare ----------------------------------------------------------------------

    @overload
    def task(
        self,
        fn: Callable[Concatenate[RunContext[Any], P], Coroutine[Any, Any, R]],
        /,
        **options: Unpack[check.TaskOptions],
    ) -> _AsyncContextTask[P, R]: ...
    @overload
    def task(
        self, fn: Callable[Concatenate[RunContext[Any], P], R], /, **options: Unpack[check.TaskOptions]
    ) -> _SyncContextTask[P, R]: ...
    @overload
    def task(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /, **options: Unpack[check.TaskOptions]
    ) -> _AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /, **options: Unpack[check.TaskOptions]) -> _SyncTask[P, R]: ...
    @overload
    def task(self, fn: None = None, /, **options: Unpack[check.TaskOptions]) -> TaskDecorator: ...
    def task(self, fn: Any = None, /, **options: Any) -> Any:
        """Make a function a task: `@app.task`, `@app.task(queue="mail")`, or `app.task(obj.method, name="...")`.

        Raises InvalidTask, InvalidOption, DuplicateName, Stopped."""
        if fn is not None:
            return self._add_task(fn, options)
        check.known(options, check.TASK, "task")
        return lambda fn: self._add_task(fn, options)  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]

    def schedule(self, trigger: Trigger, /, **options: Unpack[check.ScheduleDecoratorOptions]) -> TaskDecorator:
        """On a function: a task and a schedule of one name. On a task: one more schedule, which needs a
        name of its own. Schedules stack.

        Raises InvalidTrigger, InvalidTask, InvalidArguments, InvalidOption, DuplicateName, Stopped."""
        given: dict[str, Any] = dict(options)
        check.known(given, check.TIMING | check.TASK, "schedule")

        def decorate(fn: Any) -> Any:
            self._refuse_if_stopped("declare")
            if isinstance(fn, Task):
                task: Task[..., Any] = fn  # pyright: ignore[reportUnknownVariableType] - of any signature
                self._declare(self._registry.define(given.get("name", task.name), trigger, task, _without_name(given)))
                return task
            of_task = {name: value for name, value in given.items() if name in check.TASK}
            task = self._registry.make(fn, of_task, self, where="schedule")
            timing = {name: value for name, value in given.items() if name in check.TIMING}
            declared = self._registry.define(task.name, trigger, task, timing)
            self._registry.refuse_taken(declared)
            self._registry.add_task(task, self)
            self._declare(declared)
            return task

        return decorate

    def add_schedule(
        self, name: str, trigger: Trigger, task: Task[..., Any] | str, **options: Unpack[check.ScheduleOptions]
    ) -> None:
        """Declare a schedule of a task, in code: it goes dormant an hour after the last replica that declares
        it has gone. A task given by name may be another service's.

        Raises InvalidTrigger, InvalidArguments, InvalidOption, DuplicateName, Stopped."""
        self._refuse_if_stopped("declare")
        self._declare(self._registry.define(name, trigger, task, dict(options)))

    def on(self, event: str, /) -> Callable[[F], F]:
        """Call a function, sync or async, with each Event of that name or group (`"run.failed"`, `"run.*"`).

        Off the path of correctness: in a thread of its own, best effort; one that is slow or raises delays
        nobody. Raises InvalidOption for an event that does not exist, Stopped."""
        pattern = checked_pattern(event)

        def decorate(fn: F) -> F:
            self._refuse_if_stopped("declare")
            self._listeners.add(pattern, fn)
            return fn

        return decorate

    # --- live -------------------------------------------------------------------------

    def run(self, *, scheduler: bool = True, worker: bool = True) -> None:
        """Run until SIGTERM or SIGINT: the first one stops gracefully, the second at once. Returns then; if
        the thread of a task does not return, the process leaves instead, everything else given back.

        Raises StoreError if the store cannot be used, AlreadyRunning."""
        refuse_on_loop("app.run()", "await app.serve()")
        run_to_the_end(self.serve(scheduler=scheduler, worker=worker), self._stuck)

    async def serve(self, *, scheduler: bool = True, worker: bool = True) -> None:
        """`run` inside a loop: returns after a signal, `stop()` or a cancellation, when all has stopped."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def heard(signal: Signals) -> None:
            if done.is_set() and self._live is not None:
                log.warning("%s again: stopping at once", signal.name)
                self._live.hurry()
            else:
                log.info("%s: stopping; once more to stop at once", signal.name)
            done.set()

        def ended(_: object) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        with stop_signals(loop, heard):
            await self.start(scheduler=scheduler, worker=worker)
            self._ended.add_done_callback(ended)
            try:
                await done.wait()
            finally:
                await self.stop()

    async def start(self, *, scheduler: bool = True, worker: bool = True) -> None:
        """Run as a replica until `stop()`, async tasks on this loop. No signals are handled. May follow stop.

        Raises StoreError if the store cannot be used, AlreadyRunning."""
        if _in_sync.get():
            raise DefinitionError("app.sync(app.start()) would leave async tasks without a loop; write `with app:`")
        if not (check.truth(scheduler, "scheduler") or check.truth(worker, "worker")):
            raise InvalidOption("scheduler=False, worker=False: nothing is left to run; leave one of them on")
        with self._lock:
            if self._phase in ("starting", "running", "stopping"):
                raise AlreadyRunning(f"this app is {self._phase} in this process; stop it before starting it again")
            before, self._phase = self._phase, "starting"
        try:
            await self._start(scheduler=scheduler, worker=worker)
        except BaseException:
            self._user_loop = None
            self._phase = before
            raise

    async def _start(self, *, scheduler: bool, worker: bool) -> None:
        for module in self._imports:
            importlib.import_module(module)
        self._user_loop = loop = asyncio.get_running_loop()
        self._ended = concurrent.futures.Future()
        if self._make_lifespan is not None:
            make = self._make_lifespan
            self._lifespan = Lifespan(lambda: make(self))
            self.state = await self._lifespan.enter()
        try:
            await self._engine().start(scheduler=scheduler, worker=worker, user_loop=loop)
        except BaseException:
            await self._leave_lifespan()
            await in_thread(self._engine().close)
            raise
        self._phase = "running"
        self._registry.warn_of_strangers()

    async def stop(self) -> None:
        """Fire and claim no more, wait up to `stop_within` for what runs, give back what has stopped. Nothing
        happens if the app is not running; a second call waits for the first."""
        with self._lock:
            first = self._phase == "running"
            if first:
                self._phase = "stopping"
            elif self._phase != "stopping":
                return
            ended = self._ended
        if not first:
            await asyncio.shield(asyncio.wrap_future(ended))
            return
        engine = self._engine()
        try:
            await engine.stop()
            await self._leave_lifespan()
            if not await in_thread(lambda: self._listeners.flush(_FLUSH_WITHIN)):
                log.warning("a listener is still busy; events that it has not heard are dropped")
        finally:
            self._phase, self._user_loop = "stopped", None
            await in_thread(engine.close)
            ended.set_result(None)

    async def _leave_lifespan(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.leave()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        refuse_on_loop("with app:", "async with app:")
        behind = BackgroundLoop()
        try:
            behind.run(self.start())
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
                behind.run(self.stop())
            finally:
                behind.close()

    @asynccontextmanager
    async def lifespan(self, host: object, /) -> AsyncIterator[None]:
        """For a host's lifespan: `FastAPI(lifespan=jobs.lifespan)` starts and stops the app with it."""
        del host
        async with self:
            yield

    def sync(self, call: Coroutine[Any, Any, T], /) -> T:
        """The value of a coroutine, for code that is not async: `app.sync(app.pause("reindex"))`.

        Raises what it raises; DefinitionError on an event loop's thread."""
        if not inspect.iscoroutine(call):
            raise InvalidOption(f"app.sync() takes a coroutine, app.sync(app.pause('name')) say, not {call!r}")
        try:
            refuse_on_loop("app.sync()", "await ...")
        except DefinitionError:
            call.close()
            raise
        before = _in_sync.set(True)
        try:
            return asyncio.run(call)
        finally:
            _in_sync.reset(before)

    # --- do ---------------------------------------------------------------------------

    async def put_schedule(
        self, name: str, trigger: Trigger, task: Task[..., Any] | str, **options: Unpack[check.ScheduleOptions]
    ) -> Schedule:
        """Create or replace a schedule that lives in the store until it is removed. Safe to repeat.

        Raises InvalidOption for a name that code declares, InvalidTrigger, InvalidArguments, Stopped."""
        self._refuse_if_stopped("put a schedule")
        definition = self._registry.define(name, trigger, task, dict(options), origin="api").definition
        return Schedule(await self._change(lambda store: registrar.put(store, definition)))

    async def remove_schedule(self, name: str) -> None:
        """No ticks any more; its runs and its cursor stay on record. Raises NotFound."""
        await self._change(lambda store: registrar.remove(store, name))
        self._say("schedule.removed", schedule=name)

    async def schedules(self, *, tag: str | None = None) -> list[Schedule]:
        """All of them, by name; with `tag` those that carry it."""
        return [Schedule(row) for row in await self._ask(lambda store: operations.schedules(store, tag))]

    async def get_schedule(self, name: str, /) -> Schedule:
        """Raises NotFound."""
        return Schedule(await self._ask(lambda store: operations.schedule(store, name)))

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
        result = (await asyncio.wrap_future(self.write([new])))[0]
        return Run(result.run, self, is_new=result.is_new)

    async def fire(self, schedule: str, *, reason: str = "") -> Run[Any]:
        """A run of the schedule, now. Moves no cursor, obeys its overlap policy, ignores its pause.

        Raises NotFound, Occupied with the run that is in the way, Stopped."""
        self._refuse_if_stopped("fire")
        run_id = new_run_id()
        result = await self._ask(lambda store: operations.fire(store, schedule, run_id, reason))
        try:
            record = operations.granted(result, run_id, f"schedule {schedule!r}")
        except OncronError as error:
            error.run = Run(result.run, self)  # pyright: ignore[reportAttributeAccessIssue] - Occupied has one
            raise
        self._written([result])
        return Run(record, self, is_new=True)

    async def pause(self, schedule: str, *, note: str = "") -> None:
        """No ticks until it is resumed; those that fall in the pause owe nothing. Raises NotFound."""
        await self._change(lambda store: registrar.pause(store, schedule, note))
        self._say("schedule.paused", schedule=schedule, reason=note or None)

    async def resume(self, schedule: str) -> None:
        """Ticks again, from now on. Raises NotFound."""
        await self._change(lambda store: registrar.resume(store, schedule))
        self._say("schedule.resumed", schedule=schedule)

    async def cancel(self, run_id: str) -> Run[Any]:
        """A pending run ends as cancelled; a running one is asked to stop, and will not be tried again. An
        ended one stays as it is. Raises NotFound."""
        seen = await self._ask(lambda store: operations.run(store, run_id))
        record = await self._change(lambda store: store.cancel(run_id, opening=seen.opening))
        if seen.state.is_open and record.state is RunState.CANCELLED:
            self._say("run.cancelled", schedule=record.schedule, run=run_id)
        return Run(record, self)

    async def retry(self, run_id: str) -> Run[Any]:
        """Open an ended run again, its attempts as new. An open one stays as it is, with `is_new` False.

        Raises NotFound, Occupied if its schedule's place or its unique key is taken, Stopped."""
        self._refuse_if_stopped("retry")
        seen = await self._ask(lambda store: operations.run(store, run_id))
        result = await self._change(lambda store: store.retry(run_id, opening=seen.opening))
        try:
            record = operations.granted(result, run_id, f"run {run_id}")
        except OncronError as error:
            error.run = Run(result.run, self)  # pyright: ignore[reportAttributeAccessIssue] - Occupied has one
            raise
        return Run(record, self, is_new=result.is_new)

    async def runs(
        self,
        *,
        schedule: str | None = None,
        task: str | None = None,
        state: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[Run[Any]]:
        """Newest first; those that match everything given. `before` pages on from a run's id."""
        where = RunFilter(
            schedule=schedule,
            task=task,
            state=None if state is None else check.choice(state, "state", RunState),
            since=check.instant(since, "since"),
            before=before,
            limit=check.number(limit, "limit", least=1, most=100_000),
        )
        return [Run(record, self) for record in await self._ask(lambda store: operations.runs(store, where))]

    async def get_run(self, run_id: str, /) -> Run[Any]:
        """Raises NotFound."""
        return Run(await self._ask(lambda store: operations.run(store, run_id)), self)

    async def stats(self) -> Stats:
        """The store at a glance."""
        return stats_of(await self._ask(lambda store: store.stats()))

    async def migrate(self) -> None:
        """Create or upgrade the store's schema. Idempotent; replicas may do it at once. Raises SchemaTooNew."""
        store = self._open()
        try:
            await store.open()
            await store.migrate()
        finally:
            await store.close()

    # --- the desk that tasks and runs come to -----------------------------------------

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do `work` with the store, on the loop where the store lives."""
        return self._engine().call(work)

    def write(self, runs: Sequence[NewRun]) -> concurrent.futures.Future[list[EnqueueResult]]:
        """Enqueue; when it is done, the runs are in the store."""
        self._refuse_if_stopped("enqueue")
        future = self.call(lambda store: operations.enqueue(store, runs))

        def done(written: concurrent.futures.Future[list[EnqueueResult]]) -> None:
            if not written.cancelled() and written.exception() is None:
                self._written(written.result())

        future.add_done_callback(done)
        return future

    def watch(self, run_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake`, from any thread, when this process sees the run end. May miss it."""
        return self._listeners.watch(run_id, wake)

    def decode_result(self, task: str, text: str) -> Any:
        known = self._registry.tasks.get(task)
        return loads(text) if known is None else known.parameters.decode_result(text)

    # --- inside -----------------------------------------------------------------------

    def _add_task(self, fn: Any, options: Mapping[str, Any]) -> Task[..., Any]:
        self._refuse_if_stopped("declare")
        task = self._registry.make(fn, options, self)
        self._registry.add_task(task, self)
        self._changed()
        return task

    def _declare(self, declared: Declared) -> None:
        self._registry.declare(declared)
        self._changed()

    def _changed(self) -> None:
        if self._live is not None and self._phase == "running":
            self._live.changed()

    def _refuse_if_stopped(self, what: str) -> None:
        if self._phase == "stopped":
            raise Stopped(f"this app was stopped: it cannot {what} until it is started again")

    def _engine(self) -> Engine:
        """This process's engine; made at first use, so a forked child makes its own."""
        with self._lock:
            if self._live is None:
                if self._by_default:
                    self._by_default = False
                    log.warning(
                        "no store was given: using %s in this directory. Replicas on other hosts do not see this "
                        "file and would run every tick again; pass a URL or set ONCRON_STORE",
                        self._open.url,
                    )
                self._live = Engine(
                    make_store=self._open,
                    settings=self._settings,
                    tasks=self._registry.specs,
                    definitions=self._registry.definitions,
                    emit=self._listeners.emit,
                )
            return self._live

    async def _ask(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        return await asyncio.wrap_future(self.call(work))

    async def _change(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """`_ask`, after which everybody is told to look."""
        answer = await self._ask(work)
        self._engine().hint()
        return answer

    def _written(self, results: Sequence[EnqueueResult]) -> None:
        now = self._engine().now_us()
        for result in results:
            if result.is_new:
                self._say("run.enqueued", schedule=result.run.schedule, run=result.run.id)
        if any(result.is_new and result.run.due_at <= now + SECOND for result in results):
            self._engine().hint()

    def _say(self, name: str, *, schedule: str | None = None, run: str | None = None, reason: str | None = None):
        self._listeners.emit(
            Event(name=name, at=from_us(self._engine().now_us()), schedule=schedule, run=run, reason=reason)
        )

    def _stuck(self) -> list[str]:
        """Runs whose threads did not return."""
        return [] if self._live is None else [f"{run.task!r} ({run.id})" for run in self._live.unfinished]

    def _after_fork(self) -> None:
        """In a forked child: threads, connections and locks stayed with the parent."""
        was, self._phase = self._phase, "new" if self._phase != "stopped" else "stopped"
        self._lock = threading.Lock()
        self._live = self._lifespan = self._behind = self._user_loop = None
        self._ended = concurrent.futures.Future()
        self._listeners.after_fork()
        if was in ("starting", "running"):
            log.warning(
                "oncron was started before this process was forked: it runs on in the parent, nothing runs here; "
                "start it in the child (gunicorn's post_fork, or without --preload) if it shall"
            )

    def _at_exit(self) -> None:
        engine = self._live
        if engine is None:
            return
        if engine.running:
            engine.hurry()
            with contextlib.suppress(Exception):
                asyncio.run(engine.stop())
        engine.close()


_apps: weakref.WeakSet[Oncron] = weakref.WeakSet()


def _each_app(do: Callable[[Oncron], None]) -> Callable[[], None]:
    def all_of_them() -> None:
        for app in list(_apps):
            do(app)

    return all_of_them


os.register_at_fork(after_in_child=_each_app(Oncron._after_fork))  # pyright: ignore[reportPrivateUsage]
atexit.register(_each_app(Oncron._at_exit))  # pyright: ignore[reportPrivateUsage]


def _queues(queues: Any) -> tuple[str, ...] | Mapping[str, int] | None:
    if queues is None:
        return None
    if isinstance(queues, Mapping):
        weights: Mapping[Any, Any] = queues  # pyright: ignore[reportUnknownVariableType]
        return {check.queue_name(name): check.number(w, f"queues[{name!r}]", least=1) for name, w in weights.items()}
    if isinstance(queues, str) or not isinstance(queues, Sequence):
        raise InvalidOption(f"queues={queues!r}: give a list (strict order) or a mapping to weights")
    names = tuple(check.queue_name(name) for name in queues)  # pyright: ignore[reportUnknownVariableType]
    if not names:
        raise InvalidOption("queues=[] serves none; leave it out to serve every queue, or start with worker=False")
    return names


def _modules(imports: Any) -> tuple[str, ...]:
    if isinstance(imports, str):
        raise InvalidOption(f"imports={imports!r}: give a list of module names, imports=[{imports!r}]")
    return tuple(imports)


def _without_name(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "name"}
