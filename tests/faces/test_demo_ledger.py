"""The judge of the demo and of the fault suite, on made-up ledgers: it must be able to fail."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from oncron.cli.ledger import Grid, Line, judge, open_runs, percentile_ms, read, write

SECOND = 1_000_000
GRIDS = {"s": Grid(every=SECOND, after=0, until=3 * SECOND)}


def line(
    what: Literal["start", "end"], second: int, *, run: str | None = None, attempt: int = 1, late: int = 2000
) -> Line:
    return Line(
        schedule="s", tick=second * SECOND, run=run or f"r{second}", attempt=attempt, token=attempt,
        what=what, worker="w1", at=second * SECOND + late,
    )  # fmt: skip


def both(second: int, *, run: str | None = None, attempt: int = 1) -> list[Line]:
    return [line("start", second, run=run, attempt=attempt), line("end", second, run=run, attempt=attempt)]


GOOD = [*both(1), *both(2), *both(3)]


def test_a_ledger_with_every_tick_once_is_clean():
    verdict = judge(GOOD, GRIDS)
    assert verdict.clean
    assert verdict.summary() == {
        "ticks": 3, "runs": 3, "duplicates": 0, "missed": 0, "takeovers": 0, "lateness_ms": {"p50": 2.0, "p99": 2.0},
    }  # fmt: skip


def test_two_run_ids_for_a_tick_are_a_duplicate():
    verdict = judge([*GOOD, *both(2, run="other")], GRIDS)
    assert verdict.duplicates == [("s", 2 * SECOND)]
    assert not verdict.clean
    assert "r2, other" in verdict.faults[0]


def test_two_ends_of_a_run_are_a_duplicate():
    verdict = judge([*GOOD, *both(2, attempt=2)], GRIDS)
    assert verdict.duplicates == [("s", 2 * SECOND)]
    assert verdict.summary()["duplicates"] == 1


def test_a_second_run_id_that_only_started_is_a_duplicate():
    assert judge([*GOOD, line("start", 2, run="other")], GRIDS).duplicates == [("s", 2 * SECOND)]


def test_a_tick_that_never_ran_is_missed():
    verdict = judge([*both(1), *both(3)], GRIDS)
    assert verdict.missed == [("s", 2 * SECOND)]
    assert verdict.faults == ["missed: s at 2.000 never started"]
    assert verdict.ticks == 3


def test_a_tick_that_started_and_did_not_end_is_missed():
    verdict = judge([*both(1), *both(2), line("start", 3)], GRIDS)
    assert verdict.missed == [("s", 3 * SECOND)]
    assert "never ended" in verdict.faults[0]


def test_an_empty_ledger_misses_everything():
    verdict = judge([], GRIDS)
    assert len(verdict.missed) == 3
    assert verdict.summary()["lateness_ms"] == {"p50": None, "p99": None}


def test_a_tick_off_the_grid_and_one_past_the_end_are_extra():
    off = [replace_tick(line("start", 2, run="x"), 2 * SECOND + 1), *both(4)]
    verdict = judge([*GOOD, *off], GRIDS)
    assert verdict.extra == [("s", 2 * SECOND + 1), ("s", 4 * SECOND)]
    assert not verdict.clean


def test_a_grid_may_be_shifted():
    grid = Grid(every=SECOND, after=SECOND, until=4 * SECOND, offset=SECOND // 4)
    assert list(grid.promised()) == [SECOND * n + SECOND // 4 for n in (1, 2, 3)]
    assert grid.knows(5 * SECOND // 4)
    assert not grid.knows(SECOND)


def test_a_tick_before_the_promised_stretch_may_run_but_once_only():
    grids = {"s": Grid(every=SECOND, after=SECOND, until=3 * SECOND)}
    assert judge(GOOD, grids).clean
    assert judge([*GOOD, *both(1, run="other")], grids).duplicates == [("s", SECOND)]
    assert judge([*both(2), *both(3)], grids).ticks == 2


def test_a_second_start_of_a_run_is_a_takeover_and_does_not_count_as_lateness():
    lines = [line("start", 2), *both(1), *both(3), line("start", 2, attempt=2, late=5 * SECOND), line("end", 2)]
    verdict = judge(lines, GRIDS)
    assert verdict.clean
    assert verdict.takeovers == [("s", 2 * SECOND)]
    assert verdict.runs == 3
    assert max(verdict.lateness_us) == 2000


def test_open_runs_are_those_that_started_and_did_not_end():
    lines = [*both(1), line("start", 2), line("start", 2, attempt=2)]
    assert open_runs(lines) == {"r2": line("start", 2, attempt=2)}


def test_percentiles_go_by_nearest_rank():
    assert percentile_ms([1000 * n for n in range(1, 101)], 50) == 50.0
    assert percentile_ms([1000 * n for n in range(1, 101)], 99) == 99.0
    assert percentile_ms([1500], 99) == 1.5
    assert percentile_ms([], 50) is None


def test_lines_survive_the_file_and_the_one_being_written_is_left_out():
    data = b"".join(map(write, GOOD))
    assert read(data) == GOOD
    assert read(data + write(line("start", 4))[:-5]) == GOOD
    assert read(b"") == []


def test_a_damaged_line_is_an_error_and_not_passed_over():
    with pytest.raises(ValueError, match="line 2"):
        read(write(GOOD[0]) + b"{rubbish\n" + write(GOOD[1]))


def replace_tick(of: Line, tick: int) -> Line:
    return msgspec.structs.replace(of, tick=tick)
