# ruff: noqa: SLF001 - the dashboard is of the same house as the app
"""The one place where the dashboard meets the store: it asks, with a deadline, and hears what may be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from oncron._app import Oncron
from oncron._clock import SECOND, wall_us
from oncron._engine.door import Door
from oncron._model import Poll
from oncron._store import Reader
from oncron.errors import StoreUnavailable

T = TypeVar("T")

WITHIN = 4 * SECOND
"""How long a page waits for the store: then it says so, and tries again by itself."""


class Looks(Reader, Protocol):
    """What a store may be asked without changing it."""

    async def now(self) -> int: ...

    async def poll(self, tasks: Sequence[str], queues: Sequence[str] | None, *, now: int | None = None) -> Poll: ...


class Reading:
    """One per dashboard; any number of pages ask at once."""

    def __init__(self, app: Oncron) -> None:
        self.app = app

    async def ask(self, work: Callable[[Looks], Awaitable[T]], *, within: int = WITHIN) -> T:
        """What `work` reads; it is repeated while the store is unavailable. Raises StoreError."""
        if _inside(self.app)._life.phase == "stopped":
            raise StoreUnavailable("the app of this dashboard was stopped; its pages are back when it is started again")

        async def persist(door: Door) -> T:
            return await door.persist(work, within)

        try:
            # Opening the store counts as well.
            async with asyncio.timeout((within + SECOND) / SECOND):
                return await asyncio.wrap_future(_inside(self.app)._desk.at_door(persist))
        except TimeoutError:
            raise StoreUnavailable(f"{self.url} did not answer within {within / SECOND:g} s") from None

    @property
    def url(self) -> str:
        """The store's, without its password."""
        return _inside(self.app)._open.url

    @property
    def now_us(self) -> int:
        """The store's clock, as well as it is known here: a moment after something was read."""
        return _inside(self.app)._life.engine.now_us()

    @property
    def skew(self) -> int:
        """This machine's clock minus the store's."""
        return wall_us() - self.now_us

    @property
    def queues(self) -> Sequence[str] | Mapping[str, int] | None:
        """What replicas of this code serve: weights, a strict order, or every queue."""
        return _inside(self.app)._settings.queues

    @property
    def queue_names(self) -> set[str]:
        """Those that the code names."""
        return _inside(self.app)._registry.queue_names()

    @property
    def queue_limits(self) -> Mapping[str, int]:
        return _inside(self.app)._settings.queue_limits


def _inside(app: Oncron) -> Any:
    """The app's private parts: the dashboard is of the same house, and knows them here and nowhere else."""
    return app
