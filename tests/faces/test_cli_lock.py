"""`oncron lock`: one holder on all hosts, the command's own exit code, and no command without its lock."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncron import Oncron as App
from oncron._model import new_id
from tests.conftest import start_redis
from tests.faces.commands import Oncron, is_alive, wait_until
from tests.faces.conftest import Call

STORE = "sqlite:///jobs.db"
FOR_EVER = "echo $$ > pid; exec sleep 1000"
STUBBORN = 'trap "" TERM; echo $$ > pid; while :; do sleep 0.05; done'
Lock = Callable[..., Oncron]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"{request.getfixturevalue('redis_server').url()}?volatile=true"


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Lock]:
    """`lock("--wait", "--", "true")`: the lock `job`, on a store in the folder unless `store=` says otherwise."""
    started: list[Oncron] = []
    namespace = f"lock_{new_id()[:8]}"

    def begin(*arguments: str, store: str = STORE) -> Oncron:
        where = ("--store", store, "--namespace", namespace, "--lease", "2s")
        started.append(Oncron(tmp_path, "lock", "job", *where, *arguments))
        return started[-1]

    begin.namespace = namespace  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
    yield begin
    for each in started:
        each.close()


@pytest.fixture
def peer(lock: Any) -> Iterator[Callable[[str], App]]:
    """An app that meets them in a store."""
    made: list[App] = []

    def make(store: str) -> App:
        made.append(App(store, namespace=lock.namespace))
        return made[-1]

    yield make
    for app in made:
        app._life.at_exit()


def number_in(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


# --- one at a time ----------------------------------------------------------------------------


def test_of_five_at_once_one_runs_and_four_are_told_who_and_when_it_is_killed_the_lock_is_free_within_its_lease(
    lock: Lock, url: str, peer: Callable[[str], App], tmp_path: Path
) -> None:
    app = peer(url)
    callers = [lock("--", "sh", "-c", f"echo x >> ran; {STUBBORN}", store=url) for _ in range(5)]
    wait_until(lambda: sum(caller.process.poll() is not None for caller in callers) == 4)
    (winner,) = (caller for caller in callers if caller.process.poll() is None)
    losers = [caller for caller in callers if caller is not winner]
    assert [caller.process.returncode for caller in losers] == [75, 75, 75, 75]
    said = re.compile(
        rf"oncron lock: lock 'job' is held by process {winner.process.pid} on \S+ since \S+ \S+Z \(.* ago\); "
        r"--wait waits for it\n"
    )
    assert all(said.fullmatch(caller.said) for caller in losers)
    pid = number_in(tmp_path / "pid")
    winner.tell(signal.SIGKILL)
    killed_at = time.monotonic()
    with app.lock("job", wait=10):
        assert not is_alive(pid)
        assert time.monotonic() - killed_at < 3.5
    assert (tmp_path / "ran").read_text() == "x\n"


def test_those_who_wait_have_it_one_after_the_other(lock: Lock, tmp_path: Path) -> None:
    script = "echo $ONCRON_TOKEN begin >> log; sleep 0.1; echo $ONCRON_TOKEN end >> log"
    callers = [lock(wait, "--", "sh", "-c", script) for wait in ("--wait", "--wait=20s", "--wait")]
    assert [caller.ends() for caller in callers] == [0, 0, 0]
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    tokens = [token for token, _ in lines[::2]]
    assert lines == [[token, what] for token in tokens for what in ("begin", "end")]
    assert len({*tokens}) == 3
    assert tokens == sorted(tokens, key=int)


def test_a_wait_has_an_end(in_process: Call, peer: Callable[[str], App], lock: Any, tmp_path: Path) -> None:
    with peer(f"sqlite:///{tmp_path}/jobs.db").lock("job"):
        where = ("--store", STORE, "--namespace", lock.namespace)
        told = in_process("lock", "--wait", "0.2s", "job", *where, "--", "true", cwd=tmp_path)
    assert told.code == 75
    assert f"process {os.getpid()} on " in told.err
    assert "; waited 0.2 s for it" in told.err


def test_a_signal_ends_the_waiting_and_nothing_is_kept(lock: Lock, peer: Callable[[str], App], tmp_path: Path) -> None:
    app = peer(f"sqlite:///{tmp_path}/jobs.db")
    holder = lock("--", "sh", "-c", FOR_EVER)
    number_in(tmp_path / "pid")
    waiting = lock("--wait", "--", "touch", "ran")
    wait_until(lambda: "SIGTERM" in handled(waiting.process.pid))
    waiting.tell(signal.SIGTERM)
    assert waiting.ends() == 128 + signal.SIGTERM
    holder.tell(signal.SIGTERM)
    assert holder.ends() == 128 + signal.SIGTERM
    with app.lock("job"):
        assert not (tmp_path / "ran").exists()


def handled(pid: int) -> set[str]:
    """The signals for which a process has a handler."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(re.findall(r"SigCgt:\s*(\w+)", status)[0], 16)
    return {number.name for number in signal.Signals if mask >> number - 1 & 1}


