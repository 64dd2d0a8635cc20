"""Oncron: the registry, the decorators, the life cycle. The only place where the engine meets a store."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, Literal, Self, TypeVar, overload

from typing_extensions import ParamSpec, Unpack

from oncron import _defaults as limits, _options as check
from oncron._chain import Middleware
from oncron._cipher import keyring
from oncron._clock import SECOND
from oncron._context import RunContext
from oncron._desk import FrontDesk
from oncron._encrypted import encrypted
from oncron._engine.engine import Engine
from oncron._engine.spec import Settings as EngineSettings
from oncron._events import Event
from oncron._hosting import InBackground, in_sync, refuse_on_loop, run_to_the_end
from oncron._life import Life
from oncron._limiter import Limiter
from oncron._listeners import Listeners, checked_pattern
from oncron._model import checked_name, sortable_version
from oncron._operations import Operations
from oncron._registry import Declared, Registry
from oncron._store import ReadableStore
from oncron._task import (
    TakesAnything,
    Task,
    TaskDecorator,
    _AsyncContextTask,  # pyright: ignore[reportPrivateUsage] - they keep type errors readable
    _AsyncTask,  # pyright: ignore[reportPrivateUsage]
    _SyncContextTask,  # pyright: ignore[reportPrivateUsage]
    _SyncTask,  # pyright: ignore[reportPrivateUsage]
)
from oncron._version import version
from oncron.errors import DefinitionError, InvalidOption, InvalidTrigger
from oncron.limits import Rule
from oncron.stores.open import DEFAULT_URL, opener
from oncron.triggers import Trigger, tzdata_version

log = logging.getLogger("oncron")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Event], Any])
E = TypeVar("E", bound=Engine)
M = TypeVar("M", bound=Middleware)


class Oncron(Operations, InBackground):
    """An app: what it declares, and the replica that runs it.

    Declaring (`task`, `schedule`, `add_schedule`, `on`) does no I/O and raises mistakes at once.
    Everything else that touches the store is async and needs no `start()`: the store is opened at
    first use, per process. Sync code wraps calls in `app.sync(...)`.

    Durations (`keep_for`, `stop_within`, `lease_for`) are timedeltas or seconds. Raises InvalidOption.
    """

    _block = "app"

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
        max_running: int | None = None,
        encryption: Mapping[str, bytes | str] | None = None,
    ) -> None:
        url = store if store is not None else os.environ.get("ONCRON_STORE")
        if url is not None and not url.strip():  # pyright: ignore[reportUnnecessaryComparison]
            what = "Oncron(store='')" if store is not None else "$ONCRON_STORE"
            raise InvalidOption(f"{what} is empty: give a URL, or leave it unset for an SQLite file in this directory")
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
            tzdata=sortable_version(tzdata_version()),
            version=version(),
            auto_migrate=check.truth(auto_migrate, "auto_migrate"),
            queue_limits=self._registry.queue_limits,
            fleet_limit=check.number(max_running, "max_running", least=1, none=True),
        )
        self._keys = keyring(encryption)
        self._imports = _modules(imports)
        self._make_lifespan = lifespan
        self._listeners = Listeners(lambda: self._life.user_loop)
        self._life = Life(self._make_engine, self._listeners)
        self._desk = FrontDesk(self._life, self._listeners, self._registry)

    @property
    def state(self) -> Any:
        """What `lifespan=` yielded, or what was set before start; tasks find it as `ctx.state`."""
        return self._desk.state

    @state.setter
    def state(self, value: Any) -> None:
        self._desk.state = value

    def __repr__(self) -> str:
        return f"<Oncron {self._open.url} {self._life.phase}>"

    # --- declare ----------------------------------------------------------------------

    # The overloads overlap on purpose: the first that fits is taken, so the order is part of the meaning.
    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
        self, fn: TakesAnything[P, Coroutine[Any, Any, R]], /, **options: Unpack[check.TaskOptions]
    ) -> _AsyncTask[P, R]: ...
    @overload
    def task(self, fn: TakesAnything[P, R], /, **options: Unpack[check.TaskOptions]) -> _SyncTask[P, R]: ...
    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
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
        if not isinstance(trigger, Trigger):  # pyright: ignore[reportUnnecessaryIsInstance] - @app.schedule without parentheses
            raise InvalidTrigger(
                "app.schedule() takes a trigger",
                expression=trigger,
                mend="write cron('0 3 * * *'), every(minutes=5), daily('03:00') or another of oncron's triggers",
            )
        given: dict[str, Any] = dict(options)
        check.known(given, check.TIMING | check.TASK, "schedule")

        def decorate(fn: Any) -> Any:
            self._life.refuse_if_stopped("declare")
            if isinstance(fn, Task):
                task: Task[..., Any] = fn  # pyright: ignore[reportUnknownVariableType] - of any signature
                self._declare(self._registry.define(given.get("name", task.name), trigger, task, _without_name(given)))
                return task
            of_task = {name: value for name, value in given.items() if name in check.TASK}
            task = self._registry.make(fn, of_task, self._desk, where="schedule")
            timing = {name: value for name, value in given.items() if name in check.TIMING}
            declared = self._registry.define(task.name, trigger, task, timing)
            self._registry.refuse_taken(declared)
            self._registry.add_task(task, self._desk)
            self._declare(declared)
            return task

        return decorate

    def add_schedule(
        self, name: str, trigger: Trigger, task: Task[..., Any] | str, **options: Unpack[check.ScheduleOptions]
    ) -> None:
        """Declare a schedule of a task, in code: it goes dormant an hour after the last replica that declares
        it has gone. A task given by name may be another service's.

        Raises InvalidTrigger, InvalidArguments, InvalidOption, DuplicateName, Stopped."""
        self._life.refuse_if_stopped("declare")
        self._declare(self._registry.define(name, trigger, task, dict(options)))

    def queue(self, name: str, *, max_running: int | None = None, sequential: bool = False) -> None:
        """Say how many runs of a queue the whole fleet executes at a time; `sequential` is one. Replicas should say
        the same: each keeps to what its own code says.

        Raises InvalidOption, DuplicateName for a queue that was declared before, Stopped."""
        self._life.refuse_if_stopped("declare")
        most = check.number(max_running, "max_running", least=1, none=True)
        if check.truth(sequential, "sequential") and most not in (None, 1):
            raise InvalidOption(f"queue {name!r}: sequential=True is max_running=1, not {most}; give one of them")
        if not sequential and most is None:
            raise InvalidOption(f"queue {name!r}: give max_running= or sequential=True; without, it needs no call")
        self._registry.limit_queue(name, most or 1)

    def limiter(
        self,
        name: str,
        rule: Rule,
        *,
        policy: Literal["raise", "wait", "skip"] = "raise",
        wait_for: check.Duration = 5,
    ) -> Limiter:
        """A limit that the whole fleet keeps, by a rule of `oncron.limits`: `with`, `async with`, a decorator, a
        task's `limiter=`. "raise" waits up to `wait_for` (a timedelta or seconds) and raises LimitExceeded, "wait"
        waits as long as it takes, "skip" never waits.

        Raises InvalidOption, DuplicateName, Stopped."""
        self._life.refuse_if_stopped("declare")
        if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f"limiter {name!r}: {rule!r} is no rule; give one of oncron.limits, window(10, per=60) say"
            )
        made = Limiter(
            self._desk,
            checked_name(name, "limiter"),
            rule,
            policy=check.one_of(policy, "policy", ("raise", "wait", "skip")),
            wait_for=check.span(wait_for, "wait_for"),
        )
        self._registry.add_limiter(made)
        return made

    def use(self, middleware: M, /) -> M:
        """Put middleware around every task of this app: inside of what was used before, outside of each task's own.
        `async def m(ctx, call_next)`, or a context manager of `ctx`; runs that begin from now on have it. Answers what
        it was given, so that it may stand above a definition.

        Raises InvalidOption for what is neither, Stopped."""
        self._life.refuse_if_stopped("declare")
        self._registry.use(middleware, self._desk)
        return middleware

    def on(self, event: str, /) -> Callable[[F], F]:
        """Call a function, sync or async, with each Event of that name or group (`"run.failed"`, `"run.*"`).

        Off the path of correctness: in a thread of its own, best effort; one that is slow or raises delays
        nobody. Raises InvalidOption for an event that does not exist, Stopped."""
        pattern = checked_pattern(event)

        def decorate(fn: F) -> F:
            self._life.refuse_if_stopped("declare")
            self._listeners.add(pattern, fn)
            return fn

        return decorate

    # --- live -------------------------------------------------------------------------

    def run(self, *, scheduler: bool = True, worker: bool = True) -> None:
        """Run until SIGTERM or SIGINT: the first one stops gracefully, the second at once. Returns then; if
        the thread of a task does not return, the process leaves instead, everything else given back.

        Raises StoreError if the store cannot be used, AlreadyRunning."""
        refuse_on_loop("app.run()", "await app.serve()")
        run_to_the_end(self.serve(scheduler=scheduler, worker=worker), self._life.unfinished)

    async def serve(self, *, scheduler: bool = True, worker: bool = True) -> None:
        """`run` inside a loop: returns after a signal, `stop()` or a cancellation, when all has stopped. Raises as
        `run` does."""
        await self._life.serve(lambda: self.start(scheduler=scheduler, worker=worker))

    async def start(self, *, scheduler: bool = True, worker: bool = True) -> None:
        """Run as a replica until `stop()`, async tasks on this loop. No signals are handled. May follow stop.

        Raises StoreError if the store cannot be used, AlreadyRunning."""
        self._life.refuse_in_worker_process()
        if in_sync.get():
            raise DefinitionError("app.sync(app.start()) would leave async tasks without a loop; write `with app:`")
        if not (check.truth(scheduler, "scheduler") or check.truth(worker, "worker")):
            raise InvalidOption("scheduler=False, worker=False: nothing is left to run; leave one of them on")
        for module in self._imports:
            _import(module)
        if worker:
            self._registry.refuse_unfound()
        make = self._make_lifespan
        await self._life.start(
            scheduler=scheduler,
            worker=worker,
            lifespan=None if make is None else lambda: make(self),
            state=lambda yielded: setattr(self, "state", yielded),
        )
        self._registry.warn_of_strangers()

    async def stop(self) -> None:
        """Fire and claim no more, wait up to `stop_within` for what runs, give back what has stopped, close the
        connections. An app that was not started, which only enqueues or reads, closes its connections and may go on:
        they are opened again when they are needed. A second call waits for the first. A store that does not answer
        raises nothing: the leases of what could not be given back expire."""
        await self._life.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, host: object, /) -> AsyncGenerator[None]:
        """For a host's lifespan: `FastAPI(lifespan=jobs.lifespan)` starts and stops the app with it. Raises as `start`
        does."""
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
        before = in_sync.set(True)
        try:
            return asyncio.run(call)
        finally:
            in_sync.reset(before)

    # --- inside -----------------------------------------------------------------------

    def _add_task(self, fn: Any, options: Mapping[str, Any]) -> Task[..., Any]:
        self._life.refuse_if_stopped("declare")
        task = self._registry.make(fn, options, self._desk)
        self._registry.add_task(task, self._desk)
        self._life.changed()
        return task

    def _declare(self, declared: Declared) -> None:
        self._registry.declare(declared)
        self._life.changed()

    def _engine(self) -> Engine:
        """This process's engine."""
        return self._life.engine

    @contextmanager
    def _elsewhere(self, kind: Callable[..., E], *, lifespan: bool = True, **parts: Any) -> Generator[E]:
        """On an engine of another kind and store, as if new; afterwards the app is as before. Raises AlreadyRunning."""
        engine = kind(
            settings=self._settings,
            tasks=self._registry.specs,
            definitions=self._registry.definitions,
            emit=self._listeners.emit,
            hears=self._listeners.hears,
            on_call=self._listeners.store_called,
            **parts,
        )
        before = self.state, self._make_lifespan
        self._make_lifespan = self._make_lifespan if lifespan else None
        with self._registry.kept(), self._listeners.kept(), self._life.on(engine):
            try:
                yield engine
            finally:
                self.state, self._make_lifespan = before

    def _make_store(self) -> ReadableStore:
        """As the app sees it: behind its keys."""
        return encrypted(self._open(), self._keys)

    def _make_engine(self) -> Engine:
        self._life.refuse_lonely_store(self._open.url)
        if self._by_default:
            self._by_default = False
            log.warning(
                "no store was given: using %s in this directory. Replicas on other hosts do not see this file and "
                "would run every tick again; pass a URL or set ONCRON_STORE",
                self._open.url,
            )
        return Engine(
            make_store=self._make_store,
            settings=self._settings,
            tasks=self._registry.specs,
            definitions=self._registry.definitions,
            emit=self._listeners.emit,
            hears=self._listeners.hears,
            on_call=self._listeners.store_called,
        )


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


def _import(module: str) -> None:
    """Raises InvalidOption if there is no such module, and what its code raises."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it exists, and imports something that does not
        raise InvalidOption(f"imports=[{module!r}]: no module {error.name!r} on the path") from None


def _modules(imports: Any) -> tuple[str, ...]:
    if isinstance(imports, str):
        raise InvalidOption(f"imports={imports!r}: give a list of module names, imports=[{imports!r}]")
    return tuple(imports)


def _without_name(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "name"}
