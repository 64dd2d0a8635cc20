"""Who may see the dashboard, and that a change is the user's own wish."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse

from oncron import Oncron, every
from oncron.web import asgi
from oncron.web._guard import Token
from oncron.web._site import Dashboard
from tests.faces.web import client, form_of, send, text_of

SITE = {"origin": "http://web.test"}


@pytest.fixture
async def app() -> AsyncIterator[Oncron]:
    """One that runs nothing, with one schedule."""
    found = Oncron("memory://")
    await found.put_schedule("sweep", every(hours=1), "sweep")
    yield found
    found._life.at_exit()


@pytest.fixture
async def web(app: Oncron) -> AsyncIterator[httpx.AsyncClient]:
    async with client(asgi(app)) as found:
        yield found


async def paused(app: Oncron) -> bool:
    return (await app.get_schedule("sweep")).paused


# --- wishes ---------------------------------------------------------------------------------------


async def test_every_answer_forbids_scripts_and_frames_of_others(web):
    for page in ("schedules", "nope", "api/schedules", "static/oncron.css", "healthz", "run?id=x"):
        headers = (await web.get(f"/{page}")).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"


async def test_pages_are_not_kept_by_caches(web):
    assert (await web.get("/schedules")).headers["cache-control"] == "no-store"


async def test_the_cookie_of_forms_goes_with_no_request_of_another_site(web):
    cookie = (await web.get("/schedules")).headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie
    assert "set-cookie" not in (await web.get("/schedules")).headers


async def test_over_https_the_cookie_is_for_https_only(app):
    transport = httpx.ASGITransport(asgi(app))
    async with httpx.AsyncClient(transport=transport, base_url="https://web.test") as web:
        assert "secure" in (await web.get("/schedules")).headers["set-cookie"].lower()


@pytest.mark.parametrize("broken", ["csrf of another", "no csrf", "no cookie"])
async def test_a_form_without_its_token_changes_nothing(web, app, broken):
    fields = form_of(await web.get("/schedules"), "pause", name="sweep")
    if broken == "csrf of another":
        fields["csrf"] = "A" * 43
    elif broken == "no csrf":
        del fields["csrf"]
    else:
        web.cookies.clear()
    answer = await web.post("/pause", data=fields, headers=SITE)
    assert answer.status_code == 403
    assert "nothing was changed" in text_of(answer)
    assert not await paused(app)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_what_another_site_sends_changes_nothing(web, app, headers):
    fields = form_of(await web.get("/schedules"), "pause", name="sweep")
    answer = await web.post("/pause", data=fields, headers=headers)
    assert answer.status_code == 403
    answer = await web.post("/api/schedule/pause", json={"name": "sweep"}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.json()["error"]
    assert not await paused(app)


async def test_a_proxy_may_ask_under_another_host(web, app):
    fields = form_of(await web.get("/schedules"), "pause", name="sweep")
    headers = {"origin": "https://jobs.example.org", "sec-fetch-site": "same-origin"}
    assert (await web.post("/pause", data=fields, headers=headers)).status_code == 303
    assert await paused(app)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", ""])
async def test_the_api_takes_what_no_form_of_another_site_can_send(web, app, kind):
    answer = await web.post("/api/schedule/pause", content=b'{"name": "sweep"}', headers={"content-type": kind})
    assert answer.status_code == 415
    assert not await paused(app)


@pytest.mark.parametrize(
    ("content", "status"), [(b"{", 400), (b"[1]", 400), (b"{}", 400), (b'{"name": 7}', 400), (b" " * 20_000, 413)]
)
async def test_a_body_that_is_no_wish_is_refused(web, content, status):
    answer = await web.post("/api/schedule/pause", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["status"] == status


async def test_a_body_of_unknown_length_is_refused(web):
    async def body() -> AsyncIterator[bytes]:
        yield b"name=sweep"

    answer = await web.post("/pause", content=body(), headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 411


async def test_a_note_has_a_length(web):
    answer = await web.post("/api/schedule/pause", json={"name": "sweep", "note": "x" * 501})
    assert answer.status_code == 400
    assert "at most 500 characters" in answer.json()["error"]


async def test_a_read_only_dashboard_shows_no_buttons_and_takes_no_wish(app):
    async with client(asgi(app, read_only=True)) as web:
        page = await web.get("/schedules")
        assert '<form method="post"' not in page.text
        assert "read-only" in text_of(page)
        assert "set-cookie" not in page.headers
        answer = await web.post("/api/schedule/pause", json={"name": "sweep"})
        assert (answer.status_code, await paused(app)) == (403, False)


# --- who ------------------------------------------------------------------------------------------


async def test_without_a_user_there_is_nothing_but_the_health(app):
    async with client(asgi(app, auth=lambda _: None)) as web:
        for page in ("schedules", "api/schedules", "events", "static/oncron.css", "nope"):
            answer = await web.get(f"/{page}")
            assert answer.status_code == 401, page
            assert "sweep" not in answer.text
            assert "memory://" not in answer.text
        assert (await web.post("/api/schedule/pause", json={"name": "sweep"})).status_code == 401
        assert (await web.get("/healthz")).status_code == 200


def by_header(request: Request) -> str | None:
    return request.headers.get("x-user")


async def by_header_async(request: Request) -> str | None:
    return request.headers.get("x-user")


def by_header_later(request: Request) -> Awaitable[str | None]:
    return by_header_async(request)


class ByHeader:
    async def __call__(self, request: Request) -> str | None:
        return request.headers.get("x-user")


@pytest.mark.parametrize("auth", [by_header, by_header_async, ByHeader(), by_header_later])
async def test_the_users_name_goes_into_the_note(app, auth: Any):
    async with client(asgi(app, auth=auth), **{"x-user": "ada"}) as web:
        assert "ada" in text_of(await web.get("/schedules"))
        await send(web, "/schedules", "pause", {"note": "disk is full"}, name="sweep")
        assert (await app.get_schedule("sweep")).note == "disk is full (ada)"
        run = (await web.post("/api/schedule/fire", json={"name": "sweep"})).json()
        assert run["reason"] == "run now (ada)"


async def test_a_users_name_is_one_short_line(app):
    async with client(asgi(app, auth=lambda _: "a\nb\0" + "c" * 300)) as web:
        await send(web, "/schedules", "pause", name="sweep")
        note = (await app.get_schedule("sweep")).note
        assert note.startswith("by abccc")
        assert len(note) == 103


async def test_the_hook_may_answer_itself(app):
    async with client(asgi(app, auth=lambda _: RedirectResponse("/login"))) as web:
        answer = await web.get("/schedules")
        assert (answer.status_code, answer.headers["location"]) == (307, "/login")
        assert "content-security-policy" in answer.headers


async def test_a_hook_that_fails_shows_nothing(app, caplog):
    def hook(_: Request) -> str:
        raise RuntimeError("the directory is away")

    async with client(asgi(app, auth=hook)) as web:
        answer = await web.get("/schedules")
        assert answer.status_code == 500
        assert "sweep" not in answer.text
        assert "directory" not in answer.text
    assert "the directory is away" in caplog.text


@pytest.mark.parametrize("auth", [("ada", "s3cret"), ("", "s3cret")])
async def test_a_token_is_the_password_of_any_name(app, auth):
    async with client(asgi(app, auth=Token("s3cret"))) as web:
        assert (await web.get("/schedules", auth=auth)).status_code == 200
        answer = await web.post("/api/schedule/pause", json={"name": "sweep"}, auth=auth)
        assert answer.json()["note"] == ("by ada" if auth[0] else "")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer wrong", "Bearer", "Basic !!!", "Basic YWRhOndyb25n", "Digest x", "Bearer s3cret2", "Basic /w=="],
)
async def test_a_bad_token_is_asked_for_again(app, header):
    async with client(asgi(app, auth=Token("s3cret"))) as web:
        answer = await web.get("/schedules", headers={"authorization": header} if header else {})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")


async def test_a_token_is_a_bearer_token_for_programs(app):
    async with client(asgi(app, auth=Token("s3cret")), authorization="Bearer s3cret") as web:
        assert (await web.get("/api/schedules")).json()["items"][0]["name"] == "sweep"


async def test_a_name_that_was_made_to_point_here_is_not_answered(app):
    dashboard = Dashboard(app, hosts=("127.0.0.1", "localhost", "::1"))
    for host, status in (
        ("127.0.0.1:8000", 200),
        ("LOCALHOST", 200),
        ("[::1]:8000", 200),
        ("evil.test", 421),
        ("[", 421),
    ):
        async with client(dashboard, host=host) as web:
            assert (await web.get("/schedules")).status_code == status, host
