"""A task as its users hold it: callable as before, and enqueued with its own signature."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import functools
import hashlib
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Generic, Literal, Protocol, Self, cast, overload

from typing_extensions import ParamSpec, TypeVar, Unpack

from oncron import _defaults as limits, _options as check
from oncron._arguments import Parameters, by_name, is_async
from oncron._chain import Layer, around_of, layer_of, layers_of, managed, managers_of
from oncron._clock import delta_us
from oncron._context import RunContext, within, within_async
from oncron._engine.spec import CHAIN_KEY, Execution, TaskSpec
from oncron._hosting import refuse_on_loop
from oncron._importable import target_of
from oncron._json import dumps, type_name
from oncron._lifecycle import Backoff, GiveUp, cut, default_backoff, said
from oncron._limiter import Limiter, checked_limiter, gate_of
from oncron._model import EnqueueResult, NewRun, new_run_id
from oncron._run import Desk, Run
from oncron._transaction import EffectsDesk
from oncron.backoff import Backoff as Rule
from oncron.errors import InvalidArguments, InvalidOption, InvalidTask

log = logging.getLogger("oncron.task")

P = ParamSpec("P")
R = TypeVar("R", default=Any)

_CHAIN = CHAIN_KEY.removeprefix("\n")
"""As a task's unique key."""


class TaskDesk(Desk, EffectsDesk, Protocol):
    """What tasks need from the app that they belong to."""

    state: Any

    @property
    def middleware(self) -> Sequence[Layer]:
        """Around every task of the app."""
        ...

    def write(self, runs: Sequence[NewRun]) -> concurrent.futures.Future[list[EnqueueResult]]:
        """Enqueue; when it is done, the runs are in the store. Raises Stopped."""
        ...

    def write_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        """Enqueue inside the transaction of a caller's connection. Raises Stopped, StoreError, DefinitionError."""
        ...

    async def write_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        """The same; also for async connections."""
        ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A task's options, checked; durations in microseconds."""

    queue: str = "default"
    priority: int = 0
    retries: int = limits.RETRIES
    timeout: int | None = None
    unique: check.UniqueKey = False
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    backoff: Backoff = default_backoff
    executor: Literal["auto", "thread", "process"] = "auto"
    max_running: int | None = None
    on_doubt: Literal["stop", "continue"] = "stop"
    middleware: tuple[Layer, ...] = ()
    limiter: Limiter | None = None
    every_after_end: int | None = None

    def merged(self, options: Mapping[str, Any]) -> Settings:
        """With these options instead. Raises InvalidOption."""
        return replace(self, **{name: _CHECKS[name](value) for name, value in options.items() if name in _CHECKS})


def _backoff(rule: Any) -> Backoff:
    if isinstance(rule, Rule):
        return rule.draw_us
    if not callable(rule):
        raise InvalidOption(f"backoff={rule!r}: give exponential(...), polynomial() or fixed(...) of oncron.backoff")
    return functools.partial(_own_rule, cast("Callable[[int], check.Duration]", rule))


def _own_rule(rule: Callable[[int], check.Duration], attempt: int, seed: str) -> int:
    """A user's rule, attempt -> Duration. One that fails must not keep the run from its retry."""
    try:
        return min(max(0, delta_us(rule(attempt))), check.LONGEST)
    except Exception:
        log.exception("backoff %r failed for attempt %d; the default is used", rule, attempt)
        return default_backoff(attempt, seed)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "queue": check.queue_name,
    "priority": lambda value: check.number(value, "priority", least=-1_000_000, most=1_000_000),
    "retries": lambda value: check.number(value, "retries", least=0, most=1_000_000),
    "timeout": lambda value: check.duration(value, "timeout", least=1, none=True),
    "unique": check.unique_key,
    "retry_on": check.error_types,
    "backoff": _backoff,
    "executor": check.executor_word,
    "max_running": lambda value: check.number(value, "max_running", least=1, none=True),
    "on_doubt": lambda value: check.one_of(value, "on_doubt", ("stop", "continue")),
    "middleware": layers_of,
    "limiter": checked_limiter,
    "every_after_end": lambda value: check.duration(value, "every_after_end", least=1000, none=True),
}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When one call's run is due: `due_at` in microseconds, or `delay` after the store's now."""

    delay: int = 0
    due_at: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Timing:
        delay, at = options.get("delay"), options.get("at")
        if delay is not None and at is not None:
            raise InvalidOption("delay= and at= are both given; give one")
        return cls(delay=0 if delay is None else check.span(delay, "delay"), due_at=check.instant(at, "at"))


def call_options(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of one call that are given. Raises InvalidOption."""
    check.known(options, check.CALL, where)
    return {name: value for name, value in options.items() if value is not None}


def new_run(task: str, args: str, settings: Settings, timing: Timing, values: Mapping[str, Any]) -> NewRun:
    run_id = new_run_id()
    return NewRun(
        id=run_id,
        task=task,
        args=args,
        queue=settings.queue,
        priority=settings.priority,
        due_at=timing.due_at,
        delay=timing.delay,
        retries=settings.retries,
        retry_delay=settings.backoff(1, run_id),
        timeout=settings.timeout,
        unique=unique_text(task, settings.unique, args, values),
    )


