"""Plain HTTP pings, as healthchecks.io and others take them: somebody outside hears when a success does not come."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from oncron import _options as check
from oncron._clock import SECOND
from oncron._events import Event
from oncron._model import checked_name
from oncron.errors import InvalidOption
from oncron.tracing._hooks import checked_app, log

_SUFFIX = {
    "run.started": "start",
    "run.succeeded": "success",
    "run.skipped": "success",
    "run.failed": "failure",
    "run.lost": "failure",
}
_TRIES = 2
_BODY = 10_000
_HEADERS = {"User-Agent": "oncron", "Content-Type": "text/plain; charset=utf-8"}


def pings(
    app: Any,
    urls: Mapping[str, str],
    *,
    start: str | None = "/start",
    success: str | None = "",
    failure: str | None = "/fail",
    timeout: check.Duration = 5,
) -> None:
    """Ping a URL for the runs of a schedule: `{"reindex": "https://hc-ping.com/UUID"}`. What is sent at the start, at
    success and at a failure with no attempt left is the URL with that appended to its path; None sends nothing. `rid`
    in its query is the run's id, the body of a failure its reason.

    Sent from a thread of their own, in order, twice at most and `timeout` (a timedelta or seconds) long each: a ping
    that fails is logged.
    Raises InvalidOption for what is no http(s) URL, Stopped."""
    appended = {"start": start, "success": success, "failure": failure}
    for name, suffix in appended.items():
        if suffix is not None and not isinstance(suffix, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"{name}={suffix!r}: give what is appended to the URL's path, or None for no ping")
    if not isinstance(urls, Mapping) or not urls:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f'urls={urls!r}: give a mapping of schedules to URLs, {{"reindex": "https://..."}}')
    checked = {checked_name(name, "schedule"): _checked(name, url) for name, url in urls.items()}
    seconds = check.span(timeout, "timeout", least=1) / SECOND

    def hear(event: Event) -> None:
        url, kind = checked.get(event.schedule or ""), _SUFFIX.get(event.name)
        suffix = None if kind is None else appended[kind]
        if url is not None and suffix is not None and event.run is not None:
            body = (event.reason or "") if kind == "failure" else ""
            _send(event, _appended(url, suffix, event.run), body, seconds)

    checked_app(app, "pings").on("run.*")(hear)


def _checked(schedule: str, url: Any) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOption(f"pings of {schedule!r}: {url!r} is no URL; write https://hc-ping.com/... or http://...")
    return url


def _appended(url: str, suffix: str, run: str) -> str:
    parts = urlsplit(url)
    query = f"{parts.query}&rid={run}" if parts.query else f"rid={run}"
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + suffix, query=query))


def _send(event: Event, url: str, body: str, timeout: float) -> None:
    request = urllib.request.Request(url, data=body.encode()[:_BODY], method="POST", headers=_HEADERS)  # noqa: S310 - checked above
    for left in reversed(range(_TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310
                return
        except (OSError, urllib.error.URLError) as error:
            if not left:
                host = urlsplit(url).hostname
                log.warning(
                    "the ping of %s for schedule %r to %s failed: %s", event.name, event.schedule, host, error,
                    extra={"event": "ping.failed", "schedule": event.schedule, "run": event.run},
                )  # fmt: skip
