"""Rows to records and back."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import msgspec

from oncron._model import (
    Definition,
    Gap,
    GapReason,
    RunRecord,
    RunState,
    ScheduleRecord,
    Status,
    WorkerRecord,
)

_RUN_FIELDS = RunRecord.__struct_fields__
RUN_COLUMNS = tuple("unique_key" if name == "unique" else name for name in _RUN_FIELDS)
"""The columns of a run, in the order of RunRecord's fields."""
_STATE = _RUN_FIELDS.index("state")
_FLAGS = [_RUN_FIELDS.index(name) for name in ("serial", "parked", "cancel_requested", "is_catchup")]
_STATES = {state.value: state for state in RunState}

_decode_definition = msgspec.json.Decoder(Definition).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def run_of(row: tuple[Any, ...]) -> RunRecord:
    """The run of a row of RUN_COLUMNS."""
    values = list(row)
    values[_STATE] = _STATES[values[_STATE]]
    for flag in _FLAGS:
        values[flag] = values[flag] == 1
    return RunRecord(**dict(zip(_RUN_FIELDS, values, strict=True)))


def run_values(run: RunRecord) -> tuple[Any, ...]:
    """A run in the order of RUN_COLUMNS."""
    return msgspec.structs.astuple(run)


_CHANGING = attrgetter(
    "state", "due_at", "started_at", "ended_at", "attempt", "given_back", "releases", "retry_delay", "worker", "token",
    "outcome", "claim_id", "opening", "serial", "parked", "cancel_requested", "result", "error", "reason", "progress",
    "checkpoint", "log", "id",
)  # fmt: skip


def changed_values(run: RunRecord) -> tuple[Any, ...]:
    """What may have changed of a run, and its id, in the order of `run.update`."""
    return _CHANGING(run)


def schedule_of(row: tuple[Any, ...]) -> ScheduleRecord:
    """The schedule of a row of `schedule.get`, which ends with its name. Raises MsgspecError, ValueError."""
    definition, status, revision, cursor, next_at, last_token, created_count, created_at, changed_at, note, previous = (
        row[:-1]
    )
    return ScheduleRecord(
        definition=_decode_definition(definition),
        status=Status(status),
        revision=revision,
        cursor=cursor,
        next_at=next_at,
        last_token=last_token,
        created_count=created_count,
        created_at=created_at,
        changed_at=changed_at,
        note=note,
        previous=previous,
    )


def definition_text(definition: Definition) -> str:
    return _encode(definition).decode()


def gap_of(row: tuple[Any, ...]) -> Gap:
    schedule, first, last, count, reason, at_least, detail, created_at = row
    return Gap(
        schedule=schedule,
        first=first,
        last=last,
        count=count,
        reason=GapReason(reason),
        at_least=at_least == 1,
        detail=detail,
        created_at=created_at,
    )


def worker_of(row: tuple[Any, ...]) -> WorkerRecord:
    id_, host, pid, started_at, lease_until, release, tzdata, version, roles, declares, tasks, queues, skew = row
    return WorkerRecord(
        id=id_,
        host=host,
        pid=pid,
        started_at=started_at,
        lease_until=lease_until,
        release=release,
        tzdata=tzdata,
        version=version,
        roles=tuple(json.loads(roles)),
        declares=declares,
        tasks=tuple(json.loads(tasks)),
        queues=None if queues is None else tuple(json.loads(queues)),
        skew=skew,
    )
