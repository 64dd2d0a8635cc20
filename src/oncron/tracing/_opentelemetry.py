"""OpenTelemetry: tick -> run -> attempt, one trace a run.

A run's trace is named by the run: its 128 bits are the trace's id, so every replica finds the trace, whoever fired
the tick, enqueued the run or executed an earlier attempt, and nothing about it has to be stored. The spans of the tick
and of the whole run have ids that follow from the run's id, too; they are written once the tick is fired and once the
run has ended. Attempts are spans of their own around the task, so that what a task does (queries, requests) lies below.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from oncron._clock import to_us
from oncron._context import RunContext
from oncron._events import Event
from oncron._lifecycle import Skip, is_error
from oncron._model import NewRun
from oncron._version import version
from oncron.tracing._hooks import checked_app, harmless, need

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

_ENDS = frozenset({"run.succeeded", "run.failed", "run.lost", "run.cancelled", "run.skipped"})
_WRONG = frozenset({"run.failed", "run.lost"})
_LINKS = 100


def trace(app: Any, *, provider: TracerProvider | None = None) -> None:
    """Spans for what `app`, an Oncron, fires, enqueues and executes, through `provider` (the global one if left out,
    whenever it is set). Call it before other `app.use(...)`, whose time then counts as the attempt's.

    The caller's span that enqueues a run gets a child that links to the run's trace. Raises InvalidOption if
    opentelemetry-api is not installed, Stopped."""
    need("opentelemetry", "opentelemetry-api")
    tracing = Tracing(provider)
    app = checked_app(app, "trace")
    app.use(tracing.attempt)
    app.on("*")(tracing.hear)
    app._listeners.producer(tracing.enqueued)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class Tracing:
    """Whatever fails in here is logged and forgotten."""

    def __init__(self, provider: Any) -> None:
        self._given = provider

    @property
    def _provider(self) -> Any:
        from opentelemetry import trace as api

        return self._given or api.get_tracer_provider()

    @property
    def _tracer(self) -> Any:
        return self._provider.get_tracer("oncron", version())

    # --- attempts ---------------------------------------------------------------------

    @contextmanager
    def attempt(self, ctx: RunContext[Any]) -> Generator[None]:
        """Middleware, entered where the task runs."""
        begun = self._begin(ctx)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if begun is not None:
                self._end(begun, ctx, error)

    @harmless
    def _begin(self, ctx: RunContext[Any]) -> tuple[Any, Any]:
        from opentelemetry import context, trace as api

        parent = api.set_span_in_context(api.NonRecordingSpan(self.run_context(ctx.run_id)), context.Context())
        span = self._tracer.start_span(
            f"attempt {ctx.task}",
            context=parent if self._writes_runs else context.Context(),
            kind=api.SpanKind.CONSUMER,
            attributes=_attributes(
                run=ctx.run_id, task=ctx.task, schedule=ctx.schedule, tick=ctx.tick, attempt=ctx.attempt
            ),
        )
        return span, context.attach(api.set_span_in_context(span))

    @harmless
    def _end(self, begun: tuple[Any, Any], ctx: RunContext[Any], error: BaseException | None) -> None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        span, token = begun
        if error is None:
            for new in ctx._execution.outbox[:_LINKS]:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
                span.add_link(self.run_context(new.id))
        elif is_error(error):
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        else:
            span.set_attribute("oncron.stopped_by", type(error).__name__)
            if isinstance(error, Skip):
                span.set_status(Status(StatusCode.OK))
        span.end()
        context.detach(token)

    # --- enqueueing -------------------------------------------------------------------

    @harmless
    def enqueued(self, runs: Sequence[NewRun]) -> None:
        """In the caller's context: below its span."""
        from opentelemetry.trace import Link, SpanKind

        names = sorted({run.task for run in runs})
        attributes: dict[str, Any] = {"oncron.task": names[0] if len(names) == 1 else names, "oncron.runs": len(runs)}
        if len(runs) == 1:
            attributes["oncron.run.id"] = runs[0].id
        links = [Link(self.run_context(run.id)) for run in runs[:_LINKS]]
        name = f"enqueue {names[0]}" if len(names) == 1 else "enqueue"
        self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes, links=links).end()

    # --- ticks and runs ---------------------------------------------------------------

    @harmless
    def hear(self, event: Event) -> None:
        if event.run is None:
            return
        if event.name == "tick.fired" and event.tick is not None:
            self._write(f"tick {event.schedule}", "tick", event.run, event, start=event.tick, parent=None, status=None)
        elif event.name in _ENDS:
            self._write(
                f"run {event.task}",
                "run",
                event.run,
                event,
                start=event.tick or _made_at(event.run),
                parent="tick" if event.tick is not None else None,
                status=event.reason or event.name if event.name in _WRONG else None,
            )

    def _write(
        self, name: str, what: str, run: str, event: Event, *, start: datetime, parent: str | None, status: str | None
    ) -> None:
        """A span with an id that was known before."""
        if not self._writes_runs or not self._is_sampled(run):
            return
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanKind, Status, StatusCode

        attributes = _attributes(
            run=run, task=event.task, schedule=event.schedule, tick=event.tick, attempt=event.attempt
        )
        span = ReadableSpan(
            name=name,
            context=self._context(run, what, remote=False),
            parent=None if parent is None else self._context(run, parent),
            resource=self._provider.resource,
            attributes={**attributes, "oncron.event": event.name, "oncron.worker": event.worker or ""},
            kind=SpanKind.INTERNAL,
            instrumentation_scope=InstrumentationScope("oncron", version()),
            status=Status(StatusCode.UNSET) if status is None else Status(StatusCode.ERROR, status),
            start_time=to_us(start) * 1000,
            end_time=max(to_us(event.at), to_us(start)) * 1000,
        )
        self._provider._active_span_processor.on_end(span)  # noqa: SLF001

    @property
    def _writes_runs(self) -> bool:
        """Whether spans with given ids can be written: by the SDK's provider; others get attempts alone."""
        return hasattr(self._provider, "_active_span_processor")

    def run_context(self, run_id: str) -> SpanContext:
        return self._context(run_id, "run")

    def _context(self, run_id: str, what: str, *, remote: bool = True) -> SpanContext:
        from opentelemetry.trace import SpanContext, TraceFlags

        flags = TraceFlags.SAMPLED if self._is_sampled(run_id) else TraceFlags.DEFAULT
        return SpanContext(_trace_id(run_id), _span_id(run_id, what), remote, TraceFlags(flags))

    def _is_sampled(self, run_id: str) -> bool:
        """By the trace's id alone, so that every replica with the same sampler decides alike."""
        sampler = getattr(self._provider, "sampler", None)
        return sampler is None or sampler.should_sample(None, _trace_id(run_id), "run").decision.is_sampled()


def _trace_id(run_id: str) -> int:
    return uuid.UUID(run_id).int


def _span_id(run_id: str, what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{what}\0{run_id}".encode()).digest()[:8], "big") or 1


def _made_at(run_id: str) -> datetime:
    """When it was asked for, which its id tells in milliseconds."""
    return datetime.fromtimestamp((uuid.UUID(run_id).int >> 80) / 1000, UTC)


def _attributes(
    *, run: str, task: str | None, schedule: str | None, tick: datetime | None, attempt: int | None
) -> Mapping[str, str | int]:
    found = {
        "oncron.run.id": run,
        "oncron.task": task,
        "oncron.schedule": schedule,
        "oncron.tick": None if tick is None else tick.isoformat(),
        "oncron.attempt": attempt,
    }
    return {name: value for name, value in found.items() if value is not None}