def unique_text(task: str, unique: check.UniqueKey, args: str, values: Mapping[str, Any]) -> str | None:
    """The stored key: the task's name and the key, apart by a character that no name holds."""
    if unique is False:
        return None
    if unique is True:
        key = hashlib.sha256(args.encode()).hexdigest()[:32]
    elif isinstance(unique, str):
        key = unique
    else:
        key = unique(values)
        if not isinstance(key, str) or not key:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"task {task!r}: unique= answered {key!r}; it makes a text of the arguments")
    if len(key) > 1000 or "\0" in key:
        raise InvalidOption(f"task {task!r}: a unique key has at most 1000 characters and no NUL; hash it")
    return f"{task}\n{check.line(key, 'unique')}"


class Task(Generic[P, R]):
    """A named function that runs can be made of. Calling it calls the function, here and now.

    Made by `@app.task` and `@app.schedule`; there is no need to name the type.
    """

    def __init__(self, fn: Callable[..., Any], name: str, settings: Settings, parameters: Parameters, desk: TaskDesk):
        self.fn: Callable[..., Any] = fn
        """The function as written."""
        self.name = name
        self.settings = settings
        self.parameters = parameters
        self._desk = desk
        self.timing = Timing()
        self.connection: Any = None
        """Of the caller's, whose transaction the runs join."""
        functools.update_wrapper(self, fn)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What is around it, outermost first: its limiter, the app's middleware, its own."""
        limiter = self.settings.limiter
        gate = () if limiter is None else (layer_of(gate_of(limiter)),)
        return (*gate, *self._desk.middleware, *self.settings.middleware)

    def _chained(self) -> NewRun:
        """The run that follows each end of a task with `every_after_end`: one open run, by its unique key, so that
        neither replicas nor restarts make a second chain."""
        chain = replace(self.settings, unique=_CHAIN)
        after = Timing(delay=self.settings.every_after_end or 0)
        return new_run(self.name, self.parameters.encode({}), chain, after, {})

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """A run with these arguments, in the store when this returns. If an open run has its unique key,
        that one, with `is_new` False. Raises InvalidArguments before anything is written, Stopped, StoreError."""
        return self._run((await self._write([self._new_run(args, kwargs)]))[0])

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """`enqueue` for code that is not async. Raises as that does, and DefinitionError on an event loop's thread."""
        refuse_on_loop(f"{self.name}.enqueue_sync()", f"await {self.name}.enqueue(...)")
        new = self._new_run(args, kwargs)
        if self.connection is not None:
            return self._run(self._desk.write_in(self.connection, [new])[0])
        return self._run(self._desk.write([new]).result()[0])

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Run[R]]:
        """A run for each mapping of arguments, in one round trip, in their order. All are checked first: if one does
        not fit, InvalidArguments says which, and none is written. Raises Stopped, StoreError."""
        runs: list[NewRun] = []
        for i, item in enumerate(items):
            try:
                runs.append(self._new_run((), by_name(item, self.name)))
            except InvalidArguments as error:
                raise InvalidArguments(f"item {i}: {error}", path=error.path) from None
        if not runs:
            return []
        return [self._run(result) for result in await self._write(runs)]

    def options(self, **options: Unpack[check.CallOptions]) -> Self:
        """This task with other options for the calls made through the answer: `delay` or `at`, `unique`,
        `queue`, `priority`, `retries`, `timeout`. None leaves an option as it is.

        With `connection` (the driver's, SQLAlchemy's or Django's, sync or async, on the store's database) the
        runs are written inside its open transaction: they exist if, and only if, the caller commits. Raises
        InvalidOption for a value that an option cannot have, NotSupported for a store without transactions."""
        given = call_options(options, f"task {self.name!r}.options()")
        other = copy.copy(self)
        other.settings = self.settings.merged(given)
        other.timing = Timing.of(given) if given.keys() & {"delay", "at"} else self.timing
        other.connection = given.get("connection", self.connection)
        return other

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R | Coroutine[Any, Any, R]:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def _new_run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewRun:
        return self.new_run(self.parameters.bind(args, kwargs))

    def new_run(self, values: Mapping[str, Any]) -> NewRun:
        """The run of arguments by name, checked, not yet written. Raises InvalidArguments."""
        return new_run(self.name, self.parameters.encode(values), self.settings, self.timing, values)

    async def _write(self, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        if self.connection is not None:
            return await self._desk.write_in_async(self.connection, runs)
        return await asyncio.wrap_future(self._desk.write(runs))

    def _run(self, result: EnqueueResult) -> Run[R]:
        return Run(result.run, self._desk, is_new=result.is_new)


class _SyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)


class _AsyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.fn(*args, **kwargs)


