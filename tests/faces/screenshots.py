"""Pictures of every page of the dashboard over a store with two weeks of history: to be looked at.

    python -m tests.faces.screenshots DIRECTORY [PAGE ...]

At desktop and phone width, light and dark. The clock is moved to a day with a change of the clocks in the past
weeks and one in the coming ones.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

AT = datetime(2026, 10, 30, 14, 20, tzinfo=UTC)
os.environ["ONCRON_CLOCK_OFFSET"] = str(AT.timestamp() - time.time())

from playwright.async_api import async_playwright  # noqa: E402 - the clock is set first

from oncron import Oncron  # noqa: E402
from oncron._model import RunFilter, RunState  # noqa: E402
from tests.faces.browser import WIDTHS, launched, serving  # noqa: E402
from tests.faces.two_weeks import ODD, beat, fill  # noqa: E402


async def main(directory: Path, only: Sequence[str]) -> None:
    app = Oncron("memory://", queues={"default": 5, "mail": 2, "pages": 1})
    await fill(app)
    async with serving(app) as url, async_playwright() as playwright:
        browser = await launched(playwright)
        for name, path in (await _pages(app)).items():
            if only and name not in only:
                continue
            for width, height in WIDTHS:
                for scheme in ("light", "dark"):
                    await app._desk.ask(beat)
                    page = await browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                    await page.goto(f"{url}{path}")
                    await page.wait_for_timeout(60)
                    await page.screenshot(path=directory / f"{name}-{width}-{scheme}.png", full_page=True)
                    await page.close()
        await browser.close()


async def _pages(app: Oncron) -> dict[str, str]:
    async def found(state: RunState, **more: str) -> str:
        return (await app._desk.ask(lambda store: store.runs(RunFilter(state=state, limit=1, **more))))[0].id

    [batch] = await app._desk.ask(lambda store: store.batches(limit=1))
    return {
        "schedules": "schedules",
        "schedule-orders": "schedule?name=sync-orders",
        "schedule-backup": "schedule?name=nightly-backup",
        "schedule-new-york": "schedule?name=late-tickets",
        "schedule-prices": "schedule?name=import-prices",
        "schedule-paused": "schedule?name=ping-partners",
        "schedule-overdue": "schedule?name=invoice-reminders&why=2026-10-30T08:00",
        "schedule-html": f"schedule?name={quote(ODD)}",
        "runs": "runs",
        "runs-failed": "runs?state=failed",
        "run-failed": f"run?id={await found(RunState.FAILED)}",
        "run-running": f"run?id={await found(RunState.RUNNING, task='resize_images')}",
        "queues": "queues",
        "replicas": "replicas",
        "locks": "locks",
        "batches": "batches",
        "batch": f"batch?id={batch.id}",
        "load": "load",
        "api": "api",
        "missing": "run?id=nothing",
    }


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
