"""Runs one claimed run: in the user's loop if it is async, else in a thread, or in a process; to
its timeout, its cancel, or its end. Whatever the task does (SystemExit included), it ends in an `Outcome`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

from oncron import _defaults as limits
from oncron._cipher import key_of, mend
from oncron._clock import wait_us
from oncron._engine.blocking import Threads
from oncron._engine.calls import NoLoop, Post, Raised, Started, caught, caught_async, on_loop
from oncron._engine.layers import Layers
from oncron._engine.processes import End, Killed, NotBegun, ProcessDied, Processes
from oncron._engine.spec import Execution, TaskSpec
from oncron._engine.verdict import verdict, was_cancelled
from oncron._engine.wire import Ended
from oncron._events import Say
from oncron._lifecycle import error_text, judge, released, succeeded, timed_out, with_headway, with_reports
from oncron._model import Outcome, OutcomeKind, RunRecord
from oncron.errors import InvalidArguments, LeaseLost

log = logging.getLogger("oncron.run")


_MISFITS = 10
"""Claims in a row after which stored arguments that do not fit the code fail the run."""
_MISFIT_DELAY = 30 * limits.SECOND
_LOCKED_DELAY = 30 * limits.SECOND
_NO_PROCESS_DELAY = 5 * limits.SECOND
"""How long a run waits that was given back because no process could be started."""
_NO_LOOP_DELAY = 5 * limits.SECOND
"""How long a run waits that was given back because the user's loop does not run."""


