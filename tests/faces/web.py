"""A dashboard without a server, and a browser's manners: cookies, forms, same-site headers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx

from oncron import Oncron, RunContext, cron, daily, every
from oncron.errors import RunFailed

HTML = "<script>alert('x')</script>"


@asynccontextmanager
async def client(dashboard: Any, root: str = "", **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(dashboard, raise_app_exceptions=False, root_path=root)
    async with httpx.AsyncClient(transport=transport, base_url="http://web.test", headers=headers) as found:
        yield found


def text_of(page: httpx.Response) -> str:
    """What a person reads of it."""
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page.text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def form_of(page: httpx.Response, action: str, **wanted: str) -> dict[str, str]:
    """The fields of the first form of the page that has that action and these values."""
    for found in re.finditer(rf'<form method="post" action="{action}".*?</form>', page.text, re.DOTALL):
        fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', found[0])
        given = {name: unescape(value) for name, value in fields}
        if wanted.items() <= given.items():
            return given
    raise AssertionError(f"no form {action!r} with {wanted} in {page.url}")


async def send(
    web: httpx.AsyncClient, page: str, action: str, fill: dict[str, str] | None = None, **wanted: str
) -> Any:
    """Press the button of the form `action` on a page, as a browser would."""
    shown = await web.get(page)
    fields = form_of(shown, action, **wanted) | (fill or {})
    return await web.post(f"/{action}", data=fields, headers={"origin": "http://web.test"})


def shop(url: str, **options: Any) -> Oncron:
    """An app with something of everything."""
    app = Oncron(url, timezone="Europe/Berlin", queues={"default": 5, "mail": 10}, **options)

    @app.schedule(cron("30 2 * * *"), tags=["night"], timeout=60, args={"kind": HTML})
    async def reindex(kind: str) -> str:
        return f"done {kind}"

    @app.schedule(daily("03:00"), retries=0)
    def broken() -> None:
        raise ValueError(f"no {HTML}")

    @app.task(queue="mail")
    def mail(ctx: RunContext, to: str) -> dict[str, str]:
        ctx.progress(2, 3, HTML)
        ctx.log.info("to %s", to)
        return {"stdout": f"sent to {to}"}

    app.add_schedule(f"of {HTML}", every(hours=1), "somebody_elses", tags=[f"t{HTML}"])
    return app


async def filled(app: Oncron) -> dict[str, str]:
    """Start it and run a little; ids by task."""
    ids: dict[str, str] = {}
    async with app:
        for name in ("broken", "reindex"):
            run = await app.fire(name, reason="by hand")
            ids[name] = run.id
            try:
                await run.wait(20)
            except RunFailed:
                pass
        run = await app.enqueue("mail", args={"to": HTML})
        ids["mail"] = run.id
        await run.wait(20)
    return ids
