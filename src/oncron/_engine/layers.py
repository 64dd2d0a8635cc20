"""The middleware of one run, on the user's loop, around a task that runs there, in a thread or in a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from oncron._engine import wire
from oncron._engine.blocking import Threads
from oncron._engine.calls import Raised, Returned, encoded
from oncron._engine.processes import End, ProcessDied, Processes
from oncron._engine.spec import Execution, TaskSpec
from oncron._engine.verdict import stand_in
from oncron.errors import DefinitionError

_END_WITHIN = 5.0
"""Seconds that middleware has to end after a task that could not be cancelled has come to its end."""


class Layers:
    """From entry to end. Made on the engine's loop; all its methods run on the user's."""

    def __init__(
        self,
        execution: Execution,
        spec: TaskSpec,
        call: Callable[[], Any],
        threads: Threads,
        processes: Processes,
        *,
        enter: Callable[[], bool],
        overrun: Callable[[Execution], None],
    ) -> None:
        self._execution, self._spec, self._task_itself = execution, spec, call
        self._threads, self._processes = threads, processes
        self._enter, self._overrun = enter, overrun
        self._engine_loop = asyncio.get_running_loop()
        self._me: asyncio.Task[Any] | None = None
        self._begun = False
        self._inside: set[asyncio.Task[Any] | None] = set()
        """Who awaits the task itself."""
        self._elsewhere = 0
        """How many of them wait for a thread or a process."""
        self._should_end = False
        self._encoded: tuple[Any, str | None] | None = None
        """What the task itself returned, and its text."""
        self.process_end: End | None = None
        """How the newest call ended in its process."""
        self.process_error: BaseException | None = None
        """What stood for it here, if it was an error."""

    async def run(self) -> Raised | Returned:
        """To the end of everything that was started."""
        self._me = asyncio.current_task()
        assert self._spec.around is not None  # noqa: S101 - only tasks with middleware come here
        try:
            value = await self._spec.around(self._execution, self._begin, self._call)
        except BaseException as error:  # noqa: BLE001 - see Raised
            return Raised(error)
        finally:
            await self._leave_none_behind()
        if self._encoded is not None and value is self._encoded[0]:
            return Returned(self._encoded[1])
        return Returned(encoded(value, self._spec.encode))

    def stop(self, task: asyncio.Task[Any]) -> None:
        """What can be cancelled is. A thread cannot be, and a process has its own end: what is around them waits."""
        self._should_end = True
        if not self._elsewhere:
            task.cancel()
        elif self._spec.target is None:
            self._engine_loop.call_soon_threadsafe(self._overrun, self._execution)

    def _begin(self) -> None:
        if not self._begun:
            if not self._enter():
                raise asyncio.CancelledError
            self._begun = True

    # --- the innermost ----------------------------------------------------------------

    async def _call(self) -> Any:
        """The task itself. What it wanted to enqueue is forgotten if it raises: middleware may call it again."""
        self._begin()
        execution = self._execution
        if execution.may_have_ended:
            raise DefinitionError(
                f"task {self._spec.name!r}: the run ended with its ctx.transaction(); middleware cannot call it again"
            )
        here, before = asyncio.current_task(), (len(execution.outbox), execution.outbox_bytes)
        self._inside.add(here)
        try:
            if self._spec.target is not None:
                return await self._in_process()
            if not self._spec.is_async:
                return await self._in_thread()
            return await self._task_itself()
        except BaseException:
            with execution.lock:
                del execution.outbox[before[0] :]
                execution.outbox_bytes = before[1]
            raise
        finally:
            self._inside.discard(here)

    async def _in_thread(self) -> Any:
        def call() -> Raised | tuple[Any, str | None]:
            if self._execution.stop_reason is not None:
                return Raised(asyncio.CancelledError())
            try:
                value = self._task_itself()
            except BaseException as error:  # noqa: BLE001 - see Raised
                return Raised(error)
            return value, encoded(value, self._spec.encode)

        ended = await self._outlast(asyncio.wrap_future(self._threads.submit(call)))
        if isinstance(ended, Raised):
            raise ended.error
        self._encoded = ended
        return ended[0]

    async def _in_process(self) -> Any:
        running = asyncio.run_coroutine_threadsafe(self._processes.run(self._execution, self._spec), self._engine_loop)
        self.process_error = self.process_end = None
        end = self.process_end = await self._outlast(asyncio.wrap_future(running))
        if isinstance(end, ProcessDied):
            self.process_error = end
        elif not isinstance(end, wire.Ended) or end.misfit is not None:
            self.process_error = asyncio.CancelledError()
        elif end.failure is not None:
            self.process_error = stand_in(end.failure)
            self.process_error.add_note(f"in the worker process:\n{end.failure.text}")
        else:
            with self._execution.lock:
                self._execution.outbox.extend(end.enqueue)
            value = None if end.result is None else msgspec.json.decode(end.result)
            self._encoded = value, end.result
            return value
        raise self.process_error

    async def _outlast(self, running: asyncio.Future[Any]) -> Any:
        """Its end, also when middleware gives up waiting: a thread cannot be stopped, and whatever comes next must
        not run beside it. A process is killed then."""
        self._elsewhere += 1
        given_up = False
        try:
            while not running.done():
                try:
                    await asyncio.wait({running})
                except asyncio.CancelledError:
                    given_up = True
                    self._execution.stop.set()
                    if self._spec.target is not None:
                        running.cancel()
        finally:
            self._elsewhere -= 1
            if self._should_end and self._me is not None:
                asyncio.get_running_loop().call_later(_END_WITHIN, self._me.cancel)
        if running.cancelled() or (given_up and self._execution.stop_reason is None):
            raise asyncio.CancelledError
        return running.result()

    async def _leave_none_behind(self) -> None:
        """Calls of the task that the middleware did not wait for."""
        while left := {task for task in self._inside if task is not None and task is not self._me}:
            for task in left:
                task.cancel()
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError:
                continue
