"""The dashboard in a real Chromium: what people see, on a desk and on a phone, by mouse and by keyboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from oncron import Oncron, every
from oncron._clock import wall_us
from oncron._model import RunFilter, RunState
from tests.conftest import missed, start_redis
from tests.faces.browser import WIDTHS, find_browser, launched, serving
from tests.faces.looks import BROKEN, CONTRASTS, OVERFLOWS, SMALL_TARGETS, Watch, nameless
from tests.faces.two_weeks import HOUR, HTML, ODD, beat, fill, stories
from tests.servers import ServerMissing

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = 15_000
"""Milliseconds in which what is to be shown has to be shown."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    try:
        find_browser()
    except ServerMissing as missing:
        missed(missing)
    async with async_playwright() as playwright:
        found = await launched(playwright)
        yield found
        await found.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[Oncron]:
    """With some days of history."""
    found = Oncron("memory://", queues={"default": 5, "mail": 2, "pages": 1})
    await fill(found, [replace(story, days=min(story.days, 5)) for story in stories()])
    yield found
    found._life.at_exit()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(app: Oncron) -> AsyncIterator[str]:
    async with serving(app) as found:
        yield found


@asynccontextmanager
async def opened(browser: Browser, url: str = "", **options: Any) -> AsyncIterator[Page]:
    """A page in a browser of its own; at its end nothing has gone wrong in it."""
    context: BrowserContext = await browser.new_context(**options)
    context.set_default_timeout(SOON)
    page = await context.new_page()
    watch = Watch(page)
    try:
        if url:
            await page.goto(url)
        yield page
    finally:
        await context.close()
    assert watch.wrongs == []


async def pages(app: Oncron) -> list[str]:
    async def found(state: RunState) -> str:
        return (await app._desk.ask(lambda store: store.runs(RunFilter(state=state, limit=1))))[0].id

    [batch] = await app._desk.ask(lambda store: store.batches(limit=1))
    return [
        "schedules", "schedules?text=nobody", "schedule?name=sync-orders", "schedule?name=ping-partners", "runs",
        f"schedule?name={quote(ODD)}", f"run?id={await found(RunState.FAILED)}",
        f"run?id={await found(RunState.RUNNING)}", "queues", "replicas", "locks", "batches", f"batch?id={batch.id}",
        "load", "api", "run?id=nothing",
    ]  # fmt: skip


# --- every page -------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "scheme"), [(WIDTHS[0], "light"), (WIDTHS[1], "dark")], ids=("desk", "phone"))
async def test_every_page_fits_keeps_to_itself_and_can_be_read_and_used(browser, app, url, size, scheme):
    """Light on a desk, dark on a phone."""
    await app._desk.ask(beat)
    found: dict[str, object] = {}
    async with opened(browser, viewport={"width": size[0], "height": size[1]}, color_scheme=scheme) as page:
        for path in await pages(app):
            await page.goto(url + path)
            assert await page.locator("h1").count() == 1, path
            if wide := await page.evaluate(OVERFLOWS):
                found[f"{path}: wider than the window"] = wide
            if unnamed := await nameless(page):
                found[f"{path}: without a name"] = unnamed
            if small := await page.evaluate(SMALL_TARGETS, 28 if scheme == "light" else 38):
                found[f"{path}: hard to hit"] = small
            if pale := await page.evaluate(CONTRASTS):
                found[f"{path}: pale"] = pale
        assert await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    assert found == {}


async def test_html_in_names_arguments_and_errors_is_text(browser, url):
    async with opened(browser, f"{url}schedules") as page:
        await page.get_by_role("link", name=ODD).click()
        await expect(page.locator("h1")).to_contain_text(ODD)
        assert await page.locator("img, script:not([src])").count() == 0
        await page.goto(f"{url}runs?task=mail")
        await page.locator("table .id").last.click()
        await expect(page.locator("pre").first).to_contain_text(HTML)
        assert await page.locator("img").count() == 0


async def test_pictures_say_their_facts_to_those_who_do_not_see_them(browser, url):
    async with opened(browser, f"{url}schedule?name=sync-orders") as page:
        picture = page.get_by_role("img", name="What became of the ticks of sync-orders")
        await expect(picture).to_be_visible()
        assert "succeeded" in (await picture.locator("desc").text_content() or "")
        for name in ("Days of sync-orders", "How long runs took", "How late ticks started", "Coming ticks"):
            await expect(page.get_by_role("img", name=name)).to_be_visible()
        await page.goto(f"{url}load")
        await expect(page.get_by_role("img", name="Ticks a minute over the coming day")).to_be_visible()


