"""From a store's URL to the store: the one table of schemes. Drivers are imported when a store is made."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from oncron._store import ReadableStore
from oncron.errors import InvalidOption

if TYPE_CHECKING:
    from oncron.stores.memory.bench import BenchStore

DEFAULT_URL = "sqlite:///oncron.db"

_FORMS = {
    "sqlite": "sqlite:///relative.db or sqlite:////absolute.db",
    "postgresql": "postgresql://user@host/database",
    "redis": "redis://host:6379/0 (also valkey://, rediss://, redis+sentinel://, redis+cluster://)",
    "memory": "memory://",
}
_ALIASES = {"postgres": "postgresql", "sqlite3": "sqlite"}
_REDIS = (
    *(a + b for a in ("redis", "rediss", "valkey", "valkeys") for b in ("", "+sentinel", "+cluster")),
    *("redis+unix", "valkey+unix", "unix"),
)
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Opener:
    """A checked URL. Calling it makes a store, not yet opened."""

    url: str
    """Without its password: for messages."""
    make: Callable[[], ReadableStore]

    def __call__(self) -> ReadableStore:
        return self.make()


class HeldLock(Protocol):
    """An advisory lock that is held."""

    lost: str | None
    """How it was lost."""

    def when_lost(self, tell: Callable[[str], None]) -> None:
        """Call `tell`, on the loop that holds it, with the reason when it is lost."""
        ...

    def stop_telling(self) -> None: ...


@dataclass(frozen=True)
class AdvisoryLock:
    hold: Callable[[], AbstractAsyncContextManager[HeldLock | None]]
    """A block that has the lock, or None if somebody else has it."""
    needs_loop: bool
    """Whether it can be held on the loop alone on which its pool or engine was made."""


def opener(url: object, *, namespace: str = "oncron", listen_url: str | None = None) -> Opener:
    """How to make the store of a URL. Raises InvalidOption for an unknown scheme, a URL that names no
    place, a namespace that is no name, and a driver that is not installed."""
    if not isinstance(url, str) or "://" not in url:
        raise InvalidOption(f"store={url!r} is no URL; write {_all_forms()}")
    scheme = url.split("://", 1)[0].lower()
    scheme = _ALIASES.get(scheme, scheme)
    checked_namespace(namespace)
    if listen_url is not None and scheme != "postgresql":
        raise InvalidOption(f"listen_url= is for PostgreSQL; {scheme}:// needs none")
    if scheme in _REDIS:
        return _redis(url, namespace)
    if scheme == "sqlite":
        return _sqlite(url, namespace)
    if scheme == "postgresql":
        return _postgres(url, namespace, listen_url)
    if scheme == "memory":
        return _memory(url)
    near = difflib.get_close_matches(scheme, [*_FORMS, *_REDIS], n=1)
    hint = f"did you mean {near[0]}://? " if near else ""
    raise InvalidOption(f"store={without_password(url)!r}: unknown scheme {scheme!r}; {hint}write {_all_forms()}")


def bench_store(clock: Callable[[], int]) -> BenchStore:
    """An empty store in memory for a test, whose clock is the caller's."""
    from oncron.stores.memory.bench import BenchStore

    return BenchStore(clock=clock)


def advisory_lock(db: object, key: int) -> AdvisoryLock:
    """How to hold PostgreSQL's advisory lock of that key, in the database that `db` leads to: a URL, a psycopg
    connection or pool, an SQLAlchemy engine. Raises InvalidOption, NotSupported, DefinitionError."""
    _driver("psycopg", "PostgreSQL", "postgres")
    from oncron.stores.postgres import _advisory, _sessions

    session = _sessions.session_of(db)
    return AdvisoryLock(lambda: _advisory.locked(session, key), _sessions.needs_loop(db))


def checked_namespace(namespace: Any) -> str:
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidOption(
            f"namespace={namespace!r}: give 1 to 40 small letters, digits and underscores, a letter first"
        )
    return namespace


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return re.sub(r"(password=)[^&]*", r"\1***", url)
        return url.replace(f":{parts.password}@", ":***@", 1)
    except ValueError:
        return url.split("://", 1)[0] + "://..."


def _sqlite(url: str, namespace: str) -> Opener:
    place = url.split("://", 1)[1]
    name = place.removeprefix("/")
    if not place.startswith("/") or name in ("", ":memory:"):
        raise InvalidOption(
            f"store={url!r} names no file; write {_FORMS['sqlite']}, "
            "or memory:// for a store that is gone with the process"
        )
    path = Path(name).absolute()

    def make() -> ReadableStore:
        from oncron.stores.sqlite import SQLiteStore

        return SQLiteStore(path, namespace=namespace)

    return Opener(url, make)


def _postgres(url: str, namespace: str, listen_url: str | None) -> Opener:
    _driver("psycopg", "PostgreSQL", "postgres")
    url = re.sub(r"^\w+://", "postgresql://", url)

    def make() -> ReadableStore:
        from oncron.stores.postgres import PostgresStore

        return PostgresStore(url, namespace=namespace, listen_url=listen_url)

    return Opener(without_password(url), make)


def _redis(url: str, namespace: str) -> Opener:
    _driver("redis", "Redis", "redis")
    from oncron.stores.redis import RedisStore

    shown = RedisStore(url, namespace=namespace).url  # raises for a URL that names no place
    return Opener(shown, lambda: RedisStore(url, namespace=namespace))


def _memory(url: str) -> Opener:
    from oncron.stores.memory import MemoryStore

    store = MemoryStore(url=url)
    return Opener(url, lambda: store)


def _driver(module: str, what: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise InvalidOption(f"the {what} driver is not installed: pip install 'oncron[{extra}]'")


def _all_forms() -> str:
    return ", ".join(_FORMS.values())
