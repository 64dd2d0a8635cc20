"""The oracle itself, on evidence made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncron._model import Gap, GapReason, Overlap, RunRecord, RunState, tick_run_id
from oncron.cli.ledger import Line
from tests.fault.disturbance import EVERYBODY, Disturbance
from tests.fault.oracle import Evidence, Findings, Promise, examine
from tests.fault.turns import Turns

S = 1_000_000
PROMISE = {"s": Promise(every=S, after=0, until=2 * S)}


def line(tick: int, what: str, at: float, *, worker: str = "a", attempt: int = 1, run: str | None = None) -> Line:
    return Line(
        schedule="s", tick=tick * S, run=run or tick_run_id("s", tick * S), attempt=attempt, token=tick * S + attempt,
        what=what, worker=worker, at=round((tick + at) * S),
    )  # fmt: skip


def done(tick: int, *, at: float = 0.01, worker: str = "a", attempt: int = 1, run: str | None = None) -> list[Line]:
    return [
        line(tick, "start", at, worker=worker, attempt=attempt, run=run),
        line(tick, "end", at + 0.1, worker=worker, attempt=attempt, run=run),
    ]


def judged(lines: list[Line], *disturbances: Disturbance, **evidence: Any) -> Findings:
    return examine(Evidence(lines=lines, promises=PROMISE, disturbances=disturbances, lease=3 * S, **evidence))


def fault(kind: str, worker: str, began: float, ended: float) -> Disturbance:
    return Disturbance(kind=kind, worker=worker, began=round(began * S), ended=round(ended * S))


def test_every_promised_tick_once_is_all_that_is_asked():
    found = judged([*done(1), *done(2), *done(3)])
    assert not found.all
    assert (found.ticks, found.takeovers) == (2, 0)


def test_a_promised_tick_without_an_end_is_missing():
    found = judged([*done(1), line(2, "start", 0.01)])
    assert found.missing == ["missing: s at 2.000 started but never ended"]
    assert judged(done(1)).missing == ["missing: s at 2.000 never started"]


def test_two_runs_of_a_tick_and_a_tick_off_the_grid_are_extra():
    assert len(judged([*done(1), *done(2), *done(2, run="other")]).extra) == 1
    assert len(judged([*done(1), *done(2), *done(-3)]).extra) == 1


def test_a_start_before_the_tick_is_early():
    assert judged([*done(1, at=-0.001), *done(2)]).early


def test_a_run_taken_from_an_undisturbed_worker_has_two_holders():
    found = judged([*done(1), *done(1, at=0.05, worker="b", attempt=2), *done(2)])
    assert found.two_holders
    assert found.extra, "and it ended twice"


def test_a_take_over_after_a_kill_is_no_fault_once_the_lease_is_over():
    lines = [line(1, "start", 0.01), *done(1, at=3.5, worker="b", attempt=2), *done(2)]
    found = judged(lines, fault("kill", "a", 1.05, 1.06))
    assert not found.all
    assert found.takeovers == 1
    too_soon = [line(1, "start", 0.01), *done(1, at=0.5, worker="b", attempt=2), *done(2)]
    assert judged(too_soon, fault("kill", "a", 1.05, 1.06)).two_holders


def test_a_second_end_is_excused_by_what_was_done_to_its_worker_only():
    lines = [*done(1), *done(1, at=4, worker="b", attempt=2), *done(2)]
    assert judged(lines, fault("stop", "a", 1.12, 5)).repeated_ends == {"stop": 1}
    assert judged(lines, fault("restart server", EVERYBODY, 1.12, 5)).extra


def test_records_that_tell_another_story_disagree():
    run = RunRecord(id=tick_run_id("s", S), task="t", schedule="s", tick=S, state=RunState.RUNNING)
    found = judged([*done(1), *done(2)], runs=(run,))
    assert len(found.disagreement) == 2, "one is still running, the other is not on record"


# --- schedules whose runs take turns ------------------------------------------------------------


def takes_turns(overlap: Overlap, cursor: int = 2) -> Mapping[str, Turns]:
    return {"s": Turns(overlap=overlap, every=S, after=0, cursor=cursor * S)}


QUEUE = takes_turns(Overlap.QUEUE)


def kinds(found: Findings) -> list[str]:
    return [text.split(": ")[0] for text in found.all]


def test_a_run_that_starts_before_the_one_before_it_has_ended_is_an_overlap():
    one_by_one = [line(1, "start", 0.1), line(1, "end", 1.2), line(2, "start", 0.3), line(2, "end", 0.4)]
    assert not judged(one_by_one, turns=QUEUE).all
    beside = [line(1, "start", 0.1), line(1, "end", 1.4), line(2, "start", 0.3), line(2, "end", 0.4)]
    assert kinds(judged(beside, turns=QUEUE)) == ["overlap"]
    assert not judged(beside).all, "overlap=allow lets them"


def test_nothing_that_was_done_to_a_worker_excuses_an_overlap():
    beside = [
        line(1, "start", 0.1),
        line(1, "end", 1.4),
        line(2, "start", 0.3, worker="b"),
        line(2, "end", 0.4, worker="b"),
    ]
    assert judged(beside, fault("stop", "a", 0.5, 5), turns=QUEUE).overlaps
    assert judged(beside, fault("kill server", EVERYBODY, 0.5, 5), turns=QUEUE).overlaps


def test_a_killed_or_stopped_execution_has_the_place_until_then():
    lines = [line(1, "start", 0.1), *done(2, at=0.5, worker="b"), *done(1, at=5, worker="b", attempt=2)]
    assert judged(lines, turns=QUEUE).overlaps
    assert not judged(lines, fault("kill", "a", 1.2, 1.3), turns=QUEUE).overlaps
    assert judged(lines, fault("kill", "a", 2.6, 2.7), turns=QUEUE).overlaps, "it was killed too late"
    assert not judged(lines, stops=[line(1, "end", 0.3)], turns=QUEUE).overlaps


def test_a_holder_whose_run_was_taken_over_has_the_place_no_more():
    stopped = fault("stop", "a", 1.2, 6)
    lines = [line(1, "start", 0.1), *done(1, at=4, worker="b", attempt=2), line(2, "start", 4, worker="b")]
    lines += [line(2, "end", 5, worker="b"), line(1, "end", 5.5)]
    found = judged(lines, stopped, turns=QUEUE)
    assert not found.all, str(found)
    assert found.repeated_ends == {"stop": 1}


def test_a_later_tick_before_an_earlier_one_is_out_of_turn():
    lines = [*done(2), *done(1, at=2)]
    assert kinds(judged(lines, turns=QUEUE)) == ["overlap"]


def test_a_holder_that_was_stopped_before_its_first_line_is_not_out_of_turn():
    lines = [*done(1, at=3.5, worker="b", attempt=2), *done(2, at=3, worker="b"), *done(1, at=4.4)]
    found = judged(lines, fault("stop", "a", 1.1, 6.3), turns=QUEUE)
    assert not found.all, str(found)


def test_a_tick_that_is_skipped_is_on_record_once_and_never_if_it_ran():
    gap = Gap(schedule="s", first=2 * S, last=2 * S, count=1, reason=GapReason.OVERLAP)
    ran = RunRecord(id=tick_run_id("s", S), task="t", schedule="s", tick=S, state=RunState.SUCCEEDED)
    skip = takes_turns(Overlap.SKIP)
    found = judged(done(1), runs=(ran,), gaps=(gap,), turns=skip)
    assert not found.all, str(found)
    assert found.skipped == 1
    assert "nothing says why" in judged(done(1), runs=(ran,), turns=skip).missing[0]
    twice = Gap(schedule="s", first=2 * S, last=2 * S, count=2, reason=GapReason.OVERLAP)
    assert judged(done(1), runs=(ran,), gaps=(twice,), turns=skip).disagreement
    both = Gap(schedule="s", first=S, last=2 * S, count=1, reason=GapReason.OVERLAP)
    assert judged(done(1), runs=(ran,), gaps=(both,), turns=skip).disagreement
    assert judged(done(1), runs=(ran,), gaps=(gap,), turns=QUEUE).missing, "queue skips nothing"