async def test_a_phone_has_the_timeline_in_its_own_width(browser, url):
    async with opened(browser, f"{url}schedule?name=sync-orders", viewport={"width": 390, "height": 844}) as page:
        widths = "[...document.querySelectorAll('.picture-svg.timeline')].map((e) => e.getBoundingClientRect().width)"
        wide, slim = await page.evaluate(widths)
        assert wide == 0
        assert 300 < slim <= 390


async def test_a_phone_s_menu_shows_which_page_it_is(browser, url):
    async with opened(browser, f"{url}load", viewport={"width": 390, "height": 844}) as page:
        await expect(page.get_by_role("navigation", name="Pages").locator("[aria-current]")).to_be_in_viewport(ratio=1)


async def test_paper_gets_the_content_and_nothing_to_press(browser, url):
    async with opened(browser, f"{url}schedules") as page:
        await page.emulate_media(media="print")
        await expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
        await expect(page.get_by_role("button", name="Run now invoices")).to_be_hidden()
        await expect(page.get_by_role("link", name="invoices")).to_be_visible()


async def test_what_is_looked_for_on_every_page_would_be_found(browser, url):
    context = await browser.new_context(viewport={"width": 390, "height": 844})
    page = await context.new_page()
    watch = Watch(page)
    await page.goto(f"{url}locks")
    assert (await page.evaluate(OVERFLOWS), await nameless(page), watch.wrongs) == (None, [], [])

    await page.evaluate(BROKEN)

    assert (await page.evaluate(OVERFLOWS))[0] >= 2000
    assert [found.split()[0] for found in await nameless(page)] == ["button", "textbox", "image"]
    assert await page.evaluate(SMALL_TARGETS, 38) == ["BUTTON : 10"]
    assert [found[:6] for found in await page.evaluate(CONTRASTS)] == ["text P", "mark r"]
    await page.wait_for_function("window.complained")
    assert len([wrong for wrong in watch.wrongs if "Content Security Policy" in wrong]) >= 2
    await context.close()


# --- doing ------------------------------------------------------------------------------------


async def tab_to(page: Page, name: str, most: int = 80) -> list[str]:
    """Press Tab until what has the keyboard has that name; the names on the way."""
    names: list[str] = []
    for _ in range(most):
        await page.keyboard.press("Tab")
        names.append(
            await page.evaluate(
                "(e => e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText)(document.activeElement)"
            )
        )
        assert await page.evaluate("document.activeElement.matches(':focus-visible')"), f"{names[-1]} shows no focus"
        if names[-1] == name:
            return names
    raise AssertionError(f"no {name!r} among {names}")


async def test_a_schedule_is_paused_with_a_note_and_resumed_by_keyboard_alone(browser, app, url):
    async with opened(browser, f"{url}schedules?text=clean") as page:
        names = await tab_to(page, "Pause clean-uploads")
        assert names[0] == "To the content"
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog", name="Pause clean-uploads")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        assert await page.evaluate("document.activeElement.ariaLabel") == "Pause clean-uploads", "where one was"

        await page.keyboard.press("Enter")
        await page.keyboard.type("moving house")
        await page.keyboard.press("Enter")

        row = page.get_by_role("row", name="clean-uploads")
        await expect(row).to_contain_text("paused moving house")
        [record] = await app._desk.ask(lambda store: store.schedules(["clean-uploads"]))
        assert (record.status.value, record.note) == ("paused", "moving house")
        await tab_to(page, "Resume clean-uploads")
        await page.keyboard.press("Enter")
        await expect(row).to_contain_text("active")


async def test_the_skip_link_goes_past_the_menu(browser, url):
    async with opened(browser, f"{url}runs") as page:
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.getElementById('main').contains(document.activeElement)")


async def test_without_scripts_everything_can_be_done_as_well(browser, app, url):
    async with opened(browser, f"{url}queues", java_script_enabled=False) as page:
        await page.get_by_role("button", name="Pause images").click()
        dialog = page.get_by_role("dialog", name="Pause images")
        await dialog.get_by_label("Why").fill("disk is full")
        await dialog.get_by_role("button", name="Pause", exact=True).click()
        await expect(page.get_by_text("disk is full")).to_be_visible()
        await page.get_by_role("button", name="Resume images").click()
        await expect(page.get_by_role("button", name="Pause images")).to_be_visible()


