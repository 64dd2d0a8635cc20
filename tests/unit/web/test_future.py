"""The pictures of what is to come: a schedule's ticks, and the load of a day."""

from __future__ import annotations

import re

from oncron.web import pictures
from oncron.web.pictures import Jump
from tests.unit.web.drawn import BERLIN, HOUR, MINUTE, Drawn, on

SUMMER_ENDS = Jump(at=on(25, 1) + 2 * HOUR, before=7200, after=3600, what="02:30 comes twice: runs both times")


def load(counts: list[int], *, at: int = on(21, 14, 20), zone: str = BERLIN) -> Drawn:
    return Drawn(pictures.load_map(counts, first_minute=at // MINUTE, zone=zone))


def drawn_cells(drawn: Drawn) -> int:
    return sum(mark.get("d", "").count("M") for level in range(1, 6) for mark in drawn.of_class(f"h{level}"))


# --- coming -----------------------------------------------------------------------------------


def test_coming_ticks_are_said_in_the_zone_and_how_far_away() -> None:
    drawn = Drawn(pictures.coming([on(21, 6), on(22, 6)], schedule="s", zone=BERLIN, now=on(21, 5)))

    assert drawn.told == ["Wed 21 Oct 2026 06:00, in 1 h", "Thu 22 Oct 2026 06:00, in 1 d 1 h"]
    assert drawn.desc.startswith("Wed 21 Oct 2026 06:00, Thu 22 Oct 2026 06:00 (Europe/Berlin); the first in 1 h.")


def test_ticks_that_a_clock_change_touches_are_marked_and_the_others_are_not() -> None:
    first, second = on(25, 1) + 90 * MINUTE, on(25, 1) + 150 * MINUTE
    ticks = [on(24, 2, 30), first, second, on(26, 2, 30)]

    drawn = Drawn(pictures.coming(ticks, schedule="s", zone=BERLIN, now=on(24), jumps=[SUMMER_ENDS]))

    touched = [mark[0].text for mark in drawn.of_class("touched")]
    assert len(touched) == 2
    assert all("Sun 25 Oct 2026 02:30" in said and "the clocks change" in said for said in touched if said)
    assert "clocks −1 h" in drawn.texts
    assert "02:30 comes twice: runs both times" in drawn.desc


def test_a_later_change_is_said_and_not_drawn() -> None:
    drawn = Drawn(pictures.coming([on(21, 6)], schedule="s", zone=BERLIN, now=on(21), jumps=[SUMMER_ENDS]))

    assert not drawn.of_class("jump")
    assert "Clocks −1 h at Sun 25 Oct 2026 02:00" in drawn.desc


def test_a_hundred_thousand_coming_ticks_are_cut() -> None:
    many = pictures.coming([on(21) + n * MINUTE for n in range(100_000)], schedule="s", zone=BERLIN, now=on(21))

    assert len(many.encode()) < 60_000


# --- load -------------------------------------------------------------------------------------


def test_the_herd_shows_and_is_said() -> None:
    drawn = load([100 if (20 + n) % 60 == 0 else 1 for n in range(1440)])

    assert "the busiest minute, Wed 21 Oct 2026 15:00, has 100" in drawn.desc
    assert "63 of 100 come in the first minute of an hour" in drawn.desc
    biggest = drawn.of_class("h5")
    assert sum(mark.get("d", "").count("M") for mark in biggest) == 24
    assert "15:00: 100 ticks" in drawn.told


def test_every_minute_with_ticks_has_a_square_and_no_other() -> None:
    assert drawn_cells(load([1, 0, 3] * 480)) == 960


def test_neighbours_that_are_equal_say_so_once() -> None:
    drawn = load([7] * 1440, at=on(21, 14))

    assert len(drawn.told) == 24
    assert drawn.told[0] == "14:00 to 14:59: 7 ticks each"
    assert drawn.texts.count("420") == 24


def test_an_hour_that_comes_twice_has_two_rows() -> None:
    rows = [said for said in load([1] * 1440, at=on(24, 14)).texts if re.fullmatch(r"\d\d:00", said)]

    assert rows.count("02:00") == 2
    assert len(rows) == 24


def test_an_hour_that_is_left_out_has_no_row() -> None:
    rows = [said for said in load([1] * 1440, at=on(28, 14, month=3)).texts if re.fullmatch(r"\d\d:00", said)]

    assert "02:00" not in rows
    assert len(rows) == 24


def test_columns_are_minutes_of_the_zone_s_own_hour() -> None:
    drawn = load([1] + [0] * 1439, at=on(21, 14), zone="Asia/Kathmandu")

    assert drawn.told == ["17:45: 1 tick"]


def test_larger_numbers_have_larger_squares() -> None:
    drawn = load([1, 10, 100, 1000, 10_000] * 288)

    sides = [
        float(re.search(r"v([\d.]+)", mark.get("d", "v0"))[1])  # type: ignore[index]
        for level in range(1, 6) for mark in drawn.of_class(f"h{level}")[:1]
    ]  # fmt: skip
    assert sides == sorted(set(sides))
    assert len(sides) == 5


def test_a_day_without_ticks_is_said_and_the_worst_day_is_bounded() -> None:
    empty = load([0] * 1440)
    assert empty.desc == "No schedule has a tick."
    assert drawn_cells(empty) == 0
    assert load([]).desc == empty.desc
    assert len(load([n * 7919 % 100_003 for n in range(1500)]).markup.encode()) < 150_000
