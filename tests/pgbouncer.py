"""PgBouncer in transaction mode before a test's PostgreSQL: Debian's package `pgbouncer`, or whatever is installed.

The binary comes from $ONCRON_TEST_PGBOUNCER, else from PATH, else from /usr/sbin, where Debian puts it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.servers import START_WITHIN, ServerMissing, _as_owner, free_port, make_home, start_guard

_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = users.txt
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
server_login_retry = 1
"""


class PgBouncer:
    """Listens on `port` and shares `size` connections per database among its clients, one transaction at a time.

    It ends with `close()`, with the `with` block, and with the process that made it. The port stays the
    same over `kill` and `start`."""

    def __init__(self, server_port: int, *, size: int = 4) -> None:
        self._binary = find_pgbouncer()
        self._process: subprocess.Popen[bytes] | None = None
        self._home = make_home()
        self._guard = start_guard(self._home)
        self._data = self._home / "data"
        self._data.mkdir()
        self.log = self._home / "server.log"
        self.port, self.size = free_port(), size
        (self._data / "users.txt").write_text('"oncron" ""\n', encoding="utf-8")
        (self._data / "pgbouncer.ini").write_text(
            _CONFIGURATION.format(server_port=server_port, port=self.port, size=size), encoding="utf-8"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, direct: str) -> str:
        """The same database by way of this pooler."""
        return f"postgresql://oncron@127.0.0.1:{self.port}/{direct.rsplit('/', 1)[1]}"

    def start(self) -> None:
        """Clients are accepted afterwards."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, "-q", "pgbouncer.ini"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self._data, start_new_session=True, **_as_owner(),
            )  # fmt: skip
        (self._data / "server.pid").write_text(str(self._process.pid), encoding="utf-8")
        deadline = time.monotonic() + START_WITHIN
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PgBouncer did not start:\n{self.log.read_text(errors='replace')[-4000:]}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=0.02)

    def kill(self) -> None:
        """SIGKILL: its clients' and its server's connections are gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=START_WITHIN)

    def restart(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        """It and its files are gone afterwards. Safe to repeat."""
        self.kill()
        (self._data / "server.pid").unlink(missing_ok=True)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


@functools.cache
def find_pgbouncer() -> Path:
    """The binary. Raises ServerMissing."""
    given = os.environ.get("ONCRON_TEST_PGBOUNCER")
    for place in [given] if given else [shutil.which("pgbouncer"), "/usr/sbin/pgbouncer"]:
        if place is not None and os.access(place, os.X_OK):
            return Path(place)
    raise ServerMissing(
        "no PgBouncer here: install your distribution's package (on Debian: apt-get install pgbouncer), or set "
        "ONCRON_TEST_PGBOUNCER to the binary"
    )
