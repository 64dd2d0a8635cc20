"""Metrics: whoever asks the store tells the same, also a process that never ran anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from oncron import Oncron, daily, every, metrics


async def test_a_replica_that_never_ran_anything_tells_when_each_schedule_last_succeeded(
    replica: Callable[[], Oncron],
) -> None:
    app, stranger = replica(), replica()
    ended = asyncio.Event()

    @app.schedule(every(seconds=0.2))
    async def beat() -> None:
        ended.set()

    @app.schedule(daily("03:00"), paused=True)
    def rare() -> None: ...

    collector = metrics.register(app, CollectorRegistry())
    async with app:
        await asyncio.wait_for(ended.wait(), 15)
        await app.pause("beat")
        for run in await app.runs(schedule="beat"):
            await run.wait(15)

        elsewhere = metrics.register(stranger, CollectorRegistry())
        newest = max(run.ended_at.timestamp() for run in await app.runs(schedule="beat") if run.ended_at)
        for registry in (elsewhere.registry, collector.registry):
            assert registry.get_sample_value("oncron_last_success_timestamp_seconds", {"schedule": "beat"}) == newest
            assert registry.get_sample_value("oncron_last_success_timestamp_seconds", {"schedule": "rare"}) == 0
            assert registry.get_sample_value("oncron_schedules", {"status": "paused"}) == 2
            assert registry.get_sample_value("oncron_replicas", {"role": "worker"}) == 1
            assert registry.get_sample_value("oncron_store_up") == 1


async def test_a_queue_that_nobody_serves_shows_its_age(replica: Callable[[], Oncron]) -> None:
    producer = replica()
    await producer.enqueue("mail", queue="bulk", args={})
    await producer.enqueue("mail", queue="bulk", args={}, delay=60)
    registry = metrics.register(producer, CollectorRegistry()).registry

    assert registry.get_sample_value("oncron_queue_runs", {"queue": "bulk", "state": "ready"}) == 1
    assert registry.get_sample_value("oncron_queue_runs", {"queue": "bulk", "state": "waiting"}) == 1
    age = registry.get_sample_value("oncron_queue_age_seconds", {"queue": "bulk"})
    assert age is not None
    assert 0 <= age < 15


async def test_how_many_slots_are_taken_is_told(replica: Callable[[], Oncron]) -> None:
    app = replica()
    begun, may_end = asyncio.Semaphore(0), asyncio.Event()

    @app.task
    async def work() -> None:
        begun.release()
        await may_end.wait()

    registry = metrics.register(app, CollectorRegistry()).registry

    def slots() -> tuple[float | None, float | None]:
        return registry.get_sample_value("oncron_slots_busy"), registry.get_sample_value("oncron_slots")

    assert slots() == (0, 0)
    async with app:
        runs = [await work.enqueue() for _ in range(3)]
        for _ in runs:
            await asyncio.wait_for(begun.acquire(), 15)
        assert slots() == (3, 10)
        may_end.set()
        for run in runs:
            await run.wait(15)
    assert slots() == (0, 0)