# --- what the command gets and gives ----------------------------------------------------------


def test_whatever_is_open_passes_through_untouched(tmp_path: Path) -> None:
    every = bytes(range(256)) * 400
    (tmp_path / "more").write_bytes(every[::-1])
    command = [sys.executable, "-m", "oncron", "lock", "job", "--store", STORE, "--", "sh", "-c", "cat; cat <&9 >&2"]
    done = subprocess.run(
        ["sh", "-c", 'exec 9< more; exec "$@"', "sh", *command],
        cwd=tmp_path, input=every, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (every, every[::-1])


def test_the_command_finds_the_lock_and_a_token_that_grows_and_its_exit_code_is_oncrons(
    in_process: Call, tmp_path: Path
) -> None:
    told = [
        in_process("lock", "the job", "--store", STORE, "--", "sh", "-c", f"echo $ONCRON_LOCK $ONCRON_TOKEN; {end}",
                   cwd=tmp_path)
        for end in ("exit 75", "kill -USR1 $$")
    ]  # fmt: skip
    assert [(each.code, each.err) for each in told] == [(75, ""), (128 + signal.SIGUSR1, "")]
    first, second = (re.fullmatch(r"the job (\d+)\n", each.out) for each in told)
    assert first is not None
    assert second is not None
    assert int(first[1]) < int(second[1])


def test_a_command_that_cannot_be_run_is_told_as_shells_do(
    oncron: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text("true\n")
    told = oncron("lock", "job", "--store", STORE, "--", "./backpu.sh", "--fast")
    assert (told.code, told.err) == (
        127, "oncron lock: no command './backpu.sh' here or on the PATH; check its spelling\n"
    )  # fmt: skip
    told = oncron("lock", "job", "--store", STORE, "--", "./script")
    assert (told.code, told.err) == (126, "oncron lock: ./script cannot be executed; see its permissions\n")
    assert not (tmp_path / "jobs.db").exists()
    (tmp_path / "script").chmod(0o755)
    told = oncron("lock", "job", "--store", STORE, "--", "./script")
    assert (told.code, told.err) == (126, "oncron lock: ./script could not be run: Exec format error\n")


def test_signals_go_to_the_command_and_all_that_it_has_started(lock: Lock, tmp_path: Path) -> None:
    # A shell and one that it has started: each writes down what it gets. In the background INT and QUIT are ignored.
    # What is ignored here already, under nohup or in the background, a shell cannot trap.
    names = [
        name
        for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
        if signal.getsignal(signal.Signals[f"SIG{name}"]) is not signal.SIG_IGN
    ]
    ignored = ("INT", "QUIT")
    script = (
        f'note() {{ for name in {" ".join(names)}; do trap "echo $1 $name >> got" $name; done; echo >> ready; }}\n'
        "(note child; until test -e done; do sleep 0.02; done) &\n"
        "note parent; until test -e done; do sleep 0.02; done; wait; exit 9"
    )
    process = lock("--", "sh", "-c", script)
    got = tmp_path / "got"
    wait_until(lambda: (tmp_path / "ready").exists() and (tmp_path / "ready").read_text() == "\n\n")
    for count, name in enumerate(names, start=1):
        process.tell(signal.Signals[f"SIG{name}"])
        expected = {f"parent {each}" for each in names[:count]}
        expected |= {f"child {each}" for each in names[:count] if each not in ignored}
        wait_until(lambda expected=expected: got.exists() and {*got.read_text().splitlines()} == expected)
    (tmp_path / "done").touch()
    assert process.ends() == 9


def test_what_is_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    script = "touch began; until test -e done; do sleep 0.02; done; exit 4"
    command = [sys.executable, "-m", "oncron", "lock", "job", "--store", STORE, "--", "sh", "-c", script]
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], cwd=tmp_path, start_new_session=True
    )
    wait_until((tmp_path / "began").exists)
    process.send_signal(signal.SIGHUP)
    (tmp_path / "done").touch()
    assert process.wait(20) == 4


def test_at_a_terminal_the_command_reads_it_and_gets_its_ctrl_c_once(tmp_path: Path) -> None:
    script = 'trap "echo caught" INT; read word; echo word is $word; until test -e done; do sleep 0.02; done; exit 6'
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "oncron", "lock", "job", "--store", STORE, "--",
                                  "sh", "-c", script])  # fmt: skip
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 1024)

    try:
        os.write(terminal, b"swordfish\n")
        until(b"word is swordfish")
        os.write(terminal, b"\x03")
        until(b"caught")
        (tmp_path / "done").touch()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
        assert shown.count(b"caught") == 1
    finally:
        os.close(terminal)


