"""How a run ends: what a task did, judged into the outcome that is recorded."""

from __future__ import annotations

import asyncio
import functools
import gc
import time
import traceback
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from oncron._clock import SECOND
from oncron._defaults import ERROR_BYTES, RETRY_DELAY, RETRY_DELAY_CAP, RETRY_IN_AT_MOST
from oncron._lifecycle import (
    GiveUp,
    RetryIn,
    Skip,
    cut,
    default_backoff,
    doubled,
    drawn,
    error_text,
    judge,
    released,
    succeeded,
    timed_out,
)
from oncron._model import Outcome, OutcomeKind, RunRecord, RunState


def held(*, attempt: int = 1, given_back: int = 0, retries: int = 3, **options: object) -> RunRecord:
    fields = {"id": "r1", "task": "send", "state": RunState.RUNNING, "token": 7, "retry_delay": 11} | options
    return RunRecord(attempt=attempt, given_back=given_back, retries=retries, **fields)  # pyright: ignore[reportArgumentType]


def raised(error: BaseException) -> BaseException:
    """The error with a traceback, as a task leaves it."""
    with pytest.raises(BaseException) as caught:
        raise error
    return caught.value


def constant(attempt: int, _seed: str) -> int:
    return attempt * SECOND


# --- the table --------------------------------------------------------------------------------

TABLE = [
    # what the task raised, attempts spent of 1 + 3, what is recorded
    (ValueError("no"), 1, OutcomeKind.RETRY),
    (ValueError("no"), 3, OutcomeKind.RETRY),
    (ValueError("no"), 4, OutcomeKind.FAILED),
    (ValueError("no"), 9, OutcomeKind.FAILED),
    (TimeoutError("late"), 1, OutcomeKind.RETRY),
    (ExceptionGroup("both", [ValueError(), KeyError()]), 1, OutcomeKind.RETRY),
    (Skip("nothing new"), 1, OutcomeKind.SKIPPED),
    (Skip("nothing new"), 4, OutcomeKind.SKIPPED),
    (GiveUp("no such user"), 1, OutcomeKind.FAILED),
    (RetryIn(5), 1, OutcomeKind.RETRY),
    (RetryIn(5), 4, OutcomeKind.FAILED),
    (RetryIn(5, spend_attempt=False), 4, OutcomeKind.RETRY),
    (KeyboardInterrupt(), 1, OutcomeKind.FAILED),
    (asyncio.CancelledError(), 1, OutcomeKind.FAILED),
]


@pytest.mark.parametrize(("error", "spent", "kind"), TABLE)
def test_what_a_task_raised_decides_how_its_run_goes_on(error: BaseException, spent: int, kind: OutcomeKind) -> None:
    outcome = judge(held(attempt=spent), raised(error))

    assert (outcome.kind, outcome.run_id, outcome.token) == (kind, "r1", 7)


def test_what_was_given_back_does_not_count_as_an_attempt() -> None:
    assert judge(held(attempt=9, given_back=6), ValueError()).kind is OutcomeKind.RETRY
    assert judge(held(attempt=10, given_back=6), ValueError()).kind is OutcomeKind.FAILED


def test_without_retries_the_first_error_is_the_last() -> None:
    assert judge(held(retries=0), ValueError()).kind is OutcomeKind.FAILED


@pytest.mark.parametrize(
    ("retry_on", "kind"),
    [
        (Exception, OutcomeKind.RETRY),
        (OSError, OutcomeKind.RETRY),
        ((KeyError, ConnectionError), OutcomeKind.RETRY),
        (ValueError, OutcomeKind.FAILED),
        ((), OutcomeKind.FAILED),
    ],
)
def test_an_error_outside_retry_on_fails_at_once_with_its_traceback(
    retry_on: type[BaseException] | tuple[type[BaseException], ...], kind: OutcomeKind
) -> None:
    outcome = judge(held(), raised(ConnectionError("refused")), retry_on=retry_on)

    assert outcome.kind is kind
    assert "ConnectionError: refused" in (outcome.error or "")


