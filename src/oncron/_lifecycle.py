"""How a run ends: pure decisions, without I/O.

A run has `1 + retries` attempts; an error, a timeout and a dead worker each spend one, a
graceful stop does not. `judge` turns what a task did into the `Outcome` that `finish`
records; the store's own part of the table (sticky cancel, releases in a row, take-over) is
in the contract, `_store.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import ClassVar, cast

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._clock import delta_us
from oncron._model import NewRun, Outcome, OutcomeKind, RunRecord
from oncron.errors import InvalidOption, LeaseLost

_PACKAGE = __name__.partition(".")[0]

Backoff = Callable[[int, str], int]
"""(attempts spent so far >= 1, seed) -> microseconds to wait before the next one."""


class RetryIn(Exception):
    """Raised by a task: run again after `delay` (a timedelta or seconds).

    `spend_attempt=False` does not count it against `retries`."""

    is_error: ClassVar[bool] = True
    """Whether the run keeps its traceback: a limiter's refusal is nobody's mistake."""

    def __init__(self, delay: timedelta | float, *, spend_attempt: bool = True) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not isinstance(seconds, int | float) or not math.isfinite(seconds):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"RetryIn({delay!r}): the delay is a timedelta or a finite number of seconds")
        self.delay, self.spend_attempt = delay, spend_attempt
        super().__init__(f"retry in {delay}")


class GiveUp(Exception):
    """Raised by a task: end as failed, now, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Skip(Exception):
    """Raised by a task or a middleware: end as skipped; nothing is wrong."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Interrupted(BaseException):
    """Raised by a task, or by its `ctx.walk`, that stops in the middle and goes on from its checkpoint: the run is
    given back. If it left a new checkpoint in this attempt, that spends none, however often; otherwise it counts as
    a release. Not an Exception, so that an `except Exception` does not keep it."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Told(Exception):
    """An error whose own words say all there is to say: they are kept with the run instead of a traceback. `text` is
    all of them, the message their first line."""

    def __init__(self, message: str, text: str = "") -> None:
        self.text = text or message
        super().__init__(message)


def draw(seed: str, below: int) -> int:
    """A number in [0, below) that every process draws alike from the seed."""
    if below <= 0:
        return 0
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % below


def doubled(base: int, cap: int, attempt: int) -> int:
    """min(cap, base * 2**(attempt - 1)). The exponent is bounded before the power is taken, so that no
    attempt overflows."""
    return cap if attempt > 62 else min(cap, base << attempt - 1)


def drawn(whole: int, attempt: int, seed: str) -> int:
    """A wait between the half and the whole, the same for the same attempt and seed in every process."""
    return whole // 2 + draw(f"{seed}\0{attempt}", whole - whole // 2 + 1)


def default_backoff(attempt: int, seed: str) -> int:
    attempt = max(1, attempt)
    return drawn(doubled(limits.RETRY_DELAY, limits.RETRY_DELAY_CAP, attempt), attempt, seed)


def succeeded(run: RunRecord, result: str | None) -> Outcome:
    return Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.SUCCEEDED, result=result)


def with_reports(
    outcome: Outcome, *, progress: str | None, checkpoint: str | None, enqueue: Sequence[NewRun], log: str | None = None
) -> Outcome:
    """The end with what the task said last, and with its outbox if it is a success."""
    kept = tuple(enqueue) if outcome.kind is OutcomeKind.SUCCEEDED else ()
    return replace(outcome, progress=progress, checkpoint=checkpoint, enqueue=kept, log=log)


def with_headway(run: RunRecord, outcome: Outcome) -> Outcome:
    """A release that brings a new checkpoint: the run got further, so it spends no attempt and ends the row of
    releases that do not."""
    if outcome.kind is not OutcomeKind.RELEASED or outcome.checkpoint in (None, run.checkpoint):
        return outcome
    return replace(outcome, kind=OutcomeKind.RETRY, spend_attempt=False)


def judge(
    run: RunRecord,
    error: BaseException,
    *,
    backoff: Backoff = default_backoff,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
) -> Outcome:
    """The outcome of a task that raised `error`.

    Skip ends as skipped, GiveUp as failed, Interrupted is given back, RetryIn retries after its delay; any other error
    retries while an attempt is left and the error is one of `retry_on`, else ends as failed.
    """
    if (interrupted := interruption(error)) is not None:
        return released(run, _line(interrupted.reason or "interrupted"), started=False)
    if isinstance(error, Skip):
        return _ended(run, OutcomeKind.SKIPPED, error, error.reason or "skipped by the task")
    if isinstance(error, GiveUp):
        return _ended(run, OutcomeKind.FAILED, error, error.reason or "gave up")
    if isinstance(error, RetryIn):
        if error.spend_attempt and run.is_last_attempt:
            return _ended(run, OutcomeKind.FAILED, error, "no attempt left")
        return _again(run, error, wanted_delay(error), backoff, spend=error.spend_attempt)
    if run.is_last_attempt:
        return _ended(run, OutcomeKind.FAILED, error, _short(error))
    if not isinstance(error, retry_on):
        return _ended(run, OutcomeKind.FAILED, error, f"not repeated: {_short(error)}")
    return _again(run, error, backoff(run.attempts_spent, run.id), backoff, spend=True)


