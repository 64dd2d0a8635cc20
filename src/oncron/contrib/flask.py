# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
"""oncron in Flask: an extension that is the app.

    jobs = Oncron()

    @jobs.task
    def send_mail(to: str) -> None: ...

    def create_app():
        web = Flask(__name__)
        jobs.init_app(web)

Every run is in the Flask app's context; `flask oncron run` is a replica.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, cast

import click

import oncron
from oncron.errors import AlreadyRunning, DefinitionError, InvalidOption
from oncron.stores.open import Opener

if importlib.util.find_spec("flask") is None:
    raise InvalidOption("oncron.contrib.flask needs Flask: pip install 'oncron[flask]'")

from flask import Flask

__all__ = ["Oncron"]

_AT_DEFINITION = frozenset({"timezone", "defaults", "release"})
"""What a declaration is read with: tasks and schedules are declared before there is a Flask app."""
_KNOWN = frozenset(inspect.signature(oncron.Oncron).parameters)
_PREFIX = "ONCRON_"


class Oncron(oncron.Oncron):
    """An `oncron.Oncron` that takes its store, and what else its parameters are, from a Flask app's config:
    `ONCRON_STORE`, `ONCRON_CONCURRENCY`, `ONCRON_QUEUES`, ... The config goes before what is given here.

    `timezone`, `defaults` and `release` are given here: declarations need them before there is a Flask app. Raises
    InvalidOption.
    """

    def __init__(self, web: Flask | None = None, **options: Any) -> None:
        for name in options:
            if name not in _KNOWN:
                raise InvalidOption(f"Oncron({name}=...): no such option; {_mend(name, _KNOWN)}")
        self._given = options
        super().__init__("memory://", **{name: options[name] for name in options if name != "store"})
        self._open = Opener("no store yet", _no_store)
        self._web: Flask | None = None
        self.use(self._in_context)
        if web is not None:
            self.init_app(web)

    def init_app(self, web: Flask, /) -> None:
        """Take the store and its settings from the config of `web`, run tasks in its context, and add
        `flask oncron ...` to its commands. Once more, for another Flask app, is another store: tests do so.

        Raises InvalidOption for a key that does not exist or a value that it cannot have; AlreadyRunning."""
        if self._life.phase in ("starting", "running", "stopping"):
            raise AlreadyRunning(f"this app is {self._life.phase} in this process: stop it before init_app()")
        self._configure({**self._given, **_read(cast("Mapping[str, Any]", web.config))})
        self._web = web
        web.extensions["oncron"] = self
        web.cli.add_command(_command(self))

    def _configure(self, options: Mapping[str, Any]) -> None:
        made = oncron.Oncron(**options)
        self._open, self._keys, self._by_default = made._open, made._keys, made._by_default
        self._imports, self._make_lifespan = made._imports, made._make_lifespan
        self._settings = replace(made._settings, queue_limits=self._registry.queue_limits)
        self._life.forget_engine()

    @contextmanager
    def _in_context(self, ctx: oncron.RunContext[Any]) -> Generator[None]:
        if self._web is None:
            raise DefinitionError(
                f"task {ctx.task!r}: this process has no Flask app, so there is no context for it; call "
                "jobs.init_app(...) where the task's module is imported"
            )
        with self._web.app_context():
            yield


def _no_store() -> NoReturn:
    raise InvalidOption("this Oncron has no Flask app yet, and so no store: call jobs.init_app(app) first")


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the config has. Raises InvalidOption."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if not key.startswith(_PREFIX):
            continue
        name = key.removeprefix(_PREFIX).lower()
        if name in _AT_DEFINITION:
            raise InvalidOption(
                f"{key} comes too late: what is declared at import already needs it; write Oncron({name}=...)"
            )
        if name not in _KNOWN:
            raise InvalidOption(f"config has {key}, which oncron does not know; {_mend(key, _keys())}")
        found[name] = value
    return found


def _keys() -> frozenset[str]:
    return frozenset(_PREFIX + name.upper() for name in _KNOWN - _AT_DEFINITION)


def _mend(name: str, names: frozenset[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(names))}"


def _command(app: Oncron) -> click.Command:
    @click.command(
        "oncron",
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        add_help_option=False,
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def oncron_command(arguments: tuple[str, ...]) -> None:
        """Scheduled jobs: run, schedules, runs, fire, ... `flask oncron` lists them."""
        from oncron.cli.hosted import main_for

        main_for(lambda: app, arguments, name="flask:oncron", command="flask oncron")

    return oncron_command
