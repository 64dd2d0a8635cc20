"""Faults that other schedulers had with cron, clock changes and intervals, by their entry's number."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest

from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, cron, every, weekly

NEW_YORK = "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def after(trigger: Trigger, start: str, count: int) -> list[str]:
    found: list[str] = []
    tick = at(start)
    for _ in range(count):
        tick = trigger.next_after(tick)
        assert tick is not None
        found.append(tick.isoformat(timespec="minutes").removesuffix("+00:00"))
    return found


def test_b001_a_missing_daily_time_runs_when_the_clock_has_jumped_and_the_next_day_as_usual() -> None:
    daily = cron("30 2 * * *", timezone=NEW_YORK)
    assert after(daily, "2026-03-08T06:30", 3) == ["2026-03-08T07:00", "2026-03-09T06:30", "2026-03-10T06:30"]


def test_b003_next_is_never_in_the_past_on_the_day_of_the_jump() -> None:
    often, hourly = cron("*/5 * * * *", timezone=NEW_YORK), cron("0 * * * *", timezone=NEW_YORK)
    assert after(often, "2026-03-08T06:59", 3) == ["2026-03-08T07:00", "2026-03-08T07:05", "2026-03-08T07:10"]
    assert after(hourly, "2026-03-08T06:30", 3) == ["2026-03-08T07:00", "2026-03-08T08:00", "2026-03-08T09:00"]
    for minute in range(1440):
        t = at("2026-03-08T00:00") + timedelta(minutes=minute)
        for trigger in (often, hourly):
            following = trigger.next_after(t)
            assert following is not None
            assert following > t


def test_b005_the_sunday_of_the_jump_is_not_dropped() -> None:
    sundays = cron("0 8 * * 0", timezone="America/Chicago")
    assert after(sundays, "2026-03-08T05:45", 2) == ["2026-03-08T13:00", "2026-03-15T13:00"]


def test_b007_a_daily_time_in_the_repeated_hour_runs_once() -> None:
    daily = cron("30 1 * * *", timezone=NEW_YORK)
    assert after(daily, "2026-10-31T12:00", 2) == ["2026-11-01T05:30", "2026-11-02T06:30"]


def test_b009_a_jump_of_half_an_hour_is_a_jump_too() -> None:
    autumn = cron("45 1 * * *", timezone="Australia/Lord_Howe")
    assert after(autumn, "2026-04-04T00:00", 2) == ["2026-04-04T14:45", "2026-04-05T15:15"]
    spring = cron("15 2 * * *", timezone="Australia/Lord_Howe")
    assert after(spring, "2026-10-02T20:00", 2) == ["2026-10-03T15:30", "2026-10-04T15:15"]


def test_b011_the_series_is_the_same_wherever_it_began() -> None:
    hourly = cron("30 * * * *", timezone="Europe/Vienna")
    expected = ["2017-10-29T00:30", "2017-10-29T01:30", "2017-10-29T02:30"]
    for minutes in range(40):
        fresh = cron("30 * * * *", timezone="Europe/Vienna")
        t = at("2017-10-28T23:31") - timedelta(minutes=47 * minutes)
        while (following := fresh.next_after(t)) is not None and following < at("2017-10-29T00:00"):
            t = following
        assert after(fresh, t.isoformat()[:19], 3) == expected
    assert after(hourly, "2017-10-28T23:45", 3) == expected


def test_b013_a_minutely_job_keeps_going_through_the_repeated_hour() -> None:
    ticks = cron("* * * * *", timezone="Europe/London").between(at("2025-10-26T00:58"), at("2025-10-26T02:01"))
    assert ticks == [at("2025-10-26T00:59") + timedelta(minutes=minute) for minute in range(63)]


def test_b015_the_day_of_the_change_has_23_hours() -> None:
    ticks = after(cron("4 16 * * *", timezone=NEW_YORK), "2025-03-08T12:00", 3)
    assert ticks == ["2025-03-08T21:04", "2025-03-09T20:04", "2025-03-10T20:04"]


def test_b017_an_interval_has_no_hole_and_a_daily_time_no_double_when_summer_ends() -> None:
    start, end = at("2020-10-24T12:00"), at("2020-10-26T12:00")
    assert len(every(seconds=60).between(start, end)) == 2_880
    daily = cron("20 2 * * *", timezone="Europe/Paris")
    assert daily.between(start, end) == [at("2020-10-25T00:20"), at("2020-10-26T01:20")]


def test_b019_the_start_of_the_gap_is_a_tick_of_its_own() -> None:
    ticks = after(cron("0 2 * * *", timezone=NEW_YORK), "2024-03-09T00:00", 3)
    assert ticks == ["2024-03-09T07:00", "2024-03-10T07:00", "2024-03-11T06:00"]


def test_b021_seven_days_of_elapsed_time_are_not_a_weekly_time_on_the_clock() -> None:
    elapsed = every(timedelta(days=7), anchor=at("2019-03-26T15:00"))
    assert after(elapsed, "2019-03-26T15:00", 1) == ["2019-04-02T15:00"]
    assert "daily(...)" in elapsed.warnings()[0]
    on_the_clock = weekly("tue", "16:00", timezone="Europe/Brussels")
    assert after(on_the_clock, "2019-03-26T15:00", 1) == ["2019-04-02T14:00"]
    assert after(cron("0 16 * * 2", timezone="Europe/Brussels"), "2019-03-26T15:00", 1) == ["2019-04-02T14:00"]


def test_b023_the_zone_and_not_an_offset_is_kept() -> None:
    daily = cron("0 9 * * *", timezone=NEW_YORK)
    assert after(daily, "2026-03-07T14:00", 2) == ["2026-03-08T13:00", "2026-03-09T13:00"]
    assert after(daily, "2026-10-31T20:00", 2) == ["2026-11-01T14:00", "2026-11-02T14:00"]
    assert NEW_YORK in str(daily)


def test_b025_the_zone_survives_the_end_of_the_month() -> None:
    ticks = after(cron("0 9 1 * *", timezone="Europe/Berlin"), "2024-03-15T00:00", 3)
    assert ticks == ["2024-04-01T07:00", "2024-05-01T07:00", "2024-06-01T07:00"]


def test_b027_the_13th_or_any_friday() -> None:
    ticks = cron("0 0 13 * 5").between(at("2025-12-31T23:59"), at("2026-12-31T23:59"))
    assert len(ticks) == 61
    assert ticks[:3] == [at("2026-01-02"), at("2026-01-09"), at("2026-01-13")]


@pytest.mark.parametrize("expr", ["0 0 31 4 *", "0 0 30 2 *", "0 0 31 2,4,6 *"])
def test_b029_a_date_that_never_occurs_is_refused(expr: str) -> None:
    with pytest.raises(InvalidTrigger, match="no such date"):
        cron(expr)


def test_b029_a_date_that_can_occur_is_not_refused() -> None:
    assert after(cron("0 0 31 4,5 *"), "2026-01-01", 1) == ["2026-05-31T00:00"]
    mondays = ["2027-02-01T00:00", "2027-02-08T00:00", "2027-02-15T00:00", "2027-02-22T00:00"]
    assert after(cron("0 0 30 2 1"), "2026-11-30", 4) == mondays


def test_b031_the_31st_and_leap_years() -> None:
    ticks = cron("0 0 31 * *").between(at("2025-12-31T23:59"), at("2026-12-31T23:59"))
    assert [tick.month for tick in ticks] == [1, 3, 5, 7, 8, 10, 12]
    assert after(cron("0 0 1 3 *"), "2028-01-01", 1) == ["2028-03-01T00:00"]


def test_b033_seven_and_zero_are_sunday() -> None:
    for expr in ("0 0 * * 7", "0 0 * * 0"):
        assert after(cron(expr), "2026-12-01", 2) == ["2026-12-06T00:00", "2026-12-13T00:00"]


def test_b035_a_step_starts_anew_each_hour_and_says_so() -> None:
    uneven = cron("*/45 * * * *")
    assert [tick[-5:] for tick in after(uneven, "2026-11-30T00:00", 4)] == ["00:45", "01:00", "01:45", "02:00"]
    assert "every(minutes=45)" in uneven.warnings()[0]
    too_large = cron("*/90 * * * *")
    assert [tick[-5:] for tick in after(too_large, "2026-11-30T00:00", 2)] == ["01:00", "02:00"]
    assert "larger than the minute field" in too_large.warnings()[0]
    even = every(minutes=45, anchor=at("2026-11-30T00:00"))
    assert [tick[-5:] for tick in after(even, "2026-11-30T00:00", 4)] == ["00:45", "01:30", "02:15", "03:00"]


def test_b037_a_start_with_a_step_does_not_wrap_round_midnight() -> None:
    ticks = cron("0 3/2 * * *").between(at("2026-11-29T23:59"), at("2026-11-30T23:59"))
    assert [tick.hour for tick in ticks] == list(range(3, 24, 2))


@pytest.mark.parametrize("expr", ["0-999999999 * * * *", ",".join(["1-1"] * 100_000) + " * * * *"])
def test_b039_a_huge_range_or_list_is_refused_at_once(expr: str) -> None:
    tracemalloc.start()
    started = time.perf_counter()
    with pytest.raises(InvalidTrigger):
        cron(expr)
    took = time.perf_counter() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert took < 0.01
