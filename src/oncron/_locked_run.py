"""`locked_run`: a function runs while PostgreSQL's advisory lock of a name is held, as Go's recipe does it.

It keeps two from running at the same time. It does not keep a tick from being run twice, one after the other: whoever
comes when the first is done finds the lock free. A schedule does that.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol, cast, overload

from oncron._arguments import is_async
from oncron._lock_key import known_key
from oncron._task import refuse_on_loop
from oncron.errors import DefinitionError, InvalidOption, LeaseLost
from oncron.stores import open as stores
from oncron.stores.open import advisory_lock

log = logging.getLogger("oncron.lock")

Locked = Callable[[], AbstractAsyncContextManager[stores.HeldLock | None]]


class HeldLock:
    """What the function is given, if it takes a parameter: whether the lock is still held. Any thread may ask."""

    def __init__(self, name: str, key: int) -> None:
        self.name, self.key = name, key
        self._why: str | None = None

    @property
    def lost(self) -> bool:
        """Whether the session that held the lock has gone: another replica may be running by now."""
        return self._why is not None

    def check(self) -> None:
        """Raises LeaseLost if the lock is lost."""
        if self._why is not None:
            raise self.error()

    def error(self) -> LeaseLost:
        """What `check` raises."""
        return LeaseLost(
            f"the advisory lock of {self.name!r} was lost while the function ran, and another replica may have "
            f"started: {self._why}"
        )

    def lose(self, why: str) -> None:
        """For whoever watches the session: the lock is lost from now on."""
        self._why = self._why or why

    def __repr__(self) -> str:
        return f"<HeldLock {self.name!r} {'lost' if self.lost else 'held'}>"


class AsyncPlain(Protocol):
    def __call__(self) -> Coroutine[Any, Any, Any]: ...


class AsyncTold(Protocol):
    def __call__(self, lock: HeldLock, /) -> Coroutine[Any, Any, Any]: ...


# The overloads overlap on purpose: the first that fits is taken, so the order is part of the meaning.
@overload
def locked_run(  # pyright: ignore[reportOverlappingOverload]
    db: Any, name: str, fn: AsyncPlain | AsyncTold
) -> Coroutine[Any, Any, bool]: ...
@overload
def locked_run(db: Any, name: str, fn: Callable[[], Any] | Callable[[HeldLock], Any]) -> bool: ...
def locked_run(db: Any, name: str, fn: Callable[..., Any]) -> Any:
    """Call `fn` while this process holds PostgreSQL's advisory lock `job_lock_key(name)`; True if it was called,
    False, without waiting, if somebody else holds the lock. A coroutine of that if `fn` is async.

    `db` is a URL, a psycopg connection, a psycopg_pool pool or an SQLAlchemy engine on psycopg, sync or async. The lock
    lives on a session of its own: a new one like the given connection, which itself is not touched, whatever it is
    doing; or one taken out of the pool or engine. It is let go on that session when `fn` has ended, also by an error,
    a cancellation or a deadline.

    If the session dies meanwhile, an async `fn` is cancelled; a plain one that takes a parameter finds it there
    (HeldLock). Either way LeaseLost is raised at the end. What `fn` raises is raised; if the database fails, StoreError
    is, and `fn` is not called. StoreUnsafe: a pooler in transaction mode, a standby. DuplicateName: another name that
    this process locks by has the same key. DefinitionError: a plain `fn` on an event loop's thread."""
    if not callable(fn):
        raise InvalidOption(f"locked_run(db, {name!r}, fn): {fn!r} cannot be called; give the function itself")
    key = known_key(name)
    locked = advisory_lock(db, key)
    lock = HeldLock(name, key)
    call = functools.partial(fn, lock) if _takes_lock(fn) else fn
    if is_async(fn) or is_async(inspect.unwrap(fn)):
        return _run_async(locked.hold, lock, call)
    refuse_on_loop("locked_run() of a function that is not async", "await locked_run(db, name, async_function)")
    if locked.needs_loop:
        raise DefinitionError(
            f"locked_run(db, {name!r}, fn): an async pool or engine serves its own event loop; give an async "
            "function, or the database's URL"
        )
    return _run(locked.hold, lock, call)


def _takes_lock(fn: Callable[..., Any]) -> bool:
    """Whether it has a positional parameter that must be given."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        each
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(needed) > 1 or any(each.kind not in positional for each in needed):
        names = ", ".join(each.name for each in needed)
        raise DefinitionError(
            f"locked_run calls its function with nothing, or with the lock alone, and {fn!r} needs {names}; write "
            "functools.partial(fn, ...) or a function around it"
        )
    return bool(needed)


def _skipped(lock: HeldLock) -> bool:
    log.debug(
        "somebody else holds the advisory lock of %r (%d): not run here", lock.name, lock.key,
        extra={"event": "lock.occupied"},
    )  # fmt: skip
    return False


# --- async ------------------------------------------------------------------------------------


async def _run_async(locked: Locked, lock: HeldLock, call: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    async with locked() as advisory:
        if advisory is None:
            return _skipped(lock)
        await _until_lost(advisory, lock, call)
    if advisory.lost is not None:
        lock.lose(advisory.lost)
        raise lock.error()
    return True


async def _until_lost(advisory: stores.HeldLock, lock: HeldLock, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """The function to its end; cancelled when the lock is lost, which is told as LeaseLost."""
    me = cast("asyncio.Task[Any]", asyncio.current_task())
    before, ours = me.cancelling(), False

    def lose(why: str) -> None:
        nonlocal ours
        lock.lose(why)
        ours = me.cancel()

    advisory.when_lost(lose)
    try:
        await call()
    except asyncio.CancelledError:
        if ours and me.uncancel() <= before:
            raise lock.error() from None
        raise
    else:
        if ours:  # and the function has gone on to its end all the same
            me.uncancel()
    finally:
        advisory.stop_telling()


# --- sync -------------------------------------------------------------------------------------


class _Keeper:
    """Holds the lock on a loop in a thread of its own, while the function runs in the caller's."""

    def __init__(self, locked: Locked, lock: HeldLock) -> None:
        self._locked, self._lock = locked, lock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done = False
        self._enough: asyncio.Event | None = None
        self.granted: concurrent.futures.Future[bool] = concurrent.futures.Future()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        threading.Thread(target=self._serve, name="oncron-locked-run", daemon=True).start()

    def let_go(self) -> None:
        """Returns when the lock is free."""
        self._done = True
        if self._loop is not None and self._enough is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._enough.set)
        self.ended.result()

    def _serve(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException as error:  # noqa: BLE001 - carried to the caller
            if not self.granted.done():
                self.granted.set_exception(error)
        finally:
            self.ended.set_result(None)

    async def _keep(self) -> None:
        self._enough, self._loop = asyncio.Event(), asyncio.get_running_loop()
        async with self._locked() as advisory:
            self.granted.set_result(advisory is not None)
            if advisory is None:
                return
            advisory.when_lost(self._lock.lose)
            if not self._done:
                await self._enough.wait()
        if advisory.lost is not None:
            self._lock.lose(advisory.lost)


def _run(locked: Locked, lock: HeldLock, call: Callable[[], Any]) -> bool:
    keeper = _Keeper(locked, lock)
    try:
        if not keeper.granted.result():
            return _skipped(lock)
        value = call()
    finally:
        keeper.let_go()
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise DefinitionError(
            f"locked_run(db, {lock.name!r}, fn): the function returned a coroutine, which nobody would run: write an "
            "async def"
        )
    lock.check()
    return True
