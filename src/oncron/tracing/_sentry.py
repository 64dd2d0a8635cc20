"""Sentry: the error of a run that has failed, and a cron monitor for each schedule."""

from __future__ import annotations

import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from oncron import _options as check
from oncron._app import Oncron
from oncron._context import RunContext
from oncron._events import Event
from oncron._lifecycle import is_error
from oncron.errors import InvalidTrigger
from oncron.tracing._hooks import checked_app, harmless, need
from oncron.triggers import parse

_REMEMBERED = 1000
_STATUS = {"run.succeeded": "ok", "run.skipped": "ok", "run.failed": "error", "run.lost": "error"}


def sentry(app: Any, *, monitors: bool = True, retries: bool = False) -> None:
    """Tell Sentry, once `sentry_sdk.init(...)` was called, of each run of `app`, an Oncron, that has failed: the error
    with its traceback, tagged with task, schedule, run and attempt. With `retries` of each attempt that raised, too.

    `monitors`: check-ins for every schedule (started, ok, error), under a slug made of its name; a schedule by cron
    creates or updates its monitor. Raises InvalidOption if sentry-sdk is not installed, Stopped."""
    need("sentry_sdk", "sentry-sdk")
    check.truth(monitors, "monitors")
    check.truth(retries, "retries")
    told = Reports(checked_app(app, "sentry"), monitors=monitors, retries=retries)
    told.app.use(told.attempt)
    told.app.on("run.*")(told.hear)


class Reports:
    def __init__(self, app: Oncron, *, monitors: bool, retries: bool) -> None:
        self.app, self._monitors, self._retries = app, monitors, retries
        self._errors: OrderedDict[tuple[str, int | None], tuple[BaseException, Any]] = OrderedDict()
        """What attempts raised, by run and attempt, until it is known whether the run has failed with it."""
        self._lock = threading.Lock()

    @contextmanager
    def attempt(self, ctx: RunContext[Any]) -> Generator[None]:
        """Middleware, entered where the task runs: what the task itself sends is tagged, too."""
        with ExitStack() as stack:
            scope = self._begin(stack, ctx)
            try:
                yield
            except BaseException as error:
                if is_error(error):
                    self._keep((ctx.run_id, ctx.attempt), error, scope)
                raise

    @harmless
    def _begin(self, stack: ExitStack, ctx: RunContext[Any]) -> Any:
        import sentry_sdk

        scope = stack.enter_context(sentry_sdk.isolation_scope())
        scope.set_tag("oncron.task", ctx.task)
        scope.set_tag("oncron.run", ctx.run_id)
        scope.set_tag("oncron.attempt", ctx.attempt)
        if ctx.schedule is not None:
            scope.set_tag("oncron.schedule", ctx.schedule)
        scope.set_transaction_name(ctx.task)
        return scope

    @harmless
    def _keep(self, attempt: tuple[str, int], error: BaseException, scope: Any) -> None:
        import sentry_sdk

        if self._retries or scope is None:
            sentry_sdk.capture_exception(error)
            return
        with self._lock:
            self._errors[attempt] = error, scope
            while len(self._errors) > _REMEMBERED:
                self._errors.popitem(last=False)

    @harmless
    def hear(self, event: Event) -> None:
        if event.run is None:
            return
        if event.name == "run.started":
            self._check_in(event, "in_progress")
            return
        status = _STATUS.get(event.name)
        if status is not None or event.name in ("run.retried", "run.released", "run.cancelled"):
            with self._lock:
                raised = self._errors.pop((event.run, event.attempt), None)
            if status == "error" and not self._retries:
                _report(event, raised)
        if status is not None:
            self._check_in(event, status)

    def _check_in(self, event: Event, status: Any) -> None:
        if not self._monitors or event.schedule is None:
            return
        from sentry_sdk.crons import capture_checkin

        capture_checkin(
            monitor_slug=slug(event.schedule),
            check_in_id=uuid.UUID(event.run).hex,
            status=status,
            duration=None if event.took is None else event.took.total_seconds(),
            monitor_config=self._config(event.schedule),
        )

    def _config(self, schedule: str) -> Any:
        """For what Sentry can express: five fields of cron, as declared here."""
        declared = self.app._registry.schedules.get(schedule)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if declared is None:
            return None
        definition = declared.definition
        try:
            trigger = parse(definition.trigger)
        except InvalidTrigger:
            return None
        expression = re.match(r'cron\("([^"]*)"', definition.trigger)
        if trigger.kind != "cron" or expression is None or len(expression[1].split()) != 5:
            return None
        config: dict[str, Any] = {
            "schedule": {"type": "crontab", "value": expression[1]},
            "timezone": trigger.timezone or "UTC",
        }
        if definition.timeout is not None:
            config["max_runtime"] = max(1, definition.timeout // 60_000_000)
        return config


def _report(event: Event, raised: tuple[BaseException, Any] | None) -> None:
    """An error that was raised elsewhere (in a worker process, by a worker that died) has no traceback here."""
    import sentry_sdk
    from sentry_sdk.scope import use_isolation_scope

    if raised is not None:
        error, scope = raised
        with use_isolation_scope(scope):
            sentry_sdk.capture_exception(error)
        return
    with sentry_sdk.new_scope() as scope:
        scope.set_tag("oncron.task", event.task or "")
        scope.set_tag("oncron.run", event.run or "")
        scope.set_tag("oncron.schedule", event.schedule or "")
        what = event.name.partition(".")[2]
        sentry_sdk.capture_message(f"run of {event.task} {what}: {event.reason or 'no reason'}", level="error")


def slug(schedule: str) -> str:
    """As Sentry takes it: 50 small letters, digits, - and _ at most."""
    return re.sub(r"[^a-z0-9_-]+", "-", schedule.lower()).strip("-")[:50] or "schedule"
