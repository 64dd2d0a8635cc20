"""Runs one claimed run: in the user's loop if it is async, else in a thread, or in a process; to
its timeout, its cancel, or its end. Whatever the task does (SystemExit included), it ends in an `Outcome`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from oncron import _defaults as limits
from oncron._engine.blocking import Threads
from oncron._engine.processes import End, Killed, NotBegun, ProcessDied, Processes
from oncron._engine.spec import Execution, TaskSpec
from oncron._engine.verdict import verdict, was_cancelled
from oncron._events import Say
from oncron._lifecycle import error_text, judge, released, succeeded, timed_out, with_reports
from oncron._model import Outcome, OutcomeKind, RunRecord
from oncron.errors import InvalidArguments, LeaseLost

log = logging.getLogger("oncron.run")


_MISFITS = 10
"""Claims after which stored arguments that do not fit the code fail the run."""
_MISFIT_DELAY = 30 * limits.SECOND
_NO_PROCESS_DELAY = 5 * limits.SECOND
"""How long a run waits that was given back because no process could be started."""
_NO_LOOP_DELAY = 5 * limits.SECOND
"""How long a run waits that was given back because the user's loop does not run."""


class Raised:
    """What the user's function raised, carried as a value: an exception set on the user's loop
    would be re-raised there if it is a KeyboardInterrupt or SystemExit."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Returned:
    """What the user's function returned, as text: made where it ran, so that a large or slow one holds up no other."""

    __slots__ = ("text",)

    def __init__(self, text: str | None) -> None:
        self.text = text


class _NoLoop(Exception):
    """The user's loop does not run, and the function was not entered."""


class _Started:
    """A function that runs: its end, and how to cancel it (None for a thread)."""

    __slots__ = ("cancel", "future")

    def __init__(self, future: concurrent.futures.Future[Any], cancel: Callable[[], None] | None) -> None:
        self.future, self.cancel = future, cancel


