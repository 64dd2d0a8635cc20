"""The processes where tasks with `executor="process"` run: started, reused, and killed.

A process that dies costs its run an attempt and the replica nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

import msgspec

from oncron import _defaults as limits
from oncron._clock import boot_us
from oncron._engine import wire
from oncron._engine.lines import Lines
from oncron._engine.logform import log_form
from oncron._engine.process import Process
from oncron._engine.spec import Execution, TaskSpec
from oncron._events import Say

log = logging.getLogger("oncron.run")

_CANCEL_GRACE = 5 * limits.SECOND
"""How long a cancelled run may look at `ctx.stopping` and clean up."""
_BEGIN_WITHIN = 60 * limits.SECOND
"""How long a process may take to import what a run needs."""
_IDLE_FOR = 60.0
"""Seconds after which an idle process is let go, but for one."""
_LEAVE_WITHIN = 1.0
"""Seconds that an idle process may take to leave when the replica stops."""
_TRUST_STEP = limits.SECOND // 10
"""A lease is renewed by every claim: processes hear of that only so often."""


class ProcessDied(RuntimeError):
    """The process of a run ended before the run did."""


class Killed:
    """The run was stopped by us: its execution knows why."""


class NotBegun:
    """The user's function was not entered, for a reason that is not the task's."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


End = wire.Ended | ProcessDied | Killed | NotBegun


