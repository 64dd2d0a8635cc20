"""Metrics: what is read from the store is the same everywhere, what is counted is counted once, labels stay few."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from oncron import Oncron, Skip, _defaults as limits, daily, every, metrics
from oncron._clock import to_us
from oncron._events import Event
from oncron.errors import InvalidOption, StoreUnavailable
from oncron.metrics._collector import Collector
from oncron.testing import ManualClock

START = datetime(2026, 3, 1, tzinfo=UTC)

Value = Callable[..., float | None]


class Watched:
    """An app on a clock, and what its metrics say."""

    def __init__(self, app: Oncron, clock: ManualClock, collector: Collector) -> None:
        self.app, self.clock, self.collector = app, clock, collector

    def __call__(self, name: str, **labels: str) -> float | None:
        """Read anew."""
        self.collector._fresh_until = 0
        return self.collector.registry.get_sample_value(name, labels)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    app = Oncron("memory://")

    @app.schedule(every(hours=1))
    async def hourly() -> None: ...

    async with ManualClock(app, START) as clock:
        collector = metrics.register(app, CollectorRegistry())
        yield Watched(app, clock, collector)
        collector.close()


# --- the last success -------------------------------------------------------------------


async def test_a_schedule_that_never_succeeded_says_zero_and_when_it_was_declared(watched: Watched) -> None:
    assert watched("oncron_last_success_timestamp_seconds", schedule="hourly") == 0
    assert watched("oncron_schedule_expected_since_timestamp_seconds", schedule="hourly") == START.timestamp()
    assert watched("oncron_schedule_interval_seconds", schedule="hourly") == 3600
    assert watched("oncron_schedule_next_tick_timestamp_seconds", schedule="hourly") == START.timestamp() + 3600


async def test_the_last_success_is_when_the_run_ended_whoever_looks(watched: Watched) -> None:
    await watched.clock.advance(timedelta(hours=3, minutes=30))
    expected = (START + timedelta(hours=3)).timestamp()
    assert watched("oncron_last_success_timestamp_seconds", schedule="hourly") == expected

    restarted = metrics.register(watched.app, CollectorRegistry())
    found = restarted.registry.get_sample_value("oncron_last_success_timestamp_seconds", {"schedule": "hourly"})
    assert found == expected


async def test_success_is_expected_since_it_was_resumed_or_from_its_start(watched: Watched) -> None:
    start = START + timedelta(days=30)
    await watched.app.put_schedule("later", every(hours=1), "elsewhere", start_at=start)
    await watched.app.pause("hourly")
    await watched.clock.advance(timedelta(days=2))
    await watched.app.resume("hourly")

    since = "oncron_schedule_expected_since_timestamp_seconds"
    assert watched(since, schedule="hourly") == (START + timedelta(days=2)).timestamp()
    assert watched(since, schedule="later") == start.timestamp()


async def test_failures_skips_and_runs_of_others_do_not_move_it(watched: Watched) -> None:
    ends: list[BaseException] = []

    @watched.app.schedule(every(minutes=10), retries=0)
    async def moody() -> None:
        if ends:
            raise ends[0]

    def success() -> float | None:
        return watched("oncron_last_success_timestamp_seconds", schedule="moody")

    await watched.clock.advance(600)
    first = (START + timedelta(minutes=10)).timestamp()
    assert success() == first
    for end in (ValueError("no"), Skip("not today")):
        ends[:] = [end]
        await watched.clock.advance(600)
        assert success() == first
    await moody.options().enqueue()
    await watched.clock.run_due()
    assert success() == first
    ends.clear()
    await watched.clock.advance(600)
    assert success() == (START + timedelta(minutes=40)).timestamp()


async def test_a_success_behind_many_failures_is_found_after_a_restart(watched: Watched) -> None:
    failing = [False]

    @watched.app.schedule(every(minutes=1), retries=0, overlap="allow")
    async def moody() -> None:
        if failing[0]:
            raise ValueError

    await watched.clock.advance(60)
    failing[0] = True
    await watched.clock.advance(timedelta(minutes=50))

    anew = metrics.register(watched.app, CollectorRegistry())
    found = anew.registry.get_sample_value("oncron_last_success_timestamp_seconds", {"schedule": "moody"})
    assert found == START.timestamp() + 60


async def test_where_runs_may_have_been_pruned_it_is_the_latest_instant_that_may_be_and_stands_still(
    watched: Watched,
) -> None:
    @watched.app.schedule(daily("00:00", days=28, anchor=START.date()))
    async def rare() -> None: ...

    def look(collector: Collector) -> float | None:
        collector._fresh_until = 0
        return collector.registry.get_sample_value("oncron_last_success_timestamp_seconds", {"schedule": "rare"})

    await watched.app.pause("hourly")
    await watched.clock.advance(timedelta(days=40))
    long_ago = to_us(watched.clock.now) - limits.DAY
    await watched.app._desk.ask(lambda store: store.prune(ended_before=long_ago, failed_before=long_ago))

    anew = metrics.register(watched.app, CollectorRegistry())
    bound = (watched.clock.now - timedelta(days=7)).timestamp()
    assert look(anew) == bound
    await watched.clock.advance(timedelta(days=10))
    assert look(anew) == bound
    await watched.clock.advance(timedelta(days=10))  # the tick of day 56
    assert look(anew) == (START + timedelta(days=56)).timestamp()


# --- the rest ---------------------------------------------------------------------------


async def test_runs_are_counted_by_task_and_outcome_with_lateness_and_duration(watched: Watched) -> None:
    @watched.app.task(retries=1, backoff=lambda _: 5)
    async def fails() -> None:
        await watched.clock.sleep(30)
        raise ValueError

    await fails.enqueue()
    await watched.clock.advance(timedelta(hours=1))

    assert watched("oncron_runs_total", task="fails", outcome="retried") == 1
    assert watched("oncron_runs_total", task="fails", outcome="failed") == 1
    assert watched("oncron_runs_total", task="hourly", outcome="succeeded") == 1
    assert watched("oncron_run_duration_seconds_sum", task="fails") == 60
    assert watched("oncron_run_lateness_seconds_count", task="fails") == 2
    assert watched("oncron_run_lateness_seconds_bucket", task="hourly", le="0.005") == 1
    assert watched("oncron_ticks_fired_total") == 1


async def test_ticks_that_did_not_run_are_counted_by_reason(watched: Watched) -> None:
    @watched.app.schedule(every(minutes=10))
    async def slow() -> None:
        await watched.clock.sleep(1500)

    await watched.clock.advance(timedelta(minutes=30))
    assert watched("oncron_ticks_skipped_total", reason="overlap") == 2
    assert watched("oncron_runs_overdue_total") == 2
    await watched.clock.outage(timedelta(hours=5))
    assert watched("oncron_ticks_missed_total", reason="missed") == 29 + 4


async def test_schedules_replicas_queues_and_the_store_are_read(watched: Watched) -> None:
    await watched.app.pause("hourly")
    assert watched("oncron_schedules", status="paused") == 1
    assert watched("oncron_schedules_overdue") == 0
    assert watched("oncron_schedule_next_tick_timestamp_seconds", schedule="hourly") is None
    assert watched("oncron_schedule_interval_seconds", schedule="hourly") is None
    assert watched("oncron_last_success_timestamp_seconds", schedule="hourly") == 0
    assert watched("oncron_replicas", role="scheduler") == 1
    assert watched("oncron_store_up") == 1
    assert (watched("oncron_store_call_seconds_count") or 0) > 3
    await watched.app.enqueue("elsewhere", args={}, queue="mail")
    assert watched("oncron_queue_runs", queue="mail", state="ready") == 1
    assert watched("oncron_queue_paused", queue="mail") == 0


async def test_labels_are_bounded_and_a_removed_schedule_has_none(watched: Watched) -> None:
    collector = metrics.register(watched.app, CollectorRegistry(), max_schedules=2)

    def look(name: str, **labels: str) -> float | None:
        collector._fresh_until = 0
        return collector.registry.get_sample_value(name, labels)

    for number in range(3):
        await watched.app.put_schedule(f"put-{number}", every(hours=2), "elsewhere")
    assert look("oncron_schedules_not_shown") == 2
    assert look("oncron_last_success_timestamp_seconds", schedule="put-2") is None
    for number in range(1100):
        collector._hear(Event(name="run.succeeded", at=START, task=f"task-{number}"))
    assert look("oncron_runs_total", task="task-999", outcome="succeeded") == 1
    assert look("oncron_runs_total", task="_other", outcome="succeeded") == 100
    for number in range(3):
        await watched.app.remove_schedule(f"put-{number}")
    assert look("oncron_schedules_not_shown") == 0
    assert look("oncron_schedules", status="removed") == 3
    collector.close()


async def test_a_store_that_is_away_is_said_and_the_last_values_stay(watched: Watched) -> None:
    await watched.clock.advance(3600)
    assert watched("oncron_store_up") == 1
    real = watched.app._desk.call

    async def away(_store: Any) -> Any:
        raise StoreUnavailable("gone")

    watched.collector._app = AppAway(watched.app, lambda _work: real(away))
    limits_before = limits.CALL_DEADLINE
    limits.CALL_DEADLINE = 50_000
    try:
        assert watched("oncron_store_up") == 0
    finally:
        limits.CALL_DEADLINE = limits_before
    assert watched("oncron_last_success_timestamp_seconds", schedule="hourly") == START.timestamp() + 3600
    assert (watched("oncron_store_errors_total", error="StoreUnavailable") or 0) >= 1


class AppAway:
    """The app, but for a desk whose store does not answer."""

    def __init__(self, app: Oncron, call: Callable[[Any], Any]) -> None:
        self._life = app._life
        self._desk = type("Desk", (), {"call": staticmethod(call)})()


async def test_a_stopped_app_is_not_opened_again_by_a_scrape() -> None:
    app = Oncron("memory://")
    registry = CollectorRegistry()
    metrics.register(app, registry)
    async with app:
        assert registry.get_sample_value("oncron_store_up") == 1
    assert registry.get_sample_value("oncron_store_up") == 0
    assert app._life.engine._home is None


def test_they_are_served_and_the_port_is_free_afterwards() -> None:
    app = Oncron("memory://")
    for _ in range(2):
        server = metrics.serve(app, 0, host="127.0.0.1", registry=CollectorRegistry())
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            names = {family.name for family in text_string_to_metric_families(answer.read().decode())}
        assert {"oncron_runs", "oncron_schedules", "oncron_store_up"} <= names
        port = server.port
        server.close()
    with socket.create_server(("127.0.0.1", port)):
        pass


# --- wrong use --------------------------------------------------------------------------


def test_a_port_in_use_and_one_that_is_none_are_said_in_one_sentence() -> None:
    app = Oncron("memory://")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            InvalidOption, match=rf"metrics port {port} is in use by another process; give another, or 0"
        ):
            metrics.serve(app, port, host="127.0.0.1", registry=CollectorRegistry())
    for wrong in (-1, 70000, "9100", True):
        with pytest.raises(InvalidOption, match="from 0"):
            metrics.serve(app, wrong)  # pyright: ignore[reportArgumentType]


def test_metrics_twice_in_one_registry_what_is_no_app_and_a_wrong_number_are_refused() -> None:
    app, registry = Oncron("memory://"), CollectorRegistry()
    collector = metrics.register(app, registry)
    with pytest.raises(InvalidOption, match="already"):
        metrics.register(app, registry)
    collector.close()
    collector.close()
    metrics.register(app, registry)
    with pytest.raises(InvalidOption, match="give the app"):
        metrics.register("shop:app", registry)
    with pytest.raises(InvalidOption, match="max_schedules=-1"):
        metrics.register(app, CollectorRegistry(), max_schedules=-1)


def test_without_prometheus_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(InvalidOption, match=r"pip install 'oncron\[metrics\]'"):
        metrics.register(Oncron("memory://"))
