"""A real Chromium before a real server."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import uvicorn
from playwright.async_api import Browser, Playwright

from oncron import Oncron
from oncron.web import asgi
from tests.servers import ServerMissing

WIDTHS = ((1280, 900), (390, 844))
"""A desk's and a phone's."""

_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


def find_browser() -> str:
    """From $ONCRON_TEST_CHROMIUM, else from PATH. Raises ServerMissing."""
    named = os.environ.get("ONCRON_TEST_CHROMIUM")
    found = named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        raise ServerMissing("no Chromium: install the package chromium, or set ONCRON_TEST_CHROMIUM to its path")
    return found


async def launched(playwright: Playwright) -> Browser:
    return await playwright.chromium.launch(executable_path=find_browser(), args=_ARGUMENTS)


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        """They are the test run's."""
        return nullcontext()


@asynccontextmanager
async def serving(app: Oncron, **options: Any) -> AsyncIterator[str]:
    """The dashboard's address."""
    dashboard = asgi(app, **options)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = _Server(uvicorn.Config(dashboard, log_level="warning", access_log=False, timeout_graceful_shutdown=2))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            dashboard.close()
            await task
