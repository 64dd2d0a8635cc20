"""Outcomes into the database's `finish`, and what its answer means. See `_steps`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from oncron._model import FinishResult, FinishStatus, NewRun, Outcome, OutcomeKind, RunState
from oncron.stores.postgres._steps import is_uuid
from oncron.stores.postgres._wire import encode


class _OddFinish(msgspec.Struct):
    run_id: str
    token: int
    status: FinishStatus
    state: RunState
    freed: bool
    due_at: int | None


class _Finished(msgspec.Struct):
    now: int
    odd: list[_OddFinish]


_finished = msgspec.json.Decoder(_Finished).decode
_AGAIN = (OutcomeKind.RETRY, OutcomeKind.RELEASED)


class FinishBatch:
    """The outcomes of one call: the first of each (run, token) is sent, the others repeat it."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self._outcomes = outcomes
        self.asked: dict[tuple[str, int], Outcome] = {}
        for outcome in outcomes:
            if is_uuid(outcome.run_id):
                self.asked.setdefault((outcome.run_id, outcome.token), outcome)
        first = self.asked.values()
        more = {f"{o.run_id} {o.token}": runs for o in first if (o.enqueue or o.then) and (runs := _followers(o))}
        self.payload = encode([replace(o, enqueue=(), then=None) if o.enqueue or o.then else o for o in first])
        self.enqueue = encode(more) if more else None

    def results(self, answer: bytes | None) -> list[FinishResult]:
        finished = _Finished(now=0, odd=[]) if answer is None else _finished(answer)
        odd = {(entry.run_id, entry.token): entry for entry in finished.odd}
        told: set[tuple[str, int]] = set()
        results: list[FinishResult] = []
        for outcome in self._outcomes:
            key = outcome.run_id, outcome.token
            if key not in self.asked:
                result = FinishResult(run_id=outcome.run_id, status=FinishStatus.LEASE_LOST, state=RunState.LOST)
            elif key in odd:
                result = _as_told(odd[key])
            else:
                result = _as_asked(self.asked[key], finished.now)
            if key in told and result.status is FinishStatus.RECORDED:
                result = replace(result, status=FinishStatus.REPEATED, freed=False)
            told.add(key)
            results.append(result)
        return results


class _Then(NewRun, frozen=True, kw_only=True):
    """One that is written however the run ends."""

    then: bool = True


def _followers(outcome: Outcome) -> list[NewRun]:
    runs = list(outcome.enqueue) if outcome.kind is OutcomeKind.SUCCEEDED else []
    if outcome.then is not None:
        runs.append(_Then(**{field: getattr(outcome.then, field) for field in NewRun.__struct_fields__}))
    return runs


def _as_told(odd: _OddFinish) -> FinishResult:
    return FinishResult(run_id=odd.run_id, status=odd.status, state=odd.state, freed=odd.freed, due_at=odd.due_at)


def _as_asked(outcome: Outcome, now: int) -> FinishResult:
    again = outcome.kind in _AGAIN
    return FinishResult(
        run_id=outcome.run_id,
        status=FinishStatus.RECORDED,
        state=RunState.PENDING if again else RunState(outcome.kind.value),
        due_at=now + outcome.delay if again else None,
    )