class _SyncContextTask(Task[P, R]):
    def __call__(self, ctx: RunContext[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:  # pyright: ignore[reportIncompatibleMethodOverride] - called as written: the context first
        return self.fn(ctx, *args, **kwargs)


class _AsyncContextTask(Task[P, R]):
    def __call__(self, ctx: RunContext[Any], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # pyright: ignore[reportIncompatibleMethodOverride] - called as written: the context first
        return self.fn(ctx, *args, **kwargs)


AnyTask = TypeVar("AnyTask", bound=Task[..., Any])
R_co = TypeVar("R_co", covariant=True, default=Any)


class _NoContext: ...


class TakesAnything(Protocol[P, R_co]):
    """A function whose first parameter is Any or object: it would take a RunContext, but does not ask for one.
    Only such a function also takes a first argument of a type that nobody knows."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, first: _NoContext, /, *args: Any, **kwargs: Any) -> Any: ...


class TaskDecorator(Protocol):
    """What `@app.task(...)` and `@app.schedule(...)` answer."""

    # The overloads overlap on purpose: the first that fits is taken, so the order is part of the meaning.
    @overload
    def __call__(self, fn: AnyTask, /) -> AnyTask: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: TakesAnything[P, Coroutine[Any, Any, R]], /
    ) -> _AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: TakesAnything[P, R], /) -> _SyncTask[P, R]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[Concatenate[RunContext[Any], P], Coroutine[Any, Any, R]], /
    ) -> _AsyncContextTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[RunContext[Any], P], R], /) -> _SyncContextTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> _AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> _SyncTask[P, R]: ...


def make_task(
    fn: Callable[..., Any], name: str, settings: Settings, desk: TaskDesk, scope: Mapping[str, Any]
) -> Task[..., Any]:
    """The task of a function. Raises InvalidTask with the mend."""
    parameters = Parameters(fn, name, scope)
    if settings.every_after_end is not None and (missing := parameters.missing({})):
        raise InvalidTask(
            f"task {name!r}: every_after_end= runs it without arguments, and it needs "
            f"{', '.join(map(repr, missing))}; give them defaults"
        )
    if settings.executor == "process":
        target_of(fn, name)
    if is_async(fn):
        kind: type[Task[..., Any]] = _AsyncContextTask if parameters.takes_context else _AsyncTask
    else:
        kind = _SyncContextTask if parameters.takes_context else _SyncTask
    return kind(fn, name, settings, parameters, desk)


def finished(task: str, value: Any) -> Any:
    """What a function that is not async returned. Raises GiveUp if that is work not done yet: a coroutine, another
    awaitable or a generator."""
    if not (inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)):
        return value
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    raise GiveUp(
        f"task {task!r} is a plain def and returned a {type_name(type(value))}, which nobody would run; write an "
        "async def that awaits it, or a loop that consumes it"
    )


def spec_of(task: Task[..., Any], desk: TaskDesk) -> TaskSpec:
    """The task as the engine runs it."""
    fn, settings, awaits = task.fn, task.settings, is_async(task.fn)
    on_loop = awaits and settings.executor == "auto"
    target = target_of(fn, task.name) if settings.executor == "process" else None
    managers = () if on_loop else managers_of(task.layers)

    def prepare(execution: Execution) -> Callable[[], Any]:
        args = task.parameters.decode(execution.run.args)
        ctx = execution.context = RunContext(execution, args, desk.state, desk)
        call = functools.partial(fn, ctx, **args) if task.parameters.takes_context else functools.partial(fn, **args)
        if on_loop:
            return functools.partial(within_async, ctx, call)
        if awaits:
            return functools.partial(within, ctx, lambda: managed(managers, ctx, lambda: asyncio.run(call())))
        return functools.partial(within, ctx, lambda: managed(managers, ctx, lambda: finished(task.name, call())))

    return TaskSpec(
        name=task.name,
        is_async=on_loop,
        prepare=prepare,
        encode=functools.partial(result_text, task.name),
        retry_on=settings.retry_on,
        backoff=settings.backoff,
        max_running=settings.max_running,
        on_doubt=settings.on_doubt,
        target=target,
        around=around_of(task.layers, is_async=on_loop),
        chained=None if settings.every_after_end is None else task._chained,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        managers=len(managers),
    )


def result_text(task: str, result: Any) -> str | None:
    """The result's JSON; a shortened repr, with a warning, if it has none or is too large. Never raises."""
    if result is None:
        return None
    try:
        text = dumps(result)
        why = f"takes {len(text.encode()):,} bytes of JSON, more than {limits.RESULT_BYTES:,}"
        if len(text.encode()) <= limits.RESULT_BYTES:
            return text
    except BaseException as error:  # noqa: BLE001 - a user's own __iter__ or model_dump may raise anything; the run has succeeded
        why = f"is a {type_name(type(result))}, not JSON ({said(error)})"
    log.warning(
        "result of task %r %s; its shortened repr is kept: return an id or a summary",
        task, why, extra={"event": "result.shortened", "task": task},
    )  # fmt: skip
    return dumps(_shown(result))


def _shown(result: Any) -> str:
    try:
        text = repr(result)
    except BaseException as error:  # noqa: BLE001 - as above
        text = f"<{type_name(type(result))} whose repr failed: {type(error).__name__}>"
    return cut(text.encode("utf-8", "replace").decode(), 2000)
