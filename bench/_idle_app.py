"""The replica of idle.py: an hourly schedule and nothing to do."""

from __future__ import annotations

from oncron import Oncron, cron

app = Oncron()


@app.schedule(cron("17 * * * *"))
async def hourly() -> None:
    pass
