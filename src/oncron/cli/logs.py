"""How `oncron run` logs: one line a record on stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

from oncron.tracing import RunIds

LogFormat = Literal["text", "json"]

_ids = RunIds()
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


class _Notes(logging.Handler):
    """Each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._told:
            self._told.add(text)
            print(f"Note: {text}", file=sys.stderr)


@contextmanager
def notes(logger: str) -> Generator[None]:
    """What it warns of is told as notes on stderr meanwhile."""
    handler = _Notes()
    logging.getLogger(logger).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(handler)


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Text(logging.Formatter):
    """What a task's own loggers say ends with its run; oncron's own records name it themselves."""

    def __init__(self) -> None:
        super().__init__("{at} {levelname:<7} {name}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        record.at = _at(record)
        line = super().format(record)
        if record.name != "oncron.task" and record.name.startswith("oncron"):
            return line
        _ids.filter(record)
        run = getattr(record, "run", None)
        if run is None:
            return line
        first, newline, rest = line.partition("\n")
        return f"{first} [{getattr(record, 'task', '')} {run}]{newline}{rest}"


class _Json(logging.Formatter):
    """`at level logger message`, then what the record carries as `extra=`, the ids of the run in which it was made,
    and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        _ids.filter(record)
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
