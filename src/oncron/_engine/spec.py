"""What the engine is told by the face: settings, tasks, and one object per execution."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from oncron import _defaults as limits
from oncron._clock import boot_us
from oncron._engine.lines import Lines
from oncron._engine.wire import Target
from oncron._lifecycle import Backoff, default_backoff
from oncron._model import NewRun, Outcome, OutcomeKind, Report, RunRecord

StopReason = Literal["timeout", "cancelled", "stopped", "lease lost", "doubt", "guard lost"]


CHAIN_KEY = "\n\nevery_after_end"
"""What the unique key of the runs that follow one another ends with."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Durations in microseconds."""

    concurrency: int = limits.CONCURRENCY
    queues: tuple[str, ...] | Mapping[str, int] | None = None
    """A tuple is strict order, a mapping draws by weight, None is every queue."""
    lease_for: int = limits.LEASE_FOR
    stop_within: int = limits.STOP_WITHIN
    keep_for: int = limits.KEEP_FOR
    keep_failed_for: int = limits.KEEP_FAILED_FOR
    release: int | None = None
    tzdata: str = ""
    version: str = ""
    auto_migrate: bool = True
    queue_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Runs of a queue that the fleet executes at most; read anew for each claim."""
    fleet_limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task as the engine runs it.

    `prepare(execution)` decodes the arguments and raises InvalidArguments if they no longer
    fit; it returns a callable without parameters that runs the user's function once: a
    coroutine function if `is_async` (it runs on the user's loop), else a plain one (it runs
    in a thread). `encode` makes the result's JSON text (never raises; None for None).
    With a `target` the function is called in a worker process instead, which finds it there;
    `prepare` only tells then whether the arguments fit.
    With `around` it is called within that, on the user's loop, wherever it runs itself.
    """

    name: str
    is_async: bool
    prepare: Callable[[Execution], Callable[[], Any]]
    encode: Callable[[Any], str | None]
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    backoff: Backoff = default_backoff
    max_running: int | None = None
    on_doubt: Literal["stop", "continue"] = "stop"
    target: Target | None = None
    around: Around | None = None
    chained: Callable[[], NewRun] | None = None
    """Makes the run that is to follow the end of one that it made (`every_after_end`)."""
    managers: int = 0
    """How many context managers the function is called in where it runs, if that is not the user's loop."""

    @property
    def needs_loop(self) -> bool:
        """Whether the user's loop has to run for it."""
        return self.is_async or self.around is not None


Around = Callable[["Execution", Callable[[], None], Callable[[], Awaitable[Any]]], Coroutine[Any, Any, Any]]
"""(execution, begin, inner) -> what the run returns. Awaits `inner()`, the task itself, if and as often as it likes,
and calls `begin()` before anything that must not be given back as if it had never been."""


