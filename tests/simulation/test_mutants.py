"""The oracle can fail: each guarantee is broken on purpose, once, and it notices.

A mutant is a store (or an engine) with one statement changed; the text says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from oncron._clock import boot_us
from oncron._engine import door, keeper
from oncron._model import (
    ClaimSpec,
    FirePlan,
    Gap,
    Outcome,
    RunRecord,
    RunState,
    ScheduleRecord,
)
from oncron.stores import _occupancy as occupancy
from tests.simulation.oracle import Oracle, Violation, WatchedStore
from tests.simulation.scenario import play
from tests.simulation.test_fleet import after_an_outage, after_late_answers, after_many_cuts


class NoCompare(WatchedStore):
    """`fire` sets without comparing."""

    def _is_as_planned(self, *_seen: Any) -> bool:
        return True


class NoSecondBelt(NoCompare):
    """`fire` neither compares nor looks whether the tick has a run."""

    def _place_ticks(self, row: ScheduleRecord, plan: FirePlan, now: int) -> Any:
        for tick in plan.ticks:
            self._run_rows.pop(tick.run_id, None)
            self._open.pop(tick.run_id, None)
        return super()._place_ticks(row, plan, now)


class AnyTime(WatchedStore):
    """`fire` takes the plan of a replica whose clock is ahead, and the replicas' clocks decide."""

    def _is_early(self, plan: FirePlan, now: int) -> bool:
        return False

    async def now(self) -> int:
        return await super().now() + 2_000_000


class AnyToken(WatchedStore):
    """`finish` takes whatever token."""

    def _finish_one(self, outcome: Outcome, now: int) -> Any:
        run = self._run_rows[outcome.run_id]
        return super()._finish_one(replace(outcome, token=run.token), now)


class NoExpiry(WatchedStore):
    """`reap` does not look whether the lease has ended."""

    async def poll(self, *args: Any, **options: Any) -> Any:
        return replace(await super().poll(*args, **options), expired=True)

    def _has_expired(self, worker: str | None, now: int) -> bool:
        return True


class NoGaps(WatchedStore):
    """Ticks that are passed leave no record."""

    def _record_gaps(self, schedule: str, gaps: Sequence[Gap], seen_cursor: int | None, now: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super()._record_gaps(schedule, (), seen_cursor, now)


class NoPlace(WatchedStore):
    """Occupancy is judged, and the verdict forgotten."""

    def _enter(self, *_seen: Any, **_options: Any) -> occupancy.Verdict:
        return occupancy.Verdict()


class NobodyNext(WatchedStore):
    """What ends the head unparks nobody."""

    def _fill_place(self, schedule: str) -> RunRecord | None:
        return None


class SameToken(WatchedStore):
    """A claim makes no new token."""

    def _next_token(self, run: RunRecord, now: int) -> int:
        return run.token or now


class TakesRunning(WatchedStore):
    """`claim` does not look whether somebody holds the run."""

    def _is_claimable(self, run: RunRecord, spec: ClaimSpec) -> bool:
        return run.state.is_open and run.task in spec.tasks and run.worker != spec.worker


class NeverReaps(WatchedStore):
    """`reap` finds nothing."""

    async def poll(self, *args: Any, **options: Any) -> Any:
        return replace(await super().poll(*args, **options), expired=False)


class ForgetsOneTick(WatchedStore):
    """The cursor is moved, and the run is written in another step that never comes."""

    def _place_ticks(self, row: ScheduleRecord, plan: FirePlan, now: int) -> Any:
        return super()._place_ticks(row, replace(plan, ticks=plan.ticks[:-1]), now)


class TwoEnds(WatchedStore):
    """`cancel` does not look whether the run has ended."""

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> RunRecord:
        with self._step(now):
            return self._put(replace(self._run_rows[run_id], state=RunState.CANCELLED))


STORES: list[tuple[type[WatchedStore], str]] = [
    (NoCompare, "G3|G1"),
    (NoSecondBelt, "G1|G3|G4|G5"),
    (AnyTime, "G2"),
    (NoExpiry, "G4"),
    (NoGaps, "G11"),
    (NoPlace, "G10"),
    (NobodyNext, "G10"),
    (SameToken, "G5|G4|once per token"),
    (TakesRunning, "G4"),
    (NeverReaps, "G8"),
    (ForgetsOneTick, "G11"),
    (TwoEnds, "G6"),
]
SEEDS = (1003, 1004, 1005, 1006, 1008, 1010, 1013, 1014, 1, 7, 10, 12, 13, 17, 150, 155, 160)


def first_violation(store: Callable[[Oracle, Callable[[], int]], WatchedStore] = WatchedStore) -> str:
    for seed in SEEDS:
        try:
            play(seed, minutes=3, store=store)
        except Violation as violation:
            return str(violation)
    return "none of the stories noticed"


@pytest.mark.parametrize(("store", "guarantee"), STORES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_store_with_one_statement_changed_is_noticed(store: type[WatchedStore], guarantee: str) -> None:
    found = first_violation(store)

    assert any(f"\n{name} at" in found for name in guarantee.split("|")), found


def test_a_store_that_takes_whatever_token_is_noticed() -> None:
    with pytest.raises(Violation, match="G5"):
        after_many_cuts(AnyToken).oracle.verdict(NOTHING)


@pytest.mark.parametrize("doubts", ["never", "without a margin"])
def test_a_keeper_that_trusts_its_lease_too_long_is_noticed(doubts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def doubtful(self: keeper.Keeper) -> bool:
        return doubts != "never" and boot_us() > self._trusted_until

    monkeypatch.setattr(keeper.Keeper, "doubtful", property(doubtful))

    with pytest.raises(Violation, match="one at a time"):
        after_many_cuts().oracle.verdict(NOTHING)


def test_a_reaper_without_patience_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`reap` right after an outage takes from every worker what it would renew in a moment."""
    monkeypatch.setattr(door.Door, "contact_since", property(lambda self: 0, lambda self, value: None), raising=False)

    assert after_an_outage().oracle.reaped


def test_a_worker_that_starts_whatever_it_hears_of_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim's answer is believed however late it comes."""
    trust = keeper.Keeper.trust
    monkeypatch.setattr(keeper.Keeper, "trust", lambda self, sent, left: trust(self, sent, left) or True)

    with pytest.raises(Violation, match="one at a time"):
        after_late_answers().oracle.verdict(NOTHING)


NOTHING = WatchedStore(Oracle(lambda: 0), lambda: 0)
