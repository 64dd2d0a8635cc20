"""The dashboard's pages, over a real store: what they show, what they do, and what they say of bad input."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from oncron import Oncron, cron, every
from oncron._clock import SECOND, from_us, wall_us
from oncron._clock_changes import clock_changes
from oncron._model import Change, Gap, GapReason, WorkerRecord
from oncron.errors import InvalidOption, NotFound
from oncron.web import asgi
from tests.faces.web import HTML, client, filled, form_of, send, shop, text_of

PAGES = ("schedules", "runs", "queues", "replicas", "locks", "batches", "load", "api")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A store's URL, and the ids of its runs by task."""
    url = f"sqlite:///{tmp_path_factory.mktemp('web')}/shop.db"
    return url, asyncio.run(filled(shop(url)))


@pytest.fixture
async def app(life: tuple[str, dict[str, str]]) -> AsyncIterator[Oncron]:
    found = shop(life[0])
    yield found
    found._life.at_exit()


@pytest.fixture
async def web(app: Oncron) -> AsyncIterator[httpx.AsyncClient]:
    async with client(asgi(app)) as found:
        yield found


# --- what pages show ----------------------------------------------------------------------------


async def test_every_page_is_there_and_asks_nobody_else(web):
    for page in PAGES:
        answer = await web.get(f"/{page}")
        assert answer.status_code == 200, page
        addresses = re.findall(r'(?:src|href|action)="([^"]*)"', answer.text)
        assert [each for each in addresses if each.startswith(("/", "http", "//"))] == []
        assert " style=" not in answer.text
        assert "<script>" not in answer.text
        assert not re.search(r"<[^>]+\son\w+=", answer.text)


async def test_the_front_door_leads_to_the_schedules(web):
    answer = await web.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "schedules")


async def test_schedules_are_shown_in_words_with_what_became_of_them(web):
    shown = text_of(await web.get("/schedules"))
    assert re.search(
        r"reindex every day at 02:30 \(Europe/Berlin\) night active in \S+ .* succeeded \S+ \w+ ago", shown
    )
    assert re.search(r"broken every day at 03:00 .* failed \S+ \w+ ago – ", shown)


@pytest.mark.parametrize(
    ("query", "there", "gone"),
    [
        ("text=REIND", "reindex", "broken"),
        ("tag=night", "reindex", "broken"),
        ("status=active&text=bro", "broken", "reindex"),
        ("text=somebody_elses", "every hour", "broken"),
    ],
)
async def test_schedules_are_found_by_name_task_tag_and_status(web, query, there, gone):
    shown = text_of(await web.get(f"/schedules?{query}"))
    assert there in shown
    assert gone not in shown


async def test_what_users_named_is_shown_as_text(web, life):
    _, ids = life
    pages = [
        "/schedules",
        "/runs",
        f"/run?id={ids['mail']}",
        f"/run?id={ids['broken']}",
        "/load",
        "/runs?text=%3Cscript%3E",
    ]
    for page in [*pages, "/schedule?name=reindex", "/runs?task=%3Cscript%3E", "/nope%3Cscript%3E"]:
        answer = await web.get(page)
        assert "<script>alert" not in answer.text, page
        assert "<script>" not in answer.text, page
    assert HTML in text_of(await web.get("/schedules"))
    assert f"ValueError: no {HTML}" in text_of(await web.get(f"/run?id={ids['broken']}"))


@pytest.mark.parametrize("name", ["a/b?c=d#e%20&f+g", "..", "über 'x' \"y\"", HTML])
async def test_a_link_leads_to_its_schedule_whatever_its_name(app, web, name):
    await app.put_schedule(name, every(hours=1), "x")
    listed = await web.get("/schedules")
    links = [unescape(link) for link in re.findall(r'href="(schedule\?[^"]*)"', listed.text)]
    pages = [text_of(await web.get("/" + link)) for link in links]
    assert any(f" {' '.join(name.split())} active every hour" in page for page in pages)
    done = await send(web, "/schedules", "pause", name=name)
    assert done.status_code == 303
    assert (await app.get_schedule(name)).paused
    await app.remove_schedule(name)