@dataclass(eq=False)
class Execution:
    """One claimed run in this process, from claim to finish. Fields that tasks touch from
    their own threads are guarded by `lock`."""

    run: RunRecord
    store_now: Callable[[], int]
    """The store's clock as this replica estimates it, in microseconds."""
    started: bool = False
    """Whether user code was entered: what has not started is given back whole."""
    context: Any = None
    """What `prepare` made for the task and what is around it: its RunContext."""
    time_limit: int | None = None
    """Microseconds from its entry until the timeout strikes: the run's `timeout`, unless something shortened it."""
    handed_over: bool = False
    """Whether a thread or the user's loop has it: it may be entered any moment."""
    deadline: int | None = None
    """Store time at which the timeout strikes, as estimated at the start (`times_out_at`)."""
    strikes_at: int | None = None
    """The same on this machine's boot clock, which goes by: a store whose clock is set times nothing out."""
    claimed_at: int = 0
    """Store time of the claim: the tick's lateness is measured here."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the task should come to an end: `ctx.stopping`."""
    stop_reason: StopReason | None = None
    """Why it has to end now; None while it may go on."""
    stop_told: bool = False
    at_once: bool = False
    """Whether a cancelled run, too, has no more time to clean up."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Wakes the executor (on the engine's loop)."""
    wake: Callable[[], None] = lambda: None
    """Sets `changed`, from any thread."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    progress: str | None = None
    checkpoint: str | None = None
    lines: Lines | None = None
    """What it said, this time and before; None while there is nothing."""
    reported: bool = True
    """Whether progress, checkpoint and lines travelled already."""
    outbox: list[NewRun] = field(default_factory=list[NewRun])
    outbox_bytes: int = 0
    """The size of its arguments."""
    chained: Callable[[], NewRun] | None = None
    """Makes the run that is to follow the end of this one."""
    transaction: Literal["open", "ending", "ended"] | None = None
    """How far the task's `ctx.transaction()` is: once it is ending, the run's end may be on record. None: not used."""

    def __post_init__(self) -> None:
        self.time_limit = self.run.timeout

    @cached_property
    def follower(self) -> NewRun | None:
        """What comes after this run: the same however often its end is written (G7)."""
        return None if self.chained is None else self.chained()

    @property
    def may_have_ended(self) -> bool:
        """Whether the task ends its run itself: then the store, asked by the run's finish, says what became of it."""
        return self.transaction in ("ending", "ended")

    def times_out_at(self, deadline: int | None) -> None:
        """The timeout strikes at that store time; None: never."""
        self.deadline = deadline
        self.strikes_at = None if deadline is None else boot_us() + deadline - self.store_now()

    def limit_time(self, limit: int) -> None:
        """From any thread: its time is up after so many microseconds from now, if not before."""
        if self.time_left is None or limit < self.time_left:
            self.time_limit = limit
            self.times_out_at(self.store_now() + limit)
            self.wake()

    @property
    def time_left(self) -> int | None:
        """Microseconds until the timeout strikes, 0 when it has; None: it never does."""
        return None if self.strikes_at is None else max(0, self.strikes_at - boot_us())

    def enter(self) -> bool:
        """In the task's thread: user code is entered now. False: it must not be any more."""
        with self.lock:
            if self.stop_reason is not None:
                return False
            self.started = True
            return True

    def withdraw(self) -> bool:
        """It is not to be entered any more. False: it was."""
        with self.lock:
            if not self.started and self.stop_reason is None:
                self.stop_reason = "stopped"
            return not self.started

    def ask_to_stop(self, reason: StopReason) -> None:
        """End now. A lost lease overrides any other reason: nothing may be recorded then."""
        if self.stop_reason is None or reason == "lease lost":
            self.stop_reason = reason
        self.at_once = self.at_once or reason != "cancelled"
        self.stop.set()
        self.changed.set()

    def ask_to_come_to_an_end(self) -> None:
        """The replica stops: the task is told, and may go on."""
        self.stop.set()
        self.changed.set()

    def report(self) -> Report | None:
        """What the next heartbeat carries, once."""
        with self.lock:
            if self.reported:
                return None
            self.reported = True
            return Report(
                run_id=self.run.id,
                token=self.run.token,
                progress=self.progress,
                checkpoint=self.checkpoint,
                log=self.log,
            )

    @property
    def has_news(self) -> bool:
        """Whether there is anything for `report` to tell, told or not."""
        return self.progress is not None or self.checkpoint is not None or self.lines is not None

    @property
    def log(self) -> str | None:
        return None if self.lines is None else self.lines.text

    def write(self, text: str) -> None:
        """From any thread: keep a line with the run."""
        with self.lock:
            self._write(text)
            self.reported = False

    def say_which_attempt(self) -> None:
        """That it begins again. Of a worker that was killed this line is all that tells."""
        if self.run.attempt > 1:
            with self.lock:
                self._write(f"attempt {self.run.attempt} began on {self.run.worker}")

    def say_how_it_ended(self, outcome: Outcome) -> None:
        """Of what was entered and did not succeed."""
        if not self.started or outcome.kind is OutcomeKind.SUCCEEDED:
            return
        what, again = outcome.kind.value, ""
        if outcome.kind in (OutcomeKind.RETRY, OutcomeKind.RELEASED):
            what = "failed" if outcome.error else "was given back"
            again = f"; again in {outcome.delay / limits.SECOND:.1f} s" if outcome.delay else ""
        why = f": {outcome.reason}" if outcome.reason and outcome.reason != what else ""
        with self.lock:
            self._write(f"attempt {self.run.attempt} on {self.run.worker} {what}{why}{again}")

    def _write(self, text: str) -> None:
        if self.lines is None:
            self.lines = Lines(self.run.log)
        self.lines.add(self.store_now(), text)
