"""Batches: runs that belong together, and what is enqueued when all of them have ended.

What a batch counts is read from its runs, so a run that is told of twice counts once. Its
callbacks are runs whose ids are made from the batch's: whoever settles it, and however often,
makes each of them once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeGuard, TypeVar, cast

from msgspec.structs import replace
from typing_extensions import ParamSpec

from oncron import _options as check
from oncron._arguments import by_name
from oncron._clock import SECOND, boot_us, from_us, from_us_if, sleep_us
from oncron._groups import BatchRecord, NewBatch
from oncron._hosting import refuse_on_loop
from oncron._json import dumps, loads
from oncron._membership import BatchOfRun, joined, read_batch
from oncron._model import EnqueueResult, NewRun, RunState, new_run_id
from oncron._store import ReadableStore
from oncron._task import Task
from oncron.errors import DefinitionError, InvalidOption

P = ParamSpec("P")
T = TypeVar("T")

Callback = Task[..., Any] | tuple[Task[..., Any], Mapping[str, Any]] | None
"""A task, or a task and its arguments. A parameter `batch_id` that is not given gets the batch's id."""

_CHUNK = 1000
_FIRST_LOOK, _LAST_LOOK = SECOND // 50, SECOND


class BatchDesk(Protocol):
    """What batches need from the app."""

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do `work` with the store. It must be repeatable (G7)."""
        ...

    def write(self, runs: Sequence[NewRun]) -> concurrent.futures.Future[list[EnqueueResult]]:
        """Enqueue; when it is done, the runs are in the store. Raises Stopped."""
        ...

    def look_around(self) -> None:
        """Something may be due now."""
        ...

    def refuse_if_stopped(self, what: str) -> None: ...


class Batch:
    """Runs that belong together. Made by `app.batch()`; read by `app.get_batch()` and `app.batches()`.

    Within its block `add` gathers runs, without I/O. Leaving the block writes the batch, then the
    runs, and closes it: from then on only its own runs add to it. A block that raises writes nothing.
    """

    def __init__(self, desk: BatchDesk, record: BatchRecord, *, new: NewBatch | None = None) -> None:
        self._desk, self._record, self._new = desk, record, new
        self._gathered: list[NewRun] = []
        self._phase: Literal["new", "building", "stored"] = "stored" if new is None else "new"

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def parent(self) -> str | None:
        """The batch that does not complete before this one."""
        return self._record.parent

    @property
    def data(self) -> Any:
        """What `app.batch(data=)` was given."""
        return loads(self._record.data)

    @property
    def counts(self) -> Mapping[str, int]:
        """Its runs by state, as they were when it was read."""
        return self._record.runs

    @property
    def total(self) -> int:
        return self._record.total

    @property
    def pending(self) -> int:
        """Runs that have not ended."""
        return self._record.pending

    @property
    def succeeded(self) -> int:
        return self._record.runs.get(RunState.SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        """Runs that failed for good, or were lost."""
        return self._record.runs.get(RunState.FAILED, 0) + self._record.runs.get(RunState.LOST, 0)

    @property
    def is_valid(self) -> bool:
        """False once somebody called `invalidate`."""
        return not self._record.invalid

    @property
    def created_at(self) -> datetime:
        return from_us(self._record.created_at)

    @property
    def completed_at(self) -> datetime | None:
        """When all its runs had ended, and its children were complete."""
        return from_us_if(self._record.completed_at)

    @property
    def succeeded_at(self) -> datetime | None:
        """When all its runs had ended well, those included that were retried after it was complete."""
        return from_us_if(self._record.succeeded_at)

    @property
    def died_at(self) -> datetime | None:
        """When the first of its runs had failed for good."""
        return from_us_if(self._record.died_at)

    def __repr__(self) -> str:
        return f"<Batch {self.id} {self.pending} of {self.total} pending>"

    # --- building -----------------------------------------------------------------------

    def add(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """One more run, within the block. Raises InvalidArguments at once, InvalidOption for a task with
        `options(unique=...)`: the open run that has the key may belong to no batch. DefinitionError outside of it."""
        if self._phase != "building":
            raise DefinitionError(
                f"batch {self.id}: add() is called within its block; from inside one of its runs it is ctx.batch.add()"
            )
        self._gathered.append(joined(task._new_run(args, kwargs), self.id))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def flush(self) -> None:
        """Write what was gathered so far, within the block: for batches too large to gather. They may run at once;
        the batch completes after its block at the earliest. Raises Stopped, StoreError."""
        await self._desk_call(self._open)
        runs, self._gathered = self._gathered, []
        for at in range(0, len(runs), _CHUNK):
            await asyncio.wrap_future(self._desk.write(runs[at : at + _CHUNK]))

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is None:
            await self.flush()
            await self._close()
        self._phase = "stored"
        return False

    def __enter__(self) -> Self:
        refuse_on_loop("with app.batch()", "async with app.batch(...)")
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is None:
            asyncio.run(self.__aexit__(None, None, None))
        self._phase = "stored"
        return False

    def _enter(self) -> None:
        if self._phase != "new":
            raise DefinitionError(f"batch {self.id} was built already; app.batch() makes another")
        self._desk.refuse_if_stopped("make a batch")
        self._phase = "building"

    # --- in the store -------------------------------------------------------------------

    async def refresh(self) -> Self:
        """Read it again. Raises NotFound."""
        self._record = await self._desk_call(lambda store: read_batch(store, self.id))
        return self

    async def invalidate(self) -> Self:
        """Tell its runs that their work is not needed any more: `await ctx.batch.is_valid()` says so to them.
        Raises NotFound."""
        self._record = await self._desk_call(lambda store: store.invalidate_batch(self.id))
        return self

    async def delete(self) -> bool:
        """Forget it, complete or not: none of its callbacks comes any more, and the batch that it is in does not wait
        for it. Its runs stay on record and go on (`invalidate` first for those that ask). False: somebody else had
        done so, or it was pruned."""
        return await self._desk_call(lambda store: store.delete_batch(self.id))

    async def wait(self, within: check.Duration | None = None) -> Self:
        """Until it is complete, and then as it is. Raises TimeoutError if it is not `within` that time, a timedelta or
        seconds (its runs go on), NotFound if it was pruned or deleted meanwhile."""
        limit = check.duration(within, "within", none=True)
        until = None if limit is None else boot_us() + limit
        pause = _FIRST_LOOK
        while (await self.refresh()).completed_at is None:
            if until is not None and boot_us() >= until:
                raise TimeoutError(f"batch {self.id}: {self.pending} of {self.total} runs have not ended yet")
            await sleep_us(pause if until is None else min(pause, max(0, until - boot_us())))
            pause = min(2 * pause, _LAST_LOOK)
        return self

    async def _open(self, store: ReadableStore) -> None:
        if self._new is not None:
            self._record = await store.open_batch(self._new)
            self._new = None

    async def _close(self) -> None:
        self._record = await self._desk_call(lambda store: store.close_batch(self.id))
        self._desk.look_around()

    async def _desk_call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        return await asyncio.wrap_future(self._desk.call(work))


def new_batch(
    desk: BatchDesk,
    *,
    on_complete: Callback,
    on_success: Callback,
    on_death: Callback,
    parent: Batch | BatchOfRun | str | None,
    data: Any,
) -> Batch:
    """Not yet in the store. Raises InvalidArguments for callbacks that do not fit."""
    batch_id = new_run_id()
    new = NewBatch(
        id=batch_id,
        parent=check.sought_if(parent.id if isinstance(parent, Batch | BatchOfRun) else parent, "parent"),
        data=dumps(data),
        on_complete=_called_back(on_complete, batch_id, "complete"),
        on_success=_called_back(on_success, batch_id, "success"),
        on_death=_called_back(on_death, batch_id, "death"),
    )
    return Batch(desk, BatchRecord(id=batch_id, parent=new.parent, data=new.data), new=new)


def _called_back(callback: Callback, batch_id: str, kind: str) -> NewRun | None:
    if callback is None:
        return None
    task, args = callback if _is_pair(callback) else (callback, dict[str, Any]())
    if not isinstance(task, Task):
        raise InvalidOption(
            f"on_{kind}={callback!r}: give a task of this app, or a task and its arguments: (task, {{...}})"
        )
    values = dict(by_name(args, task.name))
    if "batch_id" in inspect.signature(task.fn).parameters:
        values.setdefault("batch_id", batch_id)
    run = task.new_run(task.parameters.bind((), values))
    return replace(run, id=str(uuid.uuid5(uuid.UUID(batch_id), kind)))


def _is_pair(callback: object) -> TypeGuard[tuple[Task[..., Any], Mapping[str, Any]]]:
    return isinstance(callback, tuple) and len(cast("tuple[Any, ...]", callback)) == 2