async def test_a_schedule_shows_its_rule_its_future_and_its_past(web, life):
    shown = text_of(await web.get("/schedule?name=reindex"))
    assert 'cron("30 2 * * *", timezone="Europe/Berlin")' in shown
    assert "02:30 does not exist that day" in shown
    assert "comes twice" in shown
    assert life[1]["reindex"][-12:] in shown


async def test_why_a_tick_did_not_run_is_asked_on_the_page(web):
    shown = text_of(await web.get("/schedule?name=reindex&why=2020-01-01T01:30"))
    assert "2020-01-01T01:30:00Z of 'reindex': the schedule was declared later" in shown


async def test_ticks_without_a_run_are_listed_with_the_reason(web, app):
    row = (await app._desk.ask(lambda store: store.schedules(["broken"])))[0]
    gap = Gap(schedule="broken", first=row.cursor - 10**9, last=row.cursor, count=24, reason=GapReason.MISSED)
    change = Change(
        name="broken", definition=row.definition, status=row.status, new_cursor=row.cursor, next_at=row.next_at,
        seen_revision=row.revision, seen_cursor=row.cursor, gaps=(gap,),
    )  # fmt: skip
    await app._desk.ask(lambda store: store.declare([change]))
    shown = text_of(await web.get("/schedule?name=broken"))
    assert "24 missed no replica fired it in time" in shown
    assert "one of 24 ticks" in shown


async def test_a_run_shows_arguments_output_progress_log_and_traceback(web, life):
    _, ids = life
    mail, broken = text_of(await web.get(f"/run?id={ids['mail']}")), text_of(await web.get(f"/run?id={ids['broken']}"))
    assert f'"to": "{HTML}"' in mail
    assert f"stdout sent to {HTML}" in mail
    assert f"2 of 3 {HTML}" in mail
    assert f"Z INFO to {HTML}" in mail
    assert f"failed: ValueError: no {HTML}" in broken
    assert "Traceback" in broken
    assert "1; 1 of 1 spent" in broken


async def test_runs_are_filtered_and_searched(web, life):
    _, ids = life
    failed = text_of(await web.get("/runs?state=failed"))
    assert ids["broken"][-12:] in failed
    assert ids["mail"][-12:] not in failed
    assert ids["mail"][-12:] in text_of(await web.get("/runs?queue=mail"))
    assert ids["broken"][-12:] in text_of(await web.get("/runs?text=VALUEERROR"))
    assert ids["reindex"][-12:] in text_of(await web.get(f"/runs?text={ids['reindex']}"))
    assert "No run fits" in text_of(await web.get("/runs?task=nobody"))


async def test_queues_show_weights_and_who_serves_them(web):
    shown = text_of(await web.get("/queues"))
    assert re.search(r"mail open 0 – 0 0 nobody 10 Pause", shown)


async def test_the_load_names_the_busiest_minutes(web):
    shown = text_of(await web.get("/load"))
    assert re.search(r"2\d ticks of 3 schedules", shown)
    assert "Busiest minutes" in shown


async def test_a_schedule_that_nobody_fires_is_red(app):
    row = (await app._desk.ask(lambda store: store.schedules(["broken"])))[0]
    now = await app._desk.ask(lambda store: store.now())
    late = replace(row.definition, name="late")
    change = Change(
        name="late", definition=late, status=row.status, new_cursor=now - 7200 * SECOND, next_at=now - 3600 * SECOND
    )
    await app._desk.ask(lambda store: store.declare([change]))
    async with client(asgi(app)) as web:
        listed = await web.get("/schedules?text=late")
        assert '<tr class="overdue">' in listed.text
        assert "overdue: due 1 h ago" in text_of(listed)
        assert "Overdue: its tick was due 1 h ago and no replica has fired it" in text_of(
            await web.get("/schedule?name=late")
        )
    await app.remove_schedule("late")


async def test_coming_ticks_that_a_clock_change_touches_are_marked(app):
    jump = next(
        change
        for change in clock_changes(cron("* * * * *", timezone="Europe/Berlin"), wall_us())
        if change.after > change.before
    )
    at = from_us(jump.at)
    await app.put_schedule("spring", cron(f"30 2 {at.day} {at.month} *"), "x")
    async with client(asgi(app)) as web:
        page = await web.get("/schedule?name=spring")
    assert page.text.count('<tr class="dst">') == 1
    assert "02:30 does not exist that day: runs at 03:00" in text_of(page)
    await app.remove_schedule("spring")


