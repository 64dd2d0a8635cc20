# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportIncompatibleMethodOverride=false
# pyright: reportIncompatibleVariableOverride=false
"""No tables: what the admin's pages and their permissions are called after."""

from __future__ import annotations

from typing import Any

from django.db import models


class Nothing(models.Manager):  # pyright: ignore[reportMissingTypeArgument]
    """Answers no rows without asking the database, which has no such table: `dumpdata` asks every model."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Schedule(models.Model):
    """`oncron.view_schedule` and `oncron.change_schedule` are its permissions."""

    objects = Nothing()

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        base_manager_name = "objects"
        app_label = "oncron"


class Run(models.Model):
    """`oncron.view_run` and `oncron.change_run` are its permissions."""

    objects = Nothing()

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        base_manager_name = "objects"
        app_label = "oncron"
