"""What goes into the database's functions, and what their answers mean.

The functions answer little when all went as asked: a plan of n ticks became n runs, an outcome was
recorded, a run is new. `odd` lists the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from oncron._model import (
    Change,
    Changed,
    Claimed,
    ClaimSpec,
    Due,
    EnqueueResult,
    Fired,
    FireOutcome,
    FirePlan,
    FireResult,
    NewRun,
    Poll,
    Pulse,
    Reaped,
    RunRecord,
    ScheduleRecord,
)
from oncron.errors import InvalidOption
from oncron.stores import _missing
from oncron.stores._runs import created
from oncron.stores._schedules import declared, readable
from oncron.stores.postgres._wire import encode

is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch

claimed = msgspec.json.Decoder(Claimed).decode
names = msgspec.json.Decoder(list[str]).decode
due = msgspec.json.Decoder(list[Due]).decode
poll = msgspec.json.Decoder(Poll).decode
reaped = msgspec.json.Decoder(Reaped).decode
retried = msgspec.json.Decoder(EnqueueResult).decode
run = msgspec.json.Decoder(RunRecord).decode
_pulse = msgspec.json.Decoder(Pulse).decode


# --- declare ------------------------------------------------------------------------------


class _Name(msgspec.Struct):
    name: str


_name = msgspec.json.Decoder(_Name).decode
_schedule = msgspec.json.Decoder(ScheduleRecord).decode


_NOTHING = msgspec.Raw(b"null")


class _OddChange(msgspec.Struct):
    place: int
    changed: bool
    record: msgspec.Raw = _NOTHING


class _Declared(msgspec.Struct):
    now: int
    odd: list[_OddChange]


_declared = msgspec.json.Decoder(_Declared).decode


def changes(chunk: Sequence[Change]) -> bytes:
    return encode([_change(change) for change in chunk])


def _change(change: Change) -> dict[str, Any]:
    definition = change.definition
    return {
        "name": change.name,
        "definition": encode(definition).decode(),
        "task": definition.task,
        "args": definition.args,
        "queue": definition.queue,
        "priority": definition.priority,
        "retries": definition.retries,
        "retry_delay": definition.retry_delay,
        "timeout": definition.timeout,
        "overlap": definition.overlap,
        "unique_key": definition.unique,
        "run_limit": definition.limit,
        "status": change.status,
        "note": change.note,
        "seen_revision": change.seen_revision,
        "seen_cursor": change.seen_cursor,
        "cursor": change.new_cursor,
        "next_at": change.next_at,
        "gaps": change.gaps,
        "digest": definition.digest(),
        "guard": definition.guard,
    }


def changed(chunk: Sequence[Change], answer: bytes) -> list[Changed]:
    told = _declared(answer)
    results = [Changed(name=change.name, changed=True, record=declared(None, change, told.now)) for change in chunk]
    for odd in told.odd:
        name = chunk[odd.place - 1].name
        is_there = bytes(odd.record) != bytes(_NOTHING)
        record = schedule(odd.record) if is_there else None
        results[odd.place - 1] = Changed(
            name=name, changed=odd.changed, record=record, unreadable=record is None and is_there
        )
    return results


def schedule(row: msgspec.Raw) -> ScheduleRecord | None:
    """The schedule of a row; None for one that this release cannot read."""
    try:
        return _schedule(row)
    except msgspec.MsgspecError:
        return readable(name_of(row), _schedule, row)


def name_of(row: msgspec.Raw) -> str:
    return _name(row).name


# --- fire ---------------------------------------------------------------------------------


class Chunk(msgspec.Struct):
    places: list[int]
    function: str
    payload: bytes


class _Fire(msgspec.Struct):
    now: int
    lease_until: int
    leases: tuple[RunRecord, ...]
    odd: list[FireResult]


_fire = msgspec.json.Decoder(_Fire).decode


class FireBatch:
    """The plans of one call, in chunks that lanes take one by one, and the results so far."""

    def __init__(self, plans: Sequence[FirePlan], size: int, fire_id: str) -> None:
        self.now: int | None = None
        self._plans = plans
        self._results = [_fired(plan) for plan in plans]
        self._leases: list[RunRecord] = []
        self._lease_until = 0
        rounds = _by_round(plans)
        self._chunks = [places[start : start + size] for places in rounds for start in range(0, len(places), size)]
        # One plan after the other for the same schedule: no second lane then.
        self.is_large = len(self._chunks) > 1 and len(rounds) == 1
        if self.is_large:
            # Replicas that fire the same herd begin at different ends of it.
            first = hash(fire_id) % len(self._chunks)
            self._chunks = self._chunks[first:] + self._chunks[:first]
        self._chunks.reverse()

    def take(self) -> Chunk | None:
        """The next chunk; each is given out once."""
        if not self._chunks:
            return None
        plans, places = self._plans, self._chunks.pop()
        places.sort(key=lambda place: plans[place].name)
        rows = [_plan(plans[place]) for place in places]
        if len(rows) == 1 and rows[0]["n"] == 1 and not rows[0]["more"]:
            return Chunk(places, "fire_one", encode(rows[0]))
        return Chunk(places, "fire", encode(rows))

    def stop(self) -> None:
        self._chunks.clear()

    def remaining(self, claim: ClaimSpec) -> ClaimSpec:
        """The claim with what is left of its limit."""
        return replace(claim, limit=max(0, claim.limit - len(self._leases)))

    def note(self, chunk: Chunk, answer: bytes) -> None:
        fire = _fire(answer)
        self.now = fire.now if self.now is None else max(self.now, fire.now)
        self._leases += fire.leases
        self._lease_until = max(self._lease_until, fire.lease_until)
        if fire.odd:
            places = {self._plans[place].name: place for place in chunk.places}
            for result in fire.odd:
                self._results[places[result.name]] = result

    def fired(self, now: int) -> Fired:
        return Fired(results=tuple(self._results), now=now, leases=tuple(self._leases), lease_until=self._lease_until)


def _by_round(plans: Sequence[FirePlan]) -> list[list[int]]:
    """The places of the plans that can be sent, such that no round has a schedule twice."""
    rounds: list[list[int]] = []
    seen: dict[str, int] = {}
    for place, plan in enumerate(plans):
        if not plan.is_within:
            continue
        turn = seen.get(plan.name, 0)
        seen[plan.name] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(place)
    return rounds


def _fired(plan: FirePlan) -> FireResult:
    if not plan.is_within:
        return FireResult(name=plan.name, outcome=FireOutcome.STALE)
    return FireResult(name=plan.name, outcome=FireOutcome.FIRED, created=len(plan.ticks))


def _plan(plan: FirePlan) -> dict[str, Any]:
    ticks = plan.ticks
    row: dict[str, Any] = {
        "name": plan.name,
        "revision": plan.seen_revision,
        "seen": plan.seen_cursor,
        "cursor": plan.new_cursor,
        "next_at": plan.next_at,
        "n": len(ticks),
        "more": len(ticks) > 1 or bool(plan.gaps),
    }
    fields = [
        {
            "id": checked_id(tick.run_id),
            "tick": tick.tick,
            "due_at": tick.due_at,
            "catchup": tick.is_catchup,
            "missed": tick.missed_count,
        }
        for tick in ticks
    ]
    if fields:
        row |= fields[0]
    if len(fields) > 1:
        row["ticks"] = fields
    if plan.gaps:
        row["gaps"] = plan.gaps
    if plan.tzdata:
        row["tz"] = plan.tzdata
    return row


# --- enqueue ------------------------------------------------------------------------------


class _OddRun(msgspec.Struct):
    place: int
    run: RunRecord
    is_new: bool = True
    occupied: bool = False


class _Enqueued(msgspec.Struct):
    now: int
    missing: str | None = None
    closed: str | None = None
    odd: list[_OddRun] = []


_enqueued = msgspec.json.Decoder(_Enqueued).decode

ENQUEUE_BYTES = 8 * 1024 * 1024
"""Arguments in one statement of `enqueue`."""


def named(runs: Sequence[NewRun]) -> bytes:
    """The schedules whose place is judged, and the batches that the runs are added to."""
    schedules = sorted({new.schedule for new in runs if new.schedule is not None})
    batches: dict[str, list[str]] = {}
    for new in runs:
        if new.batch is not None:
            batches.setdefault(new.batch, []).append(checked_id(new.id))
    return encode({"schedules": schedules, "batches": batches} if batches else schedules)


def sized(runs: Sequence[NewRun], size: int = ENQUEUE_BYTES) -> Iterator[Sequence[NewRun]]:
    """The runs in pieces of at most `size` bytes of arguments, or one run."""
    start = total = 0
    for place, new in enumerate(runs):
        total += len(new.args) + 500
        if total > size and place > start:
            yield runs[start:place]
            start, total = place, len(new.args) + 500
    if start < len(runs):
        yield runs[start:]


def new_runs(chunk: Sequence[NewRun]) -> bytes:
    for new in chunk:
        checked_id(new.id)
    return encode(chunk)


def enqueued(chunk: Sequence[NewRun], answer: bytes) -> list[EnqueueResult]:
    """Raises NotFound for a schedule that does not exist, or a batch that takes no more."""
    done = _enqueued(answer)
    if done.missing is not None:
        raise _missing.no_schedule(done.missing)
    if done.closed is not None:
        raise _missing.takes_no_more(done.closed)
    odd = {entry.place - 1: entry for entry in done.odd}
    return [
        EnqueueResult(run=odd[place].run, is_new=odd[place].is_new, occupied=odd[place].occupied)
        if place in odd
        else EnqueueResult(run=created(new, done.now))
        for place, new in enumerate(chunk)
    ]


def checked_id(run_id: str) -> str:
    if not is_uuid(run_id):
        raise InvalidOption(f"run id {run_id!r} is not a UUID in lower case; make it with new_run_id()")
    return run_id


# --- heartbeat ----------------------------------------------------------------------------


def pulse(answer: bytes, held: Sequence[tuple[str, int]]) -> Pulse:
    told = _pulse(answer)
    strangers = tuple(run_id for run_id, _ in held if not is_uuid(run_id))
    return replace(told, lost=told.lost + strangers) if strangers else told