async def test_who_runs_a_schedule_now_is_shown(tmp_path):
    app = Oncron(f"sqlite:///{tmp_path}/jobs.db")
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.schedule(every(hours=1))
    async def slow() -> None:
        started.set()
        await may_end.wait()

    async with app, client(asgi(app)) as web:
        run = await app.fire("slow")
        await started.wait()
        shown = text_of(await web.get("/schedules"))
        assert f"{run.id[-12:]} in {(await app.get_run(run.id)).worker}" in shown
        assert f"Runs now {run.id[-12:]} in" in text_of(await web.get("/schedule?name=slow"))
        assert re.search(r"alive scheduler, worker \S+ .* right 1 every 1 \d", text_of(await web.get("/replicas")))
        late = WorkerRecord(id="late", roles=("worker",), skew=-90 * SECOND)
        await app._desk.ask(lambda store: store.heartbeat(late, 15 * SECOND))
        assert re.search(r"late alive worker .* 1 min 30 s behind", text_of(await web.get("/replicas")))
        may_end.set()
        await run.wait(20)
        assert "Last success – " not in text_of(await web.get("/schedule?name=slow"))


# --- many ---------------------------------------------------------------------------------------


async def test_ten_thousand_schedules_come_page_by_page(tmp_path):
    app = Oncron(f"sqlite:///{tmp_path}/many.db")
    rule = every(minutes=15)
    for number in range(10_000):
        app.add_schedule(f"tenant-{number:05d}", rule, "sync", tags=["even"] if number % 2 == 0 else [])
    async with app:
        pass
    async with client(asgi(shop(f"sqlite:///{tmp_path}/many.db"))) as web:
        first = await web.get("/schedules")
        assert len(first.text) < 200_000
        assert text_of(first).count("every 15 minutes") == 50
        more = re.search(r'rel="next" href="([^"]*)"', first.text)
        assert more is not None
        assert "tenant-00050" in text_of(await web.get("/" + more[1].replace("&amp;", "&")))
        assert "tenant-09999" in text_of(await web.get("/schedules?text=09999"))
        assert "10000 schedules" in text_of(await web.get("/load"))


async def test_runs_go_on_after_the_last_one_of_a_page(web, life):
    _, ids = life
    newest = await web.get("/api/runs?limit=1")
    assert newest.json()["items"][0]["id"] == ids["mail"]
    older = await web.get(f"/runs?before={newest.json()['before']}")
    assert ids["mail"][-12:] not in text_of(older)
    assert ids["reindex"][-12:] in text_of(older)
    assert "To the newest" in text_of(older)


async def test_a_search_that_would_read_too_much_goes_on_by_hand(web, monkeypatch, life):
    monkeypatch.setattr("oncron.web._found.RUNS_LOOKED_AT", 1)
    monkeypatch.setattr("oncron.web._found._RUN_CHUNK", 1)
    page = await web.get("/runs?text=valueerror")
    assert "there are older ones" in text_of(page)
    for _ in range(5):
        on = re.search(r'rel="next" href="([^"]*)">Look on', page.text)
        if on is None:
            break
        page = await web.get("/" + on[1].replace("&amp;", "&"))
        if life[1]["broken"][-12:] in page.text:
            break
    assert life[1]["broken"][-12:] in page.text


async def test_schedules_are_looked_through_by_hand_as_well(web, monkeypatch):
    monkeypatch.setattr("oncron.web._found.SCHEDULES_LOOKED_AT", 1)
    monkeypatch.setattr("oncron.web._found._CHUNK", 1)
    page = await web.get("/schedules?text=reindex")
    assert "No schedule on this page fits" in text_of(page)
    assert ">Look on<" in page.text


async def test_a_load_that_takes_too_long_to_count_says_what_is_missing(web, monkeypatch):
    monkeypatch.setattr("oncron.web._coming_load._COUNT_FOR", -1)
    assert "At least 3 schedules more could not be counted in time" in text_of(await web.get("/load"))


# --- what pages do ------------------------------------------------------------------------------


async def test_a_schedule_is_paused_with_a_note_and_resumed(web, app):
    done = await send(web, "/schedules?text=reindex", "pause", {"note": "disk is full"}, name="reindex")
    assert (done.status_code, done.headers["location"]) == (303, "schedules?text=reindex")
    assert (await app.get_schedule("reindex")).note == "disk is full"
    assert "paused disk is full" in text_of(await web.get("/schedules"))
    await send(web, "/schedule?name=reindex", "resume", name="reindex")
    assert not (await app.get_schedule("reindex")).paused


