"""The batch that a run belongs to, as the run sees it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec.structs import replace
from typing_extensions import ParamSpec

from oncron._groups import BatchRecord
from oncron._model import NewRun
from oncron._store import ReadableStore
from oncron.errors import InvalidOption, NotFound, NotSupported

if TYPE_CHECKING:
    from oncron._task import Task

P = ParamSpec("P")
T = TypeVar("T")


class StoreDesk(Protocol):
    """What it needs from the app."""

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do `work` with the store. It must be repeatable (G7)."""
        ...


class BatchOfRun:
    """`ctx.batch`."""

    def __init__(self, desk: StoreDesk | None, batch_id: str, enqueue: Callable[[NewRun], None]) -> None:
        self._desk, self.id, self._enqueue = desk, batch_id, enqueue

    def add(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """One more run of the batch, if this run succeeds: written in the step that ends it, so the batch cannot
        complete in between. Raises as `ctx.enqueue` does."""
        self._enqueue(joined(task._new_run(args, kwargs), self.id))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def is_valid(self) -> bool:
        """Whether the work is still wanted: nobody has called `invalidate`. Raises NotFound."""
        if self._desk is None:
            raise NotSupported('ctx.batch.is_valid() asks the store, which a task with executor="process" cannot')
        return not (await asyncio.wrap_future(self._desk.call(lambda store: read_batch(store, self.id)))).invalid


def joined(run: NewRun, batch_id: str) -> NewRun:
    """The run in a batch. Raises InvalidOption for one with a unique key."""
    if run.unique is not None:
        raise InvalidOption(
            f"task {run.task!r} has a unique key, whose open run may belong to no batch; enqueue it without unique="
        )
    return replace(run, batch=batch_id)


async def read_batch(store: ReadableStore, batch_id: str) -> BatchRecord:
    """Raises NotFound."""
    found = await store.get_batch(batch_id)
    if found is None:
        raise NotFound(f"no batch {batch_id!r}: it was never written, or it completed and was pruned")
    return found
