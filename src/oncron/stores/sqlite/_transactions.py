"""Effects that commit with a run's end, or with its enqueueing, in one SQLite file (`Transactions`)."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from oncron import _defaults as limits
from oncron._model import EnqueueResult, FinishResult, NewRun, Outcome
from oncron.errors import DefinitionError, NotSupported, StoreUnavailable
from oncron.stores import _caller
from oncron.stores.sqlite import _endings, _enqueue, _schema
from oncron.stores.sqlite._errors import is_busy, translated
from oncron.stores.sqlite._held import AsyncHeld, Held, in_thread, opened
from oncron.stores.sqlite._step import Step

T = TypeVar("T")


class InTransactions(Protocol):
    """The part of SQLiteStore that works on connections of others."""

    path: Path
    _sql: dict[str, str]
    _where: str
    _within: int

    # --- a task's own transaction -----------------------------------------------------

    @contextmanager
    def transaction(self, *, within: int) -> Generator[Held]:
        held = self._begun(within)
        try:
            try:
                yield held
            except BaseException as error:
                if held.over is not None and not isinstance(error, StoreUnavailable):
                    raise StoreUnavailable(held.over) from error
                raise
            self._commit(held)
        finally:
            held.let_go()

    @asynccontextmanager
    async def transaction_async(self, *, within: int) -> AsyncGenerator[AsyncHeld]:
        held = await in_thread(lambda: self._begun(within))
        try:
            try:
                yield AsyncHeld(held)
            except BaseException as error:
                if held.over is not None and isinstance(error, Exception) and not isinstance(error, StoreUnavailable):
                    raise StoreUnavailable(held.over) from error
                raise
            await in_thread(lambda: self._commit(held))
        finally:
            held.let_go()

    def _begun(self, within: int) -> Held:
        try:
            held = opened(self.path, wait=self._within)
            try:
                held.begin(self._where, wait=self._within, within=min(within, limits.SQLITE_TRANSACTION))
            except BaseException:
                held.let_go()
                raise
            return held
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _commit(self, held: Held) -> None:
        try:
            held.end(wait=self._within)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    # --- steps inside -----------------------------------------------------------------

    def finish_in(self, connection: Any, outcome: Outcome) -> FinishResult:
        return self._end(self._sync(connection), outcome)

    async def finish_in_async(self, connection: Any, outcome: Outcome) -> FinishResult:
        return await self._on_async(connection, lambda line: self._end(line, outcome))

    def enqueue_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        return self._inside(self._sync(connection), lambda step: _enqueue.enqueue(step, runs))

    async def enqueue_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        return await self._on_async(
            connection, lambda line: self._inside(line, lambda step: _enqueue.enqueue(step, runs))
        )

    def close_transactions(self) -> None:
        """Nothing to do: each transaction has a connection of its own."""

    def still_open(self, connection: Any) -> Callable[[], bool] | None:  # noqa: ARG002 - the contract's
        """Others see the file's log grow with the commit."""
        return None

    def _end(self, line: sqlite3.Connection, outcome: Outcome) -> FinishResult:
        return _caller.recorded(self._inside(line, lambda step: _endings.finish(step, [outcome])[0]), outcome)

    def _sync(self, connection: Any) -> sqlite3.Connection:
        line = connection if isinstance(connection, Held) else _caller.unwrapped(connection)
        if not isinstance(line, sqlite3.Connection):
            raise self._stranger(connection)
        return line

    async def _on_async(self, connection: Any, work: Callable[[sqlite3.Connection], T]) -> T:
        """`work`, where the connection may be used: in its thread if it has one."""
        if isinstance(connection, AsyncHeld):
            return await in_thread(lambda: work(connection.connection))
        line = await _caller.unwrapped_async(connection)
        if isinstance(line, Held):
            return await in_thread(lambda: work(line))
        if isinstance(line, sqlite3.Connection):
            return work(line)
        run = getattr(line, "_execute", None)
        if type(line).__module__.partition(".")[0] != "aiosqlite" or run is None:
            raise self._stranger(connection)
        # aiosqlite keeps the driver's connection on a thread of its own, and this is its way there.
        return await run(lambda: work(line._conn))  # noqa: SLF001

    def _inside(self, line: sqlite3.Connection, work: Callable[[Step], T]) -> T:
        """One step inside the transaction that is open on the connection."""
        try:
            if not isinstance(line, Held):
                self._refuse_unfit(line)
            with _plain_rows(line):
                step = Step(line, self._sql)
                _schema.begin(step, None, self._where)
                result = work(step)
                step.do("meta.now", now=step.now)
                return result
        except sqlite3.ProgrammingError as error:
            raise DefinitionError(f"{self._where}: the given connection cannot be used here: {error}") from error
        except sqlite3.Error as error:
            if is_busy(error) and not isinstance(line, Held):
                raise StoreUnavailable(
                    f"{self._where}: your transaction cannot have the write lock ({error}), so nothing was enqueued or "
                    "ended in it: roll it back, and begin it with `begin immediate`, which waits for the lock first"
                ) from error
            raise translated(error, self.path) from error

    def _refuse_unfit(self, line: sqlite3.Connection) -> None:
        """Raises NotSupported for another file, DefinitionError outside of a transaction."""
        with _plain_rows(line):
            main = next(row[2] for row in line.execute("pragma database_list") if row[1] == "main")
        if not main or not self.path.exists() or not Path(main).samefile(self.path):
            raise NotSupported(
                f"the given connection is on {main or 'a database in memory'}, the store is {self._where}: only what "
                "is in one file commits together; connect to the store's file"
            )
        if line.in_transaction:
            return
        if line.isolation_level is None or getattr(line, "autocommit", None) is True:
            raise _caller.refuse_no_transaction("`connection.execute('begin immediate')`")
        # The driver would begin with the first change; what is judged before it has to be under the lock already.
        line.execute("begin immediate")

    def _stranger(self, connection: Any) -> NotSupported:
        return NotSupported(
            f"{_caller.kind_of(connection)} is no connection that {self._where} can share a transaction with: "
            "give one of sqlite3 or aiosqlite, or of SQLAlchemy or Django on them"
        )


@contextmanager
def _plain_rows(line: sqlite3.Connection) -> Generator[None]:
    """Rows are tuples and texts are str inside, whatever the connection's owner has set."""
    rows, texts = line.row_factory, line.text_factory
    line.row_factory, line.text_factory = None, str
    try:
        yield
    finally:
        line.row_factory, line.text_factory = rows, texts
