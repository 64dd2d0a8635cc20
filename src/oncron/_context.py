"""What a task is told about its run, and what it can say while it runs."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, overload

from typing_extensions import ParamSpec, TypeVar

from oncron import _defaults as limits, _options as check
from oncron._clock import from_us, from_us_if
from oncron._engine.spec import Execution
from oncron._membership import BatchOfRun
from oncron._model import NewRun
from oncron._run_log import RunLog
from oncron._transaction import EffectsDesk, Transaction, refuse_after
from oncron._walk import Notes, Source, Walk, kept_text
from oncron.errors import InvalidArguments, InvalidOption, NotFound, NotSupported

C = TypeVar("C")
S = TypeVar("S", default=Any)
T = TypeVar("T")
P = ParamSpec("P")


class Enqueueable(Protocol[P]):
    """A task, as far as `ctx.enqueue` needs one."""

    def _new_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewRun: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class RunContext(Generic[S]):
    """One attempt of one run, as its task sees it. Also what `current_run()` returns.

    `progress`, `checkpoint` and `enqueue` are plain calls that do not block: the first two
    travel with the next heartbeat and with the end, the third is written in the step that
    ends the run as succeeded.
    """

    def __init__(
        self, execution: Execution, args: Mapping[str, Any], state: S, desk: EffectsDesk | None = None
    ) -> None:
        self._execution = execution
        self._desk = desk
        self._notes: Notes | None = None
        self.args: Mapping[str, Any] = args
        """The arguments by name, typed as the task's parameters are."""
        self.state: S = state
        """What the app's `lifespan=` yielded, or what was set as `app.state`."""
        run = execution.run
        self.log = RunLog(
            {"task": run.task, "run": run.id, "schedule": run.schedule, "attempt": run.attempt}, self._say
        )
        """A logger whose records carry the run's id, task, schedule and attempt. What is said at INFO or above is kept
        with the run as well, the newest 16 KiB: `run.log`, `oncron show`, the dashboard. It travels with the next
        heartbeat and with the end."""

    @property
    def run_id(self) -> str:
        return self._execution.run.id

    @property
    def task(self) -> str:
        return self._execution.run.task

    @property
    def schedule(self) -> str | None:
        return self._execution.run.schedule

    @property
    def tick(self) -> datetime | None:
        """The nominal instant this run is for; None outside a schedule."""
        tick = self._execution.run.tick
        return from_us_if(tick)

    @property
    def due_at(self) -> datetime:
        return from_us(self._execution.run.due_at)

    @property
    def late_by(self) -> timedelta:
        """How long after it was due the run was claimed, by the store's clock."""
        return timedelta(microseconds=max(0, self._execution.claimed_at - self._execution.run.due_at))

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._execution.run.attempt

    @property
    def is_last_attempt(self) -> bool:
        return self._execution.run.is_last_attempt

    @property
    def token(self) -> int:
        """A number that only grows, from claim to claim and from tick to tick of one schedule: refuse
        writes that carry a smaller one than the last (G5)."""
        return self._execution.run.token

    @property
    def is_catchup(self) -> bool:
        """Whether the tick has passed and is made up for: it was missed, or is backfilled."""
        return self._execution.run.is_catchup or self._execution.run.backfill is not None

    @property
    def missed_count(self) -> int:
        """How many missed ticks this one run stands for besides its own."""
        return self._execution.run.missed_count

    @property
    def deadline(self) -> datetime | None:
        """When the timeout strikes, by the store's clock."""
        deadline = self._execution.deadline
        return from_us_if(deadline)

    @property
    def stopping(self) -> bool:
        """Whether the task should end soon: the app stops, the run was cancelled, its time is up or its
        lease is in doubt. Threads cannot be interrupted: long loops look here."""
        return self._execution.stop.is_set()

    @property
    def last_checkpoint(self) -> Any:
        """What `checkpoint` was last given, in this attempt or an earlier one; None if never."""
        return self._own_notes().value

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the task is. Shown with the run; the newest call wins. Raises InvalidArguments for a
        note of more than 1 KiB."""
        text = kept_text("progress", {"done": done, "total": total, "note": note}, limits.PROGRESS_BYTES)
        self._keep("progress", text)

    def checkpoint(self, value: Any) -> None:
        """Keep a JSON value with the run: the next attempt finds it as `last_checkpoint`. In a `walk` it is kept
        together with the cursor, when the item is done. Raises InvalidArguments for what is not JSON or more
        than 64 KiB of it."""
        with self._execution.lock:
            refuse_after(self._execution, "checkpoint")
        self._own_notes().keep(value)

    def walk(
        self, source: Source[T], *, every: check.Duration = 5, max_items: int | None = None, name: str = ""
    ) -> Walk[T]:
        """The items of `source` for `for` or `async for`, with a cursor that is kept in the run's checkpoint: a run
        that is stopped between two items (a deploy, a cancel, a lease in doubt, `max_items` done) goes on after
        the last one that was done, in the same run and without spending an attempt.

        `source` is a sequence, or a function: source(cursor) yields (cursor, item), each with where to go on after
        that item, beginning after the cursor it is given (None at first); cursors are JSON. At most `every` so often
        (a duration) a cursor is on its way to the store: what a worker that is killed did since is done again.
        A run with several walks gives each a `name`.

        Raises InvalidOption, DefinitionError for a name that was used."""
        return Walk(
            source,
            self._execution,
            self._own_notes(),
            name=check.line(name, "name"),
            every=check.span(every, "every"),
            max_items=check.number(max_items, "max_items", least=1, none=True),
        )

    @property
    def batch(self) -> BatchOfRun | None:
        """The batch that the run belongs to: `ctx.batch.add(task, ...)` adds to it, `await ctx.batch.is_valid()` asks
        whether the work is still wanted. None outside of one."""
        batch_id = self._execution.run.batch
        return None if batch_id is None else BatchOfRun(self._desk, batch_id, self._enqueue)

    def enqueue(self, task: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Enqueue a run of `task` if, and only if, this run succeeds: written in the very step that ends it,
        so exactly once. Raises InvalidArguments at once, also for more than 10 000 runs or 4 MiB of arguments;
        DefinitionError after `transaction()`."""
        if isinstance(task, str):
            raise InvalidOption(f"ctx.enqueue({task!r}) takes a task of this app, not its name; pass the task itself")
        self._enqueue(task._new_run(args, kwargs))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def _enqueue(self, new: NewRun) -> None:
        with self._execution.lock:
            refuse_after(self._execution, "enqueue")
            size = self._execution.outbox_bytes + len(new.args.encode())
            if len(self._execution.outbox) >= limits.OUTBOX_RUNS or size > limits.OUTBOX_BYTES:
                raise InvalidArguments(
                    f"ctx.enqueue: one run may enqueue {limits.OUTBOX_RUNS} runs, with arguments of "
                    f"{limits.OUTBOX_BYTES // 1024**2} MiB together: they are written in one step; use "
                    "`await task.enqueue()`, or let what is enqueued enqueue the rest"
                )
            self._execution.outbox_bytes = size
            self._execution.outbox.append(new)

    @overload
    def transaction(self) -> Transaction[Any]: ...
    @overload
    def transaction(self, connection: C) -> Transaction[C]: ...
    def transaction(self, connection: Any = None) -> Transaction[Any]:
        """A block, once and last in the run: what is written through the connection that it yields commits
        together with the end of this run as succeeded, or not at all. `with` yields the sync connection of the
        store's driver, `async with` its async one, in a transaction that is not yours to end.

        With `connection` (the driver's, SQLAlchemy's or Django's, on the store's database) the end is added to
        your own transaction there when the block is left: commit right after it.

        The block raises LeaseLost, and nothing is committed, if the run is no longer this worker's; DefinitionError for
        a second one in the run. Raises NotSupported on a store without transactions, and in a task called by hand."""
        if self._desk is None:
            raise NotSupported("ctx.transaction() works in a task that a store has claimed, not in one called by hand")
        return Transaction(self._execution, self._desk, connection)

    def _own_notes(self) -> Notes:
        if self._notes is None:
            self._notes = Notes(self._execution, lambda text, report: self._keep("checkpoint", text, report))
        return self._notes

    def _keep(self, what: str, text: str, report: bool = True) -> None:
        """It is there when the run ends; with `report` it also travels with the next heartbeat."""
        with self._execution.lock:
            refuse_after(self._execution, what)
            setattr(self._execution, what, text)
            if report:
                self._execution.reported = False

    def _say(self, text: str) -> None:
        self._execution.write(text)

    def __repr__(self) -> str:
        return f"<RunContext {self.task} {self.run_id} attempt {self.attempt}>"


_current: contextvars.ContextVar[RunContext[Any]] = contextvars.ContextVar("oncron_run")


def current_run() -> RunContext[Any]:
    """The run whose task is being executed here. Raises NotFound outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise NotFound("no run is being executed here; current_run() is for code that a task calls") from None


def in_run() -> bool:
    """Whether this is code that a task calls."""
    return _current.get(None) is not None


def within(ctx: RunContext[Any], fn: Callable[[], Any]) -> Any:
    """`fn()` with `ctx` as the current run."""
    before = _current.set(ctx)
    try:
        return fn()
    finally:
        _current.reset(before)


async def within_async(ctx: RunContext[Any], fn: Callable[[], Any]) -> Any:
    """`await fn()` with `ctx` as the current run."""
    before = _current.set(ctx)
    try:
        return await fn()
    finally:
        _current.reset(before)
