"""Spans, Sentry, pings, ids in log records: told of runs as they are, and never in their way."""

from __future__ import annotations

import http.server
import logging
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sentry_sdk
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from oncron import GiveUp, Oncron, RetryIn, RunContext, Skip, cron, every, tracing
from oncron.errors import InvalidOption
from oncron.testing import ManualClock

START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def app() -> Oncron:
    return Oncron("memory://")


# --- OpenTelemetry ----------------------------------------------------------------------


class Spans:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


def below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and (span.parent.trace_id, span.parent.span_id) == (parent.context.trace_id, parent.context.span_id)
        and span.context.trace_id == parent.context.trace_id
    )


async def test_a_tick_its_run_and_its_attempts_are_one_trace_named_by_the_run(app: Oncron, spans: Spans) -> None:
    tracing.trace(app, provider=spans.provider)

    @app.schedule(every(minutes=10), retries=1, backoff=lambda _: 5)
    async def report(ctx: RunContext[Any]) -> None:
        with spans.provider.get_tracer("shop").start_as_current_span("query"):
            pass
        if ctx.attempt == 1:
            raise ValueError("no [paper]")

    async with ManualClock(app, START) as clock:
        (run,) = await clock.advance(660)

    tick, whole = spans.one("tick report"), spans.one("run report")
    first, second = spans.named("attempt report")
    assert tick.context.trace_id == uuid.UUID(run.id).int
    assert tick.parent is None
    assert below(whole, tick)
    assert below(first, whole)
    assert below(second, whole)
    assert [below(query, attempt) for query, attempt in zip(spans.named("query"), (first, second), strict=True)]
    assert first.status.status_code is StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert second.status.status_code is StatusCode.UNSET
    assert dict(whole.attributes or {}) == {
        "oncron.run.id": run.id, "oncron.task": "report", "oncron.schedule": "report", "oncron.attempt": 2,
        "oncron.tick": "2026-03-01T00:10:00+00:00", "oncron.event": "run.succeeded",
        "oncron.worker": (whole.attributes or {})["oncron.worker"],
    }  # fmt: skip
    assert whole.start_time == int(run.tick.timestamp() * 1e9)  # type: ignore[union-attr]
    assert whole.end_time == int(run.ended_at.timestamp() * 1e6) * 1000  # type: ignore[union-attr]


async def test_what_enqueues_is_linked_to_the_run_from_the_callers_own_trace(app: Oncron, spans: Spans) -> None:
    tracing.trace(app, provider=spans.provider)

    @app.task
    def leaf(n: int) -> None: ...

    @app.task
    async def parent(ctx: RunContext[Any]) -> None:
        ctx.enqueue(leaf, n=1)

    async with ManualClock(app, START) as clock:
        with spans.provider.get_tracer("shop").start_as_current_span("request"):
            run = await parent.enqueue()
        await clock.run_due()
        child = next(each for each in clock.runs if each.task == "leaf")

    asked = spans.one("enqueue parent")
    assert below(asked, spans.one("request"))
    assert [link.context.trace_id for link in asked.links] == [uuid.UUID(run.id).int]
    assert asked.links[0].context.span_id == spans.one("run parent").context.span_id
    assert [link.context.trace_id for link in spans.one("attempt parent").links] == [uuid.UUID(child.id).int]
    assert spans.one("run leaf").parent is None
    assert below(spans.one("attempt leaf"), spans.one("run leaf"))


async def test_sync_tasks_skips_retries_and_failures_say_so_in_their_status(app: Oncron, spans: Spans) -> None:
    tracing.trace(app, provider=spans.provider)
    seen: list[Any] = []

    @app.task(retries=0)
    def ends(how: str) -> None:
        seen.append(api.get_current_span())
        raise {"skip": Skip("not today"), "give up": GiveUp("no use"), "later": RetryIn(5, spend_attempt=False)}[how]

    async with ManualClock(app, START) as clock:
        for how in ("skip", "give up", "later"):
            await ends.enqueue(how=how)
            await clock.run_due()

    skip, give_up, later = spans.named("attempt ends")
    assert [span.get_span_context().span_id for span in seen] == [s.context.span_id for s in (skip, give_up, later)]
    assert [span.status.status_code for span in (skip, give_up, later)] == [
        StatusCode.OK, StatusCode.ERROR, StatusCode.UNSET,
    ]  # fmt: skip
    assert (later.attributes or {})["oncron.stopped_by"] == "RetryIn"
    assert [span.status.status_code for span in spans.named("run ends")] == [StatusCode.UNSET, StatusCode.ERROR]