class Executor:
    def __init__(self, user_loop: asyncio.AbstractEventLoop, say: Say) -> None:
        self.user_loop, self._say = user_loop, say
        self._threads = Threads("oncron-task")
        self.processes = Processes(say)
        self._there, self._here = Post(user_loop), Post(asyncio.get_running_loop())

    def run_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Async tasks that begin from now on."""
        if loop is not self.user_loop:
            self.user_loop, self._there = loop, Post(loop)

    def warm(self, specs: Iterable[TaskSpec]) -> None:
        """Have a process ready if one of these needs it."""
        self.processes.warm(tuple(spec.target for spec in specs if spec.target is not None))

    @property
    def loop_runs(self) -> bool:
        """Whether async tasks can be run: the user's loop may have been closed, or have been left standing."""
        return self.user_loop.is_running()

    async def close(self) -> None:
        self._threads.close()
        await self.processes.close()

    async def run(self, execution: Execution, spec: TaskSpec) -> Outcome | None:
        """Execute to the end. None if the lease was lost: nothing may be recorded then."""
        run = execution.run
        if (key := key_of(run.args) or key_of(run.checkpoint) or key_of(run.log)) is not None:
            return _locked(run, key)
        try:
            call = spec.prepare(execution)
        except InvalidArguments as error:
            return self._misfit(execution, error)
        except BaseException as error:  # the user's types may raise anything while they decode
            log.exception("run %s of task %r could not be prepared", run.id, run.task)
            return judge(run, error, backoff=spec.backoff, retry_on=_widened(spec.retry_on, error))
        if execution.stop_reason is not None:
            return self._stopped(execution, spec)
        execution.wake = lambda: self._soon(execution.changed.set)
        if spec.target is not None and spec.around is None:
            return self._of_process(execution, spec, await self.processes.run(execution, spec))
        execution.handed_over = True
        layers = None if spec.around is None else self._layers(execution, spec, call)
        try:
            started = self._start(execution, spec, call) if layers is None else self._start_on_loop(layers)
            value = await self._end(execution, started)
        except NoLoop as error:
            return _given_back(run, f"the event loop for async tasks does not run ({error})", _NO_LOOP_DELAY)
        if layers is not None and (end := _told_by_process(layers, value)) is not None:
            return self._of_process(execution, spec, end)
        return self._outcome(execution, spec, value)

    def _soon(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the engine is gone
            self._here(call)

    # --- starting ---------------------------------------------------------------------

    def _entry(self, execution: Execution) -> Callable[[], bool]:
        """What is called there, right before the user's code: its time runs from now on. False: it is not wanted
        any more."""
        run = execution.run

        def enter() -> bool:
            if not execution.enter():
                return False
            execution.say_which_attempt()
            self._say("run.started", run)
            if execution.time_limit is not None:
                execution.times_out_at(execution.store_now() + execution.time_limit)
                self._soon(execution.changed.set)
            return True

        return enter

    def _start(self, execution: Execution, spec: TaskSpec, call: Callable[[], Any]) -> Started:
        """Raises NoLoop."""
        enter = self._entry(execution)
        if not spec.is_async:
            return Started(asyncio.wrap_future(self._threads.submit(lambda: caught(enter, call, spec.encode))), None)
        self._refuse_without_loop()
        try:
            return on_loop(self._there, self._here, lambda: caught_async(enter, call, spec.encode))
        except RuntimeError as error:
            raise NoLoop(str(error)) from None

    def _layers(self, execution: Execution, spec: TaskSpec, call: Callable[[], Any]) -> Layers:
        enter = self._entry(execution)
        return Layers(execution, spec, call, self._threads, self.processes, enter=enter, overrun=self._overrun)

    def _start_on_loop(self, layers: Layers) -> Started:
        """Raises NoLoop."""
        self._refuse_without_loop()
        try:
            return on_loop(self._there, self._here, layers.run, layers.stop)
        except RuntimeError as error:
            raise NoLoop(str(error)) from None

    def _refuse_without_loop(self) -> None:
        if not self.loop_runs:
            raise NoLoop("it was closed, or stopped without the app")

    # --- ending -----------------------------------------------------------------------

    async def _end(self, execution: Execution, started: Started) -> Any:
        """Waits for the function. On its timeout or when it should stop, a coroutine is cancelled; a
        thread cannot be: it is asked, shown as overrun, and waited for. Raises NoLoop if it was never entered."""
        done, changed = started.done, execution.changed
        done.add_done_callback(lambda _: changed.set())
        while not done.done():
            changed.clear()
            left = None if execution.stop_reason is not None else execution.time_left
            await (changed.wait() if left is None else wait_us(changed, left))
            if not done.done() and started.cancel is not None and not self.loop_runs and execution.withdraw():
                raise NoLoop("it ended before the run began")
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
        self._say("run.overrun", run, reason=reason)
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
            elif isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and self.user_loop.is_closed():
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
        return timed_out(execution.run, (execution.time_limit or 0) / 1_000_000)

    def _misfit(self, execution: Execution, error: InvalidArguments) -> Outcome:
        """Stored arguments that this code cannot take: a newer replica may. Ten such claims fail the run."""
        run = execution.run
        if run.releases >= _MISFITS - 1:
            return Outcome(
                run_id=run.id, token=run.token, kind=OutcomeKind.FAILED, error=error_text(error), reason=str(error)
            )
        return _given_back(run, str(error), _MISFIT_DELAY)

    def _with_reports(self, execution: Execution, outcome: Outcome) -> Outcome:
        """The end carries what the last heartbeat did not, and the outbox if it is a success."""
        with execution.lock:
            whole = with_reports(
                outcome, progress=execution.progress, checkpoint=execution.checkpoint, enqueue=execution.outbox
            )
        return with_headway(execution.run, whole)


def _told_by_process(layers: Layers, value: Any) -> End | None:
    """The end of a task's process, if that is the end of the run: it was not the task's doing, or what is around
    it let its error pass."""
    end = layers.process_end
    if end is None or (isinstance(end, Ended) and end.misfit is None and end.failure is None):
        return None
    if isinstance(end, NotBegun | Killed) or (isinstance(end, Ended) and end.misfit is not None):
        return end
    return end if isinstance(value, Raised) and value.error is layers.process_error else None


def _locked(run: RunRecord, key: str) -> Outcome:
    """What cannot be read here waits for a replica that can, or for the key, however long: it did nothing wrong."""
    reason = f"it is encrypted with key {key!r}, which this replica was not given, or which differs"
    log.error("run %s of task %r is left pending: %s; %s", run.id, run.task, reason, mend(key))
    return Outcome(
        run_id=run.id,
        token=run.token,
        kind=OutcomeKind.RETRY,
        spend_attempt=False,
        reason=reason,
        delay=_LOCKED_DELAY,
        retry_delay=run.retry_delay,
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
