"""`oncron lock`: a command that runs while this host holds a lock; `flock` across hosts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import click

from oncron import _options as check
from oncron._clock import SECOND
from oncron._engine.hold import Hold
from oncron._groups import LockRecord
from oncron._model import checked_name
from oncron._unbroken import to_the_end
from oncron.cli import render
from oncron.cli.groups import holder
from oncron.cli.instants import DURATION, read_duration
from oncron.cli.run import wait_for
from oncron.cli.target import Target, takes_target
from oncron.cli.warden import GONE, Warden, is_missing, signal_name

HELD, NOT_EXECUTABLE, NOT_FOUND = os.EX_TEMPFAIL, 126, 127
"""As sysexits.h has it, and as shells do."""
_BY_SIGNAL = 128
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FOREVER = "forever"
_RELEASED_WITHIN_S = 2
_DOUBT, _GRACE = 7, 12
"""Shares of a lease. A holder gives a lock up a sixth of its lease before others may have it. Oncron that stands still
does not notice: then the warden ends the command, a seventh before. SIGKILL comes a twelfth after SIGTERM at most, so
before anybody else can run."""


class _BeforeTwoDashes(click.Command):
    """What stands behind `--` is the command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, _with_wait(args[:at]))
        if not ctx.resilient_parsing and not args[at + 1 :]:
            raise click.UsageError("the command is missing: oncron lock NAME -- COMMAND...", ctx)
        ctx.params["command"] = tuple(args[at + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def _with_wait(args: Sequence[str]) -> list[str]:
    """`--wait` takes a duration, and nothing else that comes after it."""
    found = list(args)
    for at, word in enumerate(found):
        if word == "--wait":
            following = found[at + 1] if at + 1 < len(found) else ""
            found[at] = f"--wait={following if re.fullmatch(DURATION, following) else _FOREVER}"
            if not found[at].endswith(_FOREVER):
                del found[at + 1]
    return found


@dataclass(frozen=True)
class _Wish:
    """Microseconds."""

    name: str
    wait: int | None
    lease_for: int
    kill_after: int
    command: tuple[str, ...]

    @property
    def grace(self) -> int:
        return min(self.kill_after, self.lease_for // _GRACE)


@click.command("lock", cls=_BeforeTwoDashes)
@takes_target("name", creates=True, reaches=False)
@click.option("--wait", metavar="[DURATION]", help="Wait for it: --wait without end, --wait=30s so long.")
@click.option(
    "--lease", "--lease-for", "lease_for", default="15s", metavar="DURATION",
    help="Of a host that dies, the lock is free after so long.  [15s]",
)  # fmt: skip
@click.option(
    "--kill-after", default="10s", metavar="DURATION",
    help="From SIGTERM to SIGKILL when the lock is lost; at most a twelfth of the lease.  [10s]",
)  # fmt: skip
def lock_command(
    target: Target, name: str, wait: str | None, lease_for: str, kill_after: str, command: tuple[str, ...]
) -> int:
    """Run COMMAND while this host holds the lock NAME: one holder at a time, on whatever hosts have the same store.

    The exit code is the command's; 128 + N if signal N ended it. 75: somebody else holds the lock. 1 with a sentence:
    the lock was lost, and the command was stopped. 127, 126: there is no such command, or it cannot be run. 2: wrong
    use, or the store cannot be reached. The command finds ONCRON_LOCK and ONCRON_TOKEN.
    """
    wish = _Wish(
        checked_name(name, "lock"),
        None if wait == _FOREVER else _span("0" if wait is None else wait, "--wait"),
        _span(lease_for, "--lease", least=SECOND // 2),
        _span(kill_after, "--kill-after"),
        command,
    )
    if target.store_url.startswith("memory:"):
        raise click.UsageError(
            "a lock in memory:// keeps nobody else out, as every process has its own: name a store that hosts share"
        )
    if (code := _unfit(command[0])) is not None:
        return code
    if not target.in_code:
        target.override(auto_migrate=True)
    target.app.sync(wait_for(target))
    sys.stdout.flush()
    return target.app.sync(_locked(target, wish))


def _span(text: str, option: str, least: int = 0) -> int:
    return check.span(read_duration(text, option), option, least=least)


def _unfit(program: str) -> int | None:
    """The exit code for a command that cannot be run, told before anybody is kept waiting for it."""
    if not is_missing(program):
        return None
    if shutil.which(program, mode=os.F_OK) is None:
        return _told(f"no command {program!r} here or on the PATH; check its spelling", NOT_FOUND)
    return _told(f"{program} cannot be executed; see its permissions", NOT_EXECUTABLE)


def _told(text: str, code: int) -> int:
    click.echo(f"oncron lock: {text}", err=True)
    return code


async def _locked(target: Target, wish: _Wish) -> int:
    """The exit code. The lock is let go at the end, whatever happens."""
    hold = target.new_hold(wish.name, wish.lease_for)
    with _Signals() as signals:
        acquiring = asyncio.wrap_future(target.at_door(lambda door: hold.acquire(door, wish.wait)))
        try:
            await asyncio.wait({acquiring, signals.first}, return_when=asyncio.FIRST_COMPLETED)
            if signals.first.done():
                return _BY_SIGNAL + signals.first.result()
            if acquiring.result().token is None:
                return await _held_by_others(target, wish)
            return await _run(hold, wish, signals)
        finally:
            acquiring.cancel()
            released = target.at_door(hold.release)
            await asyncio.to_thread(concurrent.futures.wait, {released}, _RELEASED_WITHIN_S)


async def _held_by_others(target: Target, wish: _Wish) -> int:
    holders = [lock for lock in await target.ask(lambda store: store.locks()) if lock.name == wish.name]
    who = f"is held by {_shown(holders[0], target.now_us())}" if holders else "was let go by somebody else just now"
    mend = f"waited {render.span(wish.wait)} for it" if wish.wait else "--wait waits for it"
    return _told(f"lock {wish.name!r} {who}; {mend}", HELD)


def _shown(lock: LockRecord, now: int) -> str:
    return f"{holder(lock.owner)} since {render.utc(lock.since)} ({render.away(min(lock.since, now), now)})"


async def _run(hold: Hold, wish: _Wish, signals: _Signals) -> int:
    """The exit code of the command, which holds the lock while it runs."""
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the command has ended
            loop.call_soon_threadsafe(lambda: lost.done() or lost.set_result(None))

    hold.when_lost(tell)
    with _terminal() as terminal:
        try:
            warden = await Warden.start(
                wish.command, silence=wish.lease_for / SECOND, grace=wish.grace / SECOND, terminal=terminal,
                inherits=True, env={**os.environ, "ONCRON_LOCK": hold.name, "ONCRON_TOKEN": str(hold.token)},
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return _told(f"{shlex.join(wish.command)} could not be started: {error}", NOT_EXECUTABLE)
        signals.go_to(warden.hand_on)
        try:
            ended = False
            while not ended and not lost.done():
                warden.trust(hold.left - wish.lease_for // _DOUBT)
                ended = await warden.ended(wish.lease_for // 12, unless=lost)
            if not ended:
                warden.abandon()
            status = await warden.over()
        finally:
            await to_the_end(warden.close())
    if not hold.end():
        why = hold.why_lost or "its lease could not be renewed in time"
        return _told(f"lock {hold.name!r} was lost: {why}; the command was stopped: {_words(status)}", 1)
    return _code(status, wish.command)


def _code(status: str, command: Sequence[str]) -> int:
    how, _, what = status.partition(" ")
    if how == "failed":
        return _told(f"{shlex.join(command)} could not be run: {what}", NOT_EXECUTABLE)
    if how == "gone":
        return _told(f"{shlex.join(command)}: {GONE}", _BY_SIGNAL + signal.SIGKILL)
    return int(what) + (_BY_SIGNAL if how == "signal" else 0)


def _words(status: str) -> str:
    how, _, what = status.partition(" ")
    match how:
        case "exit":
            return f"it ended with exit code {what}"
        case "signal":
            return f"{signal_name(int(what))} ended it"
        case _:
            return what or GONE


class _Signals:
    """What is sent to oncron meanwhile goes to the command. What comes before it runs ends the waiting. Those that are
    ignored stay so, as under `nohup`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[int] = self._loop.create_future()
        self._before = {number: signal.getsignal(number) for number in _FORWARDED}
        self._to: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._heard, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def go_to(self, tell: Callable[[int], None]) -> None:
        self._to = tell
        if self.first.done():
            tell(self.first.result())

    def _heard(self, number: int) -> None:
        if self._to is not None:
            self._to(number)
        if not self.first.done():
            self.first.set_result(number)


@contextmanager
def _terminal() -> Generator[int | None]:
    """Standard input, if all is a terminal that is ours: the command has it as it would have it from a shell, reads it
    and gets its Ctrl-C; afterwards it is ours again. Not within a pipe, whose other commands may use the terminal."""
    try:
        ours = all(map(os.isatty, (0, 1, 2))) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        ours = False
    if not ours:
        yield None
        return
    before: Any = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield 0
    finally:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