def interruption(error: BaseException) -> Interrupted | None:
    """An Interrupted, also one that a TaskGroup has wrapped."""
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return interruption(inner[0]) if len(inner) == 1 else None
    return error if isinstance(error, Interrupted) else None


def is_error(error: BaseException) -> bool:
    """Whether something went wrong: not what a task says to the engine, nor being told to stop."""
    return not isinstance(error, Skip | RetryIn | Interrupted | LeaseLost | asyncio.CancelledError)


def wanted_delay(error: RetryIn) -> int:
    """The microseconds it asks for, never negative, and bounded: a sum with now fits every store. Raises
    TypeError, ValueError or OverflowError for what is no duration."""
    return min(max(0, delta_us(error.delay)), limits.RETRY_IN_AT_MOST)


def timed_out(run: RunRecord, seconds: float) -> TimeoutError:
    return TimeoutError(f"run {run.id} of task {run.task!r} took longer than its timeout of {seconds:g} s")


def released(run: RunRecord, reason: str, *, started: bool) -> Outcome:
    """Give a claim back without spending the attempt. A started run with retries=0 is at most
    once: it is never given back but ends as lost."""
    if started and run.retries == 0:
        return Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.LOST, reason=reason)
    return Outcome(
        run_id=run.id, token=run.token, kind=OutcomeKind.RELEASED, reason=reason, retry_delay=run.retry_delay
    )


def error_text(error: BaseException) -> str:
    """The traceback as text, from the task's own first frame on, cut in the middle to the limit: no frames
    are kept alive. Never raises."""
    if isinstance(error, Told):
        return cut(error.text.replace("\0", "\\0"), limits.ERROR_BYTES)
    try:
        text = "".join(traceback.format_exception(type(error), error, _from_the_task(error.__traceback__)))
    except BaseException:  # noqa: BLE001 - an error's own code may raise anything while it is looked at
        text = _short(error)
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\\0")
    return cut(text, limits.ERROR_BYTES)


def _from_the_task(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames that led to the task: this package's, and the standard library's among them. All of
    it if nothing else is left."""
    found, frame = trace, trace
    while frame is not None:
        room = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if room == _PACKAGE:
            found = frame.tb_next
        elif room not in sys.stdlib_module_names:
            break
        frame = frame.tb_next
    return trace if found is None else found


def cut(text: str, size: int) -> str:
    """At most `size` bytes of UTF-8: the beginning and the end, with a mark between."""
    raw = text.encode()
    if len(raw) <= size:
        return text
    head = size // 3
    tail = size - head - 24
    return raw[:head].decode("utf-8", "ignore") + "\n... cut ...\n" + raw[-tail:].decode("utf-8", "ignore")


def said(value: object) -> str:
    """Its text, whatever its own code raises: the end of a run must be written all the same."""
    try:
        return str(value)
    except BaseException:  # noqa: BLE001 - a SystemExit or CancelledError of the value's own, too
        return "(its text could not be made)"


def _short(error: BaseException) -> str:
    if isinstance(error, Told):
        return _line(error)
    return _line(": ".join(filter(None, (type(error).__name__, said(error)))))


def _line(text: object) -> str:
    """As every store can hold it: no NUL, no lone surrogate, at most 300 characters."""
    plain = said(text).replace("\0", "\\0").encode("utf-8", "replace").decode()
    return plain if len(plain) <= 300 else plain[:297] + "..."


def _ended(run: RunRecord, kind: OutcomeKind, error: BaseException, reason: str) -> Outcome:
    text = None if kind is OutcomeKind.SKIPPED else error_text(error)
    return Outcome(run_id=run.id, token=run.token, kind=kind, error=text, reason=_line(reason))


def _again(run: RunRecord, error: BaseException, delay: int, backoff: Backoff, *, spend: bool) -> Outcome:
    told = not isinstance(error, RetryIn) or error.is_error
    return Outcome(
        run_id=run.id,
        token=run.token,
        kind=OutcomeKind.RETRY,
        error=error_text(error) if told else None,
        reason=_short(error) if told else str(error),
        delay=delay,
        retry_delay=backoff(run.attempts_spent + (1 if spend else 0), run.id),
        spend_attempt=spend,
    )
