"""Where the server is: a redis:// URL, kept apart from what may be shown of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from oncron._defaults import CALL_DEADLINE
from oncron.errors import InvalidOption

FORMS = (
    "redis://user:password@host:6379/0, rediss:// for TLS, valkey://, redis+unix:///path/to/socket?db=0, "
    "redis+sentinel://host:26379,host:26379/service/0 or redis+cluster://host:6379,host:6379"
)
SCHEMES = (
    *(a + b for a in ("redis", "rediss", "valkey", "valkeys") for b in ("", "+sentinel", "+cluster")),
    *("redis+unix", "valkey+unix", "unix"),
)

_PORTS = {"redis": 6379, "sentinel": 26379, "cluster": 6379}
_DEADLINE_S = CALL_DEADLINE / 1_000_000


class Address(NamedTuple):
    """One server, or the sentinels of one, or some nodes of a cluster."""

    kind: str
    """"redis", "unix", "sentinel" or "cluster"."""
    shown: str
    """Without the password."""
    hosts: tuple[tuple[str, int], ...]
    service: str
    """The name under which sentinels know the server."""
    options: dict[str, Any]
    """For the driver's connections."""
    sentinel_options: dict[str, Any]
    volatile: bool
    """Whether a server may be used that keeps nothing."""
    wait_replicas: int
    """So many replicas acknowledge every write, or it is reported as unknown."""
    wait_within: int
    """Milliseconds that they may take."""

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def _flag(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError("true or false")


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(f"{least} to {most}")
        return value

    return read


_OWN: dict[str, Callable[[str], Any]] = {
    "volatile": _flag,
    "wait_replicas": _count(0, 64),
    "wait_within": _count(1, 60_000),
    "cluster": _flag,
    "sentinel_username": str,
    "sentinel_password": str,
}
_DRIVERS: dict[str, Callable[[str], Any]] = {
    "db": _count(0, 1_000_000),
    "username": str,
    "password": str,
    "client_name": str,
    "ssl_cert_reqs": str,
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_password": str,
    "ssl_check_hostname": _flag,
}


def parsed(url: str) -> Address:
    """Raises InvalidOption for a URL that names no place, and for an option that is unknown or has no such value."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        raise InvalidOption(f"the store's scheme {scheme!r} is none of Redis'; write {FORMS}")
    family, _, kind = scheme.replace("valkey", "redis").partition("+")
    if family == "unix" or kind == "unix":
        return _unix(rest)
    netloc, path, query = _split(rest)
    own, options = _options(query)
    if own.pop("cluster", False):
        if kind == "sentinel":
            raise InvalidOption("cluster=true is not for sentinels: name one way to the server in the store's URL")
        kind = "cluster"
    kind = kind or "redis"
    user, hosts = _hosts(netloc, kind)
    options = {**user, **options, "ssl": True} if family == "rediss" else {**user, **options}
    service, db = _place(path, kind)
    if db is not None:
        options.setdefault("db", db)
    if kind == "cluster" and options.pop("db", 0):
        raise InvalidOption("a cluster has database 0 alone: leave the number out of the store's URL")
    shown_user = f"{options['username']}@" if options.get("username") else ""
    places = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
    tail = f"/{service}" if service else ""
    tail += f"/{options['db']}" if options.get("db") else ""
    return _address(kind, f"{scheme}://{shown_user}{places}{tail}", hosts, service, options, own)


def _unix(rest: str) -> Address:
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        raise InvalidOption("the store's URL names no socket; write redis+unix:///run/redis/redis.sock?db=0")
    own, options = _options(query)
    own.pop("cluster", None)
    options["path"] = unquote(path)
    tail = f"?db={options['db']}" if options.get("db") else ""
    return _address("unix", f"redis+unix://{unquote(path)}{tail}", (), "", options, own)


def _address(
    kind: str,
    shown: str,
    hosts: tuple[tuple[str, int], ...],
    service: str,
    options: dict[str, Any],
    own: dict[str, Any],
) -> Address:
    names = {"sentinel_username": "username", "sentinel_password": "password"}
    sentinel = {name: own[key] for key, name in names.items() if key in own}
    if sentinel and kind != "sentinel":
        raise InvalidOption("sentinel_username= and sentinel_password= are for redis+sentinel:// alone")
    if options.get("ssl"):
        sentinel |= {key: value for key, value in options.items() if key.startswith("ssl")}
    elif any(key.startswith("ssl") for key in options):
        raise InvalidOption("ssl_...= in the store's URL needs TLS: write rediss://")
    options.setdefault("client_name", "oncron")
    # No socket_timeout: the driver's way to it loses cancellations on Python 3.11, and every call has its deadline.
    options |= {
        "socket_timeout": None,
        "socket_connect_timeout": _DEADLINE_S,
        "socket_keepalive": True,
        "protocol": 2,
    }
    if kind == "unix":
        for name in ("socket_keepalive", "socket_connect_timeout"):
            del options[name]
    return Address(
        kind=kind,
        shown=shown,
        hosts=hosts,
        service=service,
        options=options,
        sentinel_options=sentinel,
        volatile=own.get("volatile", False),
        wait_replicas=own.get("wait_replicas", 0),
        wait_within=own.get("wait_within", 2000),
    )


def _split(rest: str) -> tuple[str, str, str]:
    parts = urlsplit(f"//{rest}")
    return parts.netloc, parts.path, parts.query


def _options(query: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ours and the driver's."""
    own: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        known = _OWN.get(name) or _DRIVERS.get(name)
        if known is None:
            near = difflib.get_close_matches(name, [*_OWN, *_DRIVERS], n=1)
            hint = f"did you mean {near[0]}=?" if near else f"known are {', '.join([*_OWN, *_DRIVERS])}"
            raise InvalidOption(f"the store's URL has an unknown option {name!r}; {hint}")
        try:
            (own if name in _OWN else options)[name] = known(text)
        except ValueError as error:
            said = str(error) if "invalid literal" not in str(error) else "a whole number"
            raise InvalidOption(f"the store's URL has {name}={text!r}; give {said}") from None
    return own, options


def _hosts(netloc: str, kind: str) -> tuple[dict[str, str], tuple[tuple[str, int], ...]]:
    """The credentials and the (host, port) pairs of an authority."""
    credentials, _, places = netloc.rpartition("@")
    user: dict[str, str] = {}
    name, colon, password = credentials.partition(":")
    if name:
        user["username"] = unquote(name)
    if colon:
        user["password"] = unquote(password)
    hosts = tuple(_host(place, kind) for place in places.split(","))
    if kind == "redis" and len(hosts) > 1:
        raise InvalidOption(
            "the store's URL names several servers; write redis+sentinel:// or redis+cluster:// to say what they are"
        )
    return user, hosts


def _host(place: str, kind: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        # Not chained and not quoted: an unescaped character of the password may have led here.
        raise InvalidOption(
            f"the store's URL names no host and port; write {FORMS}, with special characters percent-encoded"
        ) from None
    return host or "localhost", port or _PORTS[kind]


def _place(path: str, kind: str) -> tuple[str, int | None]:
    """(service, database)."""
    parts = [unquote(part) for part in path.split("/") if part]
    service = ""
    if kind == "sentinel":
        if not parts:
            raise InvalidOption("the store's URL names no service; write redis+sentinel://host:26379/service/0")
        service = parts.pop(0)
    if not parts:
        return service, None
    if len(parts) > 1 or not parts[0].isdecimal():
        raise InvalidOption(f"the store's URL has no database {'/'.join(parts)!r}; give a number: {FORMS}")
    return service, int(parts[0])
