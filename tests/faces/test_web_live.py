"""Open pages hear of changes: one look at the store for all of them, an end when the server stops."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from oncron import Oncron, every
from oncron._clock import SECOND
from oncron.web import asgi
from oncron.web._site import Dashboard
from tests.conftest import start_redis


@asynccontextmanager
async def serving(dashboard: Dashboard) -> AsyncGenerator[httpx.AsyncClient]:
    """A real server on a free port of this loop."""
    server = uvicorn.Server(uvicorn.Config(dashboard, port=0, log_level="error", lifespan="off"))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    ticking = asyncio.create_task(server.main_loop())
    (socket,) = server.servers[0].sockets
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{socket.getsockname()[1]}", timeout=20) as web:
            yield web
    finally:
        server.should_exit = True
        await ticking
        dashboard.close()
        await server.shutdown()


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is looked at ten times a second."""
    monkeypatch.setattr("oncron.web._live.LOOK_EVERY", SECOND // 10)


@pytest.fixture
async def app() -> AsyncIterator[Oncron]:
    found = Oncron("memory://")
    await found.put_schedule("sweep", every(hours=1), "sweep")
    yield found
    found._life.at_exit()


async def test_a_page_hears_of_a_change_and_of_nothing_else(app, soon):
    async with serving(asgi(app)) as web, web.stream("GET", "/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        heard = events(answer)
        name, first = await anext(heard)
        assert name == "mark"
        await app.pause("sweep")
        _, second = await anext(heard)
        assert second["mark"] != first["mark"]
        run = await app.enqueue("sweep")
        _, third = await anext(heard)
        await app.cancel(run.id)
        _, fourth = await anext(heard)
        assert len({each["mark"] for each in (first, second, third, fourth)}) == 4


async def test_many_open_pages_cost_the_store_one_look(app):
    looks = 0
    reading = (dashboard := asgi(app))._reading
    ask = reading.ask

    async def counted(work: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        return await ask(work, **options)

    reading.ask = counted  # type: ignore[method-assign]
    async with serving(dashboard) as web:

        async def listen() -> None:
            async with web.stream("GET", "/events") as answer:
                heard = events(answer)
                await anext(heard)
                await all_listen.wait()
                await anext(heard)

        all_listen = asyncio.Barrier(21)
        async with asyncio.TaskGroup() as pages:
            for _ in range(20):
                pages.create_task(listen())
            await all_listen.wait()
            await app.pause("sweep")
    # One brought the first mark, one the second; some time may have passed between them.
    assert 2 <= looks <= 6


async def test_nobody_looks_when_nobody_listens(app, soon):
    dashboard = asgi(app)
    async with serving(dashboard) as web:
        async with web.stream("GET", "/events") as answer:
            await anext(events(answer))
        looking = dashboard._live._looking
        if looking is not None:
            await looking
        assert dashboard._live.mark == ""


async def test_streams_end_when_the_server_stops(app, soon):
    dashboard = asgi(app)
    async with serving(dashboard) as web, web.stream("GET", "/events") as answer:
        heard = events(answer)
        await anext(heard)
        dashboard.close()
        async with asyncio.timeout(5):
            assert [each async for each in heard] == []


async def test_a_server_that_knows_lifespans_ends_them_itself(app):
    dashboard = asgi(app)
    said: list[str] = []
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Any:
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        said.append(message["type"])

    await dashboard({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [each async for each in dashboard._live.stream()] == [b"retry: 1000\n\n"]


HOST = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from oncron import Oncron
from oncron.web import asgi

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
host = Starlette(routes=[Mount("/jobs", asgi(Oncron("memory://")))])
uvicorn.Server(uvicorn.Config(host, log_level="error")).run(sockets=[listener])
"""


def test_a_host_that_stops_does_not_wait_for_open_pages():
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        address = f"http://127.0.0.1:{host.stdout.readline().strip()}/jobs/events"
        try:
            with httpx.stream("GET", address, timeout=20) as answer:
                assert next(answer.iter_lines()) == "retry: 1000"
                host.send_signal(signal.SIGTERM)
                assert host.wait(10) in (0, -signal.SIGTERM)
        finally:
            host.kill()


async def test_too_many_open_pages_are_told(app, monkeypatch):
    monkeypatch.setattr("oncron.web._live.CLIENTS", 0)
    async with serving(asgi(app)) as web:
        answer = await web.get("/events")
        assert (answer.status_code, "too many pages" in answer.text.lower()) == (503, True)


async def test_a_page_hears_that_the_store_is_away_and_that_it_is_back(soon):
    server = start_redis("valkey")
    app = Oncron(server.url(), namespace=server.namespace())
    try:
        await app.put_schedule("sweep", every(hours=1), "sweep")
        async with serving(asgi(app)) as web, web.stream("GET", "/events") as answer:
            heard = events(answer)
            assert (await anext(heard))[0] == "mark"
            server.kill()
            name, said = await anext(heard)
            assert name == "trouble"
            assert "redis://" in said["why"]
            server.start()
            async with asyncio.timeout(20):
                while name == "trouble":
                    name, _ = await anext(heard)
            assert name == "mark"
            assert "sweep" in (await web.get("/schedules")).text
    finally:
        app._life.at_exit()
        server.close()
