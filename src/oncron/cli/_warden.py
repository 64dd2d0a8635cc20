"""Stands between `oncron exec` and the command that it runs, so that the command does not outlive it.

Run as a script, by the standard library alone: `python _warden.py DESCRIPTOR SILENCE COMMAND...`. Over the descriptor,
one end of a socket pair, it is sent signals (a byte is a number, for the whole process group of the command; 0 says
that all is well) and tells at last how the command ended (`exit 3`, `signal 9`, `failed TEXT`, and a newline). When the
other end is closed, or silent for SILENCE seconds, oncron is gone, or stopped and about to lose its lease: the group is
terminated, and killed soon after. If the warden itself is killed, Linux kills the command with it; what the command has
started goes on then, as it does elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

_GRACE, _SHARE = 2.0, 6
"""Seconds from SIGTERM to SIGKILL where oncron is gone, or a sixth of the silence: less than its lease has to go."""
_LOOK_EVERY_MS = 50
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_DEFAULTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
_FATAL = (signal.SIGTERM, signal.SIGKILL)


def main(descriptor: int, silence: float, command: list[str]) -> None:
    os.set_inheritable(descriptor, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what is meant for the command comes over the line
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    for number in (signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, _heard)
    _prctl(_SET_CHILD_SUBREAPER, 1)  # orphans of the command are reaped here, or their group would never seem gone
    pid, failure = _start(command)
    ended = _watch(descriptor, wake, pid, silence)
    with contextlib.suppress(OSError):
        os.write(descriptor, f"{f'failed {failure}' if failure else ended}\n".encode())


def _heard(*_: object) -> None:
    """Its number is in the pipe."""


def _start(command: list[str]) -> tuple[int, str]:
    """The command's process, the leader of a group of its own; why there is none."""
    reading, writing = os.pipe()
    warden = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            _prctl(_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != warden:
                os._exit(0)
            signal.set_wakeup_fd(-1)
            for number in (*_DEFAULTS, signal.SIGCHLD, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)  # noqa: S606 - it is what was asked for
        except OSError as error:
            os.write(writing, (error.strerror or str(error)).encode())
        finally:
            os._exit(127)
    os.close(writing)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # whoever of both comes first
    failure = os.read(reading, 4096).decode(errors="replace")
    os.close(reading)
    return pid, failure


def _watch(descriptor: int, wake: int, pid: int, silence: float) -> str:
    """Until the command has ended, and with it, if it was told to, all that it has started."""
    grace = min(_GRACE, silence / _SHARE)
    signal.setitimer(signal.ITIMER_REAL, silence)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(wake, select.POLLIN)
    ended, told, abandoned = "", False, False
    while not ended or (told and _lives(pid)):
        for readable, _ in poll.poll(_LOOK_EVERY_MS if told else None):
            was_abandoned = abandoned
            if readable == wake:
                if signal.SIGALRM not in os.read(wake, 4096):
                    continue
                numbers = bytes([signal.SIGKILL if abandoned else signal.SIGTERM])
                abandoned = True
            else:
                numbers = _read(descriptor)
                if not numbers:
                    poll.unregister(descriptor)
                    numbers = b"" if abandoned else bytes([signal.SIGTERM])
                    abandoned = True
            if not was_abandoned:
                signal.setitimer(signal.ITIMER_REAL, grace if abandoned else silence)
            for number in filter(None, numbers):
                told = told or number in _FATAL
                _kill(pid, number)
        ended = _reaped(pid) or ended
    return ended


def _reaped(pid: int) -> str:
    """How the command ended, if it has by now. Whatever else has ended is reaped as well."""
    found = ""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        if child == pid:
            code = os.waitstatus_to_exitcode(status)
            found = f"exit {code}" if code >= 0 else f"signal {-code}"


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _prctl(option: int, value: int) -> None:
    """Linux alone has it."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
