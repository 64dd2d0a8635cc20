"""Schedules that cannot be fired just now, though the store answers: somebody's transaction holds a row."""

from __future__ import annotations

import logging
from collections.abc import Container

from oncron import _defaults as limits
from oncron._clock import boot_us

log = logging.getLogger("oncron.scheduler")

_FIRST, _AT_MOST = 2 * limits.SECOND, 8 * limits.SECOND


class Aside:
    """They are tried again, each alone, after a pause that grows to some seconds."""

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, int]] = {}
        """By name: until when (boot clock), and how long."""

    def __contains__(self, name: str) -> bool:
        return name in self._waits

    def put(self, name: str, why: Exception) -> None:
        """It failed once more. Said the first time."""
        if name in self._waits:
            pause = min(2 * self._waits[name][1], _AT_MOST)
        else:
            pause = _FIRST
            log.warning(
                "schedule %r could not be fired; it is tried again every few seconds, and the others go on: %s",
                name, why, extra={"schedule": name},
            )  # fmt: skip
        self._waits[name] = boot_us() + pause, pause

    def wait_for(self, name: str) -> int:
        """Microseconds until it is to be tried again."""
        return max(0, self._waits[name][0] - boot_us()) if name in self._waits else 0

    def back(self, name: str) -> None:
        self._waits.pop(name, None)

    def keep(self, names: Container[str]) -> None:
        """Forget the others: they are due no more."""
        self._waits = {name: wait for name, wait in self._waits.items() if name in names}
