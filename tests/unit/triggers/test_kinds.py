"""Each kind of trigger: its options, its grid, and what it refuses."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

import pytest

from oncron.errors import DefinitionError, InvalidTrigger
from oncron.triggers import Trigger, cron, daily, every, monthly, once, weekly


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def days(trigger: Trigger, start: str, end: str) -> list[str]:
    return [f"{tick:%m-%d}" for tick in trigger.between(at(start), at(end))]


# G20, G21: intervals


def test_g20_replicas_that_start_apart_share_one_grid() -> None:
    first, second = every(seconds=7), every(timedelta(seconds=7))
    assert first.next_after(at("2026-01-01T00:00:01")) == second.next_after(at("2026-01-01T00:00:02.5"))
    tick = first.next_after(at("2026-01-01T00:00:00"))
    assert tick is not None
    assert (tick - at("1970-01-01")) % timedelta(seconds=7) == timedelta()


def test_an_anchor_moves_the_grid_and_the_grid_runs_both_ways() -> None:
    trigger = every(hours=1, anchor=at("2026-01-01T00:10:00"))
    assert trigger.next_after(at("2025-06-01T00:00:00")) == at("2025-06-01T00:10:00")
    assert trigger.next_after(at("2026-01-01T00:10:00")) == at("2026-01-01T01:10:00")
    assert (trigger.kind, trigger.period_us, trigger.timezone) == ("every", 3_600_000_000, None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seconds": 0},
        {"seconds": -5},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 1e-9},
        {"seconds": "5"},
        {"seconds": True},
        {"hours": 10**9},
        {"minutes": 5, "between": (1, 2)},
        {"minutes": 5, "anchor": datetime(2026, 1, 1)},
        {"minutes": 5, "anchor": "2026-01-01"},
        {"between": (5, 5)},
        {"between": (9, 5)},
        {"between": (0, 5)},
        {"between": (-1, 5)},
        {"between": (1, float("inf"))},
        {"between": 5},
        {"between": (1, 2, 3)},
        {"between": "ab"},
    ],
)
def test_g20_g21_an_interval_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        every(**options)
    assert caught.value.mend
    assert caught.value.field


def test_a_number_is_no_period() -> None:
    with pytest.raises(InvalidTrigger, match="seconds=30"):
        every(30)  # type: ignore[arg-type]


@pytest.mark.parametrize(("unit", "instead"), [("days", "daily"), ("weeks", "weekly"), ("months", "monthly")])
def test_days_are_no_elapsed_time(unit: str, instead: str) -> None:
    with pytest.raises(InvalidTrigger, match=rf"23 to 25 hours.*{instead}"):
        every(**{unit: 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidTrigger, match="no option"):
        every(fortnights=1)  # type: ignore[arg-type]


def test_g21_a_drawn_interval_is_the_same_for_all_replicas_and_differs_between_names() -> None:
    trigger = every(between=(30, 90))
    t = at("2026-01-01T00:00:00")
    assert trigger.bind("a").between(t, t + timedelta(hours=1)) == trigger.bind("a").between(t, t + timedelta(hours=1))
    assert trigger.bind("a").next_after(t) != trigger.bind("b").next_after(t)
    ticks = trigger.bind("a").between(t, t + timedelta(hours=10))
    gaps = [(b - a).total_seconds() for a, b in pairwise(ticks)]
    assert 30 <= min(gaps) < 45
    assert 75 < max(gaps) <= 90
    assert abs(sum(gaps) / len(gaps) - 60) < 2
    with pytest.raises(InvalidTrigger, match="bind"):
        trigger.next_after(t)


# G22, cron expressions


def test_g22_h_is_drawn_from_the_name_and_spreads() -> None:
    trigger = cron("H H(0-5) * * *", timezone="UTC")
    t = at("2026-01-01")
    ticks = [trigger.bind(f"tenant-{n}").next_after(t) for n in range(200)]
    assert {tick.hour for tick in ticks if tick} == set(range(6))
    assert len({tick.minute for tick in ticks if tick}) > 50
    assert trigger.bind("x").next_after(t) == cron("H H(0-5) * * *").bind("x").next_after(t)
    with pytest.raises(InvalidTrigger, match=r"bind\("):
        trigger.next_after(t)
    with pytest.raises(InvalidTrigger, match=r"bind\("):
        trigger.count_between_us(0, 1)
    assert not trigger.is_bound


def test_g22_h_with_a_step_keeps_the_step() -> None:
    bound = cron("H/15 * * * *", timezone="UTC").bind("x")
    minutes = [
        tick.minute
        for tick in bound.between(at("2026-01-01T00:00:00") - timedelta(seconds=1), at("2026-01-01T00:59:59"))
    ]
    assert len(minutes) == 4
    assert {b - a for a, b in pairwise(minutes)} == {15}
    of_days = cron("0 0 H * *", timezone="UTC")
    assert all(len(days(of_days.bind(str(n)), "2025-01-31T12:00", "2026-01-31T12:00")) == 12 for n in range(40))


def test_g22_x_and_0_x_are_one_schedule() -> None:
    assert cron("0 30 2 * * *", seconds=True) == cron("30 2 * * *")
    assert cron("0 */5 * * * *", seconds=True) == cron("*/5 * * * *")
    assert cron("@daily", seconds=True) == cron("@daily")


# G23-G25: calendars


def test_g23_every_third_day_is_on_one_grid_for_everybody() -> None:
    trigger = daily("12:00", days=3, anchor=date(2026, 1, 2))
    assert days(trigger, "2026-01-01", "2026-01-12") == ["01-02", "01-05", "01-08", "01-11"]
    assert days(trigger, "2025-12-25", "2026-01-01") == ["12-27", "12-30"]
    assert str(daily("12:00", anchor=date(2026, 1, 2))) == 'daily("12:00")'


def test_g35_times_of_day_run_in_order_whatever_the_order_of_arguments() -> None:
    trigger = daily(["18:00", time(6, 0, 30), "12:00", "18:00"])
    ticks = trigger.between(at("2026-01-01"), at("2026-01-02"))
    assert [f"{tick:%H:%M:%S}" for tick in ticks] == ["06:00:30", "12:00:00", "18:00:00"]


def test_g24_weekdays_have_many_spellings() -> None:
    same = [
        weekly(["mon", "sun"], "09:00"),
        weekly("mon,sun", "09:00"),
        weekly([0, 1], "09:00"),
        weekly([7, "MON"], "09:00"),
        weekly("0-1", "09:00"),
        weekly(("sun-mon",), time(9)),
    ]
    assert len(set(same)) == 1
    assert weekly("fri-sun", "09:00") == weekly([5, 6, 0], "09:00") == weekly("5-7", "09:00")
    assert weekly("mon-sun", "09:00") == weekly([0, 1, 2, 3, 4, 5, 6], "09:00")


def test_g24_every_second_week_begins_on_monday() -> None:
    trigger = weekly(["sun", "mon"], "00:00", weeks=2, anchor=date(2026, 1, 7))
    assert days(trigger, "2026-01-01", "2026-02-08T12:00") == ["01-05", "01-11", "01-19", "01-25", "02-02", "02-08"]


def test_g25_days_count_from_either_end_and_run_once() -> None:
    trigger = monthly([31, -1, 1], "00:00")
    assert days(trigger, "2026-01-15", "2026-04-15") == ["01-31", "02-01", "02-28", "03-01", "03-31", "04-01"]
    assert days(monthly(-31, "00:00"), "2025-12-31T12:00", "2026-06-01") == ["01-01", "03-01", "05-01"]
    assert days(monthly(-30, "00:00"), "2026-01-31T12:00", "2026-04-30") == ["03-02", "04-01"]


def test_g25_a_missing_day_is_passed_over_and_the_grid_kept_or_clamped() -> None:
    skipping = monthly(31, "00:00", months=3, anchor=date(2026, 1, 1))
    clamping = monthly(31, "00:00", months=3, anchor=date(2026, 1, 1), missing="last")
    assert days(skipping, "2026-01-01", "2027-01-01") == ["01-31", "07-31", "10-31"]
    assert days(clamping, "2026-01-01", "2027-01-01") == ["01-31", "04-30", "07-31", "10-31"]
    leap = monthly(29, "00:00", months=12, anchor=date(2026, 2, 1))
    assert leap.next_after(at("2026-01-01")) == at("2028-02-29")


@pytest.mark.parametrize(
    ("day", "months", "anchor"),
    [(30, 12, date(2026, 2, 1)), (29, 48, date(2026, 2, 1)), (31, 12, date(2026, 4, 1)), (-30, 24, date(2026, 2, 1))],
)
def test_g25_a_rule_that_no_month_of_its_grid_satisfies_is_refused(day: int, months: int, anchor: date) -> None:
    with pytest.raises(InvalidTrigger, match="no month of this grid"):
        monthly(day, "00:00", months=months, anchor=anchor)
    assert monthly(day, "00:00", months=months, anchor=anchor, missing="last").next_after(at("2026-06-01"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: daily([]),
        lambda: daily("24:00"),
        lambda: daily("9"),
        lambda: daily(9),  # type: ignore[arg-type]
        lambda: daily(None),  # type: ignore[arg-type]
        lambda: daily([None]),  # type: ignore[list-item]
        lambda: daily(b"09:00"),  # type: ignore[arg-type]
        lambda: daily(time(9, tzinfo=UTC)),
        lambda: daily(time(9, 0, 0, 1)),
        lambda: daily("09:00", days=0),
        lambda: daily("09:00", days=-1),
        lambda: daily("09:00", days=1.5),  # type: ignore[arg-type]
        lambda: daily("09:00", days=True),
        lambda: daily("09:00", days=2, anchor=datetime(2026, 1, 1)),
        lambda: daily("09:00", gap="never"),  # type: ignore[arg-type]
        lambda: daily("09:00", fold="third"),  # type: ignore[arg-type]
        lambda: weekly([], "09:00"),
        lambda: weekly("", "09:00"),
        lambda: weekly("monday", "09:00"),
        lambda: weekly("sat-mon", "09:00"),
        lambda: weekly(8, "09:00"),
        lambda: weekly(-1, "09:00"),
        lambda: weekly(None, "09:00"),  # type: ignore[arg-type]
        lambda: weekly("mon", "09:00", weeks=0),
        lambda: monthly([], "09:00"),
        lambda: monthly(0, "09:00"),
        lambda: monthly(32, "09:00"),
        lambda: monthly(-32, "09:00"),
        lambda: monthly("1", "09:00"),  # type: ignore[arg-type]
        lambda: monthly(1, "09:00", months=0),
        lambda: monthly(1, "09:00", months=5000),
        lambda: monthly(1, "09:00", missing="first"),  # type: ignore[arg-type]
        lambda: monthly(1, []),
    ],
)
def test_g23_to_g25_what_means_nothing_is_refused(make: Any) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        make()
    assert caught.value.field
    assert caught.value.mend


# G26: single instants


def test_g26_instants_are_sorted_and_each_runs_once() -> None:
    late, early = at("2026-05-01T10:00:00"), at("2026-01-01T10:00:00")
    trigger = once(late, early, late)
    assert trigger.between(at("2020-01-01"), at("2030-01-01")) == [early, late]
    assert trigger.next_after(late) is None
    assert trigger.first_us == round(early.timestamp() * 1_000_000)
    assert trigger.kind == "once"
    assert trigger.latest_in_us(0, 2**60, 1) == [round(late.timestamp() * 1_000_000)]
    assert trigger.count_between_us(0, 2**60) == (2, False)


def test_g26_naive_times_need_a_zone_and_follow_its_jumps() -> None:
    with pytest.raises(InvalidTrigger, match="timezone="):
        once(datetime(2026, 3, 29, 2, 30))
    missing, twice = datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30)
    start, end = at("2026-01-01"), at("2027-01-01")

    def ticks(moment: datetime, **options: Any) -> list[str]:
        found = once(moment, timezone="Europe/Berlin", **options).between(start, end)
        return [f"{tick:%H:%M}" for tick in found]

    assert ticks(missing) == ["01:00"]
    assert ticks(missing, gap="shift") == ["01:30"]
    with pytest.raises(InvalidTrigger, match="gap='next'"):
        once(missing, timezone="Europe/Berlin", gap="skip")
    assert ticks(twice) == ["00:30"]
    assert ticks(twice, fold="second") == ["01:30"]
    assert ticks(twice, fold="both") == ["00:30", "01:30"]


@pytest.mark.parametrize(
    "make",
    [
        once,
        lambda: once(5),  # type: ignore[arg-type]
        lambda: once("2026-01-01T00:00:00Z"),  # type: ignore[arg-type]
        lambda: once(datetime(2026, 1, 1, 0, 0, 0, 1), timezone="UTC"),
        lambda: once(datetime(2026, 1, 1), timezone="Nowhere"),
        lambda: once(*[at("2026-01-01") + timedelta(days=n) for n in range(1001)]),
    ],
)
def test_g26_instants_that_are_none_are_refused(make: Any) -> None:
    with pytest.raises(DefinitionError):
        make()


# G34: clock changes, one policy for all kinds


@pytest.mark.parametrize("make", [cron, lambda expr, **o: daily("02:30", **o)], ids=["cron", "daily"])
def test_g34_one_policy_rules_clock_changes_for_every_kind(make: Any) -> None:
    start, end = at("2026-03-28T12:00"), at("2026-03-30T12:00")

    def ticks(**options: Any) -> list[str]:
        trigger = make("30 2 * * *", timezone="Europe/Berlin", **options)
        return [f"{tick:%d %H:%M}" for tick in trigger.between(start, end)]

    assert ticks() == ["29 01:00", "30 00:30"]
    assert ticks(gap="skip") == ["30 00:30"]
    assert ticks(gap="shift") == ["29 01:30", "30 00:30"]
    start, end = at("2026-10-24T12:00"), at("2026-10-26T12:00")
    assert ticks() == ["25 00:30", "26 01:30"]
    assert ticks(fold="second") == ["25 01:30", "26 01:30"]
    assert ticks(fold="both") == ["25 00:30", "25 01:30", "26 01:30"]


def test_g34_skipped_times_run_together_once_and_a_shifted_one_joins_a_tick_that_is_there() -> None:
    start, end = at("2026-03-29T00:00"), at("2026-03-29T03:00")
    together = cron("0,10,20,30 2 * * *", timezone="Europe/Berlin")
    assert together.between(start, end) == [at("2026-03-29T01:00")]
    joined = cron("30 2,3 * * *", timezone="Europe/Berlin", gap="shift")
    assert joined.between(start, end) == [at("2026-03-29T01:30")]
    asked_inside = joined.next_after(at("2026-03-29T01:15"))
    assert asked_inside == at("2026-03-29T01:30")


@pytest.mark.parametrize("zone", ["America/Santiago", "America/Asuncion", "America/Havana", "Asia/Beirut"])
def test_g34_a_midnight_that_does_not_exist_runs_at_the_jump(zone: str) -> None:
    trigger = cron("@daily", timezone=zone)
    ticks = trigger.between(at("2022-01-01T12:00"), at("2022-12-31T12:00"))
    assert len(ticks) == 364
    assert {b - a for a, b in pairwise(ticks)} <= {timedelta(hours=h) for h in (23, 24, 25)}


# What the engine asks


def test_the_newest_ticks_of_a_long_span_are_found_without_walking_it() -> None:
    century = 100 * 365 * 86_400 * 1_000_000
    secondly, yearly = cron("* * * * * *", seconds=True), cron("0 0 29 2 *")
    assert secondly.latest_in_us(0, century, 2) == [century - 1_000_000, century]
    assert every(timedelta(microseconds=3)).latest_in_us(0, century, 2) == [century - 3, century]
    assert len(yearly.latest_in_us(0, century, 100)) == 25


def test_counting_stops_at_its_limit() -> None:
    trigger = cron("* * * * *")
    hour = 3_600_000_000
    assert trigger.count_between_us(0, hour) == (60, False)
    assert trigger.count_between_us(0, hour, 60) == (60, False)
    assert trigger.count_between_us(0, hour, 59) == (59, True)
    assert trigger.count_between_us(0, 10**17) == (10_000, True)
    assert every(seconds=1).count_between_us(0, 10**17) == (10_000, True)
    assert trigger.count_between_us(hour, hour) == (0, False)
    assert trigger.latest_in_us(hour, hour, 5) == []
    assert trigger.latest_in_us(hour, 0, 5) == []
    assert trigger.latest_in_us(0, hour, 0) == []


def test_one_trigger_serves_many_threads() -> None:
    trigger = cron("*/5 1-3 * * *", timezone="Europe/Berlin")
    begin = round(at("2026-03-20").timestamp()) * 1_000_000
    questions = [begin + n * 977_000_000 for n in range(3_000)]
    expected = [trigger.next_after_us(t) for t in questions]
    wrong: list[int] = []

    def ask(step: int) -> None:
        wrong.extend(n for n in range(0, len(questions), step) if trigger.next_after_us(questions[n]) != expected[n])

    threads = [threading.Thread(target=ask, args=(step,)) for step in (1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
