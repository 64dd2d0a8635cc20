# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""Django's side of it: what happens when the project is set up."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from oncron.contrib.django import _project
from oncron.errors import OncronError

log = logging.getLogger("oncron")


class OncronConfig(AppConfig):
    name = "oncron.contrib.django"
    label = "oncron"
    verbose_name = "Scheduled jobs"

    def ready(self) -> None:
        """Imports every `tasks.py`. Raises InvalidOption for settings that are wrong, and what a `tasks.py` raises."""
        wishes = _project.wishes()
        _project.the_app()
        if wishes.discover is not None:
            autodiscover_modules(wishes.discover)
        post_migrate.connect(_after_migrate, sender=self)
        if wishes.in_runserver and serves_with_runserver(sys.argv, os.environ.get("RUN_MAIN")):
            threading.Thread(target=_run_beside, name="oncron-runserver", daemon=True).start()


def serves_with_runserver(argv: list[str], run_main: str | None) -> bool:
    """Whether this process is the one that answers requests under `manage.py runserver`: not the one that only watches
    the files and starts it again."""
    return argv[1:2] == ["runserver"] and (run_main == "true" or "--noreload" in argv)


def _after_migrate(using: str, **_: Any) -> None:
    _project.migrate_with(using)


def _run_beside() -> None:
    """A replica in this process until it ends, which gives back what runs."""
    registry: Any = apps
    registry.ready_event.wait()
    try:
        _project.the_app().__enter__()
    except OncronError as error:
        log.error("oncron does not run inside of runserver: %s", error)
