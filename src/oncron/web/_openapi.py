"""What the JSON API is, as OpenAPI 3.1: made from one table, from which its page is made as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from oncron._groups import BatchRecord, LockRecord, QueueRecord
from oncron._model import Gap, RunRecord, RunState, ScheduleRecord, Stats, Status, WorkerRecord
from oncron._shown import json_kind
from oncron._version import version


@dataclass(frozen=True)
class Field:
    """Of a query or of a body."""

    name: str
    about: str
    needed: bool = False
    kind: str = "string"
    among: Sequence[str] = ()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": self.kind} | ({"enum": list(self.among)} if self.among else {})


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    about: str
    answers: str
    """A schema's name; with `*` a page of them."""
    fields: Sequence[Field] = ()
    cursor: str = ""
    """What goes on, in the answer and in the next query."""

    @property
    def name(self) -> str:
        return self.method + "".join(part.capitalize() for part in self.path.removeprefix("api/").split("/"))


_NAME = Field("name", "The schedule's name.", needed=True)
_QUEUE = Field("name", "The queue's name.", needed=True)
_RUN = Field("id", "The run's id.", needed=True)
_BATCH = Field("id", "The batch's id.", needed=True)
_NOTE = Field("note", "Why; kept, with the user's name.")
_LIMIT = Field("limit", "How many at most: 1 to 1000, 100 if it is left out.", kind="integer")
_STATES = [state.value for state in RunState]
_STATUSES = [status.value for status in Status]

_OPERATIONS = (
    Operation("get", "api/schedules", "Schedules by name, without removed ones.", "Schedule*", (
        Field("text", "In the name or the task's name."), Field("tag", "Only those that carry it."),
        Field("status", "Only those that have it.", among=_STATUSES), Field("after", "Go on after this name."), _LIMIT,
    ), "after"),
    Operation("get", "api/schedule", "One schedule, its newest runs and its gaps.", "ScheduleHistory", (_NAME,)),
    Operation("post", "api/schedule/fire", "A run of it, now; its ticks stay as they are.", "Run", (
        _NAME, Field("reason", "Kept with the run."),
    )),
    Operation("post", "api/schedule/pause", "No ticks until it is resumed.", "Schedule", (_NAME, _NOTE)),
    Operation("post", "api/schedule/resume", "Ticks again, from now on.", "Schedule", (_NAME,)),
    Operation("get", "api/runs", "Runs, newest first.", "Run*", (
        Field("state", "Only those in this state.", among=_STATES), Field("task", "Only of this task."),
        Field("schedule", "Only of this schedule."), Field("queue", "Only of this queue."),
        Field("batch", "Only of this batch."), Field("text", "In id, names, reason, error, worker or arguments."),
        Field("before", "Go on with older ones than this run."), _LIMIT,
    ), "before"),
    Operation("get", "api/run", "One run.", "Run", (_RUN,)),
    Operation("post", "api/run/retry", "Open an ended run again.", "Run", (_RUN,)),
    Operation("post", "api/run/cancel", "A pending run ends; a running one is asked to stop.", "Run", (_RUN,)),
    Operation("get", "api/queues", "Queues with open runs, and those that are paused.", "Queue*"),
    Operation("post", "api/queue/pause", "Nobody takes from it until it is resumed.", "Queue", (_QUEUE, _NOTE)),
    Operation("post", "api/queue/resume", "Workers take from it again.", "Queue", (_QUEUE,)),
    Operation("get", "api/replicas", "Replicas that are on record, and whether each is alive.", "Replica*"),
    Operation("get", "api/locks", "Who holds which lock.", "Lock*"),
    Operation("get", "api/batches", "Batches, newest first.", "Batch*", (
        Field("dead", "1: only those in which a run failed or was lost."),
        Field("before", "Go on with older ones than this batch."), _LIMIT,
    ), "before"),
    Operation("get", "api/batch", "One batch.", "Batch", (_BATCH,)),
    Operation("get", "api/stats", "The store at a glance.", "Stats"),
    Operation("get", "api/why", "What became of a tick, or will.", "Why", (
        Field("schedule", "Its name.", needed=True), Field("instant", "ISO 8601, with an offset or Z.", needed=True),
    )),
    Operation("get", "api/load", "Ticks a minute over the coming day.", "Load"),
)  # fmt: skip


