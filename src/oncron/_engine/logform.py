"""How the replica logs, told so that its worker processes log alike, each to the standard error that it inherits."""

from __future__ import annotations

import importlib
import logging
import sys

import msgspec

_PACKAGE = __name__.partition(".")[0]


class LogForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of the root logger and its first handler."""

    level: int
    format: str | None = None
    date_format: str | None = None
    formatter: str | None = None
    """module:class of one of this package's own, which are made without arguments."""


def log_form() -> LogForm | None:
    """None where logging is not set up."""
    root = logging.getLogger()
    if not root.handlers:
        return None
    formatter = root.handlers[0].formatter
    kind = type(formatter)
    if kind is logging.Formatter and isinstance(formatter, logging.Formatter):
        if isinstance(getattr(formatter, "_style", None), logging.PercentStyle):
            return LogForm(level=root.level, format=getattr(formatter, "_fmt", None), date_format=formatter.datefmt)
    elif kind.__module__.startswith(_PACKAGE + "."):
        return LogForm(level=root.level, formatter=f"{kind.__module__}:{kind.__qualname__}")
    return LogForm(level=root.level)


def log_as(form: LogForm | None) -> None:
    """Unless the user's own modules have set up logging here, and it is theirs in the replica too."""
    root = logging.getLogger()
    if form is None or (root.handlers and form.formatter is None):
        return
    handler = logging.StreamHandler(sys.stderr)
    if form.formatter is None:
        handler.setFormatter(logging.Formatter(form.format or logging.BASIC_FORMAT, form.date_format))
    else:
        module, _, name = form.formatter.partition(":")
        handler.setFormatter(getattr(importlib.import_module(module), name)())
    root.handlers[:] = [handler]
    root.setLevel(form.level)