class Executor:
    def __init__(self, user_loop: asyncio.AbstractEventLoop, say: Say) -> None:
        self._user_loop, self._say = user_loop, say
        self._threads = Threads("oncron-task")
        self.processes = Processes(say)

    def warm(self, specs: Iterable[TaskSpec]) -> None:
        """Have a process ready if one of these needs it."""
        self.processes.warm(tuple(spec.target for spec in specs if spec.target is not None))

    @property
    def loop_runs(self) -> bool:
        """Whether async tasks can be run: the user's loop may have been closed, or have been left standing."""
        return self._user_loop.is_running()

    async def close(self) -> None:
        self._threads.close()
        await self.processes.close()

    async def run(self, execution: Execution, spec: TaskSpec) -> Outcome | None:
        """Execute to the end. None if the lease was lost: nothing may be recorded then."""
        run = execution.run
        try:
            call = spec.prepare(execution)
        except InvalidArguments as error:
            return self._misfit(execution, error)
        except BaseException as error:  # the user's types may raise anything while they decode
            log.exception("run %s of task %r could not be prepared", run.id, run.task)
            return judge(run, error, backoff=spec.backoff, retry_on=_widened(spec.retry_on, error))
        if execution.stop_reason is not None:
            return self._stopped(execution, spec)
        if spec.target is not None:
            return self._of_process(execution, spec, await self.processes.run(execution, spec))
        execution.handed_over = True
        try:
            started = self._start(execution, spec, call)
            value = await self._end(execution, started)
        except _NoLoop as error:
            return _given_back(run, f"the event loop for async tasks does not run ({error})", _NO_LOOP_DELAY)
        return self._outcome(execution, spec, value)

    # --- starting ---------------------------------------------------------------------

    def _start(self, execution: Execution, spec: TaskSpec, call: Callable[[], Any]) -> _Started:
        """Raises _NoLoop."""
        loop, run = asyncio.get_running_loop(), execution.run

        def entered() -> None:
            self._say("run.started", schedule=run.schedule, run=run.id)
            execution.changed.set()

        def enter() -> bool:
            """There, right before the call: its time runs from now on. False: it is not wanted any more."""
            if not execution.enter():
                return False
            if run.timeout is not None:
                execution.times_out_at(execution.store_now() + run.timeout)
            with contextlib.suppress(RuntimeError):  # the engine is gone
                loop.call_soon_threadsafe(entered)
            return True

        if not spec.is_async:
            return _Started(self._threads.submit(lambda: _caught(enter, call, spec.encode)), None)
        if not self.loop_runs:
            raise _NoLoop("it was closed, or stopped without the app")
        try:
            return _on_loop(self._user_loop, lambda: _caught_async(enter, call, spec.encode))
        except RuntimeError as error:
            raise _NoLoop(str(error)) from None

    # --- ending -----------------------------------------------------------------------

    async def _end(self, execution: Execution, started: _Started) -> Any:
        """Waits for the function. On its timeout or when it should stop, a coroutine is cancelled; a
        thread cannot be: it is asked, shown as overrun, and waited for. Raises _NoLoop if it was never entered."""
        done = asyncio.wrap_future(started.future)
        while not done.done():
            execution.changed.clear()
            changed = asyncio.ensure_future(execution.changed.wait())
            left = None if execution.stop_reason is not None else execution.time_left
            if started.cancel is not None and not execution.started:
                left = limits.SECOND  # it waits for its turn on the user's loop, which may end before that
            seconds = None if left is None else left / limits.SECOND
            await asyncio.wait({done, changed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not done.done() and started.cancel is not None and not self.loop_runs and execution.withdraw():
                raise _NoLoop("it ended before the run began")
            if not done.done() and execution.stop_reason is None and execution.time_left == 0:
                execution.ask_to_stop("timeout")
            if not done.done() and execution.stop_reason is not None and not execution.stop_told:
                execution.stop_told = True
                if started.cancel is not None:
                    started.cancel()
                else:
                    self._overrun(execution)
        error = done.exception()
        return done.result() if error is None else Raised(error)

    def _overrun(self, execution: Execution) -> None:
        run, reason = execution.run, execution.stop_reason
        self._say("run.overrun", schedule=run.schedule, run=run.id, reason=reason)
        log.warning(
            "run %s of task %r should stop (%s) but a thread cannot be stopped; it keeps its place "
            "until it returns; let it check ctx.stopping",
            run.id,
            run.task,
            reason,
            extra={"event": "run.overrun", "run": run.id},
        )

    # --- judging ----------------------------------------------------------------------

    def _outcome(self, execution: Execution, spec: TaskSpec, value: Any) -> Outcome | None:
        run, reason = execution.run, execution.stop_reason
        if reason == "lease lost":
            return None
        if isinstance(value, Raised):
            error = value.error
            if reason is not None and isinstance(error, asyncio.CancelledError | LeaseLost):
                return self._stopped(execution, spec)
            if reason == "timeout":
                error = self._timeout(execution)
            elif isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and self._user_loop.is_closed():
                return released(run, "the loop for async tasks was closed", started=True)
            outcome = judge(run, error, backoff=spec.backoff, retry_on=_widened(spec.retry_on, error))
        elif reason == "timeout":
            outcome = judge(run, self._timeout(execution), backoff=spec.backoff, retry_on=spec.retry_on)
        else:
            outcome = succeeded(run, value.text)
        return self._with_reports(execution, outcome)

    def _of_process(self, execution: Execution, spec: TaskSpec, end: End) -> Outcome | None:
        run, reason = execution.run, execution.stop_reason
        if reason == "lease lost":
            return None
        if isinstance(end, NotBegun):
            return _given_back(run, end.reason, _NO_PROCESS_DELAY)
        if isinstance(end, ProcessDied):
            # As with a dead worker, whatever retry_on says: nobody knows what the task would have raised.
            outcome = judge(run, end, backoff=spec.backoff, retry_on=Exception)
        elif isinstance(end, Killed) or reason == "timeout":
            return self._stopped(execution, spec)
        elif end.misfit is not None:
            return self._misfit(execution, InvalidArguments(end.misfit))
        elif end.failure is not None:
            if reason is not None and was_cancelled(end.failure):
                return self._stopped(execution, spec)
            outcome = verdict(run, end.failure, backoff=spec.backoff, retry_on=spec.retry_on)
        else:
            execution.outbox.extend(end.enqueue)
            outcome = succeeded(run, end.result)
        return self._with_reports(execution, outcome)

    def _stopped(self, execution: Execution, spec: TaskSpec) -> Outcome | None:
        """A run that was stopped by us, not by itself."""
        run, reason = execution.run, execution.stop_reason
        if reason == "lease lost":
            return None
        if reason == "timeout":
            error = self._timeout(execution)
            outcome = judge(run, error, backoff=spec.backoff, retry_on=spec.retry_on)
            return self._with_reports(execution, outcome)
        if reason == "cancelled":
            outcome = Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.CANCELLED, reason="cancelled")
            return self._with_reports(execution, outcome)
        return self._with_reports(execution, released(run, reason or "stopped", started=execution.started))

    def _timeout(self, execution: Execution) -> TimeoutError:
        return timed_out(execution.run, (execution.run.timeout or 0) / 1_000_000)

    def _misfit(self, execution: Execution, error: InvalidArguments) -> Outcome:
        """Stored arguments that this code cannot take: a newer replica may. Ten such claims fail the run."""
        run = execution.run
        if run.attempt >= _MISFITS:
            return Outcome(
                run_id=run.id, token=run.token, kind=OutcomeKind.FAILED, error=error_text(error), reason=str(error)
            )
        return _given_back(run, str(error), _MISFIT_DELAY)

    def _with_reports(self, execution: Execution, outcome: Outcome) -> Outcome:
        """The end carries what the last heartbeat did not, and the outbox if it is a success."""
        with execution.lock:
            return with_reports(
                outcome, progress=execution.progress, checkpoint=execution.checkpoint, enqueue=execution.outbox
            )


def _given_back(run: RunRecord, reason: str, delay: int) -> Outcome:
    """It has not started: another replica may have more luck, or this one later."""
    log.warning("run %s of task %r is given back: %s", run.id, run.task, reason)
    return Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.RELEASED, reason=reason, delay=delay)


