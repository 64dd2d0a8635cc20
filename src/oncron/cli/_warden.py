"""Stands between oncron and a command that it runs, so that the command does not outlive it.

Run as a script, by the standard library alone: `python _warden.py DESCRIPTOR SILENCE GRACE TERMINAL COMMAND...`.
DESCRIPTOR is one end of a socket pair. Each byte that comes over it says something; at last the warden tells over it
how the command ended (`exit 3`, `signal 9`, `failed TEXT`, and a newline).

0           all is well
1 to 63     that signal, to the whole process group of the command; after TERM and KILL the end is told when nothing of
            the group is left
64 to 127   the signal of that number less 64, handed on to the group; no sign that all is well
128 to 255  all is well, but only for a share of the silence: 1/128 to 128/128

When the other end is closed, or silent for SILENCE seconds, oncron is gone, or stopped and about to lose its lease: the
group is terminated, and killed GRACE seconds later. TERMINAL is the descriptor of a terminal that the command is to
have while it runs, or `-`. If the warden itself is killed, Linux kills the command with it; what the command has
started goes on then, as it does elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

_HANDED_ON, _SHARE = 64, 128
_LOOK_EVERY_MS = 50
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_DEFAULTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
_FATAL = (signal.SIGTERM, signal.SIGKILL)


def main(descriptor: int, silence: float, grace: float, terminal: int | None, command: list[str]) -> None:
    os.set_inheritable(descriptor, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what is meant for the command comes over the line
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    for number in (signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, _heard)
    _prctl(_SET_CHILD_SUBREAPER, 1)  # orphans of the command are reaped here, or their group would never seem gone
    pid, failure = _start(command, terminal)
    ended = _watch(descriptor, wake, pid, silence, grace)
    with contextlib.suppress(OSError):
        os.write(descriptor, f"{f'failed {failure}' if failure else ended}\n".encode())


def _heard(*_: object) -> None:
    """Its number is in the pipe."""


def _start(command: list[str], terminal: int | None) -> tuple[int, str]:
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
            if terminal is not None:
                _take(terminal)
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


def _take(terminal: int) -> None:
    """This process's group is the one that reads the terminal and gets its Ctrl-C. Ctrl-Z stops nothing: nobody would
    hear of it, and a lease goes on meanwhile."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(terminal, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)


def _watch(descriptor: int, wake: int, pid: int, silence: float, grace: float) -> str:
    """Until the command has ended, and with it, if it was told to, all that it has started."""
    signal.setitimer(signal.ITIMER_REAL, silence)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(wake, select.POLLIN)
    ended, told, abandoned = "", False, False
    while not ended or (told and _lives(pid)):
        for readable, _ in poll.poll(_LOOK_EVERY_MS if told else None):
            if readable == wake:
                is_silent = signal.SIGALRM in os.read(wake, 4096)
                if is_silent and abandoned:
                    _kill(pid, signal.SIGKILL)
            else:
                said = _read(descriptor)
                is_silent = not said
                if is_silent:
                    poll.unregister(descriptor)
                for byte in said:
                    told = told or byte in _FATAL
                    _kill(pid, byte if byte < _HANDED_ON else byte - _HANDED_ON if byte < _SHARE else 0)
                    if not abandoned and not _HANDED_ON <= byte < _SHARE:
                        share = (byte - _SHARE + 1) / _SHARE if byte >= _SHARE else 1
                        signal.setitimer(signal.ITIMER_REAL, silence * share)
            if is_silent and not abandoned:
                abandoned = told = True
                _kill(pid, signal.SIGTERM)
                signal.setitimer(signal.ITIMER_REAL, grace)
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
    main(
        int(sys.argv[1]),
        float(sys.argv[2]),
        float(sys.argv[3]),
        None if sys.argv[4] == "-" else int(sys.argv[4]),
        sys.argv[5:],
    )
