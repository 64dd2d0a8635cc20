"""A command of the operating system that runs under its warden: told, watched, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from oncron._clock import SECOND, boot_us

_WARDEN = str(Path(__file__).with_name("_warden.py"))
_LOOK_EVERY = SECOND // 4
_HANDED_ON, _SHARES = 64, 128
_CLOSED_WITHIN_S = 5
GONE = "it was killed together with the process that watched it"


class Warden:
    """A command that was started, and may have ended."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket, silence: float) -> None:
        self._process, self._line, self._silence = process, line, silence
        self._status: asyncio.Future[str] = asyncio.ensure_future(self._hear())

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        silence: float,
        grace: float,
        terminal: int | None = None,
        inherits: bool = False,
        **streams: Any,
    ) -> Self:
        """Seconds: how long the warden bears not to hear from us, and from SIGTERM to SIGKILL then. `terminal`: a
        descriptor of one that the command is to have. One that `inherits` has every descriptor that was handed to
        oncron; only one at a time may. `streams` as of a subprocess. Raises OSError, ValueError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        line = theirs.fileno()
        given = str(line), str(silence), str(grace), "-" if terminal is None else str(terminal)
        os.set_inheritable(line, inherits)
        handed: dict[str, Any] = {"close_fds": False} if inherits else {"pass_fds": [line]}
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", _WARDEN, *given, *argv, process_group=0, **handed, **streams
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, ours, silence)

    async def _hear(self) -> str:
        loop, said = asyncio.get_running_loop(), b""
        with contextlib.suppress(ConnectionError):
            while not said.endswith(b"\n") and (data := await loop.sock_recv(self._line, 4096)):
                said += data
        return said.decode(errors="replace").strip() or "gone"

    @property
    def status(self) -> str:
        """How it ended: `exit CODE`, `signal NUMBER`, `failed WHY` of one that could not be run, `gone` of one whose
        warden was killed."""
        return self._status.result()

    async def ended(self, within: int, *, unless: asyncio.Future[Any] | None = None) -> bool:
        """Whether it ends within so many microseconds, and before something else is done."""
        await asyncio.wait(
            {self._status} if unless is None else {self._status, unless},
            timeout=within / SECOND,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return self._status.done()

    async def ended_while_all_is_well(self, within: int) -> bool:
        """The same; the warden hears meanwhile that all is well."""
        until = boot_us() + within
        while not self._status.done() and (left := until - boot_us()) > 0:
            self._say(0)
            await self.ended(min(left, _LOOK_EVERY))
        return self._status.done()

    async def over(self) -> str:
        """Its status, when it has ended."""
        await asyncio.wait({self._status})
        return self.status

    def send(self, number: int) -> None:
        """A signal for the group. After SIGTERM and SIGKILL it has ended when nothing of the group is left."""
        self._say(number)

    def hand_on(self, number: int) -> None:
        """A signal that somebody sent to oncron: whether and when the command ends is the command's."""
        self._say(_HANDED_ON + number)

    def trust(self, left: int) -> None:
        """All is well for so many microseconds from now, however long the warden hears nothing else."""
        share = min(_SHARES, int(left * _SHARES / (self._silence * SECOND)))
        if share > 0:
            self._say(_SHARES + share - 1)

    def abandon(self) -> None:
        """The group is terminated, and killed after the grace."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def _say(self, byte: int) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._line.send(bytes([byte]))

    async def close(self) -> None:
        """Nothing of it is left. The line is closed first: a warden that still waits ends what it watches."""
        self._status.cancel()
        self._line.close()
        await asyncio.wait({self._status, asyncio.ensure_future(self._process.wait())}, timeout=_CLOSED_WITHIN_S)


def is_missing(program: str, path: str | None = None) -> bool:
    """Whether there is no such program here."""
    return shutil.which(program, path=path) is None


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in {*signal.Signals} else "unknown"
