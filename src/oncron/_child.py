"""A worker process of `executor="process"`: what a replica starts, and kills when a run has to end.

The main thread runs the functions, one after the other. A second thread listens to the
replica, so that `ctx.stopping` and the lease reach a function that never returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import functools
import os
import queue
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import msgspec

from oncron import _life
from oncron._arguments import Parameters, is_async
from oncron._chain import managed, managers_of
from oncron._clock import SECOND, boot_us
from oncron._context import RunContext, within
from oncron._engine import wire
from oncron._engine.logform import log_as
from oncron._engine.spec import Execution
from oncron._importable import load
from oncron._task import Task, finished, result_text
from oncron.errors import DefinitionError, InvalidArguments, InvalidTask

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
_BETWEEN_REPORTS = SECOND // 50
_LOOK_AT_LEASE = 1000
"""Milliseconds. A machine that was suspended meanwhile does not count them: so not in one go."""
_LEAVE_WITHIN = 5.0
"""Seconds that an idle process may take to leave by itself."""


def main(fd: int, parent: int) -> None:
    """Serve the replica at the other end of socket `fd` until it hangs up."""
    _die_with(parent)
    line = socket.socket(fileno=fd)
    line.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Meant for the replica, which decides. A handler, not SIG_IGN: what the task starts does not inherit it.
        signal.signal(number, _ignore)
    faulthandler.enable()
    _Process(line).serve()


class _Context(RunContext[Any]):
    """A run's context in a worker process: what it says travels to the replica."""

    def __init__(self, execution: Execution, args: Mapping[str, Any], told: Callable[[Execution], None]) -> None:
        super().__init__(execution, args, None)
        self._told = told

    @property
    def state(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride] - there is none here
        raise DefinitionError(
            'ctx.state belongs to the replica\'s process; with executor="process" make what the task needs in its '
            "module, or use another executor"
        )

    @state.setter
    def state(self, value: Any) -> None: ...

    def transaction(self, *_args: Any, **_options: Any) -> Any:
        raise DefinitionError(
            'ctx.transaction() needs the replica\'s process; with executor="process" open a connection in the task '
            "and condition its writes on ctx.token, or use another executor"
        )

    def _keep(self, what: str, text: str, report: bool = True) -> None:
        super()._keep(what, text, report)
        if report:
            self._told(self._execution)

    def _say(self, text: str) -> None:
        super()._say(text)
        self._told(self._execution)


@dataclass(frozen=True)
class _Found:
    """A target's function, and the context managers around it here."""

    fn: Callable[..., Any]
    parameters: Parameters
    managers: tuple[Callable[..., Any], ...] = ()

    def refuse_other_managers(self, count: int, task: str) -> None:
        """A task must not run without what is around it in the replica. Raises InvalidTask."""
        if len(self.managers) != count:
            raise InvalidTask(
                f"task {task!r}: context managers around it: {count} in the replica, {len(self.managers)} in its "
                "worker process; call app.use() and @app.task where the module is imported, so that the name leads "
                "to the task and not to the plain function"
            )