async def test_run_now_leads_to_the_run_and_a_second_one_is_refused(web, app):
    done = await send(web, "/schedules", "fire", name="reindex")
    shown = await web.get("/" + done.headers["location"])
    assert "Run of reindex pending" in text_of(shown)
    assert "run now" in text_of(shown)
    again = await send(web, "/schedules", "fire", name="reindex")
    assert again.status_code == 409
    assert "has its place" in text_of(again)
    cancelled = await send(web, "/" + done.headers["location"], "cancel")
    assert cancelled.status_code == 303
    run_id = done.headers["location"].partition("id=")[2]
    assert (await app.get_run(run_id)).state == "cancelled"


async def test_a_failed_run_is_retried(web, app, life):
    run_id = life[1]["broken"]
    await send(web, f"/run?id={run_id}", "retry")
    assert (await app.get_run(run_id)).state == "pending"
    await app.cancel(run_id)


async def test_a_queue_is_paused_for_the_fleet(web, app):
    await send(web, "/queues", "pausequeue", {"note": "mail is down"}, name="mail")
    assert [(queue.name, queue.note) for queue in await app.queues() if queue.paused] == [("mail", "mail is down")]
    await send(web, "/queues", "resumequeue", name="mail")
    assert not any(queue.paused for queue in await app.queues())


async def test_a_form_leads_back_to_pages_of_the_dashboard_only(web):
    page = await web.get("/schedules")
    fields = form_of(page, "pause", name="broken") | {"back": "https://elsewhere.test/"}
    done = await web.post("/pause", data=fields)
    assert done.headers["location"] == "schedules"
    await send(web, "/schedules", "resume", name="broken")


async def test_reading_changes_nothing_and_needs_no_running_app(life):
    url, _ = life
    app = shop(url)
    async with client(asgi(app)) as web:
        before = (await web.get("/api/schedules")).json()
        for page in PAGES:
            await web.get(f"/{page}")
        assert (await web.get("/api/schedules")).json() == before
    assert not app._life.engine.running
    app._life.at_exit()


async def test_an_open_page_asks_for_its_changing_part_only(web):
    part = await web.get("/runs", headers={"x-oncron-part": "main"})
    assert part.text.startswith("<main")
    assert '<nav aria-label="Pages"' not in part.text


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "status", "said"),
    [
        ("run?id=nope", 404, "No run 'nope'"),
        ("schedule?name=nope", 404, "No schedule 'nope'"),
        ("batch?id=nope", 404, "No batch 'nope'"),
        ("run", 400, "Id is missing"),
        ("runs?before=nope", 400, "is no run on record"),
        ("runs?before=01a23043-325c-76b4-ac6b-f1baddfb7ebf", 400, "begin at the newest"),
        ("batches?before=nope", 400, "is no batch on record"),
        ("runs?state=sleeping", 400, "give one of 'pending', 'running'"),
        ("schedules?status=gone", 400, "give one of 'active'"),
        ("schedules?text=a%00b", 400, "which is no text"),
        ("runs?task=" + "x" * 2000, 400, "no name or id has more"),
        ("schedule?name=reindex&why=soon", 400, "is no instant"),
        ("schedule?name=reindex&why=9999-12-31T23:59:59-14:00", 400, "is no instant"),
        ("nope", 404, "There is no page /nope"),
        ("static/nope.css", 404, "There is no file"),
        ("static/../_site.py", 404, "There is no"),
        ("deep/down", 404, "There is no page"),
    ],
)
async def test_bad_input_is_told_in_a_sentence(web, page, status, said):
    answer = await web.get(f"/{page}")
    assert answer.status_code == status
    assert said in text_of(answer)
    assert "Traceback" not in answer.text


