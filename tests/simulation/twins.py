"""Stories on a real store: SQLite, PostgreSQL, Redis and Valkey take a step's instant as `now=`, so virtual time
reaches them as it reaches memory.

Every call of a replica is made on the watched MemoryStore and on the real one. The replicas hear what the real one
answers; the oracle watches the rows in memory, and both must answer alike: what the oracle says of the one is then
true of the other. What no story can move is inside the real one: its connections, and the deadlines of its calls.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from oncron._model import RunRecord
from oncron._store import ReadableStore
from oncron.errors import OncronError
from tests.contract.comparable import comparable, leases_in
from tests.contract.given import picture
from tests.simulation.network import METHODS, driven
from tests.simulation.oracle import Oracle, WatchedStore
from tests.simulation.scenario import Told, play

T = TypeVar("T")


class Real:
    """A real store on a loop and a thread of its own. Whoever asks waits, and virtual time with it."""

    def __init__(self, make: Callable[[], ReadableStore]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="real store", daemon=True)
        self._thread.start()
        self.store = make()

    def ask(self, work: Callable[[ReadableStore], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(self.store), self._loop).result(60)

    def close(self) -> None:
        self.ask(lambda store: store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def real(make: Callable[[], ReadableStore]) -> Iterator[Real]:
    """A store with the tables of nobody."""
    there = Real(make)
    try:
        there.ask(lambda store: store.open())
        there.ask(lambda store: store.migrate())
        yield there
    finally:
        there.close()


class Twin(WatchedStore):
    """The store of a story: memory, and beside it a real one."""

    def __init__(self, oracle: Oracle, clock: Callable[[], int], there: Real) -> None:
        super().__init__(oracle, clock)
        self._there = there
        self._claims: set[tuple[str, int]] = set()
        self._newest: dict[str, int] = {}
        self.calls = 0
        for name in METHODS:
            if name not in ("now", "hint"):
                setattr(self, name, self._on_both(name))

    def _on_both(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        on_memory = getattr(self, name)
        takes_now = "now" in inspect.signature(getattr(ReadableStore, name)).parameters

        async def step(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if takes_now and options.get("now") is None:
                options["now"] = self._clock()
            expected = _settled(lambda: driven(on_memory(*args, **options)))
            answer = _settled(lambda: self._there.ask(lambda store: getattr(store, name)(*args, **options)))
            self._compare(name, expected, answer)
            if isinstance(answer, OncronError):
                raise answer
            return answer

        return step

    def _compare(self, name: str, expected: Any, answer: Any) -> None:
        wanted, got = _told(expected), _told(answer)
        if wanted != got:
            self.oracle.say("the same", f"{name}: {self._there.store!r} answers\n{got!r}\nand memory\n{wanted!r}")
        leases = zip(leases_in(expected), leases_in(answer), strict=False)
        for run, theirs in sorted(leases, key=lambda pair: pair[1].token):
            self._new_token(theirs)
            if run.token != theirs.token:  # both are right: the contract says how great a token is at least
                self._put(replace(self._run_rows[run.id], token=theirs.token))

    def _new_token(self, run: RunRecord) -> None:
        if (run.id, run.token) in self._claims:
            return
        self._claims.add((run.id, run.token))
        owners = [owner for owner in (run.id, run.schedule) if owner is not None]
        if any(run.token <= self._newest.get(owner, 0) for owner in owners):
            self.oracle.say("G5", f"run {run.id} got the token {run.token}, which is not greater than the one before")
        self._newest.update(dict.fromkeys(owners, run.token))


def _settled(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OncronError as refused:
        return refused


def _told(answer: Any) -> Any:
    return type(answer).__name__ if isinstance(answer, OncronError) else comparable(answer)


def play_on(there: Real, seed: int, *, minutes: float | None = None) -> tuple[Told, int]:
    """The story of this seed on a real store without rows, and how many calls it took. Raises Violation."""
    made: list[Twin] = []

    def twin(oracle: Oracle, clock: Callable[[], int]) -> Twin:
        made.append(Twin(oracle, clock, there))
        return made[0]

    told = play(seed, minutes=minutes, store=twin)
    [store] = made
    driven(picture(store))
    assert not store.oracle.violations, store.oracle.violations[0]
    return told, store.calls