@pytest.mark.parametrize(("sampler", "expected"), [(ALWAYS_OFF, 0), (TraceIdRatioBased(1), 3)])
async def test_the_providers_sampler_decides_by_the_trace_for_all_spans_of_a_run(
    app: Oncron, sampler: Any, expected: int
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.trace(app, provider=provider)

    @app.schedule(every(minutes=10))
    def look() -> None: ...

    async with ManualClock(app, START) as clock:
        await clock.advance(600)
    assert len(exporter.get_finished_spans()) == expected


async def test_without_the_sdk_and_with_a_broken_provider_runs_go_on(
    app: Oncron, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(api.NoOpTracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("collector away")

    tracing.trace(app, provider=api.NoOpTracerProvider())
    tracing.trace(app, provider=Broken())

    @app.task
    async def mail() -> str:
        return "sent"

    async with ManualClock(app, START) as clock:
        await mail.enqueue()
        (run,) = await clock.run_due()
    assert run.result == "sent"
    assert "the run is not affected" in caplog.text


# --- Sentry -----------------------------------------------------------------------------


class Envelopes(sentry_sdk.transport.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.items += envelope.items

    def of(self, kind: str) -> list[dict[str, Any]]:
        sentry_sdk.flush()
        return [item.payload.json for item in self.items if item.type == kind]


@pytest.fixture
def told() -> Iterator[Envelopes]:
    told = Envelopes()
    sentry_sdk.init(
        "https://key@example.org/1", transport=told, default_integrations=False, auto_enabling_integrations=False
    )
    yield told
    sentry_sdk.get_client().close()
    sentry_sdk.init()


async def test_a_run_that_failed_is_told_once_with_its_traceback_and_tags(app: Oncron, told: Envelopes) -> None:
    tracing.sentry(app)

    @app.task(retries=1, backoff=lambda _: 5)
    def fails(ctx: RunContext[Any]) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    @app.task(retry_on=KeyError)
    async def fails_at_once() -> None:
        raise ValueError("not repeated")

    @app.task
    def recovers(ctx: RunContext[Any]) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")

    @app.task
    def skips() -> None:
        raise Skip("not today")

    async with ManualClock(app, START) as clock:
        for task in (fails, fails_at_once, recovers, skips):
            await task.enqueue()
        await clock.advance(60)

    events = {event["tags"]["oncron.task"]: event for event in told.of("event")}
    assert set(events) == {"fails", "fails_at_once"}
    assert len(told.of("event")) == 2
    found = events["fails"]
    assert found["exception"]["values"][0]["value"] == "attempt 2"
    assert found["exception"]["values"][0]["stacktrace"]["frames"][-1]["function"] == "fails"
    assert found["transaction"] == "fails"
    assert found["tags"]["oncron.attempt"] in (2, "2")
    assert "oncron.run" in found["tags"]


async def test_with_retries_each_attempt_is_told(app: Oncron, told: Envelopes) -> None:
    tracing.sentry(app, retries=True, monitors=False)

    @app.task(retries=1, backoff=lambda _: 5)
    async def fails() -> None:
        raise ValueError

    async with ManualClock(app, START) as clock:
        await fails.enqueue()
        await clock.advance(60)
    assert len(told.of("event")) == 2


async def test_schedules_check_in_and_one_by_cron_makes_its_monitor(app: Oncron, told: Envelopes) -> None:
    tracing.sentry(app)

    @app.schedule(cron("0 3 * * *", timezone="Europe/Berlin"), timeout=600)
    async def reindex() -> None: ...

    @app.schedule(every(hours=12), retries=0, name="Mail & more")
    async def mail() -> None:
        raise ValueError

    async with ManualClock(app, START) as clock:
        await clock.advance(86_400 / 2)

    ins = told.of("check_in")
    assert [(each["monitor_slug"], each["status"]) for each in ins] == [
        ("reindex", "in_progress"), ("reindex", "ok"), ("mail-more", "in_progress"), ("mail-more", "error"),
    ]  # fmt: skip
    assert len({each["check_in_id"] for each in ins}) == 2
    assert ins[0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"}, "timezone": "Europe/Berlin", "max_runtime": 10,
    }  # fmt: skip
    assert not ins[2].get("monitor_config")
    assert ins[1]["duration"] >= 0


# --- pings ------------------------------------------------------------------------------


class Ear:
    """A server that notes what it is sent."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []
        self.status = 200
        ear = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                ear.heard.append((url.path, urllib.parse.parse_qs(url.query)["rid"][0], body))
                self.send_response(ear.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    yield ear
    ear.server.shutdown()
    ear.server.server_close()


async def test_a_schedules_start_success_and_failure_are_pinged_with_the_runs_id(app: Oncron, ear: Ear) -> None:
    tracing.pings(app, {"moody": f"{ear.url}/uuid", "quiet": f"{ear.url}/quiet?key=1"})
    bad = [False]

    @app.schedule(every(minutes=10), retries=1, backoff=lambda _: 5)
    async def moody() -> None:
        if bad[0]:
            raise ValueError("no disk")

    @app.schedule(every(hours=10))
    def unpinged() -> None: ...

    async with ManualClock(app, START) as clock:
        (first,) = await clock.advance(600)
        bad[0] = True
        (second,) = await clock.advance(660)

    assert ear.heard == [
        ("/uuid/start", first.id, ""),
        ("/uuid", first.id, ""),
        ("/uuid/start", second.id, ""),
        ("/uuid/start", second.id, ""),
        ("/uuid/fail", second.id, "ValueError: no disk"),
    ]


async def test_a_ping_that_fails_is_tried_twice_logged_without_the_url_and_delays_nobody(
    app: Oncron, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    ear.status = 500
    tracing.pings(app, {"look": f"{ear.url}/secret-uuid"}, start=None)

    @app.schedule(every(minutes=10))
    async def look() -> str:
        return "done"

    async with ManualClock(app, START) as clock:
        (run,) = await clock.advance(600)
    assert run.result == "done"
    assert len(ear.heard) == 2
    assert "for schedule 'look' to 127.0.0.1 failed" in caplog.text
    assert "secret-uuid" not in caplog.text


# --- logs -------------------------------------------------------------------------------


async def test_records_of_any_logger_carry_the_ids_of_the_run(app: Oncron, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(tracing.RunIds())

    @app.schedule(every(minutes=10))
    def look() -> None:
        logging.getLogger("shop").warning("low on paper")

    async with ManualClock(app, START) as clock:
        (run,) = await clock.advance(600)
    logging.getLogger("shop").warning("outside")

    inside, outside = (record for record in caplog.records if record.name == "shop")
    fields = {name: getattr(inside, name) for name in ("run", "task", "schedule", "tick", "attempt")}
    assert fields == {
        "run": run.id, "task": "look", "schedule": "look", "tick": "2026-03-01T00:10:00+00:00", "attempt": 1,
    }  # fmt: skip
    assert not hasattr(outside, "run")


# --- wrong use --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("urls", "options", "says"),
    [
        ({}, {}, "give a mapping"),
        ("https://hc-ping.com/x", {}, "give a mapping"),
        ({"look": "hc-ping.com/x"}, {}, "'look'.* is no URL"),
        ({"look": "file:///etc/passwd"}, {}, "is no URL"),
        ({"look": 7}, {}, "is no URL"),
        ({"look": "https://x.org"}, {"start": 7}, "start=7"),
        ({"look": "https://x.org"}, {"timeout": 0}, "timeout=0"),
    ],
)
def test_wrong_pings_are_refused_with_the_mend(app: Oncron, urls: Any, options: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        tracing.pings(app, urls, **options)


def test_what_is_no_app_and_a_package_that_is_missing_are_said(app: Oncron, monkeypatch: pytest.MonkeyPatch) -> None:
    for hook in (tracing.trace, tracing.sentry, lambda app: tracing.pings(app, {"a": "https://x.org"})):
        with pytest.raises(InvalidOption, match="give the app"):
            hook("shop:app")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(InvalidOption, match="pip install 'opentelemetry-api'"):
        tracing.trace(app)
    with pytest.raises(InvalidOption, match="pip install 'sentry-sdk'"):
        tracing.sentry(app)