class Processes:
    """Of one replica. Lives on the engine's loop."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._idle: list[Process] = []
        """The one used last is at the end."""
        self._all: set[Process] = set()
        self._targets: tuple[wire.Target, ...] = ()
        self._trusted_until: int | None = None
        self._closed = False

    def warm(self, targets: tuple[wire.Target, ...]) -> None:
        """Processes import these when they start; if there are any, one process is ready before a run needs it."""
        self._targets = targets
        if targets and not self._all:
            self._release(self._start())

    def trust(self, until: int) -> None:
        """The lease holds until then (boot clock)."""
        if self._trusted_until is None or until - self._trusted_until >= _TRUST_STEP:
            self._trusted_until = until
            for process in self._all.difference(self._idle):
                process.send(wire.Trust(until=until))

    async def run(self, execution: Execution, spec: TaskSpec) -> End:
        """Run to its end, and whatever becomes of the process."""
        while True:
            process, is_fresh = self._take()
            attempt = _Attempt(process, execution, spec, self._say)
            end = await attempt.run(None if spec.on_doubt == "continue" else self._trusted_until)
            if process.is_fit:
                self._release(process)
            elif isinstance(end, ProcessDied) and not attempt.begun and not is_fresh:
                continue  # it died idle, before it heard of this run
            elif attempt.begun and not self._all - {process}:
                self._replace()
            return end

    async def close(self) -> None:
        """Idle processes leave by themselves; busy ones, and those that never ran anything, are killed."""
        self._closed = True
        for process in self._all:
            process.leave() if process in self._idle and process.was_used else process.kill()
        self._idle.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_WITHIN):
                await self._gone()
        for process in self._all:
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_WITHIN):
                await self._gone()

    async def _gone(self) -> None:
        for process in list(self._all):
            await process.gone.wait()

    # --- the pool ---------------------------------------------------------------------

    def _take(self) -> tuple[Process, bool]:
        while self._idle:
            process = self._idle.pop()
            if process.is_fit:
                return process, False
        return self._start(), True

    def _start(self) -> Process:
        prepare = wire.Prepare(
            path=tuple(sys.path),
            argv=tuple(sys.argv),
            targets=self._targets,
            log_form=log_form(),
        )
        process = Process(self._ended)
        self._all.add(process)
        process.send(prepare)
        return process

    def _release(self, process: Process) -> None:
        if self._closed:
            process.leave()
            return
        process.idle_since = boot_us()
        self._idle.append(process)
        asyncio.get_running_loop().call_later(_IDLE_FOR + 1, self._trim)

    def _trim(self) -> None:
        before = boot_us() - round(_IDLE_FOR * limits.SECOND)
        while len(self._idle) > 1 and self._idle[0].idle_since < before:
            self._idle.pop(0).leave()

    def _replace(self) -> None:
        """The only process was killed: the next run shall not wait for a new one to start."""
        if not self._closed and self._targets:
            self._release(self._start())

    def _ended(self, process: Process) -> None:
        self._all.discard(process)
        if process in self._idle:
            self._idle.remove(process)
            log.warning("an idle worker process ended: %s", process.death, extra={"event": "process.ended"})


class _Attempt:
    """One run in one process."""

    def __init__(self, process: Process, execution: Execution, spec: TaskSpec, say: Say) -> None:
        self._process, self._execution, self._spec, self._say = process, execution, spec, say
        self._ended: wire.Ended | None = None
        self._begin_by = boot_us() + _BEGIN_WITHIN
        self._cancel_by: int | None = None
        self._told_to_stop = self._told_to_cancel = False
        self._is_overdue = self.begun = False

    async def run(self, trusted_until: int | None) -> End:
        process, execution = self._process, self._execution
        process.attend(self._heard, execution.changed.set)
        assert self._spec.target is not None  # noqa: S101 - only tasks with a target come here
        process.send(
            wire.Begin(
                target=self._spec.target,
                run=msgspec.structs.replace(execution.run, timeout=execution.time_limit),
                claimed_at=execution.claimed_at,
                store_minus_boot=execution.store_now() - boot_us(),
                trusted_until=trusted_until,
                managers=self._spec.managers,
            )
        )
        try:
            while self._ended is None and not process.gone.is_set():
                execution.changed.clear()
                self._pass_on_stop()
                await self._wait()
        except BaseException:
            process.kill()
            raise
        finally:
            process.attend(None, None)
        return self._end()

    async def _wait(self) -> None:
        """Until something has changed. The process is killed when its time is up."""
        execution, left = self._execution, self._left()
        if left is not None and left <= 0:
            if execution.stop_reason is None and self.begun:
                execution.ask_to_stop("timeout")
            self._is_overdue = not self.begun
            self._process.kill()
            left = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if left is None else left / limits.SECOND):
                await execution.changed.wait()

    def _heard(self, message: wire.FromProcess) -> None:
        execution = self._execution
        match message:
            case wire.Started():
                if not execution.started:
                    self._say("run.started", execution.run)
                execution.started = self.begun = True
                execution.times_out_at(message.deadline)
                self._process.was_used = True
            case wire.Said():
                with execution.lock:
                    execution.progress = message.progress or execution.progress
                    execution.checkpoint = message.checkpoint or execution.checkpoint
                    execution.lines = execution.lines if message.log is None else Lines(message.log)
                    execution.reported = False
            case wire.Ended():
                self._ended = message
            case wire.LetGo():
                execution.ask_to_stop("doubt")
        execution.changed.set()

    def _pass_on_stop(self) -> None:
        execution = self._execution
        cancel = execution.stop_reason == "cancelled"
        if (execution.stop.is_set() and not self._told_to_stop) or (cancel and not self._told_to_cancel):
            self._told_to_stop, self._told_to_cancel = True, cancel
            self._process.send(wire.Stop(cancel=cancel))

    def _left(self) -> int | None:
        """Microseconds until the process is killed; None: as long as it takes."""
        execution, now = self._execution, boot_us()
        if self._process.is_doomed:
            return None
        until_deadline = execution.time_left
        if execution.stop_reason is None:
            return until_deadline if self.begun else self._begin_by - now
        if execution.stop_reason != "cancelled" or execution.at_once or not self.begun:
            return 0
        if self._cancel_by is None:
            self._cancel_by = now + _CANCEL_GRACE
        grace = self._cancel_by - now
        return grace if until_deadline is None else min(grace, until_deadline)

    def _end(self) -> End:
        if self._ended is not None:
            return self._ended
        if self._execution.stop_reason is not None:
            return Killed()
        if self._is_overdue:
            return ProcessDied(f"the process did not come to begin within {_BEGIN_WITHIN / limits.SECOND:g} s")
        if self._process.not_started is not None:
            return NotBegun(f"a worker process could not be started: {self._process.not_started}")
        return ProcessDied(f"the process died: {self._process.death}")
