# ruff: noqa: SLF001 - metrics are of the same house as the app, and lie below it
"""The collector: counts what this replica says, and reads the rest when it is scraped."""

from __future__ import annotations

import concurrent.futures
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from oncron._clock import SECOND, boot_us, to_us, wall_us
from oncron._events import Event
from oncron._model import Status
from oncron.errors import StoreError
from oncron.metrics._readings import Gauges, Readings
from oncron.metrics._successes import Successes

log = logging.getLogger("oncron.metrics")

_FRESH_FOR = 5 * SECOND
_REST = 20
"""A store that takes long to be read is left alone for so many times as long."""
_WAIT = 2.0
"""Seconds that a scrape waits for the store; then it tells what was read last."""
_TASKS = 1000
_OTHER = "_other"
_OUTCOMES = frozenset({"succeeded", "failed", "lost", "cancelled", "skipped", "retried", "released"})
_PASSED = re.compile(r"(\w+) \((\d+)\)")

_LATENESS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600)
_DURATION = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
_CALL = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Collector:
    """Registered as one; `close` takes it out."""

    def __init__(self, app: Any, registry: CollectorRegistry, max_schedules: int) -> None:
        self.registry = registry
        self._app = app
        self._successes = Successes(_inside(app)._settings.keep_for)
        self._gauges = Gauges(self._successes, max_schedules)
        self._tasks: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._readings: Readings | None = None
        self._read_at = self._fresh_until = 0
        self._reading: concurrent.futures.Future[Readings] | None = None
        self._up = False
        self._runs = Counter("oncron_runs", "Ends of claims.", ("task", "outcome"), registry=None)
        self._lateness = Histogram(
            "oncron_run_lateness_seconds", "From due to claimed, by the store's clock.", ("task",),
            buckets=_LATENESS, registry=None,
        )  # fmt: skip
        self._duration = Histogram(
            "oncron_run_duration_seconds", "How long a claim was held.", ("task",), buckets=_DURATION, registry=None
        )
        self._fired = Counter("oncron_ticks_fired", "Ticks that became runs.", registry=None)
        self._skipped = Counter("oncron_ticks_skipped", "Steps that refused ticks.", ("reason",), registry=None)
        self._missed = Counter("oncron_ticks_missed", "Ticks passed as missed.", ("reason",), registry=None)
        self._overrun = Counter("oncron_runs_overdue", "Ticks that met their schedule's run.", registry=None)
        self._leases = Counter("oncron_leases_lost", "Runs that were taken from this replica.", registry=None)
        self._dead = Counter("oncron_workers_dead", "Workers whose end this replica noticed.", registry=None)
        self._errors = Counter("oncron_store_errors", "Store calls that failed.", ("error",), registry=None)
        self._calls = Histogram("oncron_store_call_seconds", "Store calls.", buckets=_CALL, registry=None)

    def listen(self) -> None:
        self._app.on("*")(self._hear)
        _inside(self._app)._listeners.meter(self._called)

    def close(self) -> None:
        """Nothing is counted or collected any more. May be called twice."""
        if not self._closed:
            self._closed = True
            self.registry.unregister(self)

    # --- counting ---------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        if self._closed:
            return
        group, _, what = event.name.partition(".")
        if group == "run":
            self._hear_of_run(event, what)
        elif event.name == "tick.fired":
            self._fired.inc()
        elif event.name == "tick.skipped":
            self._skipped.labels(event.reason or "").inc()
        elif event.name == "tick.missed" and (passed := _PASSED.fullmatch(event.reason or "")):
            self._missed.labels(passed[1]).inc(int(passed[2]))
        elif event.name == "schedule.overdue":
            self._overrun.inc()
        elif event.name == "lease.lost":
            self._leases.inc()
        elif event.name == "worker.dead":
            self._dead.inc()

    def _hear_of_run(self, event: Event, what: str) -> None:
        task = self._label(event.task)
        if what == "claimed" and event.late_by is not None:
            self._lateness.labels(task).observe(event.late_by.total_seconds())
        if what not in _OUTCOMES:
            return
        self._runs.labels(task, what).inc()
        if event.took is not None:
            self._duration.labels(task).observe(event.took.total_seconds())
        if what == "succeeded" and event.schedule is not None and event.run is not None:
            self._successes.heard(event.schedule, event.run, to_us(event.at))

    def _label(self, task: str | None) -> str:
        """Bounded, whatever names there are."""
        if task is None:
            return _OTHER
        if task not in self._tasks and len(self._tasks) >= _TASKS:
            return _OTHER
        self._tasks.add(task)
        return task

    def _called(self, took: int, error: StoreError | None) -> None:
        self._calls.observe(took / SECOND)
        if error is not None:
            self._errors.labels(type(error).__name__).inc()

    # --- being scraped ----------------------------------------------------------------

    def describe(self) -> list[Metric]:
        """What `collect` will tell, so that registering asks no store."""
        return [metric for counted in self._counted() for metric in counted.describe()]

    def collect(self) -> Iterator[Metric]:
        readings = self._fresh()
        for counted in self._counted():
            yield from counted.collect()
        yield _gauge("oncron_store_up", "Whether the store answered when it was read last.", float(self._up))
        engine = _inside(self._app)._life.engine
        skew = (wall_us() - engine.now_us()) / SECOND
        yield _gauge("oncron_clock_skew_seconds", "This machine's clock minus the store's.", skew)
        busy, slots = engine.slots
        yield _gauge("oncron_slots", "Runs that this replica may execute at once.", slots)
        yield _gauge("oncron_slots_busy", "Runs that it holds.", busy)
        if readings is not None:
            yield from _of_store(readings)
            yield from _of_schedules(readings, self._successes)
            yield from _of_queues(readings)

    def _counted(self) -> tuple[Counter | Histogram, ...]:
        return (
            self._runs, self._lateness, self._duration, self._fired, self._skipped, self._missed, self._overrun,
            self._leases, self._dead, self._errors, self._calls,
        )  # fmt: skip

    def _fresh(self) -> Readings | None:
        """What the store says, some seconds old at most; older if it does not answer. None: it never did."""
        with self._lock:
            if _inside(self._app)._life.phase == "stopped":
                self._up = False  # asking would open the store again
                return self._readings
            if self._reading is None and (self._readings is None or boot_us() > self._fresh_until):
                self._read_at = boot_us()
                self._reading = _inside(self._app)._desk.call(self._gauges.read)
            reading = self._reading
        if reading is not None:
            self._await(reading)
        return self._readings

    def _await(self, reading: concurrent.futures.Future[Readings]) -> None:
        try:
            answer = reading.result(_WAIT)
        except TimeoutError:
            if not reading.done():
                self._up = False
                return
            answer = None
        except (StoreError, concurrent.futures.CancelledError):
            answer = None
        except Exception:
            log.exception("metrics could not be read from the store")
            answer = None
        with self._lock:
            self._up = answer is not None
            if answer is not None:
                now = boot_us()
                self._readings, self._fresh_until = answer, now + max(_FRESH_FOR, _REST * (now - self._read_at))
            if self._reading is reading:
                self._reading = None


