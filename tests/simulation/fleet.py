"""Replicas in virtual time: real engines on one loop, each a process with clocks and a link of its own."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_record

from oncron import _defaults as limits
from oncron._engine.engine import Engine, Home
from oncron._engine.spec import Execution, Settings, TaskSpec
from oncron._events import Event
from oncron._lifecycle import GiveUp, RetryIn, Skip
from oncron._model import Definition
from oncron._store import ReadableStore
from oncron.errors import OncronError, StoreError
from tests.simulation.network import Link, Weather
from tests.simulation.oracle import STUBBORN, Oracle, WatchedStore
from tests.simulation.world import PROCESS, SECOND, Process, VirtualLoop, passes, virtual_time

Body = Callable[[Execution, random.Random], Coroutine[Any, Any, Any]]


class Replica:
    """One replica over its lives: a start after a death is a new process."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet, self.number, self.lives = fleet, number, 0
        self.roles = {"scheduler": True, "worker": True}
        self.lacks: frozenset[str] = frozenset()
        """Tasks that its code does not have."""
        self.definitions: list[Definition] = []
        self.link = fleet.link()
        self.process: Process
        self.engine: Engine
        self.up = False

    def boot(self) -> None:
        fleet, chance = self.fleet, self.fleet.chance
        self.lives += 1
        self.process = Process(
            f"r{self.number}.{self.lives}",
            wall_offset=chance.choice(fleet.skews),
            boot_offset=chance.randrange(10**12),
            drift_ppm=chance.randint(-20, 20),
        )
        fleet.processes.append(self.process)
        self.link = fleet.link(cut=self.link.cut)
        self.link.kill = self.kill
        self.adopt()
        self.engine = Engine(
            make_store=lambda: self.link,  # pyright: ignore[reportArgumentType]
            settings=replace(fleet.settings, release=fleet.release),
            tasks={name: spec for name, spec in fleet.tasks(self.process).items() if name not in self.lacks},
            definitions=lambda: self.definitions,
            emit=fleet.events.append,
        )
        self.engine._home = Home(fleet.loop)
        self.engine.worker_id = self.process.name
        self.up = True
        fleet.loop.in_process(self.process, self._keep_up()).add_done_callback(self._has_started)

    def adopt(self) -> None:
        """The code of the newest release, as far as it declares schedules."""
        self.definitions = [replace_record(d, release=self.fleet.release) for d in self.fleet.definitions]

    async def _keep_up(self) -> None:
        """What an init system does: start again until it works."""
        while True:
            try:
                await self.engine.start(**self.roles, user_loop=self.fleet.loop)
            except StoreError:
                await passes(1)
            else:
                return

    def _has_started(self, starting: asyncio.Task[None]) -> None:
        if not starting.cancelled() and (error := starting.exception()) is not None:
            self.fleet.oracle.violations.append(f"{self.process.name} could not start: {error!r}")

    def kill(self) -> None:
        """As by SIGKILL."""
        self.up = False
        self.process.kill()
        self.fleet.oracle.died(self.process)

    def freeze(self) -> None:
        self.process.stop()
        self.fleet.oracle.froze(self.process)

    def go_on(self) -> None:
        self.process.go_on(self.fleet.loop)

    async def stop(self) -> None:
        """As by SIGTERM; then the process ends."""
        process = self.process
        if process.dead:
            return
        ending = self.fleet.loop.in_process(process, self.engine.stop())
        while not ending.done() and not process.dead:
            await passes(0.05)
        if process is self.process and not process.dead:
            self.kill()