def operations() -> Sequence[Operation]:
    return _OPERATIONS


def document(title: str) -> dict[str, Any]:
    """The whole, ready for JSON."""
    paths: dict[str, Any] = {}
    for each in _OPERATIONS:
        paths.setdefault("/" + each.path, {})[each.method] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"{title}: schedules, runs and the fleet",
            "version": version(),
            "description": "The records that `oncron ... --json` prints. Instants are ISO 8601 in UTC, durations "
            "seconds. Lists come in pages: what `after` or `before` says in the answer goes into the next query; "
            "null ends it.",
        },
        "servers": [{"url": ".."}],
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _operation(each: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {"operationId": each.name, "summary": each.about, "responses": _responses(each)}
    if each.method == "get":
        told["parameters"] = [
            {"name": field.name, "in": "query", "description": field.about, "required": field.needed,
             "schema": field.schema}
            for field in each.fields
        ]  # fmt: skip
    else:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": {
            "type": "object",
            "properties": {field.name: field.schema | {"description": field.about} for field in each.fields},
            "required": [field.name for field in each.fields if field.needed],
        }}}}  # fmt: skip
    return told


def _responses(each: Operation) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{each.answers.rstrip('*')}"}
    schema: dict[str, Any] = reference
    if each.answers.endswith("*"):
        properties: dict[str, Any] = {"items": {"type": "array", "items": reference}}
        if each.cursor:
            properties[each.cursor] = {"type": ["string", "null"]}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
    codes = {"400": "What was asked means nothing.", "401": "Nobody is signed in.", "503": "The store does not answer."}
    if any(field.needed for field in each.fields):
        codes["404"] = "There is none."
    if each.method == "post":
        codes |= {"403": "Read-only, or from another site.", "409": "Another run has the place."}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"200": {"description": each.about, "content": {"application/json": {"schema": schema}}}} | {
        code: {"description": text, "content": error} for code, text in sorted(codes.items())
    }


_TEXT, _TEXT_OR_NULL, _WHOLE = {"type": "string"}, {"type": ["string", "null"]}, {"type": "integer"}


def _schemas() -> dict[str, Any]:
    run = _record(RunRecord)
    run["properties"]["unclaimable"] = _TEXT_OR_NULL | {
        "description": "Why nobody would take it; in lists of runs, and of one run."
    }
    schedule = _record(
        ScheduleRecord,
        {"words": _TEXT, "done": _TEXT_OR_NULL, "last_run": {"anyOf": [_to("Run"), {"type": "null"}]}},
    )
    history = {"allOf": [_to("Schedule"), _object({"runs": _list(_to("Run")), "gaps": _list(_to("Gap"))})]}
    return {
        "Error": _object({"status": _WHOLE, "error": _TEXT}),
        "Run": run,
        "Schedule": schedule,
        "ScheduleHistory": history,
        "Gap": _record(Gap),
        "Queue": _record(QueueRecord),
        "Replica": _record(WorkerRecord, {"alive": {"type": "boolean"}}),
        "Lock": _record(LockRecord),
        "Batch": _record(BatchRecord),
        "Stats": _record(Stats),
        "Why": _object({
            "schedule": _TEXT, "instant": _TEXT, "verdict": _TEXT, "reason": _TEXT_OR_NULL, "run": _TEXT_OR_NULL,
            "sentence": _TEXT,
        }),
        "Load": _object({"first": _TEXT, "ticks": _list(_WHOLE), "schedules": _WHOLE, "left_out": _WHOLE}),
    }  # fmt: skip


def _to(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _record(kind: type[msgspec.Struct], more: dict[str, Any] | None = None) -> dict[str, Any]:
    """As `plain` makes it: names and kinds."""
    return _object(_properties(kind) | (more or {}))


def _properties(kind: type[msgspec.Struct]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        kind_of_field: Any = field.type
        if field.name == "definition":
            found |= _properties(kind_of_field)
        else:
            found[field.name] = json_kind(field.name, kind_of_field)
    return found
