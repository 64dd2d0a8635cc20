"""`oncron web`: the dashboard, served from this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from oncron._hosting import stop_signals
from oncron.cli.target import Target, takes_target
from oncron.errors import InvalidOption

if TYPE_CHECKING:
    from oncron.web._site import Dashboard

ENVIRONMENT = "ONCRON_WEB_TOKEN"
_STOP_WITHIN = 5
"""Seconds that open answers have when the server stops; event streams end at once."""


@click.command("web")
@takes_target()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; this machine alone if not said.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--token",
    metavar="TOKEN",
    help=f"Ask for this password, or bearer token.  [default: ${ENVIRONMENT}, which no list of processes shows]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without asking who comes.")
@click.option("--prefix", default="", metavar="PATH", help="Where a proxy in front has put it: /oncron, say.")
def web_command(
    target: Target, host: str, port: int, read_only: bool, token: str | None, insecure: bool, prefix: str
) -> None:
    """Serve the dashboard: schedules, runs, queues, replicas, the load of the coming day; a JSON API under /api.

    Runs until SIGTERM or SIGINT. It fires and executes nothing: that is what replicas do.
    """
    token = token if token is not None else os.environ.get(ENVIRONMENT) or None
    if token is None and not insecure and not _is_loopback(host):
        raise click.UsageError(
            f"--host {host} is reached from other machines: set --token or ${ENVIRONMENT}, or say --insecure"
        )
    if prefix and not re.fullmatch(r"(/[\w.~-]+)+", prefix):
        raise click.UsageError(f"--prefix {prefix}: write it as /oncron or /ops/jobs")
    _refuse_missing()
    from oncron.web._guard import Token
    from oncron.web._site import Dashboard

    auth = None if token is None else Token(token)
    # A foreign page whose name was made to point here would be asked for by that name.
    hosts = _LOOPBACK if auth is None and not insecure else None
    dashboard = Dashboard(target.app, auth=auth, read_only=read_only, hosts=hosts)
    with _listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"oncron's dashboard of {target.name}: http://{shown}:{listener.getsockname()[1]}{prefix}/")
        serve(dashboard, listener, prefix)


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(dashboard: Dashboard, listener: socket.socket, prefix: str = "") -> None:
    """Until a signal, or until the process ends."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            # uvicorn's own would end the process by the signal once more.
            with stop_signals(asyncio.get_running_loop(), self._heard):
                yield

        def _heard(self, _: signal.Signals) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Open streams would be waited for.
            dashboard.close()
            await super().shutdown(sockets)

    async def prefixed(scope: Any, receive: Any, send: Any) -> None:
        # Whether the proxy has taken the prefix off or not.
        if prefix and scope["type"] == "http" and f"{scope['path']}/".startswith(f"{prefix}/"):
            scope = {**scope, "root_path": prefix}
        await dashboard(scope, receive, send)

    config = uvicorn.Config(
        prefixed, log_level="warning", access_log=False, proxy_headers=False, server_header=False,
        timeout_graceful_shutdown=_STOP_WITHIN,
    )  # fmt: skip
    Server(config).run(sockets=[listener])


def _refuse_missing() -> None:
    """Raises InvalidOption."""
    for package in ("jinja2", "starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise InvalidOption(f"the dashboard needs {package}: pip install 'oncron[web]'")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """Raises click.UsageError if the port is taken or may not be used."""
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named in full: asyncio switches Nagle's algorithm off for sockets whose protocol it is told, else each answer
    # waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # whoever reads the address may come at once
    except OSError as error:
        listener.close()
        raise click.UsageError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; give another --port, or 0 for any free one"
        ) from None
    return listener