@pytest.mark.parametrize("error", [RetryIn(5), Skip(), GiveUp()])
def test_retry_on_does_not_rule_what_the_task_says_itself(error: Exception) -> None:
    assert judge(held(), error, retry_on=()).kind is judge(held(), error).kind


def test_a_retry_waits_by_the_backoff_of_the_attempts_spent_and_the_next_take_over_by_the_next() -> None:
    outcome = judge(held(attempt=2), ValueError(), backoff=constant)

    assert (outcome.delay, outcome.retry_delay, outcome.spend_attempt) == (2 * SECOND, 3 * SECOND, True)


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (5, 5 * SECOND),
        (0.25, 250_000),
        (timedelta(minutes=2), 120 * SECOND),
        (-3, 0),
        (9.2e12, RETRY_IN_AT_MOST),
        (timedelta.max, RETRY_IN_AT_MOST),
    ],
)
def test_retry_in_waits_as_long_as_it_says_and_never_less_than_nothing(delay: timedelta | float, expected: int) -> None:
    assert judge(held(), RetryIn(delay)).delay == expected


def test_retry_in_that_spends_no_attempt_says_so() -> None:
    assert judge(held(), RetryIn(1, spend_attempt=False)).spend_attempt is False
    assert judge(held(), RetryIn(1)).spend_attempt is True


def test_a_skip_keeps_its_reason_and_no_traceback() -> None:
    outcome = judge(held(), Skip("nothing new"))

    assert (outcome.reason, outcome.error) == ("nothing new", None)


def test_giving_up_keeps_its_reason_and_the_traceback() -> None:
    outcome = judge(held(), raised(GiveUp("no such user")))

    assert outcome.reason == "no such user"
    assert "GiveUp" in (outcome.error or "")


def test_success_keeps_the_result() -> None:
    outcome = succeeded(held(), '{"rows":3}')

    assert outcome == Outcome(run_id="r1", token=7, kind=OutcomeKind.SUCCEEDED, result='{"rows":3}')


def test_a_timeout_names_the_run_the_task_and_the_limit() -> None:
    assert str(timed_out(held(), 2.5)) == "run r1 of task 'send' took longer than its timeout of 2.5 s"


# --- giving back ------------------------------------------------------------------------------


def test_a_released_run_keeps_its_retry_delay_and_waits_for_nothing() -> None:
    outcome = released(held(), "stopped", started=True)

    assert (outcome.kind, outcome.reason, outcome.delay, outcome.retry_delay) == (
        OutcomeKind.RELEASED,
        "stopped",
        0,
        11,
    )


def test_a_started_run_with_no_retries_is_never_given_back_but_lost() -> None:
    assert released(held(retries=0), "stopped", started=True).kind is OutcomeKind.LOST
    assert released(held(retries=0), "stopped", started=False).kind is OutcomeKind.RELEASED


# --- backoff ----------------------------------------------------------------------------------


def test_B169_no_attempt_is_too_high_for_the_backoff() -> None:
    for attempt in (1, 61, 62, 63, 64, 1_000, 5_000, 10**9):
        delay = default_backoff(attempt, "r1")
        assert 0 < delay <= RETRY_DELAY_CAP
    began = time.perf_counter()
    for _ in range(100):
        default_backoff(5_000, "r1")
    assert time.perf_counter() - began < 0.1


