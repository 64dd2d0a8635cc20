"""Real sessions on threads of their own, let go at a barrier."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from oncron._model import RunFilter, RunRecord
from oncron._store import ReadableStore

ROUNDS = int(os.environ.get("ONCRON_RACE_ROUNDS", "20"))
"""G10 was broken in every round by a store that judged occupancy in the statement that locks; twenty
rounds, with either side ahead, find it."""

Contestant = Callable[[ReadableStore], Awaitable[Any]]


class Racers:
    """So many sessions, each with its thread and event loop. `async with` it, then `race`."""

    def __init__(self, connect: Callable[[], ReadableStore], sessions: int = 2) -> None:
        self._stores = [connect() for _ in range(sessions)]
        self._loops = [asyncio.new_event_loop() for _ in range(sessions)]
        self._turn = 0
        self._threads = [threading.Thread(target=loop.run_forever, daemon=True) for loop in self._loops]

    async def __aenter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        await self._everywhere(lambda store: store.open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._everywhere(lambda store: store.close())
        for loop, thread in zip(self._loops, self._threads, strict=True):
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join, 10)
            loop.close()

    async def race(self, *contestants: Contestant, head_start: int = 0) -> list[Any]:
        """All at once, one contestant a session; what each answered, in order.

        `head_start` varies who arrives first: n > 0 lets the first wait for n reads, n < 0 the last.
        """
        barrier = threading.Barrier(len(contestants))
        delays = [0] * len(contestants)
        delays[0 if head_start > 0 else -1] = abs(head_start)

        async def run(contestant: Contestant, store: ReadableStore, delay: int) -> Any:
            barrier.wait(30)
            for _ in range(delay):
                await store.now()
            return await contestant(store)

        # Who comes to the barrier last is off first: by turns it is another one.
        self._turn += 1
        places = [(place + self._turn) % len(contestants) for place in range(len(contestants))]
        running = {
            place: self._on(self._loops[place], run(contestants[place], self._stores[place], delays[place]))
            for place in places
        }
        await asyncio.gather(*running.values())
        return [await running[place] for place in range(len(contestants))]

    async def _everywhere(self, step: Contestant) -> None:
        async def run(store: ReadableStore) -> None:
            await step(store)

        await asyncio.gather(
            *(self._on(loop, run(store)) for store, loop in zip(self._stores, self._loops, strict=True))
        )

    def _on(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def rounds() -> list[tuple[int, int]]:
    """(round, head start): level, the first behind by one or two reads, the last behind by one or two."""
    return [(n, (0, 1, 0, -1, 0, 2, 0, -2)[n % 8]) for n in range(ROUNDS)]


async def open_runs(store: ReadableStore, schedule: str) -> list[RunRecord]:
    return [run for run in await store.runs(RunFilter(schedule=schedule)) if run.state.is_open]


async def assert_one_head(store: ReadableStore, schedule: str) -> None:
    """If anything waits for the place, somebody has it: else it would wait for ever."""
    runs = await open_runs(store, schedule)
    assert len([run for run in runs if not run.parked]) == (1 if runs else 0), runs
