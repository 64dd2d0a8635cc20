"""One worker process: started, spoken to, killed.

It is the leader of a process group of its own, so that what a task has started goes with it,
and so that a signal of the terminal reaches the replica alone, which decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from oncron._engine import wire

_BOOT = "import sys; sys.path[:0] = sys.argv[1:2]; from oncron._child import main; main(*map(int, sys.argv[2:]))"
_ROOT = os.fspath(Path(__file__).parents[2])
"""Where the process finds this package, wherever the replica found it."""

_DRAIN_WITHIN = 1.0
"""Seconds after a process's end by which all it said has come: others may hold its end of the line."""


class Process(asyncio.Protocol):
    """A worker process and the line to it. Lives on the engine's loop."""

    def __init__(self, ended: Callable[[Process], None]) -> None:
        self._on_end = ended
        self._on_message: Callable[[wire.FromProcess], None] | None = None
        self._on_gone: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._lines, self._decoder = wire.Lines(), msgspec.json.Decoder[wire.FromProcess](wire.FromProcess)
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._lock = threading.Lock()
        self._pid: int | None = None
        """While it may be signalled: until it is reaped."""
        self._code: int | None = None
        self._line_is_closed = False
        self._leaves = False
        self.is_doomed = False
        """It was told to die."""
        self.not_started: str | None = None
        self.idle_since = 0
        self.was_used = False
        """Whether a run's function was called in it."""
        self.gone = asyncio.Event()
        """It is dead, and all it said was heard."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._connecting = self._loop.create_task(self._connect(ours))
        # The thread stays until the process is dead: Linux's parent-death signal is about the thread that forked.
        threading.Thread(target=self._live, args=(theirs,), name="oncron-process", daemon=True).start()

    # --- for the pool -----------------------------------------------------------------

    @property
    def is_fit(self) -> bool:
        """Whether it can take a run."""
        return self._code is None and not (self.is_doomed or self._leaves or self._line_is_closed or self.gone.is_set())

    @property
    def death(self) -> str:
        """How it died."""
        code = self._code
        if code is None:
            return "nobody knows how"
        if code >= 0:
            return f"it left with exit code {code}"
        name = signal.Signals(-code).name if -code in {*signal.Signals} else "unknown"
        return f"signal {-code} ({name})" + ("; killed from outside, or for lack of memory" if code == -9 else "")

    def attend(self, on_message: Callable[[wire.FromProcess], None] | None, on_gone: Callable[[], None] | None) -> None:
        self._on_message, self._on_gone = on_message, on_gone

    def send(self, message: wire.ToProcess) -> None:
        if self._transport is None:
            self._unsent.append(wire.line(message))
        elif not self._transport.is_closing():
            self._transport.write(wire.line(message))

    def leave(self) -> None:
        """Idle: it ends as a program does, by itself."""
        self._leaves = True
        if self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        """And what it has started."""
        with self._lock:
            self.is_doomed = True
            if self._pid is not None:
                _kill_group(self._pid)

    # --- the line ---------------------------------------------------------------------

    async def _connect(self, ours: socket.socket) -> None:
        self._transport, _ = await self._loop.create_unix_connection(lambda: self, sock=ours)
        self._transport.writelines(self._unsent)
        if self._leaves:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        for text in self._lines.feed(data):
            message = self._decoder.decode(text)
            if self._on_message is not None:
                self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._line_is_closed = True
        if not self._leaves:
            self.kill()  # what cannot be stopped must not run on
        self._look()

    # --- the thread -------------------------------------------------------------------

    def _live(self, theirs: socket.socket) -> None:
        code = not_started = None
        try:
            with theirs:
                process = _popen(theirs)
        except OSError as error:
            not_started = str(error)
        else:
            code = self._reap(process)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._dead, code, not_started)

    def _reap(self, process: subprocess.Popen[bytes]) -> int:
        with self._lock:
            self._pid = process.pid
            if self.is_doomed:
                _kill_group(process.pid)
        if sys.platform != "darwin":
            with contextlib.suppress(ChildProcessError):  # somebody else reaped it
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                # Not reaped yet, so the number is still its own: nobody else is signalled.
                self._pid = None
                _kill_group(process.pid)
        return process.wait()

    def _dead(self, code: int | None, not_started: str | None) -> None:
        self._code, self.not_started, self._pid = code, not_started, None
        if self._line_is_closed:
            self._look()
        else:
            self._loop.call_later(_DRAIN_WITHIN, self._look)

    def _look(self) -> None:
        if self._code is None and self.not_started is None:
            return
        if not self._line_is_closed and self._transport is not None:
            self._transport.abort()
        if not self.gone.is_set():
            self.gone.set()
            self._on_end(self)
            if self._on_gone is not None:
                self._on_gone()


def _popen(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    from multiprocessing.spawn import get_executable  # slow to import, and seldom needed

    executable = get_executable()
    if not executable:
        raise OSError("sys.executable is empty; name an interpreter by multiprocessing.set_executable()")
    flags = cast("list[str]", subprocess._args_from_interpreter_flags())  # noqa: SLF001  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    command = [executable, *flags, "-P", "-c", _BOOT, _ROOT, str(theirs.fileno()), str(os.getpid())]
    return subprocess.Popen(  # noqa: S603 - ourselves
        command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
    )


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
