"""`ctx.transaction()`: the task's writes and the end of its run commit together, or neither does."""

from __future__ import annotations

import concurrent.futures
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, Generic, Protocol

from msgspec.structs import replace
from typing_extensions import TypeVar

from oncron._engine.spec import Execution
from oncron._hosting import refuse_on_loop
from oncron._lifecycle import succeeded, with_reports
from oncron._model import Outcome
from oncron._store import ReadableStore, Transactions
from oncron.errors import DefinitionError, LeaseLost

C = TypeVar("C", default=Any)
T = TypeVar("T")


class EffectsDesk(Protocol):
    """What a transaction needs from the app."""

    @property
    def transactions(self) -> Transactions: ...

    @property
    def lease_for(self) -> int: ...

    def call(self, work: Callable[[ReadableStore], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Do `work` with the store, on the loop where the store lives."""
        ...

    def look_around(self) -> None:
        """Somebody may have been waiting for what was committed just now."""
        ...


class Transaction(Generic[C]):
    """A block that comes once and last in a run. Leaving it normally commits what was written in it
    and ends the run as succeeded, with what `ctx.enqueue`, `ctx.progress` and `ctx.checkpoint` were
    given until then. An exception rolls all of it back. What the task returns afterwards is not kept.

    Entering raises DefinitionError the second time, NotSupported (a store without transactions, a
    connection to another database), StoreUnavailable. Leaving raises LeaseLost if the run is no
    longer this worker's: then nothing is committed.
    """

    def __init__(self, execution: Execution, desk: EffectsDesk, connection: C | None) -> None:
        self._execution, self._desk, self._connection = execution, desk, connection
        self._block: AbstractContextManager[C] | None = None
        self._async_block: AbstractAsyncContextManager[C] | None = None

    def __enter__(self) -> C:
        if self._connection is None:
            refuse_on_loop("`with ctx.transaction()`", "async with ctx.transaction()")
        self._begin()
        block = self._own() if self._connection is None else self._callers(self._connection)
        connection = block.__enter__()
        self._block = block
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (block := self._block) is not None:
            block.__exit__(kind, error, trace)

    async def __aenter__(self) -> C:
        self._begin()
        block = self._own_async() if self._connection is None else self._callers_async(self._connection)
        connection = await block.__aenter__()
        self._async_block = block
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (block := self._async_block) is not None:
            await block.__aexit__(kind, error, trace)

    # --- the four kinds ---------------------------------------------------------------

    @contextmanager
    def _own(self) -> Generator[Any]:
        transactions = self._desk.transactions
        with transactions.transaction(within=self._desk.lease_for) as connection:
            yield connection
            with self._ending() as outcome:
                transactions.finish_in(connection, outcome)
        self._ended()

    @asynccontextmanager
    async def _own_async(self) -> AsyncGenerator[Any]:
        transactions = self._desk.transactions
        async with transactions.transaction_async(within=self._desk.lease_for) as connection:
            yield connection
            with self._ending() as outcome:
                await transactions.finish_in_async(connection, outcome)
        self._ended()

    @contextmanager
    def _callers(self, connection: C) -> Generator[C]:
        yield connection
        with self._ending() as outcome:
            self._desk.transactions.finish_in(connection, outcome)
        self._ended()

    @asynccontextmanager
    async def _callers_async(self, connection: C) -> AsyncGenerator[C]:
        yield connection
        with self._ending() as outcome:
            await self._desk.transactions.finish_in_async(connection, outcome)
        self._ended()

    # --- what the run knows of it -----------------------------------------------------

    def _begin(self) -> None:
        execution = self._execution
        with execution.lock:
            if execution.transaction is not None:
                raise DefinitionError(
                    f"task {execution.run.task!r}: ctx.transaction() comes once in a run, and last; put all writes "
                    "into one block"
                )
            if execution.stop_reason == "lease lost":
                raise LeaseLost(f"run {execution.run.id} is no longer yours: another worker may have taken it over")
            execution.transaction = "open"

    @contextmanager
    def _ending(self) -> Generator[Outcome]:
        """The end to write. Once that has worked the run may have ended, whatever this process hears of the commit."""
        execution = self._execution
        with execution.lock:
            execution.transaction = "ending"
            outcome = with_reports(
                succeeded(execution.run, None),
                progress=execution.progress,
                checkpoint=execution.checkpoint,
                log=execution.log,
                enqueue=execution.outbox,
            )
            if (then := execution.follower) is not None:
                outcome = replace(outcome, then=then)
        try:
            yield outcome
        except BaseException:
            with execution.lock:
                execution.transaction = "open"
            raise

    def _ended(self) -> None:
        with self._execution.lock:
            self._execution.transaction = "ended"
        self._desk.look_around()


def refuse_after(execution: Execution, what: str) -> None:
    """Raises DefinitionError once the run has ended with its transaction. The caller holds the execution's lock."""
    if execution.transaction == "ended":
        raise DefinitionError(
            f"task {execution.run.task!r}: ctx.{what}() after ctx.transaction(), which has ended the run; call it "
            "before that block is left"
        )
