"""`app`: an Oncron on each kind of store in turn. The tests read as recipes: one concept each."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from oncron import Event, Oncron


@pytest.fixture(params=["memory", "sqlite", "postgresql", "redis"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Oncron]]:
    """`replica()`: one more Oncron on this test's store, as another process or another release would be."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_shared_url")
    elif request.param == "redis":
        url = request.getfixturevalue("redis_server").url()
    else:
        url = f"memory://{tmp_path}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    namespace = "test_" + uuid.uuid4().hex[:12]
    made: list[Oncron] = []

    def make() -> Oncron:
        app = Oncron(url, namespace=namespace, lease_for=3)
        if made and request.param == "memory":
            app._open = made[0]._open  # another memory store would be another world
        made.append(app)
        return app

    yield make
    for app in made:
        app._life.at_exit()


@pytest.fixture
def app(replica: Callable[[], Oncron]) -> Oncron:
    return replica()


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
