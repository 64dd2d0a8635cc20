"""A command of the operating system as the body of a task: its output kept, its end told, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from oncron import RetryIn, RunContext
from oncron._clock import SECOND, boot_us
from oncron._lifecycle import Told
from oncron._unbroken import to_the_end
from oncron.cli.warden import GONE, Warden, is_missing, signal_name

KEPT = 8 * 1024
"""Bytes of each output, the last ones, that are kept with the run."""
KILL_AFTER = 10 * SECOND
_LET_GO_WITHIN, _HURRIED = SECOND, SECOND // 2
"""Between SIGTERM and SIGKILL when the lease is lost: others may start soon. And when oncron leaves at once."""
_DRAIN_WITHIN_S = 0.5
"""Seconds to wait for the rest of the output: what the command left running may hold the pipes open for ever."""
_LOOK_EVERY = SECOND // 4
_GRACE_S, _GRACE_SHARE = 2.0, 6
"""Seconds from SIGTERM to SIGKILL where oncron is gone, or a sixth of the silence: less than its lease has to go."""
_FORWARDED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    shown: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Over that of oncron itself."""
    folder: str | None = None
    stdin: str = ""

    def missing(self) -> bool:
        """Whether there is no such program here."""
        return is_missing(self.argv[0], self.environment.get("PATH", os.environ.get("PATH")))


class CommandFailed(Told):
    """A command that did not end with 0."""


class Commands:
    """Runs commands, and hands signals on to those that run. `stop_within` and `kill_after` in microseconds: when
    oncron stops, a command may go on until so long before the end, is terminated then, and killed at last."""

    def __init__(self, *, stop_within: int, lease_for: int, kill_after: int = KILL_AFTER) -> None:
        self._stop_within, self._kill_after = stop_within, min(kill_after, stop_within)
        # A heartbeat is at most a third of a lease old: whatever is stopped with it is over before the lease is.
        self._silence = lease_for / 2 / SECOND
        self._running: set[_Running] = set()

    @asynccontextmanager
    async def forwarding(self, app: object) -> AsyncGenerator[None]:
        """An app's lifespan: SIGHUP, SIGUSR1 and SIGUSR2 go to the commands that run."""
        del app
        loop = asyncio.get_running_loop()
        for number in _FORWARDED:
            loop.add_signal_handler(number, self._forward, number)
        try:
            yield
        finally:
            for number in _FORWARDED:
                loop.remove_signal_handler(number)

    def _forward(self, number: signal.Signals) -> None:
        for running in self._running:
            running.send(number)

    async def run(self, command: Command, ctx: RunContext[Any]) -> dict[str, Any]:
        """What is kept of a command that ended with 0. Raises CommandFailed."""
        async with _started(command, ctx, self._silence) as running:
            self._running.add(running)
            try:
                told = await self._ended(running, ctx)
                await running.drained()
            except asyncio.CancelledError:
                await to_the_end(running.end(self._patience(ctx)))
                ctx.checkpoint(running.kept())
                raise
            finally:
                self._running.discard(running)
        return _judged(command, running, ctx, told=told)

    async def _ended(self, running: _Running, ctx: RunContext[Any]) -> bool:
        """Waits for the end. Whether it was told to come to it."""
        told, stopping_since = False, None
        while not await running.ended_while_all_is_well(_LOOK_EVERY):
            if not ctx.stopping or told:
                continue
            stopping_since = boot_us() if stopping_since is None else stopping_since
            if boot_us() - stopping_since >= self._stop_within - self._kill_after:
                running.send(signal.SIGTERM)
                told = True
        return told

    def _patience(self, ctx: RunContext[Any]) -> int:
        """Between SIGTERM and SIGKILL, when the run has to end."""
        match ctx._execution.stop_reason:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - tasks of users need not know
            case "timeout" | "cancelled":
                return self._kill_after
            case "stopped" | None:
                return _HURRIED
            case _:
                return _LET_GO_WITHIN


