"""ManualClock: an app on an empty memory store and a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from oncron import _options as check
from oncron._app import Oncron
from oncron._clock import from_us
from oncron._context import in_run
from oncron._hosting import InBackground, in_thread, refuse_on_loop
from oncron._json import dumps, loads
from oncron._model import RunRecord
from oncron._run import Run
from oncron._task import Task
from oncron.errors import DefinitionError, InvalidOption, Stopped
from oncron.stores.open import bench_store
from oncron.testing.hand import Hand
from oncron.testing.stepping import BenchStore, SteppedEngine, run_here

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Where the clock stands if nobody says otherwise: a Thursday."""
_HEAR_WITHIN = 10_000_000


class ManualClock(InBackground):
    """Puts `app` on an empty memory store and a clock that stands still at `start`, for `with` or `async with`. The
    app runs, as after `app.start()` (its `lifespan=` included, unless `lifespan=False`), but nothing becomes due by
    itself. Afterwards the app is as before: its own store, its declarations, its state.

    Tasks run for real, on the loop that awaits `advance` (in a sync test on one of the clock's own), in real time;
    `sleep` and `block` let them take time of this clock. `eager=True`: what is enqueued has ended when `enqueue`
    returns. A run that does neither end nor sleep for `patience` seconds of real time raises TimeoutError.

    Raises AlreadyRunning if the app runs, or stands under another ManualClock, InvalidOption.
    """

    _block = "ManualClock(...)"

    def __init__(
        self,
        app: Oncron,
        start: datetime = START,
        *,
        eager: bool = False,
        patience: check.Duration = 10,
        lifespan: bool = True,
    ) -> None:
        if not isinstance(app, Oncron):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"ManualClock({app!r}): give the app, an Oncron")
        self.app = app
        began = check.instant(start, "start")
        if began is None:
            raise InvalidOption("start=None: give an aware datetime, datetime(2026, 3, 29, tzinfo=UTC) say")
        self._start = began
        self._eager, self._lifespan = check.truth(eager, "eager"), check.truth(lifespan, "lifespan")
        self._patience = check.span(patience, "patience", least=1000)
        self._hand = Hand(began)
        self._store: BenchStore = bench_store(self._hand.now)
        self._engine: SteppedEngine | None = None
        self._stack = ExitStack()

    # --- the block --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return await self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit()

    async def _enter(self) -> Self:
        self._hand = hand = Hand(self._start)
        self._store = bench_store(hand.now)
        with ExitStack() as stack:
            elsewhere = self.app._elsewhere  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            bench = elsewhere(
                SteppedEngine,
                lifespan=self._lifespan,
                hand=hand,
                store=self._store,
                patience=self._patience,
                eager=self._eager,
            )
            self._engine = stack.enter_context(bench)
            self._engine.default_loop = asyncio.get_running_loop()
            await self.app.start()
            self._stack = stack.pop_all()
        return self

    async def _exit(self) -> None:
        try:
            await asyncio.wrap_future(self._running().let_go())
            self._hand.lift()
            await self.app.stop()
        finally:
            self._engine = None
            self._stack.close()

    # --- time -------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the clock shows, in UTC."""
        return from_us(self._hand.now())

    async def advance(self, duration: check.Duration) -> list[Run[Any]]:
        """Move the clock so far (a timedelta or seconds), from due instant to due instant: whatever falls due (ticks,
        delayed runs, retries, timeouts) is fired and executed to its end with the clock at its instant. The runs that
        began or ended meanwhile, in that order, as they are at the end.

        Raises TimeoutError for a run that takes too long in real time, Stopped after `app.stop()`."""
        return await self._walk("advance", check.span(duration, "duration"))

    async def run_due(self) -> list[Run[Any]]:
        """Fire and execute what is due now, without moving the clock. The runs, and errors, as from `advance`."""
        return await self._walk("run_due", 0)

    async def outage(self, duration: check.Duration) -> list[Run[Any]]:
        """Move the clock so far (a timedelta or seconds) while nothing runs, as if every replica were down, then do
        what is due: ticks that fell into the outage are ruled by `missed`. The runs, and errors, as from `advance`."""
        return await self._walk("outage", check.span(duration, "duration"), at_once=True)

    async def sleep(self, delay: check.Duration, result: T = None) -> T:
        """In an async task, or beside the test: wait until the clock has been moved so far (a timedelta or seconds).
        Takes the place of `asyncio.sleep` in code under test: `monkeypatch.setattr("shop.jobs.sleep", clock.sleep)`.
        Raises Stopped when the clock is over."""
        await self._running().sleep(check.span(delay, "delay"))
        return result

    def block(self, seconds: check.Duration) -> None:
        """`sleep` for tasks that are not async; takes the place of `time.sleep`. Raises DefinitionError on an event
        loop's thread."""
        refuse_on_loop("clock.block()", "await clock.sleep(...)")
        woken = threading.Event()
        with self._hand.asleep(
            run_here(), self._hand.now() + check.span(seconds, "seconds"), woken.set, in_thread=True
        ):
            self._running().stir()
            woken.wait()

    # --- what happened ----------------------------------------------------------------

    @property
    def runs(self) -> list[Run[Any]]:
        """All runs since the clock began, in the order in which they came, as they are now."""
        return [self._run(row) for row in self._store.all_runs()]

    def enqueued(self, task: Task[..., Any] | str | None = None) -> list[Run[Any]]:
        """The runs that no tick asked for (of that task): enqueued, by the test or by tasks, and run now."""
        name = _name(task)
        return [run for run in self.runs if run.tick is None and name in (None, run.task)]

    def fired(self, schedule: str) -> list[datetime]:
        """The ticks of the schedule that became runs, in order."""
        return sorted(run.tick for run in self.runs if run.tick is not None and run.schedule == schedule)

    def assert_enqueued(
        self, task: Task[..., Any] | str, args: Mapping[str, Any] | None = None, *, times: int | None = None
    ) -> list[Run[Any]]:
        """The runs of the task that were enqueued with these arguments (others may come beside them). AssertionError,
        saying what was enqueued instead, if there is none, or not `times` many."""
        wanted: dict[str, Any] = {} if args is None else loads(dumps(args))
        all_of_it = self.enqueued(task)
        found = [run for run in all_of_it if _carries(run.args, wanted)]
        if len(found) == times if times is not None else found:
            return found
        what = f"task {_name(task)!r}" + (f" with {wanted}" if wanted else "")
        often = "not enqueued" if not found else f"enqueued {len(found)} times, not {times}"
        shown = "".join(f"\n  {run.task} {dict(run.args)}" for run in (all_of_it or self.enqueued())[:20])
        raise AssertionError(f"{what} was {often}; enqueued were:{shown or ' no runs at all'}")

    def assert_not_enqueued(self, task: Task[..., Any] | str | None = None) -> None:
        """AssertionError if a run (of that task) was enqueued."""
        found = self.enqueued(task)
        if found:
            shown = "".join(f"\n  {run.task} {dict(run.args)}" for run in found[:20])
            raise AssertionError(f"enqueued were:{shown}")

    def assert_fired(self, schedule: str, *ticks: datetime) -> list[datetime]:
        """Exactly these ticks of the schedule became runs; without ticks, at least one did. AssertionError, saying
        which did, otherwise."""
        wanted = [from_us(check.instant(tick, "tick") or 0) for tick in ticks]
        found = self.fired(schedule)
        if found == sorted(wanted) if wanted else found:
            return found
        shown = ", ".join(map(str, found[:20])) or "no tick"
        instead = f", not {', '.join(map(str, sorted(wanted)))}" if wanted else ""
        raise AssertionError(f"schedule {schedule!r}: {shown} became a run by {self.now}{instead}")

    def assert_not_fired(self, schedule: str) -> None:
        """AssertionError if a tick of the schedule became a run."""
        found = self.fired(schedule)
        if found:
            raise AssertionError(f"schedule {schedule!r}: {', '.join(map(str, found[:20]))} became a run")

    # --- inside -----------------------------------------------------------------------

    async def _walk(self, what: str, duration: int, *, at_once: bool = False) -> list[Run[Any]]:
        if in_run():
            raise DefinitionError(f"clock.{what}() in a task would wait for that task; await clock.sleep() there")
        ids = await asyncio.wrap_future(self._running().walk(duration, at_once=at_once))
        await in_thread(lambda: self.app._listeners.flush(_HEAR_WITHIN))  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
        rows = {row.id: row for row in await self._store.get_runs(ids)}
        return [self._run(rows[run_id]) for run_id in ids if run_id in rows]

    def _run(self, row: RunRecord) -> Run[Any]:
        return Run(row, self.app._desk)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001

    def _running(self) -> SteppedEngine:
        if self._engine is None:
            raise Stopped("this clock has not begun, or is over: use it inside `with ManualClock(app) as clock:`")
        return self._engine

    def __repr__(self) -> str:
        return f"<ManualClock {self.now.isoformat()}>"


def _name(task: Task[..., Any] | str | None) -> str | None:
    return task.name if isinstance(task, Task) else task


def _carries(args: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in args and args[name] == value for name, value in wanted.items())
