"""Functions that another process finds again by importing their module, as `executor="process"` needs."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from oncron._engine.wire import Target
from oncron.errors import InvalidTask

_MAIN = "__main__"
_MAIN_AGAIN = "__mp_main__"
"""What the started script is called in a worker process, as in multiprocessing: `if __name__ == "__main__"`
is not true there."""
IMPORT_FIRST = "_ONCRON_IMPORT_FIRST"
"""An environment variable that worker processes inherit: a module that they import before any task's, where tasks can
only be imported after a framework was set up."""
_TOP = "define it with def at the top level of its module"


def target_of(fn: Callable[..., Any], task: str) -> Target:
    """Where to find the function. Raises InvalidTask, with the mend, for one that no import can find."""
    where = f'task {task!r}: executor="process" finds the function by importing it in another process'
    if inspect.ismethod(fn):
        raise InvalidTask(
            f"{where}, and {fn.__qualname__!r} is a method of an object that only this process has; "
            "write a function at the top level of a module that makes or finds the object"
        )
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if isinstance(fn, functools.partial) or not isinstance(module, str) or not isinstance(name, str):
        raise InvalidTask(f"{where}, and {fn!r} has no name in a module; {_TOP}")
    if "<lambda>" in name:
        raise InvalidTask(f"{where}, and a lambda has no name there; {_TOP}")
    if "<locals>" in name:
        raise InvalidTask(f"{where}, and {name!r} is defined inside of a function, where no import sees it; {_TOP}")
    if module in (_MAIN, _MAIN_AGAIN):
        return _in_main(sys.modules[module], task, name, where)
    return Target(task=task, module=module, name=name)


def refuse_unfound(fn: Callable[..., Any], target: Target) -> None:
    """Once its module is imported: raises InvalidTask unless the name leads to this very function, or to
    the task made of it."""
    module = sys.modules.get(target.module)
    try:
        found = _walk(module, target.name)
    except AttributeError:
        found = None
    if found is not fn and getattr(found, "fn", None) is not fn:
        raise InvalidTask(
            f'task {target.task!r}: executor="process" imports {target.module}.{target.name} in another process, and '
            f"here that is {found!r}, not the task's function; give the function a name of its own in its module"
        )


def load(target: Target) -> Any:
    """The task or function, in a worker process. Raises InvalidTask, and what the user's module raises."""
    if first := os.environ.get(IMPORT_FIRST):
        importlib.import_module(first)
    if target.module == _MAIN:
        module = _main_again(target.main_module, target.main_path)
    else:
        module = _imported(target)
    try:
        return _walk(module, target.name)
    except AttributeError:
        raise InvalidTask(
            f"task {target.task!r}: module {target.module!r} has no {target.name!r} in the worker process; "
            "define the task when the module is imported, whatever the process"
        ) from None


def _imported(target: Target) -> ModuleType:
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target.module}.".startswith(f"{error.name}."):
            raise
        raise InvalidTask(
            f"task {target.task!r}: module {target.module!r} cannot be imported by its name in the worker process; "
            f"put it where sys.path leads ({', '.join(map(repr, sys.path[:3]))}, ...)"
        ) from None


def _walk(module: ModuleType | None, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _in_main(main: ModuleType, task: str, name: str, where: str) -> Target:
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != _MAIN:  # python -m package.module
        return Target(task=task, module=_MAIN, name=name, main_module=spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        raise InvalidTask(f"{where}, and an interactive session or `python -c` cannot be imported; put it in a file")
    path = Path(file).absolute()
    # A folder or zip file that was started: what runs is the __main__.py inside.
    return Target(task=task, module=_MAIN, name=name, main_path=os.fspath(path if spec is None else path.parent))


@functools.cache
def _main_again(module: str | None, path: str | None) -> ModuleType:
    """Runs what was started once more, under another name than "__main__"."""
    if module is not None:
        found = runpy.run_module(module, run_name=_MAIN_AGAIN, alter_sys=True)
    else:
        found = runpy.run_path(path or "", run_name=_MAIN_AGAIN)
    main = ModuleType(_MAIN_AGAIN)
    main.__dict__.update(found)
    sys.modules[_MAIN] = sys.modules[_MAIN_AGAIN] = main
    return main
