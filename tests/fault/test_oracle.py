"""The oracle itself, on evidence made by hand."""

from __future__ import annotations

from oncron._model import RunRecord, RunState, tick_run_id
from oncron.cli.ledger import Line
from tests.fault.oracle import EVERYBODY, Disturbance, Evidence, Findings, Promise, examine

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


def judged(lines: list[Line], *disturbances: Disturbance, runs: tuple[RunRecord, ...] = ()) -> Findings:
    return examine(Evidence(lines=lines, promises=PROMISE, disturbances=disturbances, runs=runs, lease=3 * S))


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
