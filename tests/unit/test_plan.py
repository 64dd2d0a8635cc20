"""The plan: of the ticks that are due, which run, which become a gap, and when to look again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies as st

from oncron._clock import SECOND, from_us, to_us
from oncron._defaults import PLAN_WALK
from oncron._model import (
    Change,
    Definition,
    FirePlan,
    GapReason,
    Missed,
    ScheduleRecord,
    Status,
    tick_run_id,
)
from oncron._plan import changed_plan, due_at, first_plan, next_tick, paused_plan, plan, resumed_plan
from oncron.triggers import Trigger, cron, daily, every, once, parse

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def us(text: str) -> int:
    return to_us(datetime.fromisoformat(f"{text}+00:00"))


def defined(trigger: Trigger, **options: object) -> Definition:
    fields = {"name": "report", "trigger": str(trigger.bind("report")), "task": "send"} | options
    return Definition(**fields)  # pyright: ignore[reportArgumentType]


def row_of(definition: Definition, cursor: int, **options: object) -> ScheduleRecord:
    fields = {
        "definition": definition,
        "revision": 1,
        "cursor": cursor,
        "next_at": next_tick(definition, parse(definition.trigger), cursor),
    } | options
    return ScheduleRecord(**fields)  # pyright: ignore[reportArgumentType]


def planned(trigger: Trigger, cursor: str, now: str, **options: object) -> FirePlan:
    definition = defined(trigger, **options)
    made = plan(row_of(definition, us(cursor)), parse(definition.trigger), us(now))
    assert made is not None
    return made


def times(made: FirePlan) -> list[str]:
    return [from_us(tick.tick).strftime("%H:%M:%S") for tick in made.ticks]


def clock(instant: int | None) -> str | None:
    return None if instant is None else from_us(instant).strftime("%Y-%m-%dT%H:%M:%S")


# --- one tick, on time ------------------------------------------------------------------------


def test_a_tick_that_is_due_runs_and_the_cursor_moves_to_it() -> None:
    made = planned(cron("0 12 * * *"), "2026-01-01T00:00:00", "2026-01-01T12:00:00")

    [tick] = made.ticks
    assert tick.tick == tick.due_at == us("2026-01-01T12:00:00")
    assert tick.run_id == tick_run_id("report", tick.tick)
    assert (tick.is_catchup, tick.missed_count) == (False, 0)
    assert (made.new_cursor, clock(made.next_at)) == (tick.tick, "2026-01-02T12:00:00")
    assert made.gaps == ()


def test_nothing_is_planned_before_the_tick_however_close() -> None:
    definition = defined(cron("0 12 * * *"))
    row = row_of(definition, us("2026-01-01T00:00:00"))

    assert plan(row, parse(definition.trigger), us("2026-01-01T12:00:00") - 1) is None


def test_B041_B051_a_wake_that_came_early_drops_nothing_and_the_tick_is_taken_at_its_time() -> None:
    definition = defined(every(seconds=60))
    row = row_of(definition, us("2026-01-01T00:00:00"))
    trigger = parse(definition.trigger)

    assert plan(row, trigger, us("2026-01-01T00:00:59") + 990_000) is None
    made = plan(row, trigger, us("2026-01-01T00:01:00"))
    assert made is not None
    assert times(made) == ["00:01:00"]


def test_B045_a_loop_that_drifts_by_milliseconds_finds_the_daily_tick_once_and_only_once() -> None:
    definition = defined(cron("0 7 * * *"))
    trigger = parse(definition.trigger)
    row = row_of(definition, us("2026-01-01T06:00:00"))
    ran: list[int] = []
    wake = us("2026-01-01T06:58:59") + 990_000
    for _ in range(10):
        if (made := plan(row, trigger, wake)) is not None:
            ran += [tick.tick for tick in made.ticks]
            row = row_of(definition, made.new_cursor)
        wake += 60 * SECOND - 5_000

    assert ran == [us("2026-01-01T07:00:00")]


def test_B045_a_pass_that_was_skipped_for_ninety_seconds_still_finds_the_tick() -> None:
    made = planned(cron("0 7 * * *"), "2026-01-01T06:00:00", "2026-01-01T07:01:29")

    assert times(made) == ["07:00:00"]
    assert made.ticks[0].is_catchup


def test_B049_two_passes_in_one_minute_find_the_minute_tick_once() -> None:
    definition = defined(cron("* * * * *"))
    trigger = parse(definition.trigger)
    first = plan(row_of(definition, us("2026-01-01T00:00:00")), trigger, us("2026-01-01T00:01:28"))
    assert first is not None

    assert plan(row_of(definition, first.new_cursor), trigger, us("2026-01-01T00:01:58")) is None


def test_B047_a_next_tick_that_points_at_the_tick_already_run_is_put_right_and_runs_nothing() -> None:
    definition = defined(cron("18 * * * *"))
    settled = us("2026-01-01T08:18:00")
    row = row_of(definition, settled, next_at=settled)

    made = plan(row, parse(definition.trigger), us("2026-01-01T08:18:01"))

    assert made is not None
    assert made.ticks == made.gaps == ()
    assert made.new_cursor == made.seen_cursor == settled
    assert clock(made.next_at) == "2026-01-01T09:18:00"


def test_B085_a_next_tick_left_three_periods_in_the_past_moves_strictly_past_now() -> None:
    made = planned(cron("0 * * * *"), "2026-01-01T05:00:00", "2026-01-01T08:30:00")

    assert times(made) == ["08:00:00"]
    assert clock(made.next_at) == "2026-01-01T09:00:00"
    assert made.gaps[0].count == 2


# --- what is missed ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "missed"), [(0, False), (60 * SECOND, False), (60 * SECOND + 1, True), (3 * HOUR, True)]
)
def test_a_tick_is_missed_once_the_clock_has_passed_it_by_more_than_a_minute(late: int, missed: bool) -> None:
    definition = defined(cron("0 0 * * *"), missed=Missed.SKIP)
    tick = us("2026-01-02T00:00:00")

    made = plan(row_of(definition, us("2026-01-01T12:00:00")), parse(definition.trigger), tick + late)

    assert made is not None
    assert len(made.ticks) == (0 if missed else 1)
    assert [(gap.first, gap.last, gap.count, gap.reason) for gap in made.gaps] == (
        [(tick, tick, 1, GapReason.MISSED)] if missed else []
    )


def test_a_tick_is_missed_if_a_later_one_is_due_as_well_however_fresh() -> None:
    made = planned(every(seconds=1), "2026-01-01T00:00:00", "2026-01-01T00:00:02", missed=Missed.SKIP)

    assert times(made) == ["00:00:02"]
    assert [(gap.count, gap.last) for gap in made.gaps] == [(1, us("2026-01-01T00:00:01"))]


def test_latest_runs_the_newest_and_says_how_many_it_stands_for() -> None:
    made = planned(cron("*/10 * * * *"), "2026-01-01T00:00:00", "2026-01-01T01:05:00")

    assert times(made) == ["01:00:00"]
    assert (made.ticks[0].missed_count, made.ticks[0].is_catchup) == (5, True)
    [gap] = made.gaps
    assert (clock(gap.first), clock(gap.last), gap.count) == ("2026-01-01T00:10:00", "2026-01-01T00:50:00", 5)
    assert (gap.reason, gap.at_least) == (GapReason.MISSED, False)


def test_latest_with_the_newest_on_time_runs_that_one_and_it_is_no_catch_up() -> None:
    made = planned(cron("*/10 * * * *"), "2026-01-01T00:00:00", "2026-01-01T01:00:01")

    assert times(made) == ["01:00:00"]
    assert (made.ticks[0].missed_count, made.ticks[0].is_catchup) == (5, False)


def test_all_runs_every_missed_tick_oldest_first_and_the_newest_one_on_time() -> None:
    made = planned(cron("*/10 * * * *"), "2026-01-01T00:00:00", "2026-01-01T00:30:01", missed=Missed.ALL)

    assert times(made) == ["00:10:00", "00:20:00", "00:30:00"]
    assert [tick.is_catchup for tick in made.ticks] == [True, True, False]
    assert made.gaps == ()


def test_all_keeps_the_newest_up_to_its_limit_and_records_the_rest() -> None:
    made = planned(cron("* * * * *"), "2026-01-01T00:00:30", "2026-01-01T00:30:59", missed=Missed.ALL, missed_limit=10)

    assert times(made) == [f"00:{minute:02}:00" for minute in range(20, 31)], "ten missed ones and the one on time"
    assert [(gap.count, clock(gap.first), clock(gap.last)) for gap in made.gaps] == [
        (19, "2026-01-01T00:01:00", "2026-01-01T00:19:00")
    ]


def test_skip_runs_no_missed_tick_and_records_them_all() -> None:
    made = planned(cron("0 * * * *"), "2026-01-01T00:00:00", "2026-01-01T05:30:00", missed=Missed.SKIP)

    assert made.ticks == ()
    assert [gap.count for gap in made.gaps] == [5]
    assert clock(made.next_at) == "2026-01-01T06:00:00"


@pytest.mark.parametrize("missed", list(Missed))
def test_missed_within_drops_what_is_older_and_says_that_it_was_too_old(missed: Missed) -> None:
    made = planned(
        cron("0 0 * * *"), "2026-01-01T12:00:00", "2026-01-04T10:00:00", missed=missed, missed_within=2 * HOUR
    )

    assert made.ticks == ()
    [gap] = made.gaps
    assert (gap.count, gap.reason) == (3, GapReason.TOO_OLD)


def test_missed_within_keeps_what_is_young_enough() -> None:
    made = planned(
        cron("0 * * * *"),
        "2026-01-01T00:00:00",
        "2026-01-01T06:30:00",
        missed=Missed.ALL,
        missed_within=2 * HOUR + 30 * MINUTE,
    )

    assert times(made) == ["04:00:00", "05:00:00", "06:00:00"]
    assert [(gap.count, gap.reason) for gap in made.gaps] == [(3, GapReason.TOO_OLD)]


def test_missed_within_never_drops_a_tick_that_is_on_time() -> None:
    made = planned(
        cron("0 * * * *"), "2026-01-01T00:00:00", "2026-01-01T01:00:30", missed_within=10 * SECOND, missed=Missed.SKIP
    )

    assert times(made) == ["01:00:00"]


def test_a_gap_that_ends_young_enough_is_missed_not_too_old() -> None:
    made = planned(cron("*/10 * * * *"), "2026-01-01T00:00:00", "2026-01-01T01:05:00", missed_within=HOUR)

    assert [(gap.count, gap.reason) for gap in made.gaps] == [(5, GapReason.MISSED)]


@pytest.mark.parametrize("ticks", [PLAN_WALK - 1, PLAN_WALK])
def test_counts_are_exact_to_ten_thousand(ticks: int) -> None:
    start = us("2026-01-01T00:00:00")
    definition = defined(every(seconds=1), missed=Missed.SKIP)

    made = plan(row_of(definition, start - 5 * HOUR), parse(definition.trigger), start)
    assert made is not None
    assert (made.gaps[0].count, made.gaps[0].at_least) == (PLAN_WALK - 1, True), "18,000 are at least that many"

    made = plan(row_of(definition, start - ticks * SECOND), parse(definition.trigger), start + SECOND // 2)
    assert made is not None
    assert (made.gaps[0].count, made.gaps[0].at_least, len(made.ticks)) == (ticks - 1, False, 1)


def test_a_year_of_missed_seconds_is_planned_at_once_and_all_keeps_the_newest() -> None:
    definition = defined(every(seconds=1), missed=Missed.ALL)
    now = us("2026-01-01T00:00:00")

    made = plan(row_of(definition, now - 365 * DAY), parse(definition.trigger), now)

    assert made is not None
    assert [tick.tick for tick in made.ticks] == [now - k * SECOND for k in range(100, -1, -1)]
    assert made.gaps[0].at_least
    assert (made.gaps[0].first, made.gaps[0].last) == (now - 365 * DAY + SECOND, now - 101 * SECOND)


# --- out of the fault book --------------------------------------------------------------------


def test_B073_a_deploy_that_straddles_noon_runs_noon_when_it_is_back() -> None:
    made = planned(cron("0 12 * * *"), "2026-01-01T11:59:50", "2026-01-01T12:00:20")

    assert times(made) == ["12:00:00"]


def test_B079_everything_down_around_three_gives_one_late_run_of_three() -> None:
    made = planned(cron("0 3 * * *"), "2026-01-01T02:59:30", "2026-01-01T03:01:30")

    assert times(made) == ["03:00:00"]
    assert made.ticks[0].is_catchup


def test_B117_a_store_clock_that_jumps_a_day_gives_one_run_a_schedule() -> None:
    made = planned(cron("*/5 * * * *"), "2026-01-01T12:00:00", "2026-01-02T12:00:30")

    assert times(made) == ["12:00:00"]
    assert made.gaps[0].count == 287


def test_B121_B129_a_process_stopped_for_78_minutes_owes_one_run_not_468() -> None:
    made = planned(every(seconds=10), "2026-01-01T00:00:00", "2026-01-01T01:18:00")

    assert times(made) == ["01:18:00"]
    assert made.ticks[0].missed_count == made.gaps[0].count == 467


def test_B123_a_hundred_and_eleven_missed_minutes_never_stop_the_schedule() -> None:
    down, up = "2026-01-01T08:30:30", "2026-01-01T10:21:30"

    latest = planned(cron("* * * * *"), down, up)
    assert times(latest) == ["10:21:00"]
    assert clock(latest.next_at) == "2026-01-01T10:22:00"

    everything = planned(cron("* * * * *"), down, "2026-01-01T10:22:30", missed=Missed.ALL)
    assert times(everything)[0] == "08:42:00"
    assert times(everything)[-1] == "10:22:00"
    assert len(everything.ticks) == 101
    assert everything.gaps[0].count == 11
    assert clock(everything.next_at) == "2026-01-01T10:23:00"


def test_B127_a_grace_shorter_than_the_pass_leaves_a_record() -> None:
    made = planned(cron("0 0 * * *"), "2026-01-01T12:00:00", "2026-01-02T00:01:15", missed_within=10 * SECOND)

    assert made.ticks == ()
    assert [(gap.count, gap.reason) for gap in made.gaps] == [(1, GapReason.TOO_OLD)]


# --- start, end, jitter -----------------------------------------------------------------------


def test_start_at_and_end_at_are_both_inside_the_window() -> None:
    definition = defined(every(hours=1), start_at=us("2026-01-01T10:00:00"), end_at=us("2026-01-01T12:00:00"))
    trigger = parse(definition.trigger)
    row = row_of(definition, us("2026-01-01T00:00:00"))

    assert clock(row.next_at) == "2026-01-01T10:00:00"
    assert plan(row, trigger, us("2026-01-01T09:59:59")) is None
    seen = row.cursor
    found: list[str] = []
    for hour in range(1, 20):
        made = plan(row_of(definition, seen), trigger, us(f"2026-01-01T{hour:02}:00:00"))
        if made is not None and made.ticks:
            found += times(made)
            seen, last = made.new_cursor, made
    assert found == ["10:00:00", "11:00:00", "12:00:00"]
    assert last.next_at is None


def test_after_the_end_nothing_is_due_and_there_is_no_next_tick() -> None:
    definition = defined(every(hours=1), end_at=us("2026-01-01T12:00:00"))
    row = row_of(definition, us("2026-01-01T12:00:00"))

    assert row.next_at is None
    assert plan(row, parse(definition.trigger), us("2026-02-01T00:00:00")) is None


def test_ticks_before_start_at_are_not_in_any_gap() -> None:
    made = planned(
        every(hours=1),
        "2026-01-01T00:00:00",
        "2026-01-01T11:30:00",
        start_at=us("2026-01-01T10:00:00"),
        missed=Missed.SKIP,
    )

    assert [(gap.count, clock(gap.first), clock(gap.last)) for gap in made.gaps] == [
        (2, "2026-01-01T10:00:00", "2026-01-01T11:00:00")
    ]


def test_jitter_delays_the_run_alike_on_every_replica_and_never_moves_the_tick() -> None:
    definition = defined(every(hours=1), jitter=30 * SECOND)
    ticks = [us("2026-01-01T00:00:00") + k * HOUR for k in range(200)]

    delays = [due_at(definition, tick) - tick for tick in ticks]

    assert delays == [due_at(definition, tick) - tick for tick in ticks]
    assert all(0 <= delay <= 30 * SECOND for delay in delays)
    assert len(set(delays)) > 190
    assert max(delays) > 25 * SECOND
    made = planned(every(hours=1), "2026-01-01T00:00:00", "2026-01-01T01:00:00", jitter=30 * SECOND)
    assert times(made) == ["01:00:00"]
    assert made.ticks[0].due_at == due_at(definition, us("2026-01-01T01:00:00"))


def test_two_schedules_of_one_trigger_draw_different_jitter() -> None:
    tick = us("2026-01-01T00:00:00")
    drawn = {due_at(defined(every(hours=1), jitter=HOUR, name=f"s{k}"), tick) for k in range(50)}

    assert len(drawn) == 50


# --- declaring --------------------------------------------------------------------------------


def test_a_new_schedule_fires_nothing_for_the_past() -> None:
    now = us("2026-01-01T10:02:00")

    change = first_plan(defined(cron("*/5 * * * *")), parse('cron("*/5 * * * *", timezone="UTC")'), now)

    assert (change.new_cursor, change.seen_revision, change.seen_cursor) == (now, None, None)
    assert (change.status, clock(change.next_at)) == (Status.ACTIVE, "2026-01-01T10:05:00")


def test_a_new_schedule_declared_exactly_at_a_tick_begins_with_the_next_one() -> None:
    now = us("2026-01-01T10:05:00")

    change = first_plan(defined(cron("*/5 * * * *")), parse('cron("*/5 * * * *", timezone="UTC")'), now)

    assert clock(change.next_at) == "2026-01-01T10:10:00"


def test_once_starts_just_before_its_first_instant_so_that_missed_rules_a_late_start() -> None:
    instant = us("2026-01-01T10:00:00")
    definition = defined(once(from_us(instant)))
    trigger = parse(definition.trigger)

    change = first_plan(definition, trigger, instant + 2 * HOUR)
    assert (change.new_cursor, change.next_at) == (instant - 1, instant)
    made = plan(row_of(definition, change.new_cursor), trigger, instant + 2 * HOUR)
    assert made is not None
    assert [(tick.tick, tick.is_catchup) for tick in made.ticks] == [(instant, True)]
    assert made.next_at is None

    ahead = first_plan(definition, trigger, instant - HOUR)
    assert ahead.new_cursor == instant - HOUR, "the cursor is never in the future"


def test_paused_at_first_declaration_has_no_next_tick() -> None:
    change = first_plan(defined(every(hours=1), paused=True), every(hours=1), us("2026-01-01T10:00:00"))

    assert (change.status, change.next_at) == (Status.PAUSED, None)


def test_B131_B133_a_changed_trigger_takes_hold_at_once_and_fires_nothing_for_the_past() -> None:
    old, new = defined(cron("0 0 * * *")), defined(cron("*/5 * * * *"))
    row = row_of(old, us("2026-01-01T00:00:00"), note="kept")
    now = us("2026-01-01T10:02:00")

    change = changed_plan(row, new, parse(new.trigger), now)

    assert (change.seen_revision, change.seen_cursor, change.new_cursor) == (1, row.cursor, now)
    assert clock(change.next_at) == "2026-01-01T10:05:00"
    assert (change.status, change.note) == (Status.ACTIVE, "kept")
    [gap] = change.gaps
    assert (gap.first, gap.last, gap.count, gap.reason) == (row.cursor + 1, now, 0, GapReason.CHANGED)


@pytest.mark.parametrize("options", [{"retries": 9}, {"queue": "mail"}, {"overlap": "wait"}, {"args": '{"a":1}'}])
def test_a_change_that_leaves_the_instants_alone_moves_no_cursor(options: dict[str, object]) -> None:
    old = defined(every(hours=1))
    row = row_of(old, us("2026-01-01T00:00:00"))

    change = changed_plan(row, defined(every(hours=1), **options), parse(old.trigger), us("2026-01-01T00:30:00"))

    assert (change.new_cursor, change.gaps) == (row.cursor, ())
    assert clock(change.next_at) == "2026-01-01T01:00:00"


@pytest.mark.parametrize("bound", ["start_at", "end_at"])
def test_a_changed_window_moves_the_cursor_like_a_changed_trigger(bound: str) -> None:
    old = defined(every(hours=1))
    row = row_of(old, us("2026-01-01T00:00:00"))
    now = us("2026-01-01T00:30:00")

    change = changed_plan(row, defined(every(hours=1), **{bound: us("2026-01-02T00:00:00")}), every(hours=1), now)

    assert change.new_cursor == now


def test_a_changed_trigger_leaves_a_paused_schedule_paused() -> None:
    old, new = defined(every(hours=1)), defined(every(hours=2))
    row = row_of(old, us("2026-01-01T00:00:00"), status=Status.PAUSED, next_at=None)

    change = changed_plan(row, new, parse(new.trigger), us("2026-01-01T05:30:00"))

    assert (change.status, change.next_at) == (Status.PAUSED, None)


@pytest.mark.parametrize("status", [Status.DORMANT, Status.REMOVED])
def test_declaring_a_dormant_or_removed_name_again_starts_after_now(status: Status) -> None:
    definition = defined(every(hours=1))
    row = row_of(definition, us("2026-01-01T00:00:00"), status=status, next_at=None)
    now = us("2026-01-05T00:30:00")

    change = changed_plan(row, definition, parse(definition.trigger), now)

    assert (change.status, change.new_cursor, clock(change.next_at)) == (Status.ACTIVE, now, "2026-01-05T01:00:00")
    assert len(change.gaps) == 1


def test_a_cursor_in_the_future_never_goes_back() -> None:
    old, new = defined(every(hours=1)), defined(every(hours=2))
    row = row_of(old, us("2026-01-05T00:00:00"))

    change = changed_plan(row, new, parse(new.trigger), us("2026-01-01T00:00:00"))

    assert change.new_cursor == row.cursor
    assert clock(change.next_at) == "2026-01-05T02:00:00"


def test_a_schedule_whose_limit_is_reached_gets_no_next_tick_from_a_change_or_a_resume() -> None:
    old = defined(every(hours=1), limit=3)
    row = row_of(old, us("2026-01-01T00:00:00"), created_count=3, next_at=None)
    new = defined(every(hours=1), limit=3, retries=9)
    trigger = parse(old.trigger)

    assert changed_plan(row, new, trigger, us("2026-01-01T00:30:00")).next_at is None
    assert resumed_plan(row, trigger, us("2026-01-01T00:30:00")).next_at is None
    raised = defined(every(hours=1), limit=4)
    assert changed_plan(row, raised, trigger, us("2026-01-01T00:30:00")).next_at is not None


# --- pausing ----------------------------------------------------------------------------------


def paused_and_resumed(trigger: Trigger, paused_at: str, resumed_at: str) -> tuple[Change, Change]:
    definition = defined(trigger)
    row = row_of(definition, us(paused_at))
    pause = paused_plan(row, "migration")
    paused = row_of(definition, pause.new_cursor, status=Status.PAUSED, note="migration", next_at=None, revision=2)
    return pause, resumed_plan(paused, parse(definition.trigger), us(resumed_at))


def test_B125_ticks_that_fell_in_a_pause_owe_nothing_and_are_recorded() -> None:
    pause, resume = paused_and_resumed(cron("0 * * * *"), "2026-01-01T00:55:00", "2026-01-01T03:55:00")

    assert (pause.status, pause.next_at, pause.new_cursor) == (Status.PAUSED, None, us("2026-01-01T00:55:00"))
    assert (resume.status, clock(resume.next_at)) == (Status.ACTIVE, "2026-01-01T04:00:00")
    [gap] = resume.gaps
    assert (clock(gap.first), clock(gap.last), gap.count) == ("2026-01-01T01:00:00", "2026-01-01T03:00:00", 3)
    assert (gap.reason, gap.detail) == (GapReason.PAUSED, "migration")


def test_a_pause_without_a_tick_in_it_leaves_no_gap() -> None:
    _, resume = paused_and_resumed(cron("0 * * * *"), "2026-01-01T00:05:00", "2026-01-01T00:10:00")

    assert resume.gaps == ()
    assert clock(resume.next_at) == "2026-01-01T01:00:00"


def test_a_long_pause_of_a_fast_schedule_is_counted_as_at_least() -> None:
    _, resume = paused_and_resumed(every(seconds=1), "2026-01-01T00:00:00", "2026-01-03T00:00:00")

    [gap] = resume.gaps
    assert (gap.count, gap.at_least) == (PLAN_WALK, True)
    assert (clock(gap.first), clock(gap.last)) == ("2026-01-01T00:00:01", "2026-01-03T00:00:00")


# --- the property -----------------------------------------------------------------------------

TRIGGERS = st.one_of(
    st.integers(1, 400_000_000).map(lambda us_: every(seconds=max(10, us_ // 1000) / 1000)),
    st.tuples(st.integers(1, 3600), st.integers(1, 3600)).map(lambda p: every(between=(p[0], p[0] + p[1]))),
    st.sampled_from(
        [
            cron("*/7 * * * *"),
            cron("0 3 * * 1-5", timezone="Europe/Berlin"),
            cron("30 1 * * *", timezone="America/New_York"),
            cron("0 0 31 * *"),
            cron("*/30 * * * * *", seconds=True),
            daily(["02:30", "14:00"], days=2),
            once(datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ]
    ),
)
INSTANTS = st.integers(us("2026-03-01T00:00:00"), us("2026-11-10T00:00:00"))
SPANS = st.one_of(st.integers(0, 3 * SECOND), st.integers(0, 10 * MINUTE), st.integers(0, 3 * DAY))


@settings(max_examples=120, deadline=None)
@given(
    trigger=TRIGGERS,
    cursor=INSTANTS,
    span=SPANS,
    missed=st.sampled_from(Missed),
    missed_within=st.none() | st.integers(0, 2 * HOUR),
    missed_limit=st.integers(1, 200),
    window=st.tuples(st.none() | st.integers(-HOUR, 3 * HOUR), st.none() | st.integers(0, 2 * DAY)),
)
def test_every_due_tick_runs_or_lies_in_exactly_one_gap(
    trigger: Trigger,
    cursor: int,
    span: int,
    missed: Missed,
    missed_within: int | None,
    missed_limit: int,
    window: tuple[int | None, int | None],
) -> None:
    start, end = (None if bound is None else cursor + bound for bound in window)
    definition = defined(
        trigger, missed=missed, missed_within=missed_within, missed_limit=missed_limit, start_at=start, end_at=end
    )
    bound = parse(definition.trigger)
    now = cursor + span
    due: list[int] = []
    tick = bound.next_after_us(cursor)
    while tick is not None and tick <= now:
        if (start is None or tick >= start) and (end is None or tick <= end):
            due.append(tick)
        if len(due) > PLAN_WALK + 2_000:
            now = tick
        tick = bound.next_after_us(tick)
    row = row_of(definition, cursor)

    made = plan(row, bound, now)

    if not due:
        assert made is None
        return
    assert made is not None
    assert (made.seen_cursor, made.new_cursor) == (cursor, due[-1])
    ran = [tick.tick for tick in made.ticks]
    assert ran == sorted(set(ran))
    assert set(ran) <= set(due)
    for tick_ in due[: PLAN_WALK + 300]:
        in_gaps = sum(gap.first <= tick_ <= gap.last for gap in made.gaps)
        assert in_gaps + (tick_ in ran) == 1
    for gap in made.gaps:
        assert cursor < gap.first <= gap.last <= made.new_cursor
        assert gap.first in due
        assert gap.last in due
    passed = sum(gap.count for gap in made.gaps)
    if len(due) <= PLAN_WALK:
        assert passed + len(ran) == len(due)
        assert not any(gap.at_least for gap in made.gaps)
    else:
        assert passed + len(ran) == PLAN_WALK or not made.gaps
        assert all(gap.at_least for gap in made.gaps)
    assert made.next_at == next_tick(definition, bound, made.new_cursor)
    assert made.next_at is None or made.next_at > now or made.next_at > made.new_cursor
    if ran:
        assert ran[-1] == due[-1], "the newest runs if any does"
    on_time = now - due[-1] <= 60 * SECOND
    assert [run.is_catchup for run in made.ticks] == [not (on_time and run.tick == due[-1]) for run in made.ticks]