class _Process:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._sending = threading.Lock()
        self._reports = _Reports(self._send)
        self._agenda: queue.SimpleQueue[wire.Prepare | tuple[wire.Begin, Execution] | None] = queue.SimpleQueue()
        self._current: Execution | None = None
        """From Begin to Ended."""
        self._trusted_until: int | None = None
        self._cancel: Callable[[], None] | None = None
        self._cancel_asked = False
        self._found: dict[wire.Target, _Found] = {}

    # --- main thread ------------------------------------------------------------------

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="oncron-line", daemon=True).start()
        while (item := self._agenda.get()) is not None:
            if isinstance(item, wire.Prepare):
                self._prepare(item)
            else:
                self._run(*item)

    def _prepare(self, prepare: wire.Prepare) -> None:
        sys.path[:] = prepare.path
        sys.argv[:] = prepare.argv
        for target in prepare.targets:
            with contextlib.suppress(BaseException):  # the run that needs it will tell
                self._find(target)
        log_as(prepare.log_form)

    def _find(self, target: wire.Target) -> _Found:
        """Raises InvalidTask, and what the user's module raises while it is imported."""
        known = self._found.get(target)
        if known is not None:
            return known
        _life.whose_process = "importing"
        try:
            found = load(target)
        finally:
            _life.whose_process = "worker"
        if isinstance(found, Task):
            task: Task[..., Any] = found  # pyright: ignore[reportUnknownVariableType] - of any signature
            known = _Found(task.fn, task.parameters, managers_of(task.layers))
        elif callable(found):
            known = _Found(found, Parameters(found, target.task))
        else:
            raise InvalidTask(f"task {target.task!r}: {target.module}.{target.name} is {found!r}, not a function")
        self._found[target] = known
        return known

    def _run(self, begin: wire.Begin, execution: Execution) -> None:
        ended = self._outcome(begin, execution)
        execution.reported = execution.reported and execution.checkpoint is None and execution.lines is None
        self._cancel, self._cancel_asked = None, False
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the user may have closed or replaced it
                stream.flush()
        self._reports.end()
        self._current, self._trusted_until = None, None
        self._send(ended)

    def _outcome(self, begin: wire.Begin, execution: Execution) -> wire.Ended:
        run = execution.run
        try:
            found = self._find(begin.target)
            fn, parameters = found.fn, found.parameters
            args = parameters.decode(run.args)
            found.refuse_other_managers(begin.managers, run.task)
        except InvalidArguments as error:
            return wire.Ended(misfit=str(error))
        except BaseException as error:  # noqa: BLE001 - whatever the user's module raises is the run's error
            return wire.Ended(failure=wire.Failure.of(error))
        ctx = _Context(execution, args, self._reports.say)
        call = functools.partial(fn, ctx, **args) if parameters.takes_context else functools.partial(fn, **args)
        if run.timeout is not None:
            execution.deadline = execution.store_now() + run.timeout
        execution.say_which_attempt()
        self._reports.begin(execution)
        self._send(wire.Started(deadline=execution.deadline))
        try:
            value = within(ctx, lambda: managed(found.managers, ctx, lambda: self._called(run.task, fn, call)))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is its error, not the process's end
            return wire.Ended(failure=wire.Failure.of(error))
        return wire.Ended(result=result_text(run.task, value), enqueue=tuple(execution.outbox))

    def _called(self, task: str, fn: Callable[..., Any], call: Callable[[], Any]) -> Any:
        return asyncio.run(self._cancellable(call)) if is_async(fn) else finished(task, call())

    async def _cancellable(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs is a task's

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                loop.call_soon_threadsafe(task.cancel)

        self._cancel = cancel
        if self._cancel_asked:
            cancel()
        return await call()

    # --- the listening thread ---------------------------------------------------------

    def _listen(self) -> None:
        try:
            self._listen_to_the_end()
        except BaseException:  # noqa: BLE001 - a process that cannot hear its replica must not go on
            traceback.print_exc()
        if self._current is None:
            self._agenda.put(None)
            threading.Event().wait(_LEAVE_WITHIN)
        # What runs must not go on without a replica that holds its lease; what should leave has had its time.
        _end_all()

    def _listen_to_the_end(self) -> None:
        """Returns when the replica has closed the line, or is dead."""
        lines, decoder = wire.Lines(), msgspec.json.Decoder[wire.ToProcess](wire.ToProcess)
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        while True:
            if not poll.poll(self._patience()):
                continue
            try:
                data = self._line.recv(1 << 16)
            except ConnectionError:
                return
            if not data:
                return
            for text in lines.feed(data):
                self._heard(decoder.decode(text))

    def _heard(self, message: wire.ToProcess) -> None:
        match message:
            case wire.Prepare():
                self._agenda.put(message)
            case wire.Begin():
                ahead = message.store_minus_boot
                execution = Execution(
                    run=message.run, store_now=lambda: boot_us() + ahead, claimed_at=message.claimed_at, started=True
                )
                self._current, self._trusted_until = execution, message.trusted_until
                self._agenda.put((message, execution))
            case wire.Stop():
                if (execution := self._current) is not None:
                    execution.stop.set()
                    if message.cancel:
                        self._cancel_asked = True
                        if (cancel := self._cancel) is not None:
                            cancel()
            case wire.Trust():
                if self._trusted_until is not None:
                    self._trusted_until = message.until

    def _patience(self) -> int | None:
        """Milliseconds until the lease has to be looked at again. Does not return when it is over."""
        until = self._trusted_until
        if until is None:
            return None
        left = until - boot_us()
        if left <= 0 and self._current is not None:
            # The replica was stopped or suspended: another one is about to take the run over.
            self._let_go()
        return max(1, min(_LOOK_AT_LEASE, left // 1000))

    def _let_go(self) -> None:
        """The replica may hear why, but is not waited for."""
        if self._sending.acquire(timeout=0.1):
            with contextlib.suppress(OSError):
                self._line.send(wire.line(wire.LetGo()), socket.MSG_DONTWAIT)
        _end_all()

    def _send(self, message: wire.FromProcess) -> None:
        with self._sending:
            try:
                self._line.sendall(wire.line(message))
            except OSError:
                _end_all()


class _Reports:
    """Progress, checkpoints and lines on their way: at once, but not more often than every 20 ms, the newest."""

    def __init__(self, send: Callable[[wire.FromProcess], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._of: Execution | None = None
        self._next = 0
        self._later: threading.Timer | None = None

    def begin(self, execution: Execution) -> None:
        with self._lock:
            self._of, self._next = execution, 0

    def say(self, execution: Execution) -> None:
        """There are news. Those of a thread that an earlier function left behind are not told."""
        with self._lock:
            if execution is not self._of or self._later is not None:
                return
            wait = self._next - boot_us()
            if wait <= 0:
                self._report()
            else:
                self._later = threading.Timer(wait / SECOND, self._now)
                self._later.daemon = True
                self._later.start()

    def end(self) -> None:
        """The last news."""
        with self._lock:
            if self._later is not None:
                self._later.cancel()
                self._later = None
            self._report()
            self._of = None

    def _now(self) -> None:
        with self._lock:
            self._later = None
            self._report()

    def _report(self) -> None:
        report = None if self._of is None else self._of.report()
        if report is not None:
            self._next = boot_us() + _BETWEEN_REPORTS
            self._send(wire.Said(progress=report.progress, checkpoint=report.checkpoint, log=report.log))


def _ignore(_number: int, _frame: FrameType | None) -> None: ...


def _die_with(parent: int) -> None:
    """The kernel kills this process when the replica dies, also where no thread of it can run any more."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end_all() -> None:
    """This process and what it has started, at once."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
