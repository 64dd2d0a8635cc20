"""The pictures of a schedule's past: timeline, calendar, plots."""

from __future__ import annotations

import re
from datetime import date

import pytest

from oncron.web import pictures
from oncron.web.pictures import Mark, Outcome
from oncron.web.pictures.clocks import Clocks
from tests.unit.web.drawn import BERLIN, DAY, HOUR, MINUTE, SECOND, Drawn, on, ran


def timeline(*marks: Mark, start: int = on(20), end: int = on(31), now: int | None = None) -> Drawn:
    return Drawn(
        pictures.timeline(marks, schedule="s", zone=BERLIN, start=start, end=end, now=end if now is None else now)
    )


def calendar(*marks: Mark, start: int = on(20), end: int = on(31), now: int = on(30, 12), zone: str = BERLIN) -> Drawn:
    return Drawn(pictures.calendar(marks, schedule="s", zone=zone, start=start, end=end, now=now))


def durations(*marks: Mark, timeout: int | None = None) -> Drawn:
    return Drawn(pictures.durations(marks, schedule="s", zone=BERLIN, start=on(1), end=on(15), timeout=timeout))


# --- timeline ---------------------------------------------------------------------------------


def test_each_outcome_has_a_lane_with_its_name_and_its_number() -> None:
    drawn = timeline(
        ran(on(21, 3)), ran(on(22, 3)), ran(on(23, 3), Outcome.FAILED),
        Mark(at=on(24), last=on(25), count=12, at_least=True, outcome=Outcome.SKIPPED, words="paused by ops"),
    )  # fmt: skip

    lanes = dict(zip(drawn.texts, drawn.texts[1:], strict=False))
    assert (lanes["Succeeded"], lanes["Failed"], lanes["Skipped"]) == ("2", "1", "≥ 12")
    assert "Lost" not in lanes


def test_a_mark_says_when_how_late_how_long_and_why() -> None:
    drawn = timeline(ran(on(23, 3, 30), Outcome.FAILED, late=2 * SECOND, took=90 * SECOND, words="ValueError: no disk"))

    assert "Fri 23 Oct 2026 03:30: failed, 2.0 s after the tick, took 1 min 30 s. ValueError: no disk" in drawn.told
    assert any(said.endswith(": at most 2.0 s late") for said in drawn.told)


def test_outcomes_differ_in_shape_and_not_in_colour_alone() -> None:
    shapes: set[str] = set()
    for outcome in Outcome:
        [mark] = [e for e in timeline(ran(on(21, 3), outcome)).of_class(f"o-{outcome}") if len(e)]
        shapes.add(f"{mark.tag} {mark.get('class', '').partition(' ')[2]} {re.sub('[-0-9. ]+', '', mark.get('d', ''))}")

    assert len(shapes) == len(Outcome)


def test_a_gap_is_as_long_as_it_lasted_and_cut_where_the_picture_begins() -> None:
    [whole] = timeline(Mark(at=on(22), last=on(24), count=48, outcome=Outcome.MISSED)).of_class("span")
    [cut] = timeline(Mark(at=on(10), last=on(24), count=300, outcome=Outcome.MISSED)).of_class("span")

    assert float(whole.get("x", 0)) > float(cut.get("x", 0)) == 168
    assert float(whole.get("width", 0)) == pytest.approx(896 * 2 * 24 / (11 * 24 + 1), abs=1)


def test_a_gap_of_no_ticks_is_not_drawn() -> None:
    assert timeline(Mark(at=on(22), last=on(24), count=0, outcome=Outcome.MISSED)).desc == timeline().desc


def test_a_crowded_lane_is_columns_that_count_every_tick() -> None:
    marks = [ran(on(20) + n * 10 * MINUTE) for n in range(6 * 24 * 10)]
    gap = Mark(at=on(20) + MINUTE, last=on(30), count=777, outcome=Outcome.SUCCEEDED)

    drawn = timeline(*marks, gap)

    counted = [int(found[1]) for said in drawn.told if (found := re.search(r": (\d+) succeeded$", said))]
    assert sum(counted) == len(marks) + 777
    assert len(counted) < 240


def test_ticks_that_come_evenly_have_columns_of_one_height_and_one_that_is_missing_shows() -> None:
    marks = [ran(on(20) + n * HOUR) for n in range(240)]

    def heights(*shown: Mark) -> list[str]:
        [lane] = [e for e in timeline(*shown).of_class("o-succeeded") if e.tag.endswith("}g")]
        return [column.get("height", "") for column in lane]

    assert len(set(heights(*marks)[:-1])) == 1, "the last column may not be full"
    assert len(set(heights(*marks[:100], *marks[101:])[:-1])) == 2


def test_links_of_marks_are_left_to_the_mouse_as_the_table_has_them_too() -> None:
    [link] = [e for e in timeline(ran(on(21), href="run?id=7")).root.iter() if e.tag.endswith("}a")]

    assert (link.get("href"), link.get("tabindex")) == ("run?id=7", "-1")


def test_the_change_of_the_clocks_and_now_are_marked() -> None:
    drawn = timeline(ran(on(24)), now=on(28))

    assert "clocks −1 h" in drawn.texts
    assert "now" in drawn.texts
    assert "Clocks −1 h at Sun 25 Oct 2026 02:00" in drawn.desc


def test_a_day_of_25_hours_is_25_hours_long() -> None:
    grid = {label: at for at, label in Clocks(BERLIN).grid(on(24), on(27), 3)}

    assert grid["26 Oct"] - grid["25 Oct"] == 25 * HOUR
    assert grid["25 Oct"] - grid["24 Oct"] == 24 * HOUR


