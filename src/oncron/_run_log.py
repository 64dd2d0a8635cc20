"""`ctx.log`: a logger whose records carry the run, and whose lines are kept with it."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, cast


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """What is said at INFO or above is kept with the run, whatever this process does with its logs otherwise: the
    newest 16 KiB, a line of at most 4 KiB. It travels with the next heartbeat and with the end."""

    def __init__(self, fields: Mapping[str, Any], keep: Callable[[str], None]) -> None:
        super().__init__(logging.getLogger("oncron.task"), fields)
        self._keep = keep

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level >= logging.INFO:
            self._keep(_line(level, msg, args, kwargs.get("exc_info")))
        # The line that is shown as the caller's is the task's, not this one.
        super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})


def _line(level: int, msg: object, args: tuple[object, ...], error: Any) -> str:
    """As `logging` words it. A line that cannot be worded must not end the task."""
    try:
        text = logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
    except Exception:  # noqa: BLE001 - as logging does, which says it on stderr
        text = f"{msg!r} {args!r}"
    return "\n".join(filter(None, (f"{logging.getLevelName(level)} {text}", _traceback(error))))


def _traceback(error: object) -> str:
    """Of what `exc_info` may be: True or 1, an exception, or a triple."""
    found = sys.exc_info()[1] if isinstance(error, int) and error else error
    if isinstance(found, tuple):
        found = cast("tuple[object, ...]", found)[1]
    return "".join(traceback.format_exception(found)).rstrip() if isinstance(found, BaseException) else ""
