# ruff: noqa: SLF001 - metrics are of the same house as the app, and lie below it
"""What probes are told: `/livez`, whether this process works, and `/healthz`, whether its replica does too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from oncron._clock import SECOND

_TURNS_WITHIN = 2 * SECOND
"""A loop that does not come round for so long is stuck, whatever the store does: no call of it blocks the loop."""

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def alive(app: Any) -> str | None:
    """None, or why this process cannot go on by itself. Asks no store: one that is away is no reason to restart."""
    if not _engine(app).turns(_TURNS_WITHIN):
        return f"the engine's loop did not turn for {_TURNS_WITHIN // SECOND} s"
    return None


def well(app: Any) -> str | None:
    """None while the replica runs, its loop turns, and the store answered within the last `lease_for`; else what is
    not so."""
    phase = app._life.phase
    if phase != "running":
        return "not started" if phase == "new" else phase
    if (why := alive(app)) is not None:
        return why
    silent, lease = _engine(app).silent_for(), app._settings.lease_for
    if silent is None or silent > lease:
        return f"the store did not answer within lease_for={lease / SECOND:g} s"
    return None


def with_probes(app: Any, others: Wsgi) -> Wsgi:
    """A WSGI application that answers probes itself, and has `others` answer the rest."""
    asked = {"/livez": alive, "/healthz": well}

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        ask = asked.get(environ.get("PATH_INFO", ""))
        if ask is None:
            return others(environ, start_response)
        why = ask(app)
        body = json.dumps({"status": why or "ok"}).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        start_response("200 OK" if why is None else "503 Service Unavailable", headers)
        return [b"" if environ.get("REQUEST_METHOD") == "HEAD" else body]

    return answer


def _engine(app: Any) -> Any:
    return app._life.engine
