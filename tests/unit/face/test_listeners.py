"""Listeners hear of events off the path: none holds up a run, a tick or another listener."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from oncron import Event, GiveUp, Oncron, every
from oncron._listeners import Listeners


def event(name: str = "run.failed", run: str | None = "r") -> Event:
    return Event(name=name, at=datetime(2026, 1, 1, tzinfo=UTC), run=run)


def quiet() -> Listeners:
    return Listeners(lambda: None)


async def test_sync_and_async_listeners_hear_what_they_asked_for(app: Oncron) -> None:
    heard: list[tuple[str, str]] = []
    all_heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.on("run.failed")
    def failed(event: Event) -> None:
        heard.append(("sync", event.name))

    @app.on("run.*")
    async def any_run(event: Event) -> None:
        assert asyncio.get_running_loop() is loop
        heard.append(("async", event.name))
        if event.name == "run.failed":
            all_heard.set()

    @app.task(retries=0)
    def job() -> None:
        raise GiveUp("no")

    async with app:
        run = await job.enqueue()
        await asyncio.wait_for(all_heard.wait(), 10)
    assert ("sync", "run.failed") in heard
    assert [name for kind, name in heard if kind == "async"] == [
        "run.enqueued", "run.claimed", "run.started", "run.failed",
    ]  # fmt: skip
    assert [name for kind, name in heard if kind == "sync"] == ["run.failed"]
    del run


async def test_the_life_of_a_schedule_is_told(app: Oncron) -> None:
    heard: list[tuple[str, str | None]] = []
    app.on("schedule.*")(lambda event: heard.append((event.name, event.schedule)))
    app.on("worker.*")(lambda event: heard.append((event.name, None)))
    app.add_schedule("s", every(hours=1), "elsewhere")
    async with app:
        await app.pause("s", note="x")
        await app.resume("s")
        await app.remove_schedule("s")
    assert sorted(heard, key=str) == sorted(
        [
            ("schedule.declared", "s"), ("schedule.paused", "s"), ("schedule.resumed", "s"), ("schedule.removed", "s"),
            ("worker.started", None), ("worker.stopped", None),
        ],
        key=str,
    )  # fmt: skip


def test_a_listener_that_blocks_delays_nobody() -> None:
    listeners, gate, heard = quiet(), threading.Event(), threading.Event()
    listeners.add("run.*", lambda event: gate.wait(10))
    listeners.add("run.*", lambda event: heard.set())
    for _ in range(100):
        listeners.emit(event())
    assert heard.wait(5)
    gate.set()


def test_a_listener_that_raises_hears_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    listeners, heard = quiet(), []

    def broken(told: Event) -> None:
        heard.append(told.run)
        raise RuntimeError("mine")

    listeners.add("run.failed", broken)
    listeners.emit(event(run="1"))
    listeners.emit(event(run="2"))
    assert listeners.flush(5_000_000)
    assert heard == ["1", "2"]
    failures = [r for r in caplog.records if r.name == "oncron.listener"]
    assert len(failures) == 2
    assert "broken" in failures[0].getMessage()


def test_an_async_listener_without_a_running_app_has_a_loop_of_its_own() -> None:
    listeners, heard = quiet(), []

    async def listen(told: Event) -> None:
        await asyncio.sleep(0)
        heard.append(told.run)

    listeners.add("*", listen)
    listeners.emit(event(run="1"))
    assert listeners.flush(5_000_000)
    assert heard == ["1"]


def test_what_a_stuck_listener_cannot_hold_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    listeners, gate, entered = quiet(), threading.Event(), threading.Event()

    def stuck(told: Event) -> None:
        entered.set()
        gate.wait(30)

    listeners.add("run.started", stuck)
    listeners.emit(event("run.started"))
    assert entered.wait(5)
    for _ in range(10_001):
        listeners.emit(event("run.started"))
    assert "1 events were not delivered" in caplog.text
    assert not listeners.flush(1_000)
    gate.set()


def test_events_are_log_records_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "oncron"):
        quiet().emit(event("run.cancelled"))
        quiet().emit(event("tick.fired"))
    ended, fired = caplog.records
    assert (ended.name, ended.levelname, ended.getMessage()) == ("oncron.run", "INFO", "run.cancelled run='r'")
    assert (ended.event, ended.run) == ("run.cancelled", "r")  # type: ignore[attr-defined]
    assert fired.levelname == "DEBUG"


def test_a_tick_that_another_replica_fired_is_never_above_debug(make_app: Callable[..., Oncron]) -> None:
    from oncron._eventlog import _LEVELS

    assert {_LEVELS[name] for name in ("tick.fired", "tick.skipped", "run.claimed")} == {logging.DEBUG}
