"""`app.lock()` and `app.lead()`: one holder in the whole fleet, told when it no longer is.

A lock keeps two from doing something at the same time. It does not keep it from being done
twice, one after the other: a schedule does that. And it is only as good as its holder's word:
what must not happen after the lock was lost is conditioned on `token`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

from oncron._engine.door import Door
from oncron._engine.hold import Hold
from oncron._groups import Acquired
from oncron._hosting import refuse_on_loop
from oncron.errors import DefinitionError, LeaseLost, Occupied

T = TypeVar("T")

_RELEASED_WITHIN_S = 2
"""How long leaving a block waits for the store to hear of it, so that whoever comes next finds it free."""


class LockDesk(Protocol):
    """What locks need from the app."""

    @property
    def replica(self) -> str:
        """Host and process, for operators."""
        ...

    def at_door(self, work: Callable[[Door], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Do `work` on the loop where the store lives, however long it takes."""
        ...


class _Held:
    """What a lock and a leadership have in common: at most one hold at a time."""

    def __init__(
        self, desk: LockDesk, name: str, *, lease_for: int, wait: int | None, slots: int = 1, shown: str = ""
    ) -> None:
        self._desk, self._lease_for, self._wait, self._slots = desk, lease_for, wait, slots
        self._shown = shown or f"{type(self).__name__.lower()} {name!r}"
        self.name = name
        self.retry_in = 0
        """Not granted: microseconds until the lease of the holder that is nearest to its end has ended."""
        self._hold: Hold | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    @property
    def token(self) -> int:
        """Fencing token of this hold: greater than that of every earlier holder of the name. Raises DefinitionError
        when the block was never entered."""
        if self._hold is None or self._hold.token is None:
            raise DefinitionError(f"{self._shown} is not held; enter its block first")
        return self._hold.token

    @property
    def lost(self) -> bool:
        """Whether it was held and others may hold it by now."""
        return self._hold is not None and self._hold.lost

    def _new_hold(self) -> Hold:
        if self._hold is not None and self._hold.token is not None and not self._hold.is_over:
            raise DefinitionError(f"{self._shown} is held by this very object; make another for each block")
        self._hold = Hold(self.name, holder=self._desk.replica, lease_for=self._lease_for, slots=self._slots)
        self._cancelled = False
        return self._hold

    @contextlib.contextmanager
    def _unless_entered(self, hold: Hold) -> Generator[None]:
        """Whoever is interrupted while it enters may have got the lock already, and never hears of it: nobody would
        let go, and it would be renewed for ever."""
        try:
            yield
        except BaseException:
            self._desk.at_door(hold.release)
            raise

    def _occupied(self, got: Acquired) -> Occupied:
        self.retry_in = got.lease_until - got.now
        return Occupied(f"{self._shown} is held by somebody else; wait= waits for it")

    def _lost_error(self) -> LeaseLost:
        return LeaseLost(f"{self._shown} was lost while it was used: somebody else may hold it now")

    # --- async ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Raises Occupied if nobody let go in time, StoreError."""
        hold = self._new_hold()
        with self._unless_entered(hold):
            got = await asyncio.wrap_future(self._desk.at_door(lambda door: hold.acquire(door, self._wait)))
        if got.token is None:
            raise self._occupied(got)
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the block has ended
                loop.call_soon_threadsafe(self._cancel, hold)

        hold.when_lost(tell)
        return self

    def _cancel(self, hold: Hold) -> None:
        """The block is interrupted at its next await."""
        if self._hold is hold and not hold.is_over and self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def _leave(self, error: BaseException | None) -> bool:
        """Let go. Whether the lock was lost, and nothing else ended the block."""
        kept, released = self._let_go()
        task = asyncio.current_task() if self._cancelled and isinstance(error, asyncio.CancelledError) else None
        ours = task is not None and task.uncancel() <= 0
        await asyncio.wait({asyncio.wrap_future(released)}, timeout=_RELEASED_WITHIN_S)
        return not kept and (ours or error is None)

    def _let_go(self) -> tuple[bool, concurrent.futures.Future[None]]:
        """Whether it was still held, and the call that says so to the store: one that fails ends with the lease."""
        if self._hold is None:
            raise DefinitionError(f"{self._shown} is not held; enter its block first")
        kept = self._hold.end()
        return kept, self._desk.at_door(self._hold.release)


class Lock(_Held):
    """A context, sync and async, that holds a name for the fleet's one holder, its lease renewed all the while.

    Entering raises Occupied when nobody let go within `wait`. Losing it interrupts an async block
    (cancelled at its next await) and ends it with LeaseLost; a sync block asks `lost`, and ends with
    LeaseLost as well.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if await self._leave(error):
            raise self._lost_error() from error
        return False

    def __enter__(self) -> Self:
        refuse_on_loop("with app.lock()", "async with app.lock(...)")
        hold = self._new_hold()
        with self._unless_entered(hold):
            got = self._desk.at_door(lambda door: hold.acquire(door, self._wait)).result()
        if got.token is None:
            raise self._occupied(got)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        kept, released = self._let_go()
        concurrent.futures.wait({released}, timeout=_RELEASED_WITHIN_S)
        if not kept and error is None:
            raise self._lost_error()
        return False


class Leadership(_Held):
    """An async context of the one leader of that name: waits until nobody else leads, and ends when leadership is
    lost. Then the block is cancelled at its next await, and what comes after it goes on, `lost` being true."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._leave(error)