def _inside(app: Any) -> Any:
    """The app's private parts: metrics are of the same house, and lie below it."""
    return app


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, values: Iterator[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values:
        family.add_metric((key,), value)
    return family


def _of_store(readings: Readings) -> Iterator[Metric]:
    now = _s(readings.now)
    yield _gauge("oncron_store_read_timestamp_seconds", "When the store was read last, by its clock.", now)
    yield _labelled(
        "oncron_schedules", "Schedules by status.", "status",
        ((status.value, readings.statuses.get(status.value, 0)) for status in Status),
    )  # fmt: skip
    yield _gauge("oncron_schedules_overdue", "Active ones whose tick is a minute past.", readings.overdue)
    yield _gauge("oncron_schedules_not_shown", "Schedules without series of their own.", readings.not_shown)
    yield _labelled(
        "oncron_replicas", "Live replicas by role.", "role",
        ((role, readings.replicas(role)) for role in ("scheduler", "worker")),
    )  # fmt: skip


def _of_schedules(readings: Readings, successes: Successes) -> Iterator[Metric]:
    """A success that was heard of here since the store was read counts at once."""
    shown = readings.schedules
    yield _labelled(
        "oncron_last_success_timestamp_seconds", "When a run of the schedule last succeeded; 0: never.", "schedule",
        ((each.row.name, _s(max(each.last_success, successes.of(each.row.name)))) for each in shown),
    )  # fmt: skip
    yield _labelled(
        "oncron_schedule_expected_since_timestamp_seconds", "Declared, changed, resumed, or its start_at.", "schedule",
        ((each.row.name, _s(each.expected_since)) for each in shown),
    )  # fmt: skip
    yield _labelled(
        "oncron_schedule_next_tick_timestamp_seconds", "Its next tick; active ones only.", "schedule",
        ((each.row.name, _s(each.row.next_at)) for each in shown if each.row.next_at is not None),
    )  # fmt: skip
    yield _labelled(
        "oncron_schedule_interval_seconds", "The longest distance between coming ticks; active ones only.", "schedule",
        ((each.row.name, _s(each.interval)) for each in shown if each.interval is not None),
    )  # fmt: skip


def _of_queues(readings: Readings) -> Iterator[Metric]:
    runs = GaugeMetricFamily("oncron_queue_runs", "Open runs by queue.", labels=("queue", "state"))
    age = GaugeMetricFamily("oncron_queue_age_seconds", "How long the oldest ready run is due.", labels=("queue",))
    paused = GaugeMetricFamily("oncron_queue_paused", "Whether the queue is paused.", labels=("queue",))
    for queue in readings.queues[:_TASKS]:
        for state in ("ready", "waiting", "running"):
            runs.add_metric((queue.name, state), getattr(queue, state))
        due = queue.oldest_due_at
        age.add_metric((queue.name,), 0 if due is None else max(0.0, _s(readings.now - due)))
        paused.add_metric((queue.name,), float(queue.paused))
    yield from (runs, age, paused)


def _s(instant: int) -> float:
    return instant / SECOND
