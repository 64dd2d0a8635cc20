"""How `oncron run` logs: one line a record on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def start(form: LogFormat | None) -> None:
    """Log from INFO on. Handlers that the target's own code has set up stay alone unless a format was
    asked for."""
    root = logging.getLogger()
    if root.handlers and form is None:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("{at} {levelname:<7} {name}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        record.at = _at(record)
        return super().format(record)


class _Json(logging.Formatter):
    """`at level logger message`, then what the record carries as `extra=`, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _OWN and value is not None}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
