"""A task's parameters: what a function may look like, how a call is bound, checked and stored.

Arguments are stored as JSON by name, so that parameters may be reordered between releases.
They are checked against the annotations when they are given, before anything is written, and
again when a run is claimed, since the code may have changed in between.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from oncron import _defaults as limits
from oncron._context import RunContext
from oncron._json import dumps, from_plain, loads, plain, type_name
from oncron.errors import InvalidArguments, InvalidTask

_PATH = re.compile(r" - at `(?:key in )?(\$[^`]*)`")


class Parameters:
    """The parameters of one task, without its RunContext.

    Raises InvalidTask, with the mend, for a function that cannot be a task. `scope` holds the
    local names of the place of definition, where annotations may point to.
    """

    def __init__(self, fn: Callable[..., Any], task: str, scope: Mapping[str, Any] | None = None) -> None:
        self.task = task
        written = _signature(fn, task)
        _refuse_odd_functions(fn, task, list(written.parameters.values()))
        hints = _hints(fn, task, scope or {})
        parameters = [p.replace(annotation=hints.get(p.name, Any)) for p in written.parameters.values()]
        self.takes_context = bool(parameters) and _is_context(parameters[0].annotation)
        if self.takes_context:
            parameters = parameters[1:]
        _refuse_odd_parameters(task, parameters)
        self._signature = written.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
        self._names = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        self._others = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)
        self._decoder = self._make_decoder(parameters)
        self._result = _result_decoder(hints.get("return", Any))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name. Raises InvalidArguments as Python's own binding would TypeError."""
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"task {self.task!r}: {error}; it takes {self}") from None
        if self._others is not None:
            bound |= bound.pop(self._others, {})
        return bound

    def encode(self, values: Mapping[str, Any]) -> str:
        """The JSON text of arguments by name, checked to fit. Raises InvalidArguments with the path of the misfit."""
        try:
            text = dumps(values)
            self.decode(text)
        except InvalidArguments as error:
            raise InvalidArguments(f"task {self.task!r}: {error}", path=error.path) from None
        return sized(text, self.task)

    def decode(self, text: str) -> dict[str, Any]:
        """The typed arguments of a stored text. Raises InvalidArguments with the path if it does not fit."""
        try:
            decoded = self._decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise self._misfit(error) from None
        except (TypeError, ValueError) as error:
            raise InvalidArguments(f"arguments do not fit {self}: {error}") from error
        found = {name: value for name in self._names if (value := getattr(decoded, name)) is not msgspec.UNSET}
        if self._others is not None:
            found |= {name: value for name, value in loads(text).items() if name not in self._names}
        return found

    def decode_result(self, text: str) -> Any:
        """The result as the function's annotation says; as plain JSON where it does not fit."""
        try:
            return self._result.decode(text)
        except (msgspec.MsgspecError, TypeError, ValueError):
            return loads(text)

    def missing(self, values: Mapping[str, Any]) -> list[str]:
        """Required parameters that `values` leaves open."""
        needed = [p for p in self._signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        return [p.name for p in needed if p.default is inspect.Parameter.empty and p.name not in values]

    def __str__(self) -> str:
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in self._signature.parameters.values()]
        return str(self._signature.replace(parameters=bare))

    def _make_decoder(self, parameters: Sequence[inspect.Parameter]) -> msgspec.json.Decoder[Any]:
        fields: list[Any] = []
        for p in parameters:
            if p.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            if p.default is inspect.Parameter.empty:
                fields.append((p.name, p.annotation))
            else:
                kind: Any = typing.Union[p.annotation, msgspec.UnsetType]  # noqa: UP007 - annotations may be strings' results
                fields.append((p.name, kind, msgspec.UNSET))
            self._try_type(p)
        record = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=self._others is None)
        return msgspec.json.Decoder(record, dec_hook=from_plain)

    def _try_type(self, p: inspect.Parameter) -> None:
        try:
            msgspec.json.Decoder(p.annotation, dec_hook=from_plain)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise InvalidTask(
                f"task {self.task!r}: parameter {p.name!r} is annotated {type_name(p.annotation)}, which JSON cannot "
                f"fill: {error}; annotate it with plain types, a dataclass, or Any"
            ) from None

    def _misfit(self, error: msgspec.MsgspecError) -> InvalidArguments:
        text = str(error)
        found = _PATH.search(text)
        path = found.group(1) if found else "$"
        reason = _PATH.sub("", text)
        return InvalidArguments(f"{path}: {reason[0].lower() + reason[1:]}; it takes {self}", path=path)