def _widened(
    retry_on: type[BaseException] | tuple[type[BaseException], ...], error: BaseException
) -> type[BaseException] | tuple[type[BaseException], ...]:
    """A task's own CancelledError, SystemExit or KeyboardInterrupt is an error like any other under
    the default `retry_on=Exception`."""
    if retry_on is Exception and not isinstance(error, Exception):
        return BaseException
    return retry_on


def _caught(enter: Callable[[], bool], call: Callable[[], Any], encode: Callable[[Any], str | None]) -> Any:
    if not enter():
        return Raised(asyncio.CancelledError())
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - see Raised
        return Raised(error)
    return _encoded(value, encode)


async def _caught_async(enter: Callable[[], bool], call: Callable[[], Any], encode: Callable[[Any], str | None]) -> Any:
    if not enter():
        return Raised(asyncio.CancelledError())
    try:
        value = await call()
    except BaseException as error:  # noqa: BLE001 - see Raised
        return Raised(error)
    return _encoded(value, encode)


def _encoded(value: Any, encode: Callable[[Any], str | None]) -> _Returned:
    """Whatever the value's own code raises: the task has succeeded."""
    try:
        return _Returned(encode(value))
    except BaseException:  # noqa: BLE001 - a SystemExit or CancelledError of the value's own, too
        return _Returned('"(a result whose text could not be made)"')


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], Coroutine[Any, Any, Any]]) -> _Started:
    """Starts a coroutine function on the user's loop. The future is set when the task has truly
    ended: `run_coroutine_threadsafe` calls a future cancelled while its task still cleans up.
    Raises RuntimeError if the loop is closed."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    tasks: list[asyncio.Task[Any]] = []

    def begin() -> None:
        task = loop.create_task(call())
        tasks.append(task)
        task.add_done_callback(end)

    def end(task: asyncio.Task[Any]) -> None:
        future.set_result(Raised(asyncio.CancelledError()) if task.cancelled() else task.result())

    def cancel() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: its tasks are gone with it
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

    loop.call_soon_threadsafe(begin)
    return _Started(future, cancel)
