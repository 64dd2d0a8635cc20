"""From records to pictures: what is on record of a schedule, and what is not."""

from __future__ import annotations

import re
from typing import Any

from oncron._model import Definition, Gap, GapReason, RunRecord, RunState, ScheduleRecord, tick_run_id
from oncron.web._drawn import marks_of, past_pictures
from oncron.web.pictures import Outcome
from tests.unit.web.drawn import BERLIN, DAY, HOUR, SECOND, Drawn, on

ROW = ScheduleRecord(
    definition=Definition(name="s", trigger="every 1h", task="t"), revision=1, cursor=on(21), next_at=on(22)
)


def run(tick: int | None, state: RunState = RunState.SUCCEEDED, **more: Any) -> RunRecord:
    started = (tick or on(20)) + SECOND
    return RunRecord(
        **(
            {"id": tick_run_id("s", tick or 0), "task": "t", "state": state, "schedule": "s", "tick": tick}
            | {"due_at": tick or on(20), "started_at": started, "ended_at": started + SECOND}
            | more
        )
    )


def gap(first: int, last: int, count: int, reason: GapReason = GapReason.MISSED) -> Gap:
    return Gap(schedule="s", first=first, last=last, count=count, reason=reason)


def test_runs_and_gaps_become_marks_that_lead_to_the_run_and_say_the_reason() -> None:
    ran, passed = marks_of(
        [run(on(20), RunState.FAILED, reason="ValueError")], [gap(on(19), on(20), 3, GapReason.PAUSED)]
    )

    assert (ran.outcome, ran.late, ran.took, ran.words) == (Outcome.FAILED, SECOND, SECOND, "ValueError")
    assert ran.href == f"run?id={tick_run_id('s', on(20))}"
    assert (passed.outcome, passed.count, passed.last) == (Outcome.SKIPPED, 3, on(20))
    assert "pause" in passed.words


def test_only_a_tick_that_ran_in_its_time_can_be_late() -> None:
    late = [mark.late for mark in marks_of([run(None), run(on(20), backfill="b"), run(on(19), is_catchup=True)], [])]

    assert late == [None, None, None]


def test_a_gap_that_owed_nothing_is_no_mark() -> None:
    assert marks_of([], [gap(on(19), on(20), 0)]) == []


def test_pictures_begin_where_all_is_known() -> None:
    """Before it, gaps are on record and runs were not looked for: it would seem that nothing ran."""
    gaps, runs = [gap(on(1), on(2), 24)], [run(on(20) + n * HOUR) for n in range(24)]

    drawn = Drawn(past_pictures(ROW, BERLIN, runs, gaps, on(20), [], on(21))["calendar"])

    assert re.search("20 Oct 2026 to 21 Oct 2026.*24 ticks: 24 succeeded", drawn.desc)
    whole = Drawn(past_pictures(ROW, BERLIN, runs, gaps, 0, [], on(21))["calendar"])
    assert "24 missed" in whole.desc


def test_ticks_that_nobody_fired_are_waiting() -> None:
    drawn = past_pictures(ROW, BERLIN, [run(on(20))], [], 0, [on(21), on(22)], on(22) + HOUR)

    assert "3 ticks: 1 succeeded, 2 waiting" in Drawn(drawn["calendar"]).desc
    assert "due, and nobody has fired it" in drawn["timeline"]


def test_nothing_on_record_has_no_pictures() -> None:
    assert past_pictures(ROW, BERLIN, [], [], 0, [], on(22)) == {}


def test_no_two_elements_of_a_page_have_the_same_id() -> None:
    drawn = past_pictures(ROW, BERLIN, [run(on(20))], [], 0, [], on(20) + DAY)

    ids = re.findall(r' id="([^"]+)"', "".join(drawn.values()))
    assert len(ids) == len(set(ids)) == 10
