"""What lies between a replica and the store: latency, and everything that can go wrong on the way."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from oncron._store import ReadableStore
from oncron.errors import OncronError, StoreUnavailable
from tests.simulation.world import SECOND, VirtualLoop


@dataclass
class Weather:
    """Chances per call. A stalled call is answered or committed long after its caller gave up."""

    refused: float = 0
    """It fails before anything happened."""
    answer_lost: float = 0
    """It is committed, and the caller is told that it failed."""
    stalled: float = 0
    """It is committed late, up to `stall_for` after."""
    answered_late: float = 0
    """It is committed at once, and the answer takes up to `stall_for`."""
    hint_lost: float = 0
    stall_for: int = 40 * SECOND
    latency: int = 1_500


class Link:
    """One process's way to the store; a `ReadableStore`."""

    url = "memory://simulated"

    def __init__(self, loop: VirtualLoop, store: Any, weather: Weather, chance: random.Random) -> None:
        self._loop, self._store, self._weather, self._chance = loop, store, weather, chance
        self.cut = False
        """While it is cut nothing arrives at either end."""
        self.locked = False
        """While it is, somebody holds the store's write lock: writes wait, reads are answered."""
        self.calls: dict[str, int] = {}
        self.fates: dict[str, list[str]] = {}
        """By method, what becomes of its next calls: "well", "refused", "lost" (its answer), "bug" (it raises what
        no store may raise), "late 7" (its answer, so many seconds), or the caller dies "before" or "after" it is
        committed."""
        self.kill: Callable[[], None] = lambda: None
        for name in METHODS:
            setattr(self, name, self._method(name))

    def _method(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            if self.fates.get(name, ())[:1] == ["bug"]:
                self.fates[name].pop(0)
                raise ZeroDivisionError(f"a defect in {name}")
            answer = self._loop.create_future()
            self._send(name, args, options, answer)
            return await answer

        return call

    def _send(self, name: str, args: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None:
        weather, draw = self._weather, self._chance.random()
        there, back = self._way(), self._way()
        if self.cut:
            if draw < 0.5:
                self._loop.at(there + back, _fail, answer, "the network is cut")
            return  # otherwise a black hole: no answer ever comes
        if draw < weather.refused:
            self._loop.at(there + back, _fail, answer, "refused")
            return
        draw -= weather.refused
        fate = self.fates[name].pop(0) if self.fates.get(name) else "well"
        if fate == "refused":
            self._loop.at(there + back, _fail, answer, "refused")
            return
        if fate == "before":
            self._loop.at(there, self.kill)
            return
        if fate == "after":
            self._loop.at(there + 1, self.kill)
        lost = draw < weather.answer_lost or fate in ("lost", "after")
        draw -= weather.answer_lost
        if 0 <= draw < weather.stalled:
            there += self._chance.randrange(weather.stall_for)
        draw -= weather.stalled
        if 0 <= draw < weather.answered_late:
            back += self._chance.randrange(weather.stall_for)
        if fate.startswith("late "):
            back += int(fate[5:]) * SECOND
        self._loop.at(there, self._commit, name, args, options, answer, back, lost)

    def _way(self) -> int:
        return self._weather.latency // 8 + self._chance.randrange(self._weather.latency + 1)

    def _commit(self, name: str, args: Any, options: Any, answer: Any, back: int, lost: bool) -> None:
        if self.locked and name in WRITES:
            self._loop.at(self._chance.randrange(100_000), self._commit, name, args, options, answer, back, lost)
            return
        try:
            value = driven(getattr(self._store, name)(*args, **options))
        except OncronError as error:
            reply, content = _raise, error
        else:
            reply, content = (_fail, "the answer was lost") if lost else (_tell, value)
        if not self.cut:
            self._loop.at(back, reply, answer, content)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def reset(self) -> None: ...

    async def migrate(self) -> None: ...

    async def check(self) -> None: ...

    async def wakeups(self) -> AsyncIterator[None]:
        async for _ in self._store.wakeups():
            if not self.cut and self._chance.random() >= self._weather.hint_lost:
                yield


WRITES = frozenset({"fire", "claim", "heartbeat", "finish", "reap", "enqueue", "declare", "prune", "leave"})
METHODS = [
    name
    for name in sorted(dir(ReadableStore))
    if inspect.iscoroutinefunction(getattr(ReadableStore, name)) and name not in vars(Link)
]
"""Every step of the contract goes over the line."""


def driven(work: Coroutine[Any, Any, Any]) -> Any:
    """The store's methods never wait: they are done at the first step."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a step of MemoryStore waited for something")


def _tell(answer: Any, value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _raise(answer: Any, error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _fail(answer: Any, why: str) -> None:
    _raise(answer, StoreUnavailable(f"memory://simulated: {why}"))
