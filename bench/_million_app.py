"""A replica of million.py: it has the task, and declares no schedule."""

from __future__ import annotations

from oncron import Oncron

app = Oncron(concurrency=100)


@app.task
async def nothing() -> None:
    pass
