"""What a store without transactions says when it is asked for one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

from oncron._model import EnqueueResult, FinishResult, NewRun, Outcome
from oncron.errors import NotSupported


class NoTransactions(Protocol):
    """`Transactions` of a store that has none: each raises NotSupported, with what to do instead."""

    url: str

    @contextmanager
    def transaction(self, *, within: int) -> Generator[Any]:  # noqa: ARG002 - the contract's
        raise self._no_effects()
        yield

    @asynccontextmanager
    async def transaction_async(self, *, within: int) -> AsyncGenerator[Any]:  # noqa: ARG002 - the contract's
        raise self._no_effects()
        yield

    def finish_in(self, connection: Any, outcome: Outcome) -> FinishResult:  # noqa: ARG002 - the contract's
        raise self._no_effects()

    async def finish_in_async(self, connection: Any, outcome: Outcome) -> FinishResult:  # noqa: ARG002
        raise self._no_effects()

    def enqueue_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:  # noqa: ARG002
        raise self._no_enqueueing()

    async def enqueue_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:  # noqa: ARG002
        raise self._no_enqueueing()

    def close_transactions(self) -> None:
        """There are none."""

    def still_open(self, connection: Any) -> Callable[[], bool] | None:  # noqa: ARG002 - the contract's
        return None

    def _no_effects(self) -> NotSupported:
        return NotSupported(
            f"{self.url} has no transactions that your writes could join: condition them on ctx.token, make them "
            "idempotent, or meet in PostgreSQL or SQLite"
        )

    def _no_enqueueing(self) -> NotSupported:
        return NotSupported(
            f"{self.url} has no transactions: leave connection= out and enqueue after your commit, or meet in "
            "PostgreSQL or SQLite"
        )
