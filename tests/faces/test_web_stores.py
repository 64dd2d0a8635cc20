"""The dashboard over PostgreSQL and Redis: every page, every action once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oncron import Oncron
from oncron.web import asgi
from tests.faces.web import client, filled, send, shop, text_of
from tests.redis_server import RedisServer

PAGES = ("schedules", "schedule?name=reindex", "runs", "queues", "replicas", "locks", "batches", "load", "api")
READS = ("schedules", "runs", "queues", "replicas", "locks", "batches", "stats", "load", "schedule?name=reindex")


@pytest.fixture(params=["postgres", "redis"])
async def app(request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[Oncron]:
    if request.param == "postgres":
        found = shop(request.getfixturevalue("postgres_url"))
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        found = shop(server.url(volatile=True), namespace=tmp_path.name)
    yield found
    found._life.at_exit()


async def test_every_page_and_action_works(app):
    ids = await filled(app)
    async with app, app.lock("the index"), client(asgi(app)) as web:
        async with app.batch() as batch:
            batch.add(app._registry.tasks["mail"], to="x")
        for page in (*PAGES, f"run?id={ids['broken']}", f"batch?id={batch.id}", *(f"api/{name}" for name in READS)):
            answer = await web.get(f"/{page}")
            assert answer.status_code == 200, (page, answer.text[-300:])
        assert "the index" in text_of(await web.get("/locks"))
        assert "alive" in text_of(await web.get("/replicas"))
        assert ids["broken"][-12:] in text_of(await web.get("/runs?state=failed&text=valueerror"))
        older = await web.get(f"/runs?before={ids['mail']}")
        assert ids["reindex"][-12:] in text_of(older)
        assert (await web.get("/runs?before=nope")).status_code == 400
        for action, where in (
            ("pause", {"name": "reindex"}),
            ("resume", {"name": "reindex"}),
            ("fire", {"name": "reindex"}),
        ):
            assert (await send(web, "/schedules", action, **where)).status_code == 303
        for action in ("pausequeue", "resumequeue"):
            assert (await send(web, "/queues", action, name="mail")).status_code == 303
        assert (await send(web, f"/run?id={ids['broken']}", "retry")).status_code == 303
