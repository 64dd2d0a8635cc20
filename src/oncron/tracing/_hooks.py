"""What the hooks have in common: none of their errors is anybody else's."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import ParamSpec

from oncron._app import Oncron
from oncron.errors import InvalidOption

log = logging.getLogger("oncron.tracing")

P = ParamSpec("P")
R = TypeVar("R")


def harmless(fn: Callable[P, R]) -> Callable[P, R | None]:
    """The same function, but for its errors: they are logged, and None is the answer."""

    @functools.wraps(fn)
    def safe(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return fn(*args, **kwargs)
        except Exception:
            log.warning("%s failed; the run is not affected", fn.__qualname__, exc_info=True)
            return None

    return safe


def checked_app(app: Any, what: str) -> Oncron:
    if not isinstance(app, Oncron):
        raise InvalidOption(f"{what}({app!r}): give the app, an Oncron")
    return app


def need(module: str, package: str) -> None:
    """Raises InvalidOption if it is not installed."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise InvalidOption(f"{package} is not installed: pip install {package!r}")
