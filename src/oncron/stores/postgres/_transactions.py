"""Effects that commit with a run's end, or with its enqueueing, in one database (`Transactions`).

The statements are those of `finish` and `enqueue`. What is asked in which order is written once, as
a generator, and sent through sync and async connections alike.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from oncron._model import EnqueueResult, FinishResult, NewRun, Outcome
from oncron.errors import DefinitionError, NotSupported, SchemaOutdated, StoreUnavailable
from oncron.stores import _caller
from oncron.stores.postgres import _errors, _steps
from oncron.stores.postgres._apart import DEADLINE_S, Apart, AsyncLine, SyncLine
from oncron.stores.postgres._connection import Raw, literal
from oncron.stores.postgres._ends import FinishBatch

T = TypeVar("T")
_LOST = ("08", "57")
"""Classes of the server's errors after which it may or may not have done what was asked."""
AnyLine = Connection[Any] | AsyncConnection[Any]
Argument = str | bytes | int | None


class Ask(NamedTuple):
    """A statement of the query file, with the function to call and its arguments."""

    query: str
    function: str = ""
    arguments: tuple[Argument, ...] = ()


Asking = Generator[Ask, list[tuple[Any, ...]], T]
"""Yields what to ask, is sent the rows, returns the answer."""


class InTransactions(Protocol):
    """The part of PostgresStore that works on connections of others."""

    url: str
    _namespace: str
    _quoted: str
    _queries: dict[str, str]
    _apart: Apart
    _identity: str | None
    _met: weakref.WeakSet[Any]

    # --- a task's own transaction -----------------------------------------------------

    @contextmanager
    def transaction(self, *, within: int) -> Generator[SyncLine]:
        blocks: list[AbstractContextManager[Any]] = []

        def begin(line: SyncLine) -> None:
            blocks[:] = [line.transaction()]
            blocks[0].__enter__()
            line.execute(self._begin(within))

        with ExitStack() as stack:
            with self._translated():
                line = stack.enter_context(self._apart.line(begin))
            [block] = blocks
            try:
                yield line
            except BaseException as error:
                block.__exit__(type(error), error, error.__traceback__)
                raise
            with self._committing():
                block.__exit__(None, None, None)

    @asynccontextmanager
    async def transaction_async(self, *, within: int) -> AsyncGenerator[AsyncLine]:
        blocks: list[AbstractAsyncContextManager[Any]] = []

        async def begin(line: AsyncLine) -> None:
            blocks[:] = [line.transaction()]
            await blocks[0].__aenter__()
            await line.execute(self._begin(within))

        async with AsyncExitStack() as stack:
            with self._translated():
                line = await stack.enter_async_context(self._apart.line_async(begin))
            [block] = blocks
            try:
                yield line
            except BaseException as error:
                if line.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    line.pgconn.finish()  # broken off in the middle: the server rolls back what it loses
                else:
                    await block.__aexit__(type(error), error, error.__traceback__)
                raise
            with self._committing():
                await block.__aexit__(None, None, None)

    def _begin(self, within: int) -> bytes:
        return self._queries["transaction.begin"].format(idle=max(1, within // 1000)).encode()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise _errors.translated(error, self.url) from error

    @contextmanager
    def _committing(self) -> Generator[None]:
        """A connection that is lost now leaves open whether the commit was done. A constraint of the user's
        that is checked at commit has its own word."""
        try:
            yield
        except psycopg.OperationalError as error:
            if error.sqlstate is not None and not error.sqlstate.startswith(_LOST):
                raise _errors.translated(error, self.url) from error
            raise StoreUnavailable(
                f"{self.url}: the connection was lost during a commit: whether it was done is unknown here. The store "
                "knows: a task's end is written again and answered accordingly"
            ) from error

    # --- steps inside -----------------------------------------------------------------

    def finish_in(self, connection: Any, outcome: Outcome) -> FinishResult:
        if isinstance(connection, SyncLine):
            self._refuse_ended(connection)
            return self._drive(connection, self._finishing(outcome, "step.last"))
        return self._on_sync(connection, self._finishing(outcome, "step.inside"))

    async def finish_in_async(self, connection: Any, outcome: Outcome) -> FinishResult:
        if isinstance(connection, AsyncLine):
            self._refuse_ended(connection)
            return await self._drive_async(connection, self._finishing(outcome, "step.last"))
        return await self._on_async(connection, self._finishing(outcome, "step.inside"))

    def enqueue_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        return self._on_sync(connection, self._enqueueing(runs))

    async def enqueue_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        return await self._on_async(connection, self._enqueueing(runs))

    def close_transactions(self) -> None:
        self._apart.close()

    def still_open(self, connection: Any) -> Callable[[], bool] | None:
        return _caller.openness(connection, _is_open)

    def _finishing(self, outcome: Outcome, query: str) -> Asking[FinishResult]:
        batch = FinishBatch([outcome])
        answer = None
        if batch.asked:
            [(answer,)] = yield Ask(query, "finish", (batch.payload, batch.enqueue, None))
        return _caller.recorded(batch.results(answer)[0], outcome)

    def _enqueueing(self, runs: Sequence[NewRun]) -> Asking[list[EnqueueResult]]:
        results: list[EnqueueResult] = []
        for chunk in _steps.sized(runs):
            [(answer,)] = yield Ask("step.inside", "enqueue", (_steps.new_runs(chunk), _steps.named(runs), None))
            results += _steps.enqueued(chunk, answer)
        return results

    # --- connections of callers -------------------------------------------------------

    def _on_sync(self, connection: Any, asking: Asking[T]) -> T:
        line: object = _caller.unwrapped(connection)
        if isinstance(line, AsyncConnection):
            raise DefinitionError(
                "an async connection has to be awaited: write `await task.options(connection=...).enqueue(...)`, or "
                "`async with ctx.transaction(connection=...)`"
            )
        if not isinstance(line, Connection):
            raise self._stranger(connection)
        return self._joined(cast("Connection[Any]", line), asking)

    def _joined(self, line: Connection[Any], asking: Asking[T]) -> T:
        self._refuse_closed(line)
        if line not in self._met:
            self._drive(line, self._meeting(self._own_identity()))
            self._met.add(line)
        return self._drive(line, asking)

    async def _on_async(self, connection: Any, asking: Asking[T]) -> T:
        line: object = await _caller.unwrapped_async(connection)
        if isinstance(line, Connection):
            return self._joined(cast("Connection[Any]", line), asking)
        if not isinstance(line, AsyncConnection):
            raise self._stranger(connection)
        return await self._joined_async(cast("AsyncConnection[Any]", line), asking)

    async def _joined_async(self, line: AsyncConnection[Any], asking: Asking[T]) -> T:
        self._refuse_closed(line)
        if line not in self._met:
            await self._drive_async(line, self._meeting(await self._own_identity_async()))
            self._met.add(line)
        return await self._drive_async(line, asking)

    def _refuse_closed(self, line: AnyLine) -> None:
        """Raises DefinitionError for a connection that has no transaction in which a step could join."""
        if line.closed:
            raise DefinitionError("the given connection is closed")
        if line.pgconn.transaction_status == TransactionStatus.IDLE and line.autocommit:
            raise _caller.refuse_no_transaction("`with connection.transaction():`")
        self._refuse_failed(line)
        if line.pgconn.parameter_status(b"client_encoding") != b"UTF8":
            raise NotSupported("the given connection has another client_encoding than UTF8; connect with that")

    def _refuse_failed(self, line: AnyLine) -> None:
        if line.pgconn.transaction_status == TransactionStatus.INERROR:
            raise DefinitionError(
                "the transaction has failed already, nothing can be written in it any more: let the error of its "
                "statement pass, or put a part that may fail into a savepoint (`with connection.transaction():`)"
            )

    def _refuse_ended(self, line: SyncLine | AsyncLine) -> None:
        """Of a block's own transaction. Raises DefinitionError if a statement in it has failed or ended it."""
        self._refuse_failed(line)
        if line.pgconn.transaction_status == TransactionStatus.IDLE:
            raise DefinitionError(
                "a statement inside ctx.transaction() has ended the transaction, what it had written until then may "
                "be committed without the run's end: leaving the block commits, an exception rolls back"
            )

    def _meeting(self, identity: str) -> Asking[None]:
        """Raises NotSupported for another database. Asked once a connection; fails no transaction."""
        [(_, is_there)] = yield Ask("schema.installed")
        found = (yield Ask("schema.identity"))[0][0] if is_there else None
        if found is None or str(found) != identity:
            raise NotSupported(
                f"the given connection's database is not that of {self.url}, schema {self._namespace!r}: only what is "
                "in one database commits together; connect to the store's database"
            )

    def _own_identity(self) -> str:
        if self._identity is None:
            with self._translated(), self._apart.line(lambda _: None) as line:
                self._identity = self._drive(line, self._identifying())
        return self._identity

    async def _own_identity_async(self) -> str:
        async def ask(_: AsyncLine) -> None: ...

        if self._identity is None:
            with self._translated():
                async with self._apart.line_async(ask) as line:
                    self._identity = await self._drive_async(line, self._identifying())
        return self._identity

    def _identifying(self) -> Asking[str]:
        [(_, is_there)] = yield Ask("schema.installed")
        if not is_there:
            raise SchemaOutdated(
                f"{self.url} has no oncron schema {self._namespace!r} yet; run `oncron migrate`, or start the app once"
            )
        return str((yield Ask("schema.identity"))[0][0])

    def _stranger(self, connection: Any) -> NotSupported:
        return NotSupported(
            f"{_caller.kind_of(connection)} is no connection that {self.url} can share a transaction with: give one of "
            "psycopg 3, or of SQLAlchemy (postgresql+psycopg://) or Django on it"
        )

    # --- sending ----------------------------------------------------------------------

    def _drive(self, line: Connection[Any], asking: Asking[T]) -> T:
        cursor = Cursor(line, row_factory=tuple_row)
        cursor.adapters.register_loader("json", Raw)
        with self._translated(), cursor:
            rows: list[tuple[Any, ...]] | None = None
            while True:
                try:
                    ask = asking.send(rows) if rows is not None else next(asking)
                except StopIteration as done:
                    return done.value
                cursor.execute(self._message_of(ask, line), prepare=False)
                while cursor.nextset():
                    pass
                rows = cursor.fetchall()

    async def _drive_async(self, line: AsyncConnection[Any], asking: Asking[T]) -> T:
        cursor = AsyncCursor(line, row_factory=tuple_row)
        cursor.adapters.register_loader("json", Raw)
        with self._translated():
            async with cursor:
                rows: list[tuple[Any, ...]] | None = None
                while True:
                    try:
                        ask = asking.send(rows) if rows is not None else next(asking)
                    except StopIteration as done:
                        return done.value
                    await cursor.execute(self._message_of(ask, line), prepare=False)
                    while cursor.nextset():
                        pass
                    rows = await cursor.fetchall()

    def _message_of(self, ask: Ask, line: AnyLine) -> bytes:
        def quoted(value: Argument) -> bytes:
            return literal(line.pgconn, value)

        values = {
            "schema": self._quoted,
            "function": ask.function,
            "name": quoted(self._quoted).decode(),
            "timeout": int(DEADLINE_S * 1000) - 500,
        }
        head, marked, tail = self._queries[ask.query].partition("{arguments}")
        arguments = b", ".join(map(quoted, ask.arguments)) if marked else b""
        return head.format(**values).encode() + arguments + tail.encode()


def _is_open(line: AnyLine) -> bool:
    return line.pgconn.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
