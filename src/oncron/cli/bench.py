"""`oncron bench`: how fast the user's own store is, measured in a namespace that is swept away afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import click

from oncron import Oncron, current_run, every
from oncron._clock import SECOND, boot_us, delta_us, from_us, sleep_us
from oncron.cli import render
from oncron.cli.demo_store import place
from oncron.cli.ledger import percentile_ms
from oncron.cli.look import json_option

_CALLS = 200
_ONE_BY_ONE = 300
_CHUNK = 1000
_TICKS = 100
_BEAT = SECOND // 20
_WITHIN = 120 * SECOND


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    what: str


@click.command("bench")
@click.option("--store", metavar="URL", help="The store; a temporary SQLite file if not given.")
@click.option("--runs", type=click.IntRange(100, 1_000_000), default=5000, show_default=True, help="No-op runs.")
@click.option(
    "--schedules", type=click.IntRange(10, 100_000), default=2000, show_default=True, help="Due at one instant."
)
@json_option
def bench_command(store: str | None, runs: int, schedules: int, as_json: bool) -> None:
    """Measure a store: calls, enqueues, runs and ticks per second, and how late a tick is.

    One replica in this process; no-op tasks, a hundred at a time. What the machine does besides counts as
    well: measure where the replicas will run. In the store a namespace of its own is used and removed.
    """
    with place(store) as where:
        figures = asyncio.run(_measure(where.store, where.namespace, runs, schedules))
    if as_json:
        render.as_json({figure.name: figure.value for figure in figures})
        return
    render.table(
        ["+WHAT", "FIGURE", "UNIT"], [[figure.what, f"{figure.value:,.6g}", figure.unit] for figure in figures]
    )


async def _measure(url: str, namespace: str, runs: int, schedules: int) -> list[Figure]:
    def new() -> Oncron:
        app = Oncron(url, namespace=namespace, concurrency=100)
        app.task(_nothing, name="nothing")
        return app

    app = new()
    try:
        figures = await _calls(app)
        figures += await _enqueues(app, runs)
        figures += await _runs(app, runs)
    finally:
        app._life.engine.close()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return [*figures, *await _herd(new(), schedules), *await _lateness(new())]


async def _nothing() -> None:
    pass


async def _calls(app: Oncron) -> list[Figure]:
    desk = app._desk  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    spans = [await _timed(lambda: desk.ask(lambda store: store.now())) for _ in range(_CALLS)]
    return [
        Figure("call_ms_p50", percentile_ms(spans, 50) or 0, "ms", "a call of the store, p50"),
        Figure("call_ms_p99", percentile_ms(spans, 99) or 0, "ms", "a call of the store, p99"),
    ]


async def _enqueues(app: Oncron, runs: int) -> list[Figure]:
    task: Any = app._registry.tasks["nothing"]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def one_by_one() -> None:
        for _ in range(_ONE_BY_ONE):
            await task.enqueue()

    async def many() -> None:
        for at in range(0, runs, _CHUNK):
            await task.enqueue_many({} for _ in range(min(_CHUNK, runs - at)))

    one, all_ = await _timed(one_by_one), await _timed(many)
    return [
        Figure("enqueued_per_s", _rate(_ONE_BY_ONE, one), "/s", "runs enqueued one by one"),
        Figure("enqueued_many_per_s", _rate(runs, all_), "/s", "runs enqueued by the thousand"),
    ]


async def _runs(app: Oncron, runs: int) -> list[Figure]:
    began = boot_us()
    async with app:
        await _until(lambda: _count(app, "succeeded"), runs + _ONE_BY_ONE)
        took = boot_us() - began
    return [Figure("runs_per_s", _rate(runs + _ONE_BY_ONE, took), "/s", "no-op runs, start of the replica included")]


async def _herd(app: Oncron, schedules: int) -> list[Figure]:
    """All due at one instant: from there to the step that fired the last."""
    done, now = await _count(app, "succeeded"), await _now(app)
    at = (now // SECOND + 3 + schedules // 1000) * SECOND
    for number in range(schedules):
        app.add_schedule(
            f"herd-{number}", every(hours=1000, anchor=from_us(at)), "nothing", overlap="allow", missed="all"
        )
    async with app:
        await _until(lambda: _count(app, "succeeded"), done + schedules)
    fired = [
        run.record.created_at
        for run in await app.runs(task="nothing", since=from_us(at), limit=100_000)
        if run.tick == from_us(at)
    ]
    took = max(1, max(fired) - at)
    return [Figure("ticks_per_s", _rate(len(fired), took), "/s", f"ticks of {schedules:,} schedules at one instant")]


async def _lateness(app: Oncron) -> list[Figure]:
    """From a tick's instant to the first line of its task, by the store's clock as this replica knows it."""
    late: list[int] = []
    enough = asyncio.Event()

    @app.schedule(every(seconds=_BEAT / SECOND), name="beat", overlap="allow")
    async def beat() -> None:  # pyright: ignore[reportUnusedFunction]
        late.append(delta_us(current_run().late_by))
        if len(late) >= _TICKS + 20:
            enough.set()

    async with app:
        async with asyncio.timeout(_WITHIN / SECOND):
            await enough.wait()
    counted = late[20:]
    return [
        Figure("lateness_ms_p50", percentile_ms(counted, 50) or 0, "ms", "a tick's lateness, p50"),
        Figure("lateness_ms_p99", percentile_ms(counted, 99) or 0, "ms", "a tick's lateness, p99"),
    ]


async def _timed(work: Callable[[], Awaitable[object]]) -> int:
    began = boot_us()
    await work()
    return boot_us() - began


async def _count(app: Oncron, state: str) -> int:
    stats = await app._desk.ask(lambda store: store.stats())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return stats.runs.get(state, 0)


async def _now(app: Oncron) -> int:
    return await app._desk.ask(lambda store: store.now())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def _until(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    until = boot_us() + _WITHIN
    while await count() < wanted:
        if boot_us() > until:
            raise click.ClickException(f"the store was not done within {_WITHIN // SECOND} s; ask for less work")
        await sleep_us(20_000)


def _rate(count: int, took: int) -> float:
    return round(count * SECOND / max(1, took), 1)