def test_the_backoff_doubles_from_a_second_to_an_hour_with_jitter_of_a_half() -> None:
    for attempt in range(1, 30):
        whole = min(RETRY_DELAY_CAP, RETRY_DELAY * 2 ** (attempt - 1))
        delays = [default_backoff(attempt, f"r{k}") for k in range(50)]
        assert all(whole // 2 <= delay <= whole for delay in delays)
        assert len(set(delays)) > 40


def test_every_process_draws_the_same_delay_for_a_run() -> None:
    assert default_backoff(3, "r1") == drawn(doubled(RETRY_DELAY, RETRY_DELAY_CAP, 3), 3, "r1")


@pytest.mark.parametrize("attempt", [0, -5])
def test_an_attempt_below_one_waits_like_the_first(attempt: int) -> None:
    assert default_backoff(attempt, "r1") == default_backoff(1, "r1")


# --- the text of an error ---------------------------------------------------------------------


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I do not say")


def test_an_error_that_cannot_even_be_printed_is_still_judged() -> None:
    outcome = judge(held(), raised(Rude()))

    assert outcome.kind is OutcomeKind.RETRY
    assert "Rude" in (outcome.error or "")
    assert "Rude" in (outcome.reason or "")


def test_the_traceback_names_the_line_and_the_cause() -> None:
    outer = ValueError("outer")
    outer.__cause__ = raised(KeyError("inner"))
    text = error_text(raised(outer))

    assert "KeyError: 'inner'" in text
    assert "ValueError: outer" in text
    assert "test_lifecycle.py" in text


LEADING = """
def executor(pool):
    try:
        pool(within)(None)
    except BaseException as error:
        return error

def within(_):
    task()
"""


def led_by(room: str, task: Callable[[], object]) -> BaseException:
    """What `task` raised, as the executor sees it: called from two frames of that module, with one of the
    standard library between."""
    names: dict[str, Any] = {"__name__": room, "task": task}
    exec(LEADING, names)
    return names["executor"](functools.singledispatch)


def test_the_traceback_begins_with_the_task_not_with_what_called_it() -> None:
    def task() -> None:
        raise ValueError("no")

    assert len(traceback.extract_tb(led_by("oncron._engine.executor", task).__traceback__)) == 4
    text = error_text(led_by("oncron._engine.executor", task))
    assert text.count("  File ") == 1
    assert "in task\n" in text
    elsewhere = error_text(led_by("oncron_jobs", task))
    assert elsewhere.count("  File ") == 4


def test_frames_of_the_package_that_the_task_called_stay() -> None:
    text = error_text(led_by("oncron._context", lambda: cut(None, 3)))  # type: ignore[arg-type]
    assert text.count("  File ") == 2
    assert "_lifecycle.py" in text


def test_a_traceback_of_the_package_alone_is_kept_whole() -> None:
    with pytest.raises(AttributeError) as caught:
        cut(None, 3)  # type: ignore[arg-type]
    trace = caught.value.__traceback__
    assert trace is not None
    assert "_lifecycle.py" in error_text(caught.value.with_traceback(trace.tb_next))


@pytest.mark.parametrize("letter", ["x", "é", "日", "😀"])
def test_a_long_text_is_cut_in_the_middle_to_its_limit_in_bytes(letter: str) -> None:
    text = "BEGIN" + letter * ERROR_BYTES + "END"

    short = cut(text, ERROR_BYTES)

    assert ERROR_BYTES - 40 <= len(short.encode()) <= ERROR_BYTES
    assert short.startswith("BEGIN")
    assert short.endswith("END")
    assert "... cut ..." in short


def test_a_text_within_its_limit_is_kept_whole() -> None:
    assert cut("é" * 50, 100) == "é" * 50


def test_what_a_store_cannot_hold_is_written_out() -> None:
    outcome = judge(held(), raised(ValueError("nul \0 and lone \ud800 surrogate")))

    for text in (outcome.error, outcome.reason):
        assert text is not None
        assert "\0" not in text
        text.encode()


@pytest.mark.parametrize("error", [Skip("nul \0 and \ud800"), GiveUp("nul \0 and \ud800"), Skip(ValueError(3))])  # pyright: ignore[reportArgumentType]
def test_a_reason_of_the_tasks_own_is_written_as_a_store_can_hold_it(error: Exception) -> None:
    reason = judge(held(), error).reason

    assert isinstance(reason, str)
    assert "\0" not in reason
    reason.encode()


def test_the_reason_is_one_short_line_even_for_a_huge_message() -> None:
    outcome = judge(held(), raised(ValueError("x" * 1_000_000)))

    assert len(outcome.reason or "") <= 300
    assert len((outcome.error or "").encode()) <= ERROR_BYTES


def test_B175_an_outcome_keeps_no_frame_alive() -> None:
    class Big:
        pass

    def failing(big: Big) -> None:
        raise ValueError(str(type(big)))

    big = Big()
    watched = weakref.ref(big)
    try:
        failing(big)
    except ValueError as error:
        outcome = judge(held(), error)
    del big
    gc.collect()

    assert watched() is None
    assert outcome.error
