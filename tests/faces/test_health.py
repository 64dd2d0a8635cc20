"""What probes are told: `/livez` of the process, `/healthz` of the replica."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from oncron import Oncron, metrics
from oncron.errors import StoreUnavailable
from oncron.metrics import _health

Ask = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def app() -> Oncron:
    return Oncron("memory://", lease_for=2)


@pytest.fixture
def ask(app: Oncron) -> Iterator[Ask]:
    """A path, as a probe asks for it."""
    server = metrics.serve(app, 0, host="127.0.0.1", registry=CollectorRegistry())

    def get(path: str, method: str) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    async def call(path: str, method: str = "GET") -> tuple[int, str]:
        return await asyncio.to_thread(get, path, method)

    yield call
    server.close()


def status(answer: tuple[int, str]) -> tuple[int, Any]:
    return answer[0], json.loads(answer[1])["status"]


async def test_a_replica_is_well_from_start_to_stop_and_its_process_alive_all_the_time(app: Oncron, ask: Ask) -> None:
    assert status(await ask("/healthz")) == (503, "not started")
    assert status(await ask("/livez")) == (200, "ok")
    async with app:
        assert status(await ask("/healthz")) == (200, "ok")
        assert await ask("/healthz", "HEAD") == (200, "")
        assert status(await ask("/livez")) == (200, "ok")
    assert status(await ask("/healthz")) == (503, "stopped")
    assert status(await ask("/livez")) == (200, "ok")
    assert app._life.engine._home is None, "a probe opens no store"


async def test_a_replica_that_is_stopping_is_not_well_and_alive(app: Oncron, ask: Ask) -> None:
    began, end = asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> None:
        began.set()
        await end.wait()

    await app.start()
    await long.enqueue()
    await asyncio.wait_for(began.wait(), 10)
    stopping = asyncio.ensure_future(app.stop())
    await asyncio.sleep(0)
    assert status(await ask("/healthz")) == (503, "stopping")
    assert status(await ask("/livez")) == (200, "ok")
    end.set()
    await stopping


class Away:
    """A store that answers nothing."""

    url = "memory://"

    async def reset(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable("away")


async def until(ask: Ask, code: int) -> str:
    """What `/healthz` says when it comes to that."""
    async with asyncio.timeout(20):
        while (answer := status(await ask("/healthz")))[0] != code:
            pass
        return answer[1]


async def test_a_store_that_is_silent_for_a_lease_makes_a_replica_unwell_and_is_no_reason_to_kill_it(
    app: Oncron, ask: Ask
) -> None:
    async with app:
        home = app._life.engine._home
        assert home is not None
        assert home.door is not None
        store, home.door.store = home.door.store, Away()  # type: ignore[assignment]
        assert await until(ask, 503) == "the store did not answer within lease_for=2 s"
        assert status(await ask("/livez")) == (200, "ok")
        home.door.store = store
        assert await until(ask, 200) == "ok"


async def test_a_loop_that_does_not_turn_is_told_by_both(
    app: Oncron, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_health, "_TURNS_WITHIN", 100_000)
    async with app:
        home = app._life.engine._home
        assert home is not None
        told = threading.Event()
        home.loop.call_soon_threadsafe(told.wait, 20)
        assert (await ask("/livez"))[0] == 503
        code, why = status(await ask("/healthz"))
        assert code == 503
        assert "loop did not turn" in why
        told.set()


async def test_metrics_are_where_they_were(app: Oncron, ask: Ask) -> None:
    code, text = await ask("/metrics")
    assert code == 200
    assert "oncron_store_up" in text
