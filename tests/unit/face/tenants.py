"""An app that worker processes import."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oncron import Oncron, RunContext

app = Oncron("memory://")
connected: list[str] = []


@app.use
@contextmanager
def tenant(ctx: RunContext[Any]) -> Iterator[None]:
    connected.append(ctx.args["name"])
    yield
    connected.pop()


@app.task(executor="process", retries=0)
def who(name: str) -> list[Any]:
    return [os.getpid(), *connected]


@app.task(executor="process", retries=0)
async def who_async(name: str) -> list[Any]:
    return [os.getpid(), *connected]


def plain(name: str) -> None: ...


app.task(plain, name="plain", executor="process", retries=0)