def sized(text: str, task: str) -> str:
    """The text, if it is within the limit. Raises InvalidArguments."""
    size = len(text.encode())
    if size > limits.ARGS_BYTES:
        raise InvalidArguments(
            f"task {task!r}: the arguments take {size:,} bytes of JSON, more than {limits.ARGS_BYTES:,}; "
            "store the data elsewhere and pass its id"
        )
    return text


def by_name(values: Any, task: str) -> dict[str, Any]:
    """`args=` of a call by name: a mapping with text keys. Raises InvalidArguments."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in typing.cast("Any", values)):
        raise InvalidArguments(f"task {task!r}: args= is a mapping of parameter names to values, not {values!r}")
    return dict(typing.cast("Mapping[str, Any]", values))


def unchecked(values: Mapping[str, Any], task: str) -> str:
    """The JSON text of arguments for a task whose code is elsewhere."""
    try:
        return sized(msgspec.json.encode(plain(values)).decode(), task)
    except InvalidArguments as error:
        raise InvalidArguments(f"task {task!r}: {error}", path=error.path) from None


def _signature(fn: Callable[..., Any], task: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        raise InvalidTask(
            f"task {task!r}: {fn!r} has no readable signature; wrap it in a def with parameters"
        ) from None


def is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - an object with an async __call__


def _refuse_odd_functions(fn: Callable[..., Any], task: str, parameters: Sequence[inspect.Parameter]) -> None:
    inner: Any = fn.func if isinstance(fn, functools.partial) else fn
    if isinstance(inner, classmethod) or inspect.isclass(inner):
        raise InvalidTask(f"task {task!r}: {inner!r} is no function; give a def, or a bound method with name=")
    if getattr(inner, "__name__", "") == "<lambda>":
        raise InvalidTask(f"task {task!r} is a lambda: other replicas cannot find it by name; write a def")
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidTask(f"task {task!r} is a generator: calling it runs nothing; return a list, or loop inside")
    written: Any = inspect.unwrap(inner)
    if is_async(written) and not is_async(typing.cast("Any", fn)):
        raise InvalidTask(
            f"task {task!r} is an async function inside a decorator that is not async: calling it runs nothing; "
            "write the wrapper as an async def that awaits it, or give the async function itself"
        )
    first = parameters[0].name if parameters else ""
    if first in ("self", "cls") and not inspect.ismethod(inner):
        raise InvalidTask(
            f"task {task!r} takes {first!r}: a run has no object to call it on; "
            f"give a bound method: app.task(obj.{getattr(inner, '__name__', 'method')}, name={task!r})"
        )


def _refuse_odd_parameters(task: str, parameters: Sequence[inspect.Parameter]) -> None:
    for p in parameters:
        if _is_context(p.annotation):
            raise InvalidTask(f"task {task!r}: {p.name!r} is a RunContext but not the first parameter; put it first")
        if any(_is_context(part) for part in typing.get_args(p.annotation)):
            raise InvalidTask(f"task {task!r}: annotate {p.name!r} as RunContext alone; a run always has one")
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            raise InvalidTask(f"task {task!r} takes *{p.name}: arguments are stored by name; take a list instead")
        if p.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidTask(
                f"task {task!r}: {p.name!r} is positional-only; arguments are stored by name: drop the '/'"
            )


def _hints(fn: Callable[..., Any], task: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    inner: Any = fn.func if isinstance(fn, functools.partial) else fn
    if not (inspect.isroutine(inner) or inspect.ismethod(inner)):
        inner = type(inner).__call__
    try:
        return typing.get_type_hints(inspect.unwrap(inner), localns=dict(scope), include_extras=True)
    except NameError as error:
        raise InvalidTask(
            f"task {task!r}: the annotation {error.name!r} cannot be resolved; "
            "import it at module level, outside `if TYPE_CHECKING:`"
        ) from None
    except (TypeError, AttributeError, SyntaxError) as error:
        raise InvalidTask(f"task {task!r}: its annotations cannot be read: {error}") from None


def _is_context(annotation: Any) -> bool:
    return annotation is RunContext or typing.get_origin(annotation) is RunContext


def _result_decoder(annotation: Any) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(annotation, dec_hook=from_plain)
    except (TypeError, ValueError, NotImplementedError):
        return msgspec.json.Decoder()