# --- calendar ---------------------------------------------------------------------------------


def test_a_day_shows_its_worst_outcome_and_how_many_ticks_went_well() -> None:
    drawn = calendar(*[ran(on(21, hour)) for hour in range(23)], ran(on(21, 23), Outcome.FAILED))

    assert "Wed 21 Oct 2026: 24 ticks: 23 succeeded, 1 failed" in drawn.told
    assert "23/24" in drawn.texts
    assert len(drawn.of_class("cell")) == 11
    assert [cell.get("class") for cell in drawn.of_class("cell")].count("cell o-failed") == 1


@pytest.mark.parametrize(("month", "day", "hours"), [(10, 25, 25), (3, 29, 23)])
def test_the_day_on_which_the_clocks_change_says_how_long_it_is(month: int, day: int, hours: int) -> None:
    marks = [ran(on(day, 0, month=month) + n * HOUR) for n in range(hours)]

    drawn = calendar(*marks, ran(on(day + 1, 0, month=month)), start=on(day, month=month), end=on(day + 2, month=month))

    assert any(f"2026 ({hours} h): {hours} ticks: {hours} succeeded" in said for said in drawn.told)
    assert f"{hours} h" in drawn.texts
    assert f"has {hours} hours" in drawn.desc


def test_a_tick_belongs_to_the_day_of_its_own_zone() -> None:
    late = on(21, 23, 30)

    assert any("Wed 21 Oct 2026: 1 tick" in said for said in calendar(ran(late)).told)
    assert any("Thu 22 Oct 2026: 1 tick" in said for said in calendar(ran(late), zone="Asia/Tokyo").told)


def test_the_ticks_of_a_gap_are_spread_over_its_days_and_none_is_lost() -> None:
    drawn = calendar(Mark(at=on(21, 12), last=on(24, 12), count=100, outcome=Outcome.MISSED))

    counts = [int(found[1]) for said in drawn.told if (found := re.search(r": (\d+) ticks?: \d+ missed", said))]
    assert sum(counts) == 100
    assert len(counts) == 4
    assert {counts[1], counts[2]} <= {33, 34}


def test_a_day_that_a_zone_left_out_has_no_hours_and_does_no_harm() -> None:
    assert Clocks("Pacific/Apia").hours_of(date(2011, 12, 30)) == 0
    start = Clocks("Pacific/Apia").start_of(date(2011, 12, 28))
    drawn = calendar(ran(start), start=start, end=start + 4 * DAY, now=start, zone="Pacific/Apia")
    assert any(said.startswith("Fri 30 Dec 2011 (0 h)") for said in drawn.told)


def test_a_day_may_begin_after_midnight() -> None:
    clocks = Clocks("America/Santiago")

    assert clocks.hours_of(date(2026, 9, 6)) == 23
    assert f"{clocks.shown(clocks.start_of(date(2026, 9, 6))):%H:%M}" == "01:00"


def test_a_quarter_and_more_is_drawn_and_years_are_not() -> None:
    assert len(calendar(start=on(1, month=1), end=on(31)).of_class("cell")) == 190


# --- plots ------------------------------------------------------------------------------------


def test_a_plot_says_its_percentiles_and_its_worst() -> None:
    drawn = durations(*[ran(on(2) + n * HOUR, took=(n + 1) * SECOND) for n in range(100)])

    assert {"p50 50 s", "p95 1.6 min"} <= set(drawn.texts)
    assert "100 dots; half are at most 50 s, 95 of 100 at most 1 min 35 s, the most is 1 min 40 s" in drawn.desc


def test_a_wide_spread_goes_by_powers_of_ten_and_a_narrow_one_does_not() -> None:
    even = [ran(on(2) + n * HOUR, took=SECOND) for n in range(9)]

    assert "powers of ten" not in durations(*even).desc
    wide = durations(*even, ran(on(5), took=HOUR))
    assert "powers of ten" in wide.desc
    assert {"1 s", "10 s", "1 min", "10 min", "1 h"} <= set(wide.texts)


def test_a_timeout_is_drawn_where_runs_come_near_it() -> None:
    marks = [ran(on(2) + n * HOUR, took=20 * SECOND) for n in range(5)]

    assert "timeout 30 s" in durations(*marks, timeout=30 * SECOND).texts
    assert not durations(*marks, timeout=HOUR).of_class("timeout")


def test_runs_by_hand_have_a_duration_and_no_lateness() -> None:
    by_hand = ran(on(2), is_tick=False, late=HOUR)

    assert "1 dot;" in durations(by_hand).desc
    late = pictures.latenesses([by_hand], schedule="s", zone=BERLIN, start=on(1), end=on(15))
    assert "No tick has started" in Drawn(late).desc


def test_what_still_runs_is_late_already_and_has_no_duration() -> None:
    running = Mark(at=on(2), started_at=on(2) + 3 * SECOND, outcome=Outcome.RUNNING)

    assert "No run has ended" in durations(running).desc
    late = pictures.latenesses([running], schedule="s", zone=BERLIN, start=on(1), end=on(15))
    assert "start was late by 3.0 s, running" in Drawn(late).told[0]


def test_failed_runs_stand_out_of_thousands() -> None:
    drawn = durations(*[ran(on(2) + n * MINUTE) for n in range(3000)], ran(on(8), Outcome.FAILED, took=9 * SECOND))

    [failed] = [e for e in drawn.of_class("o-failed") if len(e)]
    assert failed[0].text == "Thu 8 Oct 2026 00:00: run took 9.0 s, failed"
