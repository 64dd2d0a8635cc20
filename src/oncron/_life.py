"""The life of an app in one process: its engine, from first use to stop; forks and the end of the process."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from signal import Signals
from typing import Any, Literal

from oncron._clock import SECOND, boot_us
from oncron._context import in_run
from oncron._engine.engine import Engine
from oncron._hosting import Lifespan, in_thread, stop_signals
from oncron._listeners import Listeners
from oncron.errors import AlreadyRunning, DefinitionError, Stopped

log = logging.getLogger("oncron.engine")

_FLUSH_WITHIN = 2 * SECOND
_ECHO = SECOND // 2
"""A signal so soon after the first is the same one once more, not a second wish."""

whose_process: Literal["own", "command", "worker", "importing"] = "own"
"""A replica's; a command's while it imports the user's code, which must not start anything then; or a worker
process's of `executor="process"`: it never runs apps itself, and while it imports the user's code nothing may be done
with a store, or every worker process would do it again."""

Phase = Literal["new", "starting", "running", "stopping", "stopped"]


class Life:
    """`make_engine` is called once per process, at first use."""

    def __init__(self, make_engine: Callable[[], Engine], listeners: Listeners) -> None:
        self._make_engine, self._listeners = make_engine, listeners
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._phase: Phase = "new"
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._lifespan: Lifespan | None = None
        self._entered = False
        """Whether a start is past its lifespan, which nobody in it may wait for."""
        self._doing: asyncio.Future[None] | None = None
        """What starts or stops it; held here, as loops do not hold their tasks."""
        self.user_loop: asyncio.AbstractEventLoop | None = None
        """Where async tasks run; None unless running."""
        _lives.add(self)

    @property
    def engine(self) -> Engine:
        """This process's engine; a forked child makes its own."""
        if whose_process == "importing":
            raise _unguarded("the store was used")
        with self._lock:
            if self._engine is None:
                self._engine = self._make_engine()
            return self._engine

    @property
    def phase(self) -> Phase:
        return self._phase

    def refuse_if_stopped(self, what: str) -> None:
        """Raises Stopped."""
        if self._phase == "stopped":
            raise Stopped(f"this app was stopped: it cannot {what} until it is started again")

    @staticmethod
    def refuse_in_worker_process() -> None:
        """Or while a command imports the code. Raises DefinitionError."""
        if whose_process == "command":
            raise StartedInImport(
                "an app was started while a command imported this module, which would not return: "
                'put the call under `if __name__ == "__main__":`'
            )
        if whose_process != "own":
            raise _unguarded("an app was started")

    @staticmethod
    def refuse_lonely_store(url: str) -> None:
        """A worker process would get a memory store of its own, and lose what it writes. Raises DefinitionError."""
        if whose_process in ("worker", "importing") and url.startswith("memory:"):
            raise DefinitionError(
                f'{url} lives in the replica\'s process; in a task with executor="process" write ctx.enqueue(...), '
                "or meet in sqlite:///... or postgresql://..."
            )

    @contextmanager
    def on(self, engine: Engine) -> Generator[None]:
        """The app on another engine, as if new. Afterwards it stands as it stood before. Raises AlreadyRunning."""
        with self._lock:
            if self._phase in ("starting", "running", "stopping"):
                raise AlreadyRunning(f"this app is {self._phase} in this process; stop it first")
            before = self._engine, self._phase, self._ended
            self._engine, self._phase, self._ended = engine, "new", concurrent.futures.Future()
        try:
            yield
        finally:
            engine.close()
            with self._lock:
                self._engine, self._phase, self._ended = before

    def forget_engine(self) -> None:
        """The next use makes a new one: the app was given another store."""
        with self._lock:
            before, self._engine = self._engine, None
        if before is not None:
            before.close()

    def changed(self) -> None:
        """Something was declared: a running engine takes it up."""
        if self._phase == "running":
            self.engine.changed()

    def unfinished(self) -> list[str]:
        """Runs whose threads did not return by the end of `stop`."""
        return [] if self._engine is None else [f"{run.task!r} ({run.id})" for run in self._engine.unfinished]

    # --- start and stop ---------------------------------------------------------------

    async def start(
        self,
        *,
        scheduler: bool,
        worker: bool,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
        state: Callable[[Any], None],
    ) -> None:
        """Runs until `stop`, async tasks on this loop. `state` gets what `lifespan` yielded."""
        with self._lock:
            if self._phase in ("starting", "running", "stopping"):
                raise AlreadyRunning(f"this app is {self._phase} in this process; stop it before starting it again")
            before, self._phase = self._phase, "starting"
            self._entered = False
            begun = self._begun = concurrent.futures.Future[None]()
        try:
            await self._start(before, scheduler=scheduler, worker=worker, lifespan=lifespan, state=state)
        finally:
            begun.set_result(None)

    async def _start(
        self,
        before: Phase,
        *,
        scheduler: bool,
        worker: bool,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
        state: Callable[[Any], None],
    ) -> None:
        self.user_loop = asyncio.get_running_loop()
        self._ended = concurrent.futures.Future()
        try:
            if lifespan is not None:
                self._lifespan = Lifespan(lifespan)
                state(await self._lifespan.enter())
            self._entered = True
            start = self.engine.start(scheduler=scheduler, worker=worker, user_loop=self.user_loop)
            await self._to_the_end(start, then=self.engine.stop)
        except BaseException:
            await self._to_the_end(self._undo(before))
            raise
        self._phase = "running"

    async def _undo(self, before: Phase) -> None:
        try:
            await self._leave_lifespan()
        finally:
            try:
                await in_thread(self.engine.close)
            finally:
                self._phase, self.user_loop = before, None

    async def stop(self) -> None:
        """A start under way is waited for first, as a run may call this before `start` has returned. A second call
        waits for the first. A cancelled one hurries the end and waits for it. An app that does not run only closes
        its connections; it stays as new, or as stopped, as it was."""
        if self._phase == "starting" and self._entered:
            await asyncio.wait({asyncio.wrap_future(self._begun)})
        with self._lock:
            before, ended, used = self._phase, self._ended, self._engine
            if before == "running":
                self._phase = "stopping"
        if before == "running":
            await self._to_the_end(self._stop(ended))
        elif before == "stopping":
            await asyncio.shield(asyncio.wrap_future(ended))
        elif before != "starting" and used is not None:
            await in_thread(used.close)

    async def _stop(self, ended: concurrent.futures.Future[None]) -> None:
        try:
            try:
                await self.engine.stop()
            finally:
                await self._leave_lifespan()
            if not await in_thread(lambda: self._listeners.flush(_FLUSH_WITHIN)):
                log.warning("a listener is still busy; what it has not heard yet is dropped")
        finally:
            try:
                await in_thread(self.engine.close)
            finally:
                self._phase, self.user_loop = "stopped", None
                ended.set_result(None)

    async def serve(self, start: Callable[[], Any]) -> None:
        """Start, wait for a signal, for `stop` or a cancellation, and stop. A second signal, half a second later or
        more, does not wait."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        first_at: list[int] = []

        def heard(signal: Signals) -> None:
            if first_at and boot_us() - first_at[0] < _ECHO:
                return  # coreutils' timeout signals its child, and then the group that the child is in
            first_at.append(boot_us())
            if done.is_set():
                log.warning("%s again: stopping at once", signal.name)
                self.engine.hurry()
            else:
                log.info("%s: stopping; once more to stop at once", signal.name)
            done.set()

        def ended(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(done.set)

        with stop_signals(loop, heard):
            await start()
            self._ended.add_done_callback(ended)
            try:
                await done.wait()
            finally:
                await self.stop()

    async def _to_the_end(
        self, work: Coroutine[Any, Any, None], then: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """`work`, which cancellations hurry but do not break off: loops left half-way would run on. A task of this
        app is not kept, since the end waits for it."""
        doing = self._doing = asyncio.ensure_future(work)
        cancelled: asyncio.CancelledError | None = None
        while not doing.done():
            try:
                await asyncio.wait({doing})
            except asyncio.CancelledError as error:
                self.engine.hurry()
                if in_run():
                    doing.add_done_callback(_tell_failure)
                    raise
                cancelled = error
        if cancelled is None:
            return doing.result()
        _tell_failure(doing)
        if then is not None:
            await self._to_the_end(then())
        raise cancelled

    async def _leave_lifespan(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.leave()

    # --- forks and the end of the process ---------------------------------------------

    def after_fork(self) -> None:
        """In the child: threads, connections and locks stayed with the parent."""
        was_running = self._phase in ("starting", "running")
        self._phase = "stopped" if self._phase == "stopped" else "new"
        self._lock = threading.Lock()
        self._engine = self._lifespan = self._doing = self.user_loop = None
        self._ended = concurrent.futures.Future()
        self._listeners.after_fork()
        if was_running:
            log.warning(
                "oncron was started before this process was forked: it runs on in the parent, nothing runs here; "
                "to run it here, start it after the fork (gunicorn: in post_fork, or without --preload)"
            )

    def at_exit(self) -> None:
        """The process ends: what is not stopped yet is, without waiting for tasks."""
        engine = self._engine
        if engine is None:
            return
        if engine.running:
            engine.hurry()
            with contextlib.suppress(Exception):
                asyncio.run(engine.stop())
        engine.close()


def _tell_failure(doing: asyncio.Future[None]) -> None:
    if not doing.cancelled() and (error := doing.exception()) is not None:
        log.error("starting or stopping was cancelled, and failed: %r", error, exc_info=error)


class StartedInImport(DefinitionError):
    """A module starts its app where it is only to be imported."""


def _unguarded(what: str) -> DefinitionError:
    return DefinitionError(
        f'{what} while a worker process (executor="process") imported this module to find a task: '
        'move that under `if __name__ == "__main__":`, which is not true there'
    )


_lives: weakref.WeakSet[Life] = weakref.WeakSet()


def _after_fork() -> None:
    for life in list(_lives):
        life.after_fork()


def _at_exit() -> None:
    for life in list(_lives):
        life.at_exit()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
