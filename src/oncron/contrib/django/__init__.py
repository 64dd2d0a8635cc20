"""oncron in Django: `INSTALLED_APPS = [..., "oncron.contrib.django"]`, settings `ONCRON = {...}`, and in any `tasks.py`

    from oncron.contrib.django import app

    @app.task
    def send_mail(to: str) -> None: ...

`manage.py oncron run` is a replica; the store is Django's database, if the settings name no other.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from oncron.errors import InvalidOption

if importlib.util.find_spec("django") is None:
    raise InvalidOption("oncron.contrib.django needs Django: pip install 'oncron[django]'")

if TYPE_CHECKING:
    from oncron import Oncron

    app: Oncron
    """The one app of the project, made of its settings at first use."""

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name == "app":
        from oncron.contrib.django._project import the_app

        return the_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
