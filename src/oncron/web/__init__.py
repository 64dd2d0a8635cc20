"""The dashboard: `pip install 'oncron[web]'`. Pages, a JSON API and a health check, in one ASGI app.

It reads through the store's `Reader` and writes through the app's public operations, so a page cannot change
anything by accident. Links are relative: it works under any prefix.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from oncron._app import Oncron
from oncron.errors import InvalidOption

if TYPE_CHECKING:
    from oncron.web._guard import Auth
    from oncron.web._site import Dashboard

__all__ = ["asgi"]

_NEEDED = ("jinja2", "starlette")


def asgi(
    app: Oncron | str,
    *,
    auth: Auth | None = None,
    read_only: bool = False,
    title: str = "oncron",
    namespace: str = "oncron",
) -> Dashboard:
    """The dashboard of an app, or of a store by its URL (then of `namespace`, and no schema is created or upgraded),
    to be mounted anywhere or served by itself.

    `auth(request)`, sync or async, answers the user's name; None or False is 401. Without it everybody who reaches the
    dashboard may use it. With `read_only` nothing can be changed. The answer's `close()` ends its event streams.

    Raises InvalidOption if starlette or jinja2 is not installed, or for what is neither an app nor a URL."""
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            raise InvalidOption(f"the dashboard needs {package}: pip install 'oncron[web]'")
    if auth is not None and not callable(auth):  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidOption(f"auth={auth!r}: give a function of the request that answers the user's name, or None")
    if not isinstance(read_only, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"read_only={read_only!r}: give True or False")
    from oncron.web._site import Dashboard

    return Dashboard(_app(app, namespace), auth=auth, read_only=read_only, title=title)


def _app(app: Any, namespace: str) -> Oncron:
    if isinstance(app, Oncron):
        return app
    if not isinstance(app, str):
        raise InvalidOption(f"asgi({app!r}): give the app, an Oncron, or a store's URL")
    return Oncron(app, namespace=namespace, auto_migrate=False)
