"""What goes into the scripts, and what their answers mean.

Numbers that are compared for equality go as text: Lua's numbers are doubles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from oncron._model import (
    Change,
    Changed,
    Claimed,
    ClaimSpec,
    Definition,
    Due,
    EnqueueResult,
    FinishResult,
    Fired,
    FireOutcome,
    FirePlan,
    FireResult,
    GapReason,
    NewRun,
    Outcome,
    Overlap,
    Poll,
    Pulse,
    Reaped,
    RunRecord,
    ScheduleRecord,
    Status,
)
from oncron.errors import StoreError
from oncron.stores import _missing
from oncron.stores._schedules import declared
from oncron.stores.redis._wire import decoder, encode, readable

CHUNK = 200
"""Plans, changes, runs or outcomes in one script: others wait while one runs."""
CHUNK_BYTES = 1024 * 1024

run = decoder(RunRecord)


# --- declare ------------------------------------------------------------------------------


class _OddChange(msgspec.Struct):
    place: int
    changed: bool


class _Declared(msgspec.Struct):
    now: int
    odd: list[_OddChange]


_declared = decoder(_Declared)
_definition = msgspec.json.Decoder(Definition).decode


def changes(chunk: Sequence[Change]) -> bytes:
    return encode({"changes": [_change(change) for change in chunk]})


def _change(change: Change) -> dict[str, Any]:
    definition = change.definition
    return {
        "name": change.name,
        "definition": _json(definition),
        "template": _template(definition),
        "overlap": definition.overlap,
        "limit": definition.limit,
        "origin": definition.origin,
        "digest": definition.digest(),
        "status": change.status,
        "note": change.note,
        "seen_revision": _text(change.seen_revision),
        "seen_cursor": _text(change.seen_cursor),
        "cursor": str(change.new_cursor),
        "next_at": change.next_at,
        "gaps": change.gaps,
    }


def _json(definition: Definition) -> str:
    """Without what is None: Lua's null is no nil."""
    fields = msgspec.structs.asdict(definition).items()
    return msgspec.json.encode({name: value for name, value in fields if value is not None}).decode()


_PLAIN = RunRecord(id="", task="")


def _template(definition: Definition) -> dict[str, Any]:
    """What the runs of its ticks have of it, without what says nothing."""
    copied = ("task", "args", "queue", "priority", "timeout", "unique", "guard")
    fields = {name: getattr(definition, name) for name in copied}
    fields["serial"] = definition.overlap is not Overlap.ALLOW
    said = {name: value for name, value in fields.items() if value != getattr(_PLAIN, name)}
    return {"retries": definition.retries, "retry_delay": definition.retry_delay, **said}


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def changed(chunk: Sequence[Change], answer: Sequence[Any]) -> list[Changed]:
    told = _declared(answer[0])
    results = [Changed(name=change.name, changed=True, record=declared(None, change, told.now)) for change in chunk]
    for odd, row in zip(told.odd, answer[1], strict=True):
        name = chunk[odd.place - 1].name
        record = next(iter(readable(schedule, [row])), None)
        results[odd.place - 1] = Changed(
            name=name, changed=odd.changed, record=record, unreadable=record is None and bool(row)
        )
    return results


