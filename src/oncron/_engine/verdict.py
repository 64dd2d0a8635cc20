"""What a failure in a worker process means: as `judge` for an exception, of which only names and text came here."""

from __future__ import annotations

import builtins
import sys
from datetime import timedelta

import msgspec

from oncron._engine.wire import Failure, kind_name
from oncron._lifecycle import Backoff, GiveUp, Interrupted, RetryIn, Skip, judge
from oncron._model import Outcome, RunRecord

_CANCELLED = frozenset({"asyncio.exceptions.CancelledError", "oncron.errors.LeaseLost"})


def verdict(
    run: RunRecord,
    failure: Failure,
    *,
    backoff: Backoff,
    retry_on: type[BaseException] | tuple[type[BaseException], ...],
) -> Outcome:
    """The outcome of a task that failed like this. `retry_on` is judged by the names of classes."""
    again = Exception if _is_one_of(failure, retry_on) else ()
    outcome = judge(run, stand_in(failure), backoff=backoff, retry_on=again)
    return outcome if outcome.error is None else msgspec.structs.replace(outcome, error=failure.text)


def was_cancelled(failure: Failure) -> bool:
    """Whether the task ended because it was told to."""
    return not _CANCELLED.isdisjoint(failure.kinds)


def _is_one_of(failure: Failure, kinds: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    if kinds is Exception:
        return True  # the default, which covers a task's own SystemExit, too
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    return not {kind_name(kind) for kind in allowed}.isdisjoint(failure.kinds)


def stand_in(failure: Failure) -> BaseException:
    """An exception of that name that says the same, and is one of the same kind as far as this process knows it."""
    match failure.control:
        case "Skip":
            return Skip(failure.said)
        case "Interrupted":
            return Interrupted(failure.said)
        case "GiveUp":
            return GiveUp(failure.said)
        case "RetryIn":
            return RetryIn(timedelta(microseconds=failure.delay), spend_attempt=failure.spend_attempt)
        case _:
            real = next((found for kind in failure.kinds if (found := _known(kind)) is not None), Exception)
            return type(failure.name, (real,), {"__init__": _says, "__str__": _what_it_says})(failure.said)


def _says(self: Exception, said: str) -> None:
    """Whatever else its class wants to be told."""
    self.args = (said,)


def _what_it_says(self: Exception) -> str:
    return str(self.args[0])


def _known(kind: str) -> type[Exception] | None:
    """The class of that name, if this process has it."""
    for name, module in (("builtins", builtins), *sys.modules.copy().items()):
        if kind.startswith(f"{name}.") and isinstance(found := getattr(module, kind[len(name) + 1 :], None), type):
            return found if issubclass(found, Exception) else None
    return None
