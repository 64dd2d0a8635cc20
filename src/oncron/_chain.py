"""Middleware: what is around every task of an app, or around one task; outer to inner in order of declaration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from oncron._arguments import is_async
from oncron._context import RunContext, within_async
from oncron._engine.spec import Around, Execution
from oncron._json import type_name
from oncron.errors import InvalidOption

CallNext = Callable[[], Awaitable[Any]]
"""Runs the rest of the chain, and in the end the task: `result = await call_next()`."""

Middleware = Callable[[RunContext[Any], CallNext], Awaitable[Any]] | Callable[[RunContext[Any]], Any]
"""`async def m(ctx, call_next)`, or a function of `ctx` that makes a context manager."""

_SHAPES = "write `async def m(ctx, call_next)`, or a context manager of ctx: `@contextmanager` above `def m(ctx)`"


class Kind(Enum):
    FUNCTION = "async def m(ctx, call_next)"
    ASYNC_CONTEXT = "an async context manager of ctx"
    CONTEXT = "a context manager of ctx"
    """The one kind that is entered in the task's own thread or process."""


@dataclass(frozen=True)
class Layer:
    """One middleware, checked."""

    made: Callable[..., Any]
    kind: Kind

    @property
    def is_gate(self) -> bool:
        """Whether it only decides whether, or when, the run may begin: until the next layer the run has not
        started, so that a stop gives it back whole and its time does not run."""
        return bool(getattr(self.made, "is_gate", False))

    async def around(self, ctx: RunContext[Any], call_next: CallNext) -> Any:
        if self.kind is Kind.FUNCTION:
            return _awaited(self.made, await self.made(ctx, call_next))
        manager = self.made(ctx)
        if self.kind is Kind.ASYNC_CONTEXT or _is_only_async(manager):
            async with manager:
                return await call_next()
        with _managed(self.made, manager):
            return await call_next()


def layer_of(middleware: Any) -> Layer:
    """Raises InvalidOption, with the mend, for what is no middleware."""
    if not callable(middleware):
        raise InvalidOption(f"{middleware!r} is no middleware: {_SHAPES}")
    if not inspect.isclass(middleware) and is_async(middleware):
        _refuse_other_parameters(middleware, 2)
        return Layer(middleware, Kind.FUNCTION)
    if inspect.isgeneratorfunction(middleware) or inspect.isasyncgenfunction(middleware):
        above = "@asynccontextmanager" if inspect.isasyncgenfunction(middleware) else "@contextmanager"
        raise InvalidOption(f"{_name(middleware)} is a generator; put {above} of contextlib above it")
    _refuse_other_parameters(middleware, 1)
    return Layer(middleware, Kind.ASYNC_CONTEXT if _makes_only_async(middleware) else Kind.CONTEXT)


def layers_of(value: Any) -> tuple[Layer, ...]:
    """`middleware=` of a task."""
    if callable(value) or not isinstance(value, Iterable):
        raise InvalidOption(f"middleware={value!r}: give a list of middleware, outermost first")
    return tuple(layer_of(each) for each in cast("Iterable[Any]", value))


def around_of(layers: Sequence[Layer], *, is_async: bool) -> Around | None:
    """What is around a task on the user's loop; None: nothing is. Managers that are not async belong there only if
    the task runs there itself."""
    there = tuple(layer for layer in layers if is_async or layer.kind is not Kind.CONTEXT)
    return functools.partial(_through, there) if there else None


def managers_of(layers: Sequence[Layer]) -> tuple[Callable[..., Any], ...]:
    """What is entered in the thread or process of a task that does not run on the user's loop."""
    return tuple(layer.made for layer in layers if layer.kind is Kind.CONTEXT)


def managed(managers: Sequence[Callable[..., Any]], ctx: RunContext[Any], fn: Callable[[], Any]) -> Any:
    """`fn()` with all of them entered. None if one of them keeps its error to itself."""
    if not managers:
        return fn()
    with ExitStack() as stack:
        for made in managers:
            stack.enter_context(_managed(made, made(ctx)))
        return fn()
    return None


async def _through(
    layers: Sequence[Layer], execution: Execution, begin: Callable[[], None], inner: Callable[[], Awaitable[Any]]
) -> Any:
    ctx: RunContext[Any] = execution.context

    async def rest(at: int) -> Any:
        if at == len(layers):
            return await inner()
        layer = layers[at]
        if not layer.is_gate:
            begin()
        return await layer.around(ctx, functools.partial(rest, at + 1))

    return await within_async(ctx, functools.partial(rest, 0))


def _awaited(made: Callable[..., Any], value: Any) -> Any:
    if not inspect.iscoroutine(value):
        return value
    value.close()
    raise TypeError(f"middleware {_name(made)} returned a coroutine; write `return await call_next()`")


def _is_only_async(manager: object) -> bool:
    return hasattr(manager, "__aenter__") and not hasattr(manager, "__enter__")


def _managed(made: Callable[..., Any], manager: Any) -> Any:
    if hasattr(manager, "__enter__") and hasattr(manager, "__exit__"):
        return manager
    if _is_only_async(manager):
        raise TypeError(
            f"middleware {_name(made)} makes an async context manager, which cannot be told from its definition; "
            "put @asynccontextmanager above it, or give a class with __aenter__"
        )
    raise TypeError(
        f"middleware {_name(made)} made a {type_name(type(manager))}, which is no context manager; {_SHAPES}"
    )


def _makes_only_async(made: Any) -> bool:
    """As far as a definition tells: a class, or a function under @asynccontextmanager."""
    if inspect.isclass(made):
        return hasattr(made, "__aenter__") and not hasattr(made, "__enter__")
    inner = made.func if isinstance(made, functools.partial) else made  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inspect.isasyncgenfunction(inspect.unwrap(cast("Callable[..., Any]", inner)))


def _refuse_other_parameters(middleware: Callable[..., Any], count: int) -> None:
    try:
        inspect.signature(middleware).bind(*[None] * count)
    except TypeError:
        raise InvalidOption(
            f"middleware {_name(middleware)} cannot be called with {'(ctx, call_next)' if count == 2 else '(ctx)'}; "
            f"{_SHAPES}"
        ) from None
    except ValueError:
        return  # no readable signature: its first call will tell


def _name(made: Any) -> str:
    return repr(getattr(made, "__qualname__", None) or made)