async def test_what_is_asked_in_the_wrong_way_is_told_which_is_right(web):
    answer = await web.get("/pause")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = await web.delete("/runs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_links_of_a_page_that_is_not_there_still_lead_home(web):
    answer = await web.get("/deep/down/there")
    assert 'href="../../schedules"' in answer.text
    assert 'href="../../static/oncron.css"' in answer.text


async def test_what_is_no_app_is_refused_at_once():
    with pytest.raises(InvalidOption, match="give the app, an Oncron, or a store's URL"):
        asgi(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="auth='secret'"):
        asgi(Oncron("memory://"), auth="secret")  # type: ignore[arg-type]


# --- places it may be -----------------------------------------------------------------------------


async def test_it_is_mounted_under_any_prefix(app):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Starlette(routes=[Mount("/ops/jobs", asgi(app))])
    async with client(host) as web:
        answer = await web.get("/ops/jobs", follow_redirects=True)
        assert str(answer.url) == "http://web.test/ops/jobs/schedules"
        assert (await web.get("/ops/jobs/static/oncron.js")).status_code == 200
        assert "Path=/ops/jobs" in answer.headers["set-cookie"]
        page = await web.get("/ops/jobs/schedules")
        done = await web.post("/ops/jobs/pause", data=form_of(page, "pause", name="broken"))
        assert done.status_code == 303
        await app.resume("broken")


async def test_a_proxy_may_have_put_it_under_a_prefix(app):
    async with client(asgi(app), root="/jobs") as web:
        assert (await web.get("/jobs/runs")).status_code == 200
        assert (await web.get("/jobs")).headers["location"] == "/jobs/schedules"
        assert (await web.get("/jobs/")).headers["location"] == "schedules"


async def test_a_bare_store_is_enough(life):
    url, ids = life
    dashboard = asgi(url)
    async with client(dashboard) as web:
        assert ids["mail"][-12:] in text_of(await web.get("/runs"))
    dashboard._reading.app._life.at_exit()


async def test_what_is_encrypted_is_shown_as_that_without_the_key(tmp_path):
    url = f"sqlite:///{tmp_path}/secret.db"
    keyed = Oncron(url, encryption={"k": "0" * 64})
    run = await keyed.enqueue("pay", args={"card": "4711"})
    await keyed.put_schedule("monthly-pay", cron("0 0 1 * *"), "pay", args={"card": "4711"})
    for app, there in ((keyed, True), (Oncron(url), False)):
        async with client(asgi(app)) as web:
            for page in (f"/run?id={run.id}", "/schedule?name=monthly-pay", f"/api/run?id={run.id}"):
                shown = (await web.get(page)).text
                assert ("4711" in shown) is there, page
                assert (">encrypted<" in shown or '"<encrypted>"' in shown) is not there, page
            assert ("No run fits" in text_of(await web.get("/runs?text=4711"))) is not there
        app._life.at_exit()


# --- a store that goes away -----------------------------------------------------------------------


async def test_a_store_that_does_not_answer_is_told_and_asked_again(tmp_path):
    app = Oncron(f"sqlite:///{tmp_path}/away/jobs.db", auto_migrate=False)
    async with client(asgi(app)) as web:
        page, data = await web.get("/schedules"), await web.get("/api/schedules")
        assert (page.status_code, data.status_code) == (503, 503)
        assert '<meta http-equiv="refresh" content="5">' in page.text
        assert page.headers["retry-after"] == "5"
        assert data.json()["error"]
        assert (await web.get("/healthz")).status_code == 503
        (tmp_path / "away").mkdir()
        other = Oncron(f"sqlite:///{tmp_path}/away/jobs.db")
        await other.put_schedule("back", every(hours=1), "x")
        assert "back" in text_of(await web.get("/schedules"))
        assert (await web.get("/healthz")).json() == {"status": "ok"}
        other._life.at_exit()
    app._life.at_exit()


async def test_a_stopped_app_is_not_opened_again(tmp_path):
    app = Oncron(f"sqlite:///{tmp_path}/jobs.db")
    async with client(asgi(app)) as web:
        async with app:
            assert (await web.get("/schedules")).status_code == 200
        answer = await web.get("/schedules")
        assert answer.status_code == 503
        assert "was stopped" in text_of(answer)
        with pytest.raises(NotFound):
            await shop(f"sqlite:///{tmp_path}/jobs.db").get_schedule("x")


def test_a_page_is_made_of_files_that_the_package_brings() -> None:
    import oncron.web

    folder = Path(oncron.web.__file__).parent
    assert {each.stem for each in (folder / "templates").iterdir()} >= set(PAGES)
