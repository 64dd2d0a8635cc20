"""A context for calling a task's own function, without an app, a store or a run."""

from __future__ import annotations

import concurrent.futures
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from oncron import _options as check
from oncron._clock import wall_us
from oncron._context import RunContext, _current  # pyright: ignore[reportPrivateUsage]
from oncron._engine.spec import Execution
from oncron._json import dumps, loads
from oncron._model import FinishResult, FinishStatus, Outcome, RunRecord, RunState, checked_name, new_run_id
from oncron._store import ReadableStore
from oncron._task import Task
from oncron.errors import InvalidOption, NotSupported

T = TypeVar("T")

_NO_CONNECTION = (
    "fake_run() has no database: give fake_run(connection=...) what `with ctx.transaction() as connection` is to yield"
)


class Enqueued(NamedTuple):
    """What `ctx.enqueue` was given. Arguments are JSON values, by name."""

    task: str
    args: Mapping[str, Any]


class FakeRun(RunContext[Any]):
    """A RunContext made by `fake_run`. What the task says is kept: `enqueued`, `last_progress`, `last_checkpoint`.
    As a context manager it is what `current_run()` answers inside."""

    def __init__(self, execution: Execution, args: Mapping[str, Any], state: Any, connection: Any) -> None:
        self._effects = _FakeDesk(connection)
        super().__init__(execution, args, state, self._effects)
        self._before: list[Any] = []

    @property
    def enqueued(self) -> list[Enqueued]:
        """What `ctx.enqueue` was called with, in order."""
        return [Enqueued(new.task, loads(new.args)) for new in self._execution.outbox]

    @property
    def last_progress(self) -> Mapping[str, Any] | None:
        """`done`, `total` and `note` of the newest `ctx.progress`; None if there was none."""
        text = self._execution.progress
        return None if text is None else loads(text)

    @property
    def committed(self) -> bool:
        """Whether a block of `ctx.transaction()` was left normally: the run would have ended with it."""
        return self._execution.transaction == "ended"

    def stop(self) -> None:
        """From now on `ctx.stopping` is True."""
        self._execution.stop.set()

    def __enter__(self) -> Self:
        self._before.append(_current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._before.pop())


def fake_run(
    task: Task[..., Any] | str = "task",
    *,
    args: Mapping[str, Any] | None = None,
    schedule: str | None = None,
    tick: datetime | None = None,
    due_at: datetime | None = None,
    now: datetime | None = None,
    attempt: int = 1,
    retries: int = 3,
    token: int = 1,
    timeout: check.Duration | None = None,
    missed_count: int = 0,
    is_catchup: bool = False,
    checkpoint: Any = None,
    state: Any = None,
    connection: Any = None,
) -> FakeRun:
    """A context for calling `task.fn(ctx, ...)` in a test: the run of a task as these options describe it.

    `now` is the store's clock (`tick`, else the real one, if left out), `checkpoint` what an earlier attempt kept,
    `state` the app's, `connection` what `ctx.transaction()` yields; committing is the test's affair. Instants are aware
    datetimes, `timeout` a timedelta or seconds.
    Raises InvalidOption.
    """
    at = _instant(now if now is not None else tick, "now")
    ticked = None if tick is None else _instant(tick, "tick")
    span = check.duration(timeout, "timeout", least=1, none=True)
    run = RunRecord(
        id=new_run_id(),
        task=task.name if isinstance(task, Task) else checked_name(task, "task"),
        state=RunState.RUNNING,
        schedule=None if schedule is None else checked_name(schedule, "schedule"),
        tick=ticked,
        args=dumps({} if args is None else args),
        due_at=_instant(due_at, "due_at") if due_at is not None else at if ticked is None else ticked,
        created_at=at,
        started_at=at,
        attempt=check.number(attempt, "attempt", least=1),
        retries=check.number(retries, "retries", least=0),
        token=check.number(token, "token", least=0, most=2**62),
        timeout=span,
        missed_count=check.number(missed_count, "missed_count", least=0),
        is_catchup=check.truth(is_catchup, "is_catchup"),
        checkpoint=None if checkpoint is None else dumps(checkpoint),
    )
    execution = Execution(run=run, store_now=lambda: at, started=True, claimed_at=at)
    execution.times_out_at(None if span is None else at + span)
    return FakeRun(execution, {} if args is None else args, state, connection)


def _instant(value: datetime | None, option: str) -> int:
    instant = check.instant(value, option)
    return wall_us() if instant is None else instant


class _FakeDesk:
    """A desk whose only connection is the test's."""

    lease_for = 15_000_000

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def transactions(self) -> Any:
        return self

    def look_around(self) -> None: ...

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        del work
        raise NotSupported("fake_run() has no store: use ManualClock for what asks one")

    @contextmanager
    def transaction(self, *, within: int) -> Generator[Any]:
        del within
        yield self._given()

    @asynccontextmanager
    async def transaction_async(self, *, within: int) -> AsyncGenerator[Any]:
        del within
        yield self._given()

    def finish_in(self, connection: Any, outcome: Outcome) -> FinishResult:
        del connection
        return FinishResult(run_id=outcome.run_id, status=FinishStatus.RECORDED, state=RunState.SUCCEEDED)

    async def finish_in_async(self, connection: Any, outcome: Outcome) -> FinishResult:
        return self.finish_in(connection, outcome)

    def _given(self) -> Any:
        if self._connection is None:
            raise InvalidOption(_NO_CONNECTION)
        return self._connection
