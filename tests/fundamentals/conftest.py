"""`app`: an Oncron on each kind of store in turn. The tests read as recipes: one concept each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from oncron import Event, Oncron

T = TypeVar("T")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def app(store_url: str) -> Iterator[Oncron]:
    app = Oncron(store_url, lease_for=3)
    yield app
    app._life.at_exit()


Soon = Callable[[Awaitable[T]], Awaitable[T]]


@pytest.fixture
def heard(app: Oncron) -> Callable[[str], Awaitable[Event]]:
    """`await heard("run.failed")`: the next event of that name that nobody has awaited yet."""
    queues: dict[str, asyncio.Queue[Event]] = {}
    loops: list[asyncio.AbstractEventLoop] = []
    early: list[Event] = []

    @app.on("*")
    def hear(event: Event) -> None:
        early.append(event)
        for loop in loops:
            loop.call_soon_threadsafe(deliver)

    def deliver() -> None:
        while early:
            event = early.pop(0)
            queues.setdefault(event.name, asyncio.Queue()).put_nowait(event)

    async def wait(name: str) -> Event:
        loop = asyncio.get_running_loop()
        if loop not in loops:
            loops.append(loop)
        deliver()
        return await asyncio.wait_for(queues.setdefault(name, asyncio.Queue()).get(), 15)

    return wait
