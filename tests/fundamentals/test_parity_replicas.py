"""What gocron leaves to a monitor, an elector or a locker: ours, without one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from oncron import Event, Oncron, RunContext, every
from oncron._engine.shards import Shards
from tests.simulation.fleet import fleet_in_virtual_time
from tests.simulation.test_fleet import scheduled
from tests.simulation.world import SECOND

Replica = Callable[[], Oncron]
Heard = Callable[[str], Awaitable[Event]]
FAST = every(seconds=0.2)


async def test_G62_an_end_is_told_with_state_error_delay_and_time(app: Oncron, heard: Heard) -> None:
    @app.schedule(FAST, retries=0, overlap="allow")
    async def job(ctx: RunContext) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("no disk")

    async with app:
        started, failed = await heard("run.started"), await heard("run.failed")
        assert failed.run is not None
        run = await app.get_run(failed.run)
    assert (started.schedule, failed.task, failed.attempt) == ("job", "job", 1)
    assert failed.reason == "RuntimeError: no disk"
    assert failed.took is not None
    assert timedelta() <= failed.took < timedelta(seconds=20)
    assert (run.state, run.tick) == ("failed", failed.tick)
    assert "no disk" in (run.error or "")
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.due_at <= run.started_at <= run.ended_at


async def test_G63_ticks_need_no_leader_whoever_is_left_goes_on(replica: Replica) -> None:
    one, other = replica(), replica()
    ran: asyncio.Queue[str] = asyncio.Queue()
    for name, app in (("one", one), ("other", other)):

        @app.schedule(FAST, name="job", overlap="allow")
        async def job(name: str = name) -> None:
            ran.put_nowait(name)

    async with other:
        async with one:
            await asyncio.wait_for(ran.get(), 15)
        while not ran.empty():
            ran.get_nowait()
        assert [await asyncio.wait_for(ran.get(), 15) for _ in range(3)] == ["other"] * 3


def test_G65_an_interval_on_replicas_with_wrong_clocks_that_start_apart_runs_each_tick_once() -> None:
    """Under a locker each process has a phase of its own, and runs are repeated."""
    with fleet_in_virtual_time(skews=(0, 30_000, -10_000)) as fleet:
        beat = every(seconds=0.7)
        fleet.definitions = [scheduled("beat", beat, overlap="allow", missed="all")]

        async def story() -> None:
            for replica in fleet.replicas:
                replica.boot()
                await fleet.sleep(0.31)
            await fleet.sleep(60)

        fleet.loop.run_until_complete(story())
    fleet.oracle.verdict(fleet.store, drained=False)
    ticks = [line.run.tick for line in fleet.oracle.lines]
    assert len(ticks) == len(set(ticks))
    assert len(ticks) >= 60 * SECOND // 700_000


def test_g16_losing_a_tick_to_another_replica_is_logged_at_debug_and_never_above(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Shards, "is_mine", lambda _self, _name: True)  # each thinks that it has to fire first
    with caplog.at_level(logging.DEBUG, "oncron"), fleet_in_virtual_time() as fleet:
        logging.getLogger("oncron").propagate = True
        fleet.definitions = [scheduled("beat", every(seconds=1), overlap="allow")]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(20.5))
    events = [(getattr(record, "event", None), record.levelno) for record in caplog.records]
    assert events.count(("tick.lost", logging.DEBUG)) >= 20
    assert [event for event, level in events if level > logging.INFO] == []