def schedule(row: Sequence[bytes | None]) -> ScheduleRecord | None:
    """The row as the scripts read it; None for none."""
    if not row:
        return None
    status, revision, cursor, next_at, last_token, created_count, created_at, changed_at, note, previous, raw = row
    try:
        return ScheduleRecord(
            definition=_definition(raw or b""),
            status=Status((status or b"").decode()),
            revision=int(revision or 0),
            cursor=int(cursor or 0),
            next_at=int(next_at) if next_at else None,
            last_token=int(last_token or 0),
            created_count=int(created_count or 0),
            created_at=int(created_at or 0),
            changed_at=int(changed_at or 0),
            note=(note or b"").decode(),
            previous=(previous or b"").decode(),
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreError(f"the store holds a schedule that this release cannot read: {error}") from error


def due(flat: Sequence[bytes]) -> list[Due]:
    rows = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return [
        Due(name=name.decode(), revision=int(revision), cursor=int(cursor), next_at=int(next_at))
        for name, next_at, revision, cursor in rows
    ]


# --- fire ---------------------------------------------------------------------------------


class _OddFire(msgspec.Struct):
    place: int
    outcome: FireOutcome
    created: int = 0
    skipped: int = 0
    reason: GapReason | None = None
    superseded: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class _Fire(msgspec.Struct):
    now: int
    lease_until: int
    odd: list[_OddFire]


_fire = decoder(_Fire)


class FireBatch:
    """The plans of one call, in chunks, and the results so far."""

    def __init__(self, plans: Sequence[FirePlan], claim: ClaimSpec | None, fire_id: str) -> None:
        self.now: int | None = None
        self._plans, self._claim, self._fire_id = plans, claim, fire_id
        self._results = [_as_asked(plan) for plan in plans]
        self._leases: list[RunRecord] = []
        self._lease_until = 0
        sent = [place for place, plan in enumerate(plans) if plan.is_within]
        self._chunks = [sent[start : start + CHUNK] for start in range(0, len(sent), CHUNK)]

    def chunks(self) -> Iterator[tuple[list[int], bytes]]:
        """Each with what is left of the claim's limit when it is asked for."""
        for places in self._chunks:
            claim = self._claim
            if claim is not None and self._leases:
                claim = replace(claim, limit=max(0, claim.limit - len(self._leases)))
            plans = [_plan(self._plans[place]) for place in places]
            yield places, encode({"plans": plans, "claim": claim, "fire_id": self._fire_id})

    def note(self, places: list[int], answer: Sequence[bytes]) -> None:
        fire = _fire(answer[0])
        self.now = fire.now
        self._leases += map(run, answer[1:])
        self._lease_until = max(self._lease_until, fire.lease_until)
        for odd in fire.odd:
            place = places[odd.place - 1]
            self._results[place] = FireResult(
                name=self._plans[place].name,
                outcome=odd.outcome,
                created=odd.created,
                skipped=odd.skipped,
                reason=odd.reason,
                superseded=odd.superseded,
                cancelled=odd.cancelled,
            )

    def fired(self, now: int) -> Fired:
        return Fired(results=tuple(self._results), now=now, leases=tuple(self._leases), lease_until=self._lease_until)


def _as_asked(plan: FirePlan) -> FireResult:
    if not plan.is_within:
        return FireResult(name=plan.name, outcome=FireOutcome.STALE)
    return FireResult(name=plan.name, outcome=FireOutcome.FIRED, created=len(plan.ticks))


def _plan(plan: FirePlan) -> dict[str, Any]:
    ticks = plan.ticks if len(plan.ticks) < 2 else sorted(plan.ticks, key=lambda tick: tick.tick)
    return {
        "name": plan.name,
        "revision": str(plan.seen_revision),
        "seen": str(plan.seen_cursor),
        "cursor": str(plan.new_cursor),
        "next_at": _text(plan.next_at),
        "zones": plan.tzdata or None,
        "ticks": ticks,
        "gaps": plan.gaps,
    }


# --- runs ---------------------------------------------------------------------------------


class _Enqueued(msgspec.Struct):
    flags: list[int] = []
    missing: str | None = None
    batch_missing: str | None = None


_enqueued = decoder(_Enqueued)


def sized(runs: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
    """Chunks that are neither many nor large."""
    start, size = 0, 0
    for place, new in enumerate(runs):
        size += len(new.args)
        if place > start and (place - start >= CHUNK or size > CHUNK_BYTES):
            yield runs[start:place]
            start, size = place, len(new.args)
    if start < len(runs):
        yield runs[start:]


def new_runs(chunk: Sequence[NewRun]) -> bytes:
    return encode({"runs": chunk})


def checks(runs: Sequence[NewRun]) -> bytes | None:
    """What of a large batch has to be there before any of it is written; None if nothing has."""
    named = [new for new in runs if new.schedule is not None or new.batch is not None]
    if not named or (len(runs) <= CHUNK and sum(len(new.args) for new in runs) <= CHUNK_BYTES):
        return None
    return encode({"check": [{"id": new.id, "schedule": new.schedule, "batch": new.batch} for new in named]})


def enqueued(answer: Sequence[bytes]) -> list[EnqueueResult]:
    """Raises NotFound."""
    said = _enqueued(answer[0])
    if said.missing is not None:
        raise _missing.no_schedule(said.missing)
    if said.batch_missing is not None:
        raise _missing.takes_no_more(said.batch_missing)
    return [enqueue_result(flag, raw) for flag, raw in zip(said.flags, answer[1:], strict=True)]


def enqueue_result(flag: int, raw: bytes) -> EnqueueResult:
    return EnqueueResult(run=run(raw), is_new=flag == 1, occupied=flag == 2)


class _Claim(msgspec.Struct):
    now: int
    lease_until: int
    next_due_at: int | None = None


_claim = decoder(_Claim)


def claimed(answer: Sequence[bytes]) -> Claimed:
    said = _claim(answer[0])
    runs = tuple(map(run, answer[1:]))
    return Claimed(runs=runs, now=said.now, lease_until=said.lease_until, next_due_at=said.next_due_at)


class _Poll(msgspec.Struct):
    now: int
    version: int
    next_tick_at: int | None = None
    next_due_at: int | None = None
    workers: tuple[str, ...] = ()
    expired: bool = False


_poll = decoder(_Poll)


def polled(raw: bytes) -> Poll:
    return Poll(**msgspec.structs.asdict(_poll(raw)))


class _Pulse(msgspec.Struct):
    now: int
    lease_until: int
    lost: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()


_pulse = decoder(_Pulse)


def pulse(answer: Sequence[bytes]) -> Pulse:
    said = _pulse(answer[0])
    strays = tuple(map(run, answer[1:]))
    return Pulse(now=said.now, lease_until=said.lease_until, lost=said.lost, cancel=said.cancel, strays=strays)


class _Reap(msgspec.Struct):
    now: int
    workers: tuple[str, ...] = ()


_reap = decoder(_Reap)


def reaped(answer: Sequence[bytes]) -> Reaped:
    return Reaped(runs=tuple(map(run, answer[1:])), workers=_reap(answer[0]).workers)


class _Finish(msgspec.Struct):
    now: int
    results: list[FinishResult]


_finish = decoder(_Finish)


def outcomes(chunk: Sequence[Outcome]) -> bytes:
    return encode({"outcomes": [_outcome(outcome) for outcome in chunk]})


def _outcome(outcome: Outcome) -> dict[str, Any]:
    fields = msgspec.structs.asdict(outcome)
    fields["token"] = str(outcome.token)
    return fields


def finished(answer: Sequence[bytes]) -> list[FinishResult]:
    return _finish(answer[0]).results