class _Tail:
    """The end of an output, which also goes where oncron's own goes."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._last = bytearray()
        self._size = 0

    async def follow(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(65536):
            self._size += len(data)
            self._last += data
            del self._last[:-KEPT]
            with contextlib.suppress(OSError, ValueError):  # nobody reads ours any more: what is kept is kept
                await asyncio.to_thread(self._pass_on, data)

    def _pass_on(self, data: bytes) -> None:
        self._out.write(data)
        self._out.flush()

    @property
    def text(self) -> str:
        text = self._last.decode(errors="backslashreplace")
        cut = self._size - len(self._last)
        return f"... {cut} bytes before ...\n{text}" if cut else text


class _Running(Warden):
    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket, silence: float) -> None:
        super().__init__(process, line, silence)
        self.out, self.err = _Tail(sys.stdout.buffer), _Tail(sys.stderr.buffer)
        streams = ((self.out, process.stdout), (self.err, process.stderr))
        self._outputs = [asyncio.ensure_future(tail.follow(from_)) for tail, from_ in streams if from_ is not None]

    async def end(self, patience: int) -> None:
        """SIGTERM, and SIGKILL to whatever is left after so many microseconds."""
        self.send(signal.SIGTERM)
        if not await self.ended_while_all_is_well(patience):
            self.send(signal.SIGKILL)
        await self.drained()

    async def drained(self) -> None:
        await self.over()
        await asyncio.wait(self._outputs, timeout=_DRAIN_WITHIN_S)

    def kept(self) -> dict[str, Any]:
        return {name: tail.text for name, tail in (("stdout", self.out), ("stderr", self.err)) if tail.text}

    async def close(self) -> None:
        for task in self._outputs:
            task.cancel()
        await super().close()


def environment(command: Command, ctx: RunContext[Any]) -> dict[str, str]:
    """What the command finds: oncron's own, its own, and which tick it is."""
    tick = "" if ctx.tick is None else ctx.tick.isoformat().replace("+00:00", "Z")
    return {
        **os.environ,
        **command.environment,
        "ONCRON_SCHEDULE": ctx.schedule or "",
        "ONCRON_TICK": tick,
        "ONCRON_RUN_ID": ctx.run_id,
        "ONCRON_ATTEMPT": str(ctx.attempt),
        "ONCRON_TOKEN": str(ctx.token),
    }


@asynccontextmanager
async def _started(command: Command, ctx: RunContext[Any], silence: float) -> AsyncGenerator[_Running]:
    with _input(command.stdin) as stdin:
        try:
            running = await _Running.start(
                command.argv, silence=silence, grace=min(_GRACE_S, silence / _GRACE_SHARE),
                stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env=environment(command, ctx), cwd=command.folder,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise CommandFailed(f"{command.shown}: it could not be started: {error}") from None
        try:
            yield running
        finally:
            await to_the_end(running.close())


@contextlib.contextmanager
def _input(text: str) -> Any:
    if not text:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode(errors="surrogateescape"))
        file.seek(0)
        yield file


def _judged(command: Command, running: _Running, ctx: RunContext[Any], *, told: bool) -> dict[str, Any]:
    how, _, what = running.status.partition(" ")
    if running.status == "exit 0":
        return {"exit_code": 0, **running.kept()}
    if told and ctx._execution.run.retries > 0:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        raise RetryIn(0, spend_attempt=False)
    match how:
        case "exit":
            said = f"it ended with exit code {what}"
        case "signal":
            said = f"it was ended by signal {what} ({signal_name(int(what))})"
        case "gone":
            said = GONE
        case _:
            said = f"it could not be run: {what}"
    said += ", as oncron was told to stop" if told else ""
    parts = [f"{command.shown}: {said}", *(f"--- {name} ---\n{text}" for name, text in running.kept().items())]
    raise CommandFailed(parts[0], "\n".join(parts))
