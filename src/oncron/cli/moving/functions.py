"""Functions of the other scheduler's jobs as tasks: names for their arguments, and source that defines them."""

from __future__ import annotations

import importlib
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oncron import Oncron
from oncron.cli.moving.moved import NoEquivalent, TaskCode
from oncron.cli.moving.source import Call, Verbatim, written
from oncron.errors import OncronError


def by_name(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by their parameters' names. Raises NoEquivalent."""
    try:
        bound = inspect.signature(function).bind(*arguments, **named)
    except (TypeError, ValueError) as error:
        raise NoEquivalent(f"its arguments do not fit {_name(function)}: {error}") from None
    found = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name, {})
    return found


def unnamed(arguments: Sequence[Any], mend: str) -> None:
    """Raises NoEquivalent if there are positional arguments: only the function knows their names."""
    if arguments:
        shown = ", ".join(map(repr, arguments))
        raise NoEquivalent(f"its positional arguments ({shown}) have no names, which oncron's have: {mend}")


def at(place: str) -> Any:
    """What stands at `module:name.name`. Raises NoEquivalent."""
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001 - the user's module raises anything
        raise NoEquivalent(f"its function {place} cannot be imported: {type(error).__name__}: {error}") from None
    return found


def task_of(name: str, place: str, function: Callable[..., Any] | None, options: Mapping[str, Any]) -> TaskCode:
    """A task of the function at `module:name.name`. Where the function is there, oncron is asked whether it takes it.
    Raises NoEquivalent."""
    module, _, path = place.partition(":")
    # The place may come from a job store, and goes into a program.
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in f"{module}.{path}".split(".")):
        raise NoEquivalent(f"its function {place!r} has no place that can be imported: give it a name in a module")
    if function is not None:
        try:
            Oncron("memory://").task(name=name, **options)(function)
        except OncronError as error:
            raise NoEquivalent(f"its function {place} cannot be a task as it is: {error}") from None
    decorator = written(Call("app.task", (), {"name": name, **options}))
    return TaskCode(name, (module,), f"{decorator}({written(Verbatim(f'{module}.{path}'))})", options)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
