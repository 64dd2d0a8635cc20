# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Django's database as the store: from an entry of `settings.DATABASES` to a store's URL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote, urlencode, urlsplit

from oncron.errors import InvalidOption

_PLAIN_HOST = re.compile(r"[\w.-]+")
_OF_DJANGO = frozenset(
    {"assume_role", "cursor_factory", "isolation_level", "pool", "prepare_threshold", "server_side_binding"}
)
"""OPTIONS of Django's PostgreSQL backend that are not libpq's."""


class InMemory(InvalidOption):
    """The database is in one process's memory, as that of Django's tests on SQLite."""


def store_url(alias: str) -> str:
    """The URL of DATABASES[alias] as it is now: a test run gives it another name. Raises InvalidOption."""
    from django.db import connections

    databases = cast("Mapping[str, Any]", connections.settings)
    if alias not in databases:
        near = difflib.get_close_matches(alias, databases, n=1)
        mend = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, databases))}"
        raise InvalidOption(f"ONCRON['DATABASE'] = {alias!r}: settings.DATABASES has none of that name; {mend}")
    database: Any = connections[alias]
    given: Mapping[str, Any] = database.settings_dict
    if database.vendor == "sqlite":
        return _sqlite(alias, given)
    if database.vendor == "postgresql":
        return _postgres(given)
    what = "not configured" if database.vendor == "unknown" else f"of the engine {given.get('ENGINE')!r}"
    raise InvalidOption(
        f"DATABASES[{alias!r}] is {what}, where oncron cannot keep its runs; set ONCRON['DATABASE'] to the alias of a "
        "PostgreSQL or SQLite database, or ONCRON['STORE'] to a URL: postgresql://..., redis://..., sqlite:///..."
    )


def _sqlite(alias: str, given: Mapping[str, Any]) -> str:
    name = str(given.get("NAME") or "")
    if name.startswith("file:"):
        parts = urlsplit(name)
        in_memory = "mode=memory" in parts.query or ":memory:" in parts.path
        name = "" if in_memory else unquote(parts.path)
    if name in ("", ":memory:"):
        raise InMemory(
            f"DATABASES[{alias!r}] is SQLite in memory, which no other process sees; in tests use "
            "oncron.testing.ManualClock(app), else give NAME a file or set ONCRON['STORE']"
        )
    return f"sqlite:///{Path(name).absolute()}"


def _postgres(given: Mapping[str, Any]) -> str:
    options = dict(given.get("OPTIONS") or {})
    query = {key: str(value) for key, value in options.items() if key not in _OF_DJANGO and value is not None}
    if role := options.get("assume_role"):
        escaped = re.sub(r"([\\ ])", r"\\\1", str(role))
        query["options"] = f"{query.get('options', '')} -c role={escaped}".strip()
    host, port, name = str(given.get("HOST") or ""), str(given.get("PORT") or ""), str(given.get("NAME") or "")
    if not _PLAIN_HOST.fullmatch(host):  # a socket's folder, IPv6, several hosts
        query |= {key: value for key, value in (("host", host), ("port", port)) if value}
        host = port = ""
    user, password = str(given.get("USER") or ""), str(given.get("PASSWORD") or "")
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    place = f"{who}@{host}" if who else host
    place += f":{port}" if port and host else ""
    if port and not host:
        query["port"] = port
    asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"postgresql://{place}/{quote(name, safe='')}{asked}"