# --- ends -------------------------------------------------------------------------------------


def test_while_oncron_stands_still_its_command_ends_before_the_lease(
    lock: Lock, peer: Callable[[str], App], tmp_path: Path
) -> None:
    app = peer(f"sqlite:///{tmp_path}/jobs.db")
    holder = lock("--lease", "4s", "--", "sh", "-c", STUBBORN)
    pid = number_in(tmp_path / "pid")
    holder.tell(signal.SIGSTOP)
    with app.lock("job", wait=10):
        assert not is_alive(pid)
        holder.tell(signal.SIGCONT)
        assert holder.ends() == 1
    assert "lock 'job' was lost: " in holder.said
    assert "the command was stopped: SIGKILL ended it" in holder.said


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_without_its_store_the_command_is_stopped_before_the_lease_ends(
    request: pytest.FixtureRequest, lock: Lock, kind: str, tmp_path: Path
) -> None:
    server: Any = request.getfixturevalue("own_postgres") if kind == "postgres" else start_redis(kind)
    try:
        store = server.url() if kind == "postgres" else f"{server.url()}?volatile=true"
        holder = lock("--", "sh", "-c", STUBBORN, store=store)
        pid = number_in(tmp_path / "pid")
        server.stop()
        stopped_at = time.monotonic()
        wait_until(lambda: not is_alive(pid))
        assert time.monotonic() - stopped_at < 2
        assert holder.ends() == 1
        assert "oncron lock: lock 'job' was lost: its lease could not be renewed in time; " in holder.said
    finally:
        server.close()


def test_a_command_is_told_before_it_is_killed(lock: Lock, peer: Callable[[str], App], tmp_path: Path) -> None:
    app = peer(f"sqlite:///{tmp_path}/jobs.db")
    holder = lock("--lease", "6s", "--", "sh", "-c", STUBBORN.replace('""', '"touch told"'))
    number_in(tmp_path / "pid")

    async def take_away() -> None:
        (held,) = await app._desk.ask(lambda store: store.locks())
        assert await app._desk.ask(lambda store: store.release("job", held.token))

    app.sync(take_away())
    assert holder.ends() == 1
    assert (tmp_path / "told").exists()
    assert holder.said.endswith(
        "oncron lock: lock 'job' was lost: somebody else holds it; the command was stopped: SIGKILL ended it\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_command_does_not_outlive_a_killed_warden(lock: Lock, tmp_path: Path) -> None:
    holder = lock("--", "sh", "-c", f"echo $PPID > warden; {FOR_EVER}")
    pid = number_in(tmp_path / "pid")
    os.kill(number_in(tmp_path / "warden"), signal.SIGKILL)
    assert holder.ends() == 128 + signal.SIGKILL
    wait_until(lambda: not is_alive(pid))
    assert "killed together with" in holder.said


def test_what_the_command_leaves_in_the_background_is_left_and_the_lock_is_free(
    lock: Lock, peer: Callable[[str], App], tmp_path: Path
) -> None:
    assert lock("--", "sh", "-c", "sleep 1000 >&- 2>&- & echo $! > pid").ends() == 0
    pid = number_in(tmp_path / "pid")
    try:
        assert is_alive(pid)
        with peer(f"sqlite:///{tmp_path}/jobs.db").lock("job"):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)


# --- wrong use --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--store", STORE, "job", "true"), "the command is missing: oncron lock NAME -- COMMAND..."),
        (("--store", STORE, "job", "--"), "the command is missing"),
        (("--store", STORE, "--", "true"), "NAME is missing"),
        (("--store", STORE, "job", "backup", "--", "true"), "'job' is one word too many"),
        (("--store", "memory://", "job", "--", "true"), "keeps nobody else out"),
        (("--store", STORE, "job", "--wait=soon", "--", "true"), "--wait 'soon' is no duration"),
        (("--store", STORE, "job", "--lease", "0.1s", "--", "true"), "--lease=0.1 must be at least 0.5 s"),
        (("--store", STORE, "job", "--kill-after", "x", "--", "true"), "--kill-after 'x' is no duration"),
        (("--store", STORE, "a\nb", "--", "true"), "control character"),
        (("job", "--", "true"), "NAME is missing after the target 'job'"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_do(
    oncron: Call, arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(f"from oncron import Oncron\napp = Oncron({STORE!r})\n")
    told = oncron("lock", *arguments)
    sys.modules.pop("job", None)
    assert (told.code, len(told.err.splitlines()), told.out) == (2, 1, "")
    assert says in told.err
