# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
"""The one app of a Django project, made of `settings.ONCRON`."""

from __future__ import annotations

import difflib
import inspect
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from oncron import Oncron
from oncron._importable import IMPORT_FIRST
from oncron._store import ReadableStore
from oncron.contrib.django._connections import closed_when_old
from oncron.contrib.django._database import InMemory, store_url
from oncron.errors import InvalidOption
from oncron.stores.open import Opener, opener

TARGET = "oncron.contrib.django:app"

_PARAMETERS = frozenset(inspect.signature(Oncron).parameters)
_OWN = frozenset({"DATABASE", "AUTODISCOVER", "RUNSERVER"})
_KEYS = frozenset(name.upper() for name in _PARAMETERS) | _OWN
_lock = threading.RLock()
_made: list[Oncron] = []


@dataclass(frozen=True)
class Wishes:
    """`settings.ONCRON`, checked as far as it is not the app's own."""

    database: str | None
    """The alias of the database that is the store; None: STORE is given."""
    discover: str | None
    """The module that is looked for in each installed app."""
    in_runserver: bool
    parameters: Mapping[str, Any]
    """Of Oncron(...)."""


def wishes() -> Wishes:
    """Raises InvalidOption."""
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    try:
        given: Any = getattr(settings, "ONCRON", {})
    except ImproperlyConfigured as error:
        raise InvalidOption(
            f"Django's settings are not there ({str(error).rstrip('.')}); set DJANGO_SETTINGS_MODULE, or use manage.py"
        ) from None
    if not isinstance(given, Mapping):
        raise InvalidOption(
            f"settings.ONCRON is of type {type(given).__name__}; write ONCRON = {{'NAMESPACE': 'shop'}}"
        )
    named = cast("Mapping[Any, Any]", given)
    for key in named:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key).upper(), sorted(_KEYS), n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(sorted(_KEYS))}"
            raise InvalidOption(f"settings.ONCRON has {key!r}, which oncron does not know; {mend}")
    if "STORE" in named and "DATABASE" in named:
        raise InvalidOption("settings.ONCRON has STORE and DATABASE; the store is one of them: leave the other out")
    parameters = {key.lower(): value for key, value in named.items() if key not in _OWN}
    parameters.setdefault("timezone", settings.TIME_ZONE or "UTC")
    if isinstance(lifespan := parameters.get("lifespan"), str):
        parameters["lifespan"] = _Late(lifespan)
    return Wishes(
        database=None if "STORE" in named else _text(named.get("DATABASE", "default"), "DATABASE"),
        discover=_module(named.get("AUTODISCOVER", True)),
        in_runserver=_truth(named.get("RUNSERVER", False), "RUNSERVER"),
        parameters=parameters,
    )


def the_app() -> Oncron:
    """Made at first use. Django is set up by then, or is being set up. Raises InvalidOption."""
    with _lock:
        if not _made:
            _made.append(_make(wishes()))
            os.environ[IMPORT_FIRST] = "oncron.contrib.django.ready"
    set_up()
    return _made[0]


def set_up() -> None:
    """For processes that do not come by manage.py: `oncron run`, worker processes, scripts."""
    from django import setup
    from django.apps import apps

    registry: Any = apps
    with _lock:
        if not registry.ready and not registry.loading:
            setup()


def migrate_with(alias: str) -> None:
    """Bring the store's tables up to date if they are in that database of Django's. Raises StoreError."""
    if wishes().database != alias:
        return
    try:
        store_url(alias)
    except InMemory:
        return
    app = the_app()
    app.sync(_migrate(app._make_store()))


async def _migrate(store: ReadableStore) -> None:
    # Not the app's own: its connections would be in the way of those who drop a test's database.
    try:
        await store.open()
        await store.migrate()
    finally:
        await store.close()


def _make(wish: Wishes) -> Oncron:
    if wish.database is None:
        app = Oncron(**wish.parameters)
    else:
        app = _on_database(wish.database, wish.parameters)
    app.use(closed_when_old)
    return app


def _on_database(alias: str, parameters: Mapping[str, Any]) -> Oncron:
    try:
        url = store_url(alias)
    except InMemory:
        url = "memory://"
    app = Oncron(url, **parameters)
    namespace, listen_url = parameters.get("namespace", "oncron"), parameters.get("listen_url")

    def make() -> ReadableStore:
        # Asked again, since Django's test runner gives the database another name.
        return opener(store_url(alias), namespace=namespace, listen_url=listen_url)()

    app._open = Opener("Django's database in memory" if url == "memory://" else app._open.url, make)
    return app


class _Late:
    """A lifespan by its dotted path: settings cannot import what needs models."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, app: Oncron) -> Any:
        from django.utils.module_loading import import_string

        try:
            made: Any = import_string(self._path)
        except ImportError as error:
            raise InvalidOption(f"ONCRON['LIFESPAN'] = {self._path!r}: {error}") from None
        return made(app)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise InvalidOption(f"ONCRON[{key!r}] = {value!r}: give the name of one, 'default' say")
    return value


def _truth(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"ONCRON[{key!r}] = {value!r}: give True or False")
    return value


def _module(value: Any) -> str | None:
    if isinstance(value, bool):
        return "tasks" if value else None
    if isinstance(value, str) and value.isidentifier():
        return value
    raise InvalidOption(f"ONCRON['AUTODISCOVER'] = {value!r}: give True for 'tasks', another module's name, or False")
