"""Middleware that comes with oncron: `log()`, `timeout()`, `retry()`, `limit()`, `report()`. For `app.use()`, or for
one task's `middleware=[...]`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from oncron import _options as check
from oncron._chain import CallNext, Middleware
from oncron._clock import SECOND, boot_us, sleep_us
from oncron._context import RunContext
from oncron._hosting import in_thread
from oncron._lifecycle import GiveUp, is_error
from oncron._limiter import Limiter, gate_of
from oncron.backoff import Backoff, exponential
from oncron.errors import InvalidOption

__all__ = ["CallNext", "Middleware", "limit", "log", "report", "retry", "timeout"]

logger = logging.getLogger("oncron.middleware")

Around = Callable[[RunContext[Any], CallNext], Awaitable[Any]]
Report = Callable[[BaseException, RunContext[Any]], Any]


def log(level: int = logging.INFO, *, args: bool = False) -> Around:
    """Logs each attempt's start and end with its duration, at `level` (an error at WARNING), with the run's fields.
    With `args` its arguments, too: they may be secrets. Raises InvalidOption."""
    check.number(level, "level", least=0, most=1000)
    check.truth(args, "args")

    async def logging_middleware(ctx: RunContext[Any], call_next: CallNext) -> Any:
        began = boot_us()
        with_args = f" with {dict(ctx.args)!r}" if args else ""
        ctx.log.log(level, "%s: attempt %d began%s", ctx.task, ctx.attempt, with_args)
        try:
            result = await call_next()
        except BaseException as error:
            how = logging.WARNING if is_error(error) else level
            ctx.log.log(how, "%s: %s after %.3f s: %s", ctx.task, type(error).__name__, _since(began), error)
            raise
        ctx.log.log(level, "%s: done after %.3f s", ctx.task, _since(began))
        return result

    return logging_middleware


def timeout(d: timedelta | float, /) -> Around:
    """No attempt lasts longer than `d` (a timedelta or seconds), whatever its task or schedule allows: as the option
    `timeout`, so an async task is cancelled, a process is killed, a thread is told by `ctx.stopping`. It counts
    from here: middleware outside of it has its own time. Raises InvalidOption."""
    limit = check.span(d, "timeout", least=1)

    async def timeout_middleware(ctx: RunContext[Any], call_next: CallNext) -> Any:
        ctx._execution.limit_time(limit)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return await call_next()

    return timeout_middleware


def retry(
    times: int = 2,
    *,
    on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    backoff: Backoff | None = None,
) -> Around:
    """Calls what is inside up to `times` more, here and now and within one attempt, after an error of `on`: for what
    is broken for a moment. `backoff` waits in between, `exponential(0.1, 2)` if not given. What must outlive the
    worker is the task's option `retries`. Skip, RetryIn and GiveUp are no errors. Raises InvalidOption."""
    check.number(times, "times", least=1, most=1000)
    kinds = check.error_types(on)
    if backoff is not None and not isinstance(backoff, Backoff):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"backoff={backoff!r}: give exponential(...), polynomial() or fixed(...) of oncron.backoff")
    wait = backoff or exponential(0.1, 2)

    async def retry_middleware(ctx: RunContext[Any], call_next: CallNext) -> Any:
        for spent in range(1, times + 1):
            try:
                return await call_next()
            except kinds as error:
                if not is_error(error) or isinstance(error, GiveUp) or ctx.stopping:
                    raise
                ctx.log.info("%s: %s, tried again here: %s", ctx.task, type(error).__name__, error)
            await sleep_us(wait.draw_us(spent, ctx.run_id))
        return await call_next()

    return retry_middleware


def report(hook: Report, /, *, every_attempt: bool = False) -> Around:
    """Calls `hook(error, ctx)`, sync (in a thread) or async, with an error that comes from inside: after the last
    attempt, or a GiveUp; with `every_attempt` after each. The error goes on; one of the hook's own is logged. Raises
    InvalidOption."""
    if not callable(hook):  # pyright: ignore[reportUnnecessaryComparison]
        raise InvalidOption(f"report({hook!r}): give a function of (error, ctx)")
    check.truth(every_attempt, "every_attempt")

    async def report_middleware(ctx: RunContext[Any], call_next: CallNext) -> Any:
        try:
            return await call_next()
        except BaseException as error:
            if is_error(error) and (every_attempt or ctx.is_last_attempt or isinstance(error, GiveUp)):
                await _tell(hook, error, ctx)
            raise

    return report_middleware


def limit(limiter: Limiter, /, *, reschedule: bool = True) -> Around:
    """Asks the limiter before what is inside: a run that is refused is given back until it fits, no attempt spent.
    With `reschedule=False` it fails with LimitExceeded and is retried as after any error. As the task's option
    `limiter`, which comes first of all. Raises InvalidOption."""
    if not isinstance(limiter, Limiter):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"limit({limiter!r}): give what app.limiter(name, rule) answered")
    return gate_of(limiter, reschedule=check.truth(reschedule, "reschedule"))  # type: ignore[return-value]


async def _tell(hook: Report, error: BaseException, ctx: RunContext[Any]) -> None:
    try:
        if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
            await hook(error, ctx)
        else:
            await in_thread(lambda: hook(error, ctx))
    except Exception:
        logger.exception("reporting an error of run %s failed", ctx.run_id)


def _since(began: int) -> float:
    return (boot_us() - began) / SECOND