class Fleet:
    """N replicas, the store they meet in, and the oracle that watches."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        *,
        replicas: int = 3,
        lease_for: int = 15 * SECOND,
        weather: Weather | None = None,
        skews: Sequence[int] = (0,),
        store: Callable[[Oracle, Callable[[], int]], WatchedStore] = WatchedStore,
        concurrency: int = 10,
        bodies: dict[str, Body] | None = None,
        max_running: dict[str, int] | None = None,
        queues: tuple[str, ...] | dict[str, int] | None = None,
        specs: dict[str, dict[str, Any]] | None = None,
        stop_within: int = 5 * SECOND,
        keep_for: int = limits.KEEP_FOR,
    ) -> None:
        self.loop, self.seed = loop, seed
        self.chance = random.Random(f"fleet {seed}")
        self.weather = weather or Weather()
        self.skews = skews
        self.oracle = Oracle(lambda: loop.now_us)
        loop.hears = lambda text: self.oracle.say("asyncio", text)
        self.store = store(self.oracle, lambda: loop.now_us)
        self.settings = Settings(
            concurrency=concurrency,
            lease_for=lease_for,
            stop_within=stop_within,
            queues=queues,
            keep_for=keep_for,
            keep_failed_for=2 * keep_for,
        )
        self.max_running = max_running or {}
        self.definitions: list[Definition] = []
        self.release: int | None = None
        self.bodies = {"quick": quick, "slow": slow, "moody": moody, STUBBORN: slow} if bodies is None else bodies
        self.specs = specs or {}
        self.events: list[Event] = []
        self.processes: list[Process] = []
        """All that ever lived: what a dead one left must not be collected, its `finally` would run."""
        self.over = False
        self.replicas = [Replica(self, number) for number in range(replicas)]
        self._desk_link = Link(loop, self.store, Weather(), self.chance)

    def link(self, *, cut: bool = False) -> Link:
        link = Link(self.loop, self.store, self.weather, self.chance)
        link.cut = cut
        return link

    def boot(self) -> None:
        for replica in self.replicas:
            replica.boot()

    async def sleep(self, seconds: float) -> None:
        await passes(seconds)

    # --- what runs --------------------------------------------------------------------

    def tasks(self, process: Process) -> dict[str, TaskSpec]:
        return {name: self._task(name, body, process) for name, body in self.bodies.items()}

    def _task(self, name: str, body: Body, process: Process) -> TaskSpec:
        def prepare(execution: Execution) -> Callable[[], Coroutine[Any, Any, Any]]:
            return lambda: self._written(execution, body, process)

        options: dict[str, Any] = {
            "is_async": True,
            "prepare": prepare,
            "encode": lambda _value: None,
            "backoff": lambda attempt, _seed: attempt * SECOND,
            "max_running": self.max_running.get(name),
            "on_doubt": "continue" if name == STUBBORN else "stop",
        }
        return TaskSpec(name=name, **(options | self.specs.get(name, {})))

    async def _written(self, execution: Execution, body: Body, process: Process) -> Any:
        """Runs the body and writes its lines into the ledger."""
        run = execution.run
        self.oracle.started(run, process)
        try:
            value = await body(execution, random.Random(f"{self.seed} {run.id} {run.attempt}"))
        except asyncio.CancelledError:
            if not self.over:
                self.oracle.ended(run, "cancelled")
            raise
        except BaseException as error:
            if self.over:
                raise  # the coroutine is closed after the story's end
            self.oracle.ended(run, "asked for more" if isinstance(error, RetryIn) else "raised")
            raise
        self.oracle.ended(run, "returned")
        return value

    # --- the operator -----------------------------------------------------------------

    async def desk(self, work: Callable[[ReadableStore], Coroutine[Any, Any, Any]]) -> Any:
        """An operator's call, from outside, over a good line. What the store refuses is an answer too."""
        try:
            return await work(self._desk_link)  # pyright: ignore[reportArgumentType]
        except OncronError as refused:
            return refused

    def live(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.up and not replica.process.stopped]

    # --- the end ----------------------------------------------------------------------

    async def heal(self) -> None:
        """Good weather, every replica up."""
        good = Weather()
        for name in good.__dataclass_fields__:
            setattr(self.weather, name, getattr(good, name))
        for replica in self.replicas:
            replica.link.cut = False
            if replica.process.stopped:
                replica.go_on()
            if not replica.up:
                replica.boot()

    async def drain(self, within: float) -> None:
        """Until no run is open, or the time is up."""
        for _ in range(int(within / 5)):
            if not self.store._open:
                return
            await passes(5)


async def quick(_execution: Execution, chance: random.Random) -> None:
    await passes(chance.random() * 0.02)


async def slow(_execution: Execution, chance: random.Random) -> None:
    await passes(chance.expovariate(1 / 6))


async def moody(_execution: Execution, chance: random.Random) -> None:
    await passes(chance.random() * 2)
    mood = chance.random()
    if mood < 0.2:
        raise ValueError("a bad day")
    if mood < 0.25:
        raise RetryIn(chance.random() * 5, spend_attempt=chance.random() < 0.5)
    if mood < 0.3:
        raise GiveUp("enough")
    if mood < 0.35:
        raise Skip("not today")
    if mood < 0.4:
        raise SystemExit(3)
    if mood < 0.45:
        raise asyncio.CancelledError
    if mood < 0.5:
        raise ExceptionGroup("several", [ValueError("one"), OSError("two")])


class Errors(logging.Handler):
    """What the engine logs at ERROR is a defect, or the weather: kept for the oracle."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" <- {record.exc_info[1]!r}"
            trace = record.exc_info[2]
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            if trace is not None:
                text += f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
        process = PROCESS.get()
        self.found.append(f"{process.name if process else '-'}: {text}")


@contextmanager
def fleet_in_virtual_time(seed: int = 0, **options: Any) -> Iterator[Fleet]:
    """A fleet for a story that the test tells itself: `fleet.loop.run_until_complete(...)`. What the
    engine logged as an error is a violation at the end."""
    errors = Errors()
    logger = logging.getLogger("oncron")
    logger.addHandler(errors)
    quiet, logger.propagate = logger.propagate, False
    try:
        with virtual_time(seed) as loop:
            fleet = Fleet(loop, seed, **options)
            try:
                yield fleet
            finally:
                fleet.over = True
            fleet.oracle.violations += [f"logged: {text}" for text in errors.found]
    finally:
        logger.removeHandler(errors)
        logger.propagate = quiet
