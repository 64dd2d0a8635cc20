# ruff: noqa: SLF001
"""From the words of a command to an app: `module:attribute`, or a store's URL alone."""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from oncron import _life
from oncron._app import Oncron
from oncron._engine.door import Door
from oncron._engine.hold import Hold
from oncron._model import Definition
from oncron._registry import Declared
from oncron._store import ReadableStore
from oncron._task import Task
from oncron.errors import NotFound, OncronError
from oncron.triggers import Trigger

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """An app that a command works on."""

    app: Oncron
    name: str
    """As the user named it: `shop.jobs:app`, or the store's URL without its password."""
    in_code: bool
    """False for a bare store: no tasks, no declared schedules."""

    @property
    def start(self) -> str:
        """The command that starts a replica of it."""
        hosted = HOSTED.get(self.name)
        return f"oncron run {self.name}" if hosted is None else f"{hosted.command} run"

    @property
    def declared(self) -> Mapping[str, Declared]:
        return _inside(self.app)._registry.schedules

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        return _inside(self.app)._registry.tasks

    @property
    def timezone(self) -> str:
        """Of schedules that name none."""
        return _inside(self.app)._registry.timezone

    @property
    def store_url(self) -> str:
        """Without its password."""
        return _inside(self.app)._open.url

    @property
    def by_default(self) -> bool:
        """Whether neither code nor environment names a store."""
        return _inside(self.app)._by_default

    @property
    def concurrency(self) -> int:
        return _inside(self.app)._settings.concurrency

    @property
    def lease_for(self) -> int:
        return _inside(self.app)._settings.lease_for

    def now_us(self) -> int:
        """The store's clock; the machine's until the store was asked."""
        return _inside(self.app)._life.engine.now_us()

    def define(self, name: str, trigger: Trigger, task: str, options: Mapping[str, Any]) -> Definition:
        """What put_schedule would write. Raises as it does, but for what only the store knows."""
        return _inside(self.app)._registry.define(name, trigger, task, options, origin="api").definition

    async def reach(self) -> None:
        """Find out at once whether the store can be used: the app itself would wait for it to come back.

        Raises StoreError."""
        async with self.own_store():
            pass

    @asynccontextmanager
    async def own_store(self) -> AsyncGenerator[ReadableStore]:
        """A store beside the app's, open: what the app would do first, migrate it for instance, is not done.

        Raises StoreError."""
        store: ReadableStore = _inside(self.app)._make_store()
        try:
            await store.open()
            yield store
        finally:
            await store.close()

    def close(self) -> None:
        """Let go of the store. An app that lives on in this process goes on with it, or opens it again."""
        life = _inside(self.app)._life
        if life.phase in ("new", "stopped"):
            life.forget_engine()

    async def ask(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """What a read of the store answers."""
        return await _inside(self.app)._desk.ask(work)

    def new_hold(self, lock: str, lease_for: int) -> Hold:
        """One of that lock, held by this process; microseconds."""
        return Hold(lock, holder=_inside(self.app)._desk.replica, lease_for=lease_for)

    def at_door(self, work: Callable[[Door], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Do `work` on the loop where the store lives, however long it takes."""
        return _inside(self.app)._desk.at_door(work)

    def import_all(self) -> None:
        """Import what the app names in `imports=`, as a starting replica does."""
        for module in _inside(self.app)._imports:
            _import(module)

    def override(self, **settings: Any) -> None:
        """Run with other settings than the code has. Only before the app is used."""
        app = _inside(self.app)
        app._settings = replace(app._settings, **settings)


def _inside(app: Oncron) -> Any:
    """The app's private parts. The command line is of the same house; it knows them here and nowhere else."""
    return app


@dataclass(frozen=True)
class Hosted:
    """An app of a framework, in whose command line this one is."""

    make: Callable[[], Oncron]
    command: str
    """What its user types instead of `oncron`."""


HOSTED: dict[str, Hosted] = {}
"""By the name of the target."""


class ImportFailed(click.ClickException):
    """The target's own code raised while it was imported; `error` is what."""

    exit_code = 2

    def __init__(self, message: str, error: BaseException) -> None:
        self.error = error
        super().__init__(message)


# --- options ----------------------------------------------------------------------------------


def takes_target(
    *arguments: str, optional: str = "", unless: str = "", creates: bool = False, reaches: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`[TARGET] ARGUMENTS [--store URL] [--namespace NAME]`; the command gets a Target and the arguments,
    None for one that is not given: an optional one, or any if the option `unless` is there. Unless it `creates`
    the store, a file has to be there; unless it `reaches` it, the command finds out itself."""
    usage = " ".join(["[TARGET]", *map(str.upper, arguments), *([f"[{optional.upper()}]"] if optional else [])])
    usage += f"|--{unless}" if unless else ""
    names = (*arguments, optional) if optional else arguments

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("words", nargs=-1, metavar=usage)
        @click.option("--store", metavar="URL", help="The store, instead of TARGET.")
        @click.option("--namespace", metavar="NAME", help="Without TARGET: the app's namespace, 'oncron' if not given.")
        @functools.wraps(command)
        def wrapped(words: tuple[str, ...], store: str | None, namespace: str | None, **options: Any) -> Any:
            found = _split(list(words), () if options.get(unless) else arguments, optional, store)
            if namespace is not None and found.store is None:
                raise click.UsageError("--namespace goes with --store or $ONCRON_STORE; a TARGET has its own")
            target = (
                load(found.target) if found.target is not None else bare(found.store or "", namespace, creates=creates)
            )
            values = [*found.values, *[None] * (len(names) - len(found.values))]
            try:
                if reaches:
                    target.app.sync(target.reach())
                return command(target, **dict(zip(names, values, strict=True)), **options)
            except NotFound as error:
                raise target.app.sync(not_found(target, error, *values)) from None
            finally:
                target.close()

        return wrapped

    return decorate


_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d][\w.]*")


async def not_found(target: Target, error: NotFound, *names: str | None) -> NotFound:
    """The error, or a better one if a schedule of that name is declared in code and only the store lacks it."""
    declared = [name for name in names if name is not None and name in target.declared]
    if not declared or await target.ask(lambda store: store.schedules(declared[:1])):
        return error
    return NotFound(
        f"schedule {declared[0]!r} is declared in code, but not in the store yet: start a replica "
        f"(`{target.start}`), which writes it there"
    )


@dataclass(frozen=True)
class _Split:
    target: str | None
    store: str | None
    values: list[str]


def _split(words: list[str], arguments: tuple[str, ...], optional: str, store: str | None) -> _Split:
    """Which word is TARGET. Without --store the first one is; with $ONCRON_STORE it may be left out: no more words
    than the command has arguments are those. One for an optional argument is TARGET if spelled `module:attribute`."""
    most = len(arguments) + bool(optional)
    complete = len(arguments) <= len(words) <= most
    if len(words) > len(arguments) and _TARGET.fullmatch(words[0]):
        complete = False
    if store is not None:
        if len(words) > most:
            raise click.UsageError(f"with --store, TARGET is left out: {words[0]!r} is one word too many")
        target = None
    elif complete and (store := os.environ.get("ONCRON_STORE")):
        target = None
    elif words:
        target, words = words[0], words[1:]
    else:
        raise click.UsageError("give a TARGET (module:attribute), or --store URL, or set ONCRON_STORE")
    if len(words) < len(arguments):
        missing = arguments[len(words)].upper()
        raise click.UsageError(f"{missing} is missing" + ("" if target is None else f" after the target {target!r}"))
    if len(words) > most:
        raise click.UsageError(f"{words[most]!r} is one word too many")
    return _Split(target, store if target is None else None, words)


# --- apps -------------------------------------------------------------------------------------


def bare(url: str, namespace: str | None, *, creates: bool) -> Target:
    """An app without code; it upgrades nothing by itself, and creates no file unless it shall."""
    app = Oncron(url, namespace=namespace or "oncron", auto_migrate=False)
    file = Path(url.split("://", 1)[1].removeprefix("/"))
    if url.startswith("sqlite") and not creates and not file.exists():
        raise click.UsageError(f"there is no file {str(file)!r}; a replica makes it, or `oncron migrate --store {url}`")
    return Target(app, _inside(app)._open.url, in_code=False)


def load(name: str) -> Target:
    """The app at `module:attribute`. The current directory is importable.

    Raises click.UsageError if there is no such thing, ImportFailed if its code raises."""
    if (hosted := HOSTED.get(name)) is not None:
        return Target(hosted.make(), name, in_code=True)
    module_name, _, attribute = name.partition(":")
    _check_spelling(name, module_name)
    module = import_here(module_name)
    app = _attribute(module, attribute) if attribute else _the_only_one(module)
    return Target(app, name, in_code=True)


def import_here(module: str) -> ModuleType:
    """The module, imported; the current directory is on the path. Raises click.UsageError if there is no such thing,
    ImportFailed if its code raises."""
    if sys.path[:1] not in ([""], [str(Path.cwd())]):
        sys.path.insert(0, str(Path.cwd()))
    return _import(module)


def _check_spelling(name: str, module: str) -> None:
    if "://" in name:
        raise click.UsageError(f"{name!r} is a store's URL: write --store {name}")
    if module.endswith(".py") or "/" in module:
        dotted = module.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
        raise click.UsageError(f"TARGET is a module, not a file: write {dotted!r} for {module!r}")
    if not module or not all(part.isidentifier() for part in module.split(".")):
        raise click.UsageError(f"{name!r} is no TARGET; write module:attribute, shop.jobs:app for instance")


def _import(name: str) -> ModuleType:
    whose, _life.whose_process = _life.whose_process, "command"
    try:
        return importlib.import_module(name)
    except _life.StartedInImport as error:
        raise click.UsageError(f"{name} cannot be imported: {_told(error)}") from None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(
                f"no module {error.name!r} in {Path.cwd()} or on the path; start where it lies, or set PYTHONPATH"
            ) from None
        raise ImportFailed(f"{name} cannot be imported: {_told(error)}", error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's module raises
        raise ImportFailed(f"{name} cannot be imported: {_told(error)}", error) from None
    finally:
        _life.whose_process = whose


def _told(error: BaseException) -> str:
    """The error and the user's line it came from."""
    import oncron

    ours, standard = str(Path(oncron.__file__).parent), sysconfig.get_path("stdlib")
    packages = str(Path(standard, "site-packages"))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen"))
        and (not frame.filename.startswith(standard) or frame.filename.startswith(packages))
    ]
    where = f"{_short(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{_short(error.filename)}:{error.lineno}: "
    kind = "" if isinstance(error, OncronError) else f"{type(error).__name__}: "
    return f"{where}{kind}{error.msg if isinstance(error, SyntaxError) else error}"


def _short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _attribute(module: ModuleType, attribute: str) -> Oncron:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise click.UsageError(f"{module.__name__} has no {attribute!r}; {_hint(module)}")
        found = getattr(found, part)
    if not isinstance(found, Oncron):
        kind = type(found).__name__
        raise click.UsageError(f"{module.__name__}:{attribute} is no Oncron but of type {kind}; {_hint(module)}")
    return found


def _the_only_one(module: ModuleType) -> Oncron:
    found = _apps(module)
    if len({id(app) for app in found.values()}) != 1:
        what = "several Oncrons" if found else "no Oncron"
        raise click.UsageError(f"{module.__name__} holds {what}; {_hint(module)}")
    return next(iter(found.values()))


def _apps(module: ModuleType) -> dict[str, Oncron]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Oncron)}


def _hint(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _apps(module)]
    return f"write {' or '.join(names)}" if names else "make one there: app = Oncron(...)"
