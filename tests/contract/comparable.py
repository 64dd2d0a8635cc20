"""What two stores must answer alike, and what the contract leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from oncron._model import (
    Changed,
    Claimed,
    EnqueueResult,
    Fired,
    Poll,
    Pulse,
    Reaped,
    RunRecord,
    ScheduleRecord,
    Stats,
)


def comparable(answer: Any) -> Any:
    """The answer without what the contract leaves open: the words of a reason, the order of what
    was taken or told together, counts of zero, and how far above its least a token is."""
    match answer:
        case RunRecord():
            return replace(answer, reason=None, token=min(answer.token, 1))
        case ScheduleRecord():
            return replace(answer, last_token=0)
        case Changed():
            return (answer.name, answer.changed, comparable(answer.record))
        case Reaped() | Pulse():
            fields = asdict(answer).items()
            return {key: _unordered(value) if isinstance(value, tuple) else value for key, value in fields}
        case Fired():
            return (*asdict(replace(answer, leases=())).items(), _unordered(answer.leases))
        case Poll():
            return replace(answer, workers=tuple(sorted(answer.workers)), version=0)
        case Stats():
            return replace(answer, schedules=_counted(answer.schedules), runs=_counted(answer.runs), workers=())
        case Claimed():
            return (answer.now, answer.lease_until, answer.next_due_at, comparable(answer.runs))
        case EnqueueResult():
            return (answer.is_new, answer.occupied, comparable(answer.run))
        case dict():
            return {key: comparable(value) for key, value in answer.items()}
        case list() | tuple():
            return [comparable(each) for each in answer]
        case _:
            return answer


def _unordered(answers: Sequence[Any]) -> list[Any]:
    return sorted((comparable(each) for each in answers), key=repr)


def _counted(counts: dict[str, int]) -> dict[str, int]:
    return {key: count for key, count in counts.items() if count}


def leases_in(answer: Any) -> list[RunRecord]:
    """The leases that an answer brought, by id."""
    match answer:
        case Fired():
            leases = answer.leases
        case Claimed():
            leases = answer.runs
        case _:
            leases = ()
    return sorted(leases, key=lambda run: run.id)
