"""Backoff rules: capped before they multiply, and the same in every process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oncron import Oncron
from oncron._model import RunRecord
from oncron.backoff import exponential, fixed, polynomial
from oncron.errors import InvalidOption


def test_exponential_doubles_up_to_its_cap() -> None:
    rule = exponential(1, max=60)
    assert [rule(n).total_seconds() for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_polynomial_grows_by_the_fourth_power() -> None:
    rule = polynomial()
    assert [rule(n).total_seconds() for n in (1, 2, 3, 4, 6, 11, 25)] == [15, 26, 51, 126, 690, 10115, 332_031]


def test_fixed_is_exactly_that() -> None:
    assert fixed(timedelta(minutes=1)).draw_us(7, "seed") == 60_000_000


@pytest.mark.parametrize("attempt", [63, 64, 5_000, 10**9, 10**100])
def test_no_attempt_overflows_b169(attempt: int) -> None:
    assert exponential(0.5, max=3600)(attempt) == timedelta(hours=1)
    assert exponential(timedelta(hours=1), max=timedelta(days=3000))(attempt) == timedelta(days=3000)
    assert polynomial()(attempt) == timedelta(days=10)
    assert fixed(3)(attempt) == timedelta(seconds=3)


@given(st.integers(1, 10**6), st.text(max_size=40))
def test_the_wait_drawn_lies_between_half_and_whole_and_is_the_same_everywhere(attempt: int, seed: str) -> None:
    rule = exponential(1, max=3600)
    whole = rule.whole_us(attempt)
    assert whole // 2 <= rule.draw_us(attempt, seed) <= whole
    assert rule.draw_us(attempt, seed) == exponential(1, max=3600).draw_us(attempt, seed)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: exponential(5, max=1), "swap them"),
        (lambda: exponential(-1), "between 0 and ten years"),
        (lambda: fixed(float("inf")), "finite"),
        (lambda: fixed("3s"), "a duration is"),  # type: ignore[arg-type]
        (lambda: fixed(True), "a duration is"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        make()


def test_a_function_of_the_attempt_will_do_and_one_that_fails_is_replaced(app: Oncron) -> None:
    @app.task(backoff=lambda attempt: timedelta(seconds=attempt * 10))
    def ten() -> None: ...

    @app.task(backoff=lambda attempt: 1 / 0)
    def broken() -> None: ...

    run = RunRecord(id="r", task="t")
    assert app._registry.specs["ten"].backoff(3, run.id) == 30_000_000
    assert 500_000 <= app._registry.specs["broken"].backoff(1, run.id) <= 1_000_000
