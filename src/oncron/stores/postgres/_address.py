"""Where the server is: a libpq URL, kept apart from what may be shown of it."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from oncron._defaults import CALL_DEADLINE
from oncron.errors import InvalidOption

_PORTS = re.compile(r"[0-9,]*")
_DEADLINE_S = CALL_DEADLINE // 1_000_000
_LEAST_S = 2
"""What libpq makes of a shorter connect_timeout."""

# A dead peer is noticed within half a minute, also by a connection that only listens.
_DEFAULTS: dict[str, Any] = {
    "application_name": "oncron",
    "client_encoding": "UTF8",
    "connect_timeout": _DEADLINE_S,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": _DEADLINE_S * 1000,
}


class Address:
    """A server and database. `shown` and repr() never hold the password."""

    def __init__(self, url: str) -> None:
        given = _parsed(url)
        hosts = str(given.get("hostaddr") or given.get("host") or "").count(",") + 1
        # A call's deadline is for all hosts together: a first one that is silent leaves time for the others.
        patience = {"connect_timeout": max(_LEAST_S, _DEADLINE_S // (hosts + 1))} if hosts > 1 else {}
        self.parameters: dict[str, Any] = {**_DEFAULTS, **patience, **given, "client_encoding": "UTF8"}
        self.shown = _shown(given)

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def _parsed(url: str) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        given = None
    # An unescaped / or @ in a password makes host, port or database of its parts.
    if given is None or not _PORTS.fullmatch(str(given.get("port") or "")) or "@" in str(given.get("dbname") or ""):
        # Not chained and not quoted: what could not be read may be the password.
        raise InvalidOption(
            "the store's URL is not one that PostgreSQL reads; write "
            "postgresql://user:password@host:5432/database with special characters percent-encoded"
        )
    return given


def _shown(given: dict[str, Any]) -> str:
    user = f"{given['user']}@" if given.get("user") else ""
    hosts = str(given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = [f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False)]
    return f"postgresql://{user}{','.join(places)}/{given.get('dbname') or given.get('user') or ''}"