async def test_a_dead_run_is_retried_and_a_pending_one_cancelled(browser, app, url):
    [failed] = await app._desk.ask(lambda store: store.runs(RunFilter(state=RunState.FAILED, task="render")))
    async with opened(browser, f"{url}run?id={failed.id}") as page:
        await expect(page.locator("pre.error")).to_contain_text("SupplierDown")
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator("h1")).to_contain_text("pending")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("h1")).to_contain_text("cancelled")


async def test_read_only_shows_everything_and_offers_nothing(browser, app):
    async with serving(app, read_only=True) as there, opened(browser) as page:
        for path in (await pages(app))[2:8]:
            await page.goto(there + path)
            assert await page.locator("form[method=post], dialog, .do").count() == 0, path
        await page.goto(f"{there}schedules")
        await expect(page.locator(".where")).to_contain_text("read-only")
        assert await page.get_by_role("button").all_inner_texts() == ["Show"]


# --- staying up to date -------------------------------------------------------------------------


async def test_an_open_page_shows_what_others_do_without_being_loaded_again(browser, app, url):
    async with opened(browser, f"{url}schedules?text=invoices") as page:
        await expect(page.locator("#live")).to_have_text("live")
        await page.evaluate("window.mine = 'still here'")

        await app.pause("invoices", note="by somebody else")

        row = page.get_by_role("row", name="invoices")
        await expect(row).to_contain_text("paused by somebody else")
        await app.resume("invoices")
        await expect(row).to_contain_text("active")
        assert await page.evaluate("window.mine") == "still here"


async def test_what_somebody_is_typing_is_not_swept_away(browser, app, url):
    async with opened(browser, f"{url}schedules") as page, opened(browser, f"{url}schedules") as witness:
        for each in (page, witness):
            await expect(each.locator("#live")).to_have_text("live")
        await page.get_by_role("button", name="Pause rotate-keys").click()
        await page.keyboard.type("half a sen")

        await app.pause("invoices", note="meanwhile")
        await expect(witness.get_by_text("meanwhile")).to_be_visible()

        dialog = page.get_by_role("dialog", name="Pause rotate-keys")
        await expect(dialog.get_by_label("Why")).to_have_value("half a sen")
        await page.keyboard.press("Escape")
        await expect(page.get_by_text("meanwhile")).to_be_visible()
        await app.resume("invoices")


async def test_a_store_that_goes_away_is_told_on_the_page_and_it_is_back_by_itself(browser):
    server = start_redis("valkey")
    app = Oncron(server.url())
    try:
        await app.put_schedule("sweep", every(hours=1), "sweep")
        async with serving(app) as there, opened(browser, f"{there}schedules") as page:
            await expect(page.locator("#live")).to_have_text("live")
            await page.evaluate("window.mine = 'still here'")

            await asyncio.to_thread(server.kill)
            await expect(page.get_by_role("alert")).to_contain_text("The store does not answer")
            await expect(page.locator("#live")).to_have_text("not live")
            await expect(page.get_by_role("link", name="sweep")).to_be_visible()

            await asyncio.to_thread(server.start)
            await expect(page.get_by_role("alert")).to_be_hidden(timeout=2 * SOON)
            await app.pause("sweep", note="it is back")
            await expect(page.get_by_text("it is back")).to_be_visible()
            assert await page.evaluate("window.mine") == "still here"
    finally:
        app._life.at_exit()
        server.close()


async def test_a_page_of_a_store_that_is_away_shows_itself_when_it_is_back(browser):
    server = start_redis("valkey")
    app = Oncron(server.url())
    try:
        await app.put_schedule("sweep", every(hours=1), "sweep")
        async with serving(app) as there, opened(browser) as page:
            await asyncio.to_thread(server.kill)
            answer = await page.goto(f"{there}schedules")
            assert answer is not None
            assert answer.status == 503
            await asyncio.to_thread(server.start)
            await expect(page.get_by_role("link", name="sweep")).to_be_visible(timeout=2 * SOON)
    finally:
        app._life.at_exit()
        server.close()


async def test_how_long_ago_is_told_by_the_store_s_clock(browser, url, app):
    [row] = await app._desk.ask(lambda store: store.schedules(["rotate-keys"]))
    assert row.next_at is not None
    days = (row.next_at - wall_us()) // (24 * HOUR)
    async with opened(browser, f"{url}schedules?text=rotate", timezone_id="Pacific/Auckland") as page:
        await expect(page.get_by_role("row", name="rotate-keys")).to_contain_text(f"in {days} d")
