"""Who may see the dashboard, and whose wish a change is.

A change comes by POST, from this very site (`Origin`), with a token that is in the form and in a cookie that no
other site's request carries (SameSite=Strict); to the JSON API as `application/json`, which no other site's page can
send without asking first, and nobody answers that. Every answer forbids scripts, styles and frames of others.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import inspect
import re
import secrets
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from oncron.errors import InvalidOption

Auth = Callable[[Request], Any | Awaitable[Any]]
"""Answers the user's name; None or False for nobody. A Response is sent as it is: a redirect to a login, say."""

CSRF = "oncron_csrf"
"""The cookie, and the field of every form."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": a browser then sends its own forms with the origin "null", as if another site had made them.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_USER_CHARS = 100
_BODY_BYTES = 16 * 1024
_FIELDS = 20


class Refused(Exception):
    """Not to be done: a status, a sentence, and headers that go with it."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        super().__init__(sentence)


class Token:
    """`auth=` by a shared secret: as a bearer token, or as the password of whatever user name a browser asks for.
    That name is the user's."""

    challenge = 'Basic realm="oncron", charset="UTF-8"'

    def __init__(self, token: str) -> None:
        if not token.strip():
            raise InvalidOption("the token is empty; give one, or leave it out")
        self._token = token.encode()

    def __call__(self, request: Request) -> str | bool | None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._is(given.strip()) or None
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return (name or True) if self._is(password) else None

    def _is(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)


class Guard:
    """`hosts`: the names under which the dashboard may be asked for, None for any. Without authentication it is this
    that keeps a foreign page out whose name was made to point here."""

    def __init__(self, auth: Auth | None, *, read_only: bool, hosts: Sequence[str] | None = None) -> None:
        self._auth, self.read_only, self.hosts = auth, read_only, hosts

    async def user(self, request: Request) -> str | Response:
        """The user's name, "" if nobody asks for one. Raises Refused."""
        if self.hosts is not None and (host := _host(request)) not in self.hosts:
            raise Refused(421, f"this dashboard is not {host!r}; it answers to {', '.join(self.hosts)}")
        if self._auth is None:
            return ""
        answer = await _call(self._auth, request)
        if isinstance(answer, Response):
            return answer
        if answer is None or answer is False:
            challenge = getattr(self._auth, "challenge", None)
            raise Refused(401, "who are you? Sign in to see this", {"www-authenticate": challenge} if challenge else {})
        return "" if answer is True else _plain_name(str(answer))

    async def wish(self, request: Request) -> dict[str, Any]:
        """What a POST gives, once it is sure that it is the user's own wish. Raises Refused."""
        if self.read_only:
            raise Refused(403, "this dashboard is read-only; nothing was changed")
        _refuse_foreign(request)
        _refuse_large(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            return await _json(request)
        if kind != "application/x-www-form-urlencoded":
            raise Refused(415, f"content type {kind!r}: send application/json, or a form of these pages")
        try:
            given = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_FIELDS))
        except ValueError:
            raise Refused(400, "the form cannot be read; it is not one of these pages") from None
        cookie = request.cookies.get(CSRF, "")
        token = given.pop("csrf", "")
        if not _TOKEN.fullmatch(cookie) or not hmac.compare_digest(token.encode(), cookie.encode()):
            raise Refused(403, "the form is not of this page, or too old: load the page again; nothing was changed")
        return given


def csrf_of(request: Request) -> tuple[str, bool]:
    """The token for forms, and whether it is new and has to be set as a cookie."""
    known = request.cookies.get(CSRF, "")
    return (known, False) if _TOKEN.fullmatch(known) else (secrets.token_urlsafe(32), True)


def set_csrf(response: Response, request: Request, token: str) -> None:
    path = request.scope.get("root_path") or "/"
    secure = request.url.scheme == "https"
    response.set_cookie(CSRF, token, path=path, secure=secure, httponly=True, samesite="strict")


async def _call(auth: Auth, request: Request) -> Any:
    if inspect.iscoroutinefunction(auth) or inspect.iscoroutinefunction(getattr(auth, "__call__", None)):  # noqa: B004
        return await auth(request)
    answer = await run_in_threadpool(auth, request)
    return await answer if inspect.isawaitable(answer) else answer


def _refuse_foreign(request: Request) -> None:
    """By what the browser itself says of where the request comes from; a program says nothing."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        raise Refused(403, "this came from another site; nothing was changed")
    origin = request.headers.get("origin")
    # Whoever says same-origin knows better than a proxy that asks under another host.
    if origin is None or site is not None:
        return
    # A proxy may speak https to the browser: the host is what tells sites apart.
    if origin.partition("://")[2].lower() != request.headers.get("host", "").lower():
        raise Refused(403, f"this came from {origin[:100]!r}, another site; nothing was changed")


def _refuse_large(request: Request) -> None:
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        raise Refused(411, "say how long the body is (content-length)")
    if len(length) > 9 or int(length) > _BODY_BYTES:
        raise Refused(413, f"the body has more than {_BODY_BYTES} bytes, and no wish needs as many")


async def _json(request: Request) -> dict[str, Any]:
    try:
        given = await request.json()
    except ValueError:
        raise Refused(400, "the body is no JSON; give an object") from None
    if not isinstance(given, dict):
        raise Refused(400, "the body is no JSON object; give one, by name")
    return given  # pyright: ignore[reportUnknownVariableType] - each is checked where it is used


def _host(request: Request) -> str:
    """Without the port; "" for what is none."""
    try:
        return (urlsplit(f"//{request.headers.get('host', '')}").hostname or "").lower()
    except ValueError:
        return ""


def _plain_name(name: str) -> str:
    """Fit for a note: one short line."""
    name = unicodedata.normalize("NFC", name)
    return "".join(c for c in name if unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp"))[:_USER_CHARS]
