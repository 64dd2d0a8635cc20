"""Writing schedules: declare, pause, resume, remove. Each is read, plan, compare-and-set,
again if the row moved in between. Ticks that are owed under the old row are settled first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from oncron import _defaults as limits
from oncron._cipher import is_encrypted, key_of, mend
from oncron._model import (
    Change,
    Definition,
    FireOutcome,
    ScheduleRecord,
    Status,
    new_id,
)
from oncron._plan import changed_plan, first_plan, paused_plan, plan, raised_plan, resumed_plan
from oncron._store import ReadableStore
from oncron.errors import InvalidOption, InvalidTrigger, NotFound, StoreError, StoreUnavailable
from oncron.triggers import Trigger, parse

log = logging.getLogger("oncron.schedule")

_CHUNK = 1000
_ROUNDS = 50
"""How often a row may move under our hands before we say so: each loss is another's success."""

_FLAPPING = 600 * limits.SECOND

What = Literal["declared", "changed", "flapped"]


async def declare(
    store: ReadableStore, definitions: Sequence[Definition], told: set[str] | None = None
) -> list[tuple[str, What]]:
    """Bring the rows to these definitions; what was new, changed or changed back. N equal declarations write
    nothing. A name of the other origin is left as it is, with a WARNING; so is what a live replica of a higher
    release overrules, unless it is in `told`, to which it is added."""
    told = set() if told is None else told
    done: list[tuple[str, What]] = []
    for at in range(0, len(definitions), _CHUNK):
        wanted = {d.name: d for d in definitions[at : at + _CHUNK]}
        for _ in range(_ROUNDS):
            wanted = await _declare_once(store, wanted, done, told)
            if not wanted:
                break
        else:
            raise StoreUnavailable(f"schedules {sorted(wanted)[:5]} kept changing while they were declared; try again")
    return done


async def _declare_once(
    store: ReadableStore, wanted: dict[str, Definition], done: list[tuple[str, What]], told: set[str]
) -> dict[str, Definition]:
    """One round; what is left to do."""
    now = await store.now()
    rows = {row.name: row for row in await store.schedules(list(wanted))}
    changes: list[Change] = []
    unsettled: dict[str, Definition] = {}
    wanted = await _without_outdated(store, wanted, rows, now, told)
    for name, definition in wanted.items():
        row = rows.get(name)
        if row is None:
            changes.append(first_plan(definition, parse(definition.trigger), now))
        elif not _same(row, definition) and _may(row, definition):
            if row.status is Status.ACTIVE and await _settle(store, row, now):
                unsettled[name] = definition
            else:
                if _flaps(row, definition, now):
                    done.append((name, "flapped"))
                changes.append(changed_plan(row, definition, parse(definition.trigger), now))
    for change, answer in zip(changes, await store.declare(changes) if changes else [], strict=True):
        if answer.changed:
            done.append((change.name, "declared" if change.seen_revision is None else "changed"))
        elif answer.unreadable:
            _say_unreadable(change.name)
        elif answer.record is None or not _same(answer.record, change.definition):
            unsettled[change.name] = change.definition
    return unsettled


def _say_unreadable(name: str) -> None:
    log.warning(
        "schedule %r is stored as this release cannot read it, and stays as stored; a newer release may run it",
        name, extra={"event": "schedule.refused", "schedule": name},
    )  # fmt: skip


async def _without_outdated(
    store: ReadableStore, wanted: dict[str, Definition], rows: dict[str, ScheduleRecord], now: int, told: set[str]
) -> dict[str, Definition]:
    """Without the changes of a release that is being rolled out of: refused while a live replica of a
    higher release exists, and only then, so that a roll-back works. This replica runs on what is stored."""
    changed = [name for name, definition in wanted.items() if name in rows and not _same(rows[name], definition)]
    if not changed:
        return wanted
    live = [worker.release for worker in await store.workers() if worker.is_counted_on(now)]
    newest = max((release for release in live if release is not None), default=None)
    outdated = [name for name in changed if _is_older(wanted[name].release, newest)]
    untold = [name for name in outdated if name not in told]
    if untold:
        log.warning(
            "a replica of release %s is alive: this one, of release %s, leaves %s as stored until there is none",
            newest,
            wanted[untold[0]].release,
            ", ".join(map(repr, untold[:5])) + (" and others" if len(untold) > 5 else ""),
            extra={"event": "schedule.refused"},
        )
    told.update(untold)
    return {name: definition for name, definition in wanted.items() if name not in outdated}


def _is_older(release: int | None, newest: int | None) -> bool:
    return newest is not None and release is not None and release < newest


def is_contested(row: ScheduleRecord, definition: Definition) -> bool:
    """Whether another release's definition stands where this one's may have to: of a higher one, until its last
    replica is gone; of a lower one, if that declared while this one was away."""
    differs = row.status is not Status.REMOVED and not _same(row, definition)
    return differs and row.definition.origin == "code" and _of_other_release(row, definition)


def _of_other_release(row: ScheduleRecord, definition: Definition) -> bool:
    ours, theirs = definition.release, row.definition.release
    return ours is not None and theirs is not None and ours != theirs


def _flaps(row: ScheduleRecord, definition: Definition, now: int) -> bool:
    """Two definitions that take turns: replicas of two versions, neither of which names its release."""
    took_turns = row.previous == definition.digest() and now - row.changed_at < _FLAPPING
    return took_turns and not _of_other_release(row, definition)


def _same(row: ScheduleRecord, definition: Definition) -> bool:
    return row.definition.digest() == definition.digest() and row.status in (Status.ACTIVE, Status.PAUSED)


def _may(row: ScheduleRecord, definition: Definition) -> bool:
    if row.status is Status.REMOVED:
        return definition.origin == "api" or (definition.release or 0) > (row.definition.release or 0)
    if is_encrypted(row.definition.args) and not is_encrypted(definition.args) and definition.origin == "code":
        log.warning(
            "schedule %r is stored encrypted with key %r, which is not given here, or differs: it stays as stored; %s",
            row.name,
            key_of(row.definition.args),
            mend(key_of(row.definition.args) or ""),
            extra={"event": "schedule.refused", "schedule": row.name},
        )
        return False
    if row.definition.origin == definition.origin:
        return True
    log.warning(
        "schedule %r was put by %s and is declared by %s; the stored one stands; rename one of them",
        row.name,
        _origin(row.definition.origin),
        _origin(definition.origin),
        extra={"event": "schedule.refused", "schedule": row.name},
    )
    return False


def _origin(origin: str) -> str:
    return "code" if origin == "code" else "put_schedule"


async def _settle(store: ReadableStore, row: ScheduleRecord, now: int) -> bool:
    """Fire what is owed under the row as it is. True if something moved: read the row again."""
    try:
        trigger = parse(row.definition.trigger)
    except InvalidTrigger:
        return False  # written by a newer release: what it owes cannot be known here
    owed = plan(row, trigger, now)
    if owed is None or owed.new_cursor == owed.seen_cursor:
        return False
    fired = await store.fire([owed], fire_id=new_id())
    return fired.results[0].outcome is not FireOutcome.EARLY


async def _change(
    store: ReadableStore, name: str, wanted: Callable[[ScheduleRecord, int], Change | None], *, settle: bool
) -> ScheduleRecord:
    """Read, plan, compare-and-set, until it took. `wanted` answers None when nothing is to do."""
    for _ in range(_ROUNDS):
        rows = await store.schedules([name])
        if not rows or rows[0].status is Status.REMOVED:
            raise NotFound(f"no schedule {name!r}; `oncron schedules` lists them")
        row, now = rows[0], await store.now()
        if settle and row.status is Status.ACTIVE and await _settle(store, row, now):
            continue
        change = wanted(row, now)
        if change is None:
            return row
        answer = (await store.declare([change]))[0]
        if answer.changed and answer.record is not None:
            return answer.record
    raise StoreUnavailable(f"schedule {name!r} kept changing; try again")


async def pause(store: ReadableStore, name: str, note: str = "") -> ScheduleRecord:
    """No ticks from now on; what was owed before is settled first. Pausing twice keeps the first note
    unless another is given. Raises NotFound."""

    def wanted(row: ScheduleRecord, _now: int) -> Change | None:
        if row.status is Status.PAUSED and note in ("", row.note):
            return None
        return paused_plan(row, note or row.note)

    return await _change(store, name, wanted, settle=True)


async def resume(store: ReadableStore, name: str) -> ScheduleRecord:
    """Ticks again, from now on: those that fell in the pause owe nothing. Raises NotFound."""

    def wanted(row: ScheduleRecord, now: int) -> Change | None:
        if row.status is Status.ACTIVE:
            return None
        return resumed_plan(row, parse(row.definition.trigger), now)

    return await _change(store, name, wanted, settle=False)


async def put(store: ReadableStore, definition: Definition) -> ScheduleRecord:
    """Create or replace a schedule of origin "api"; repeating changes nothing. Raises InvalidOption
    for a name that code declares, StoreError for one that is stored as this release cannot read it."""
    rows = await store.schedules([definition.name])
    if rows and rows[0].definition.origin != definition.origin and rows[0].status is not Status.REMOVED:
        raise InvalidOption(f"schedule {definition.name!r} is declared in code; give put_schedule another name")
    await declare(store, [definition])
    for row in await store.schedules([definition.name]):
        return row
    raise StoreError(
        f"schedule {definition.name!r} is stored as this release cannot read it, and stays so; "
        "put it with the release that wrote it, or under another name"
    )


async def remove(store: ReadableStore, name: str) -> ScheduleRecord:
    """No ticks ever again under this definition; the cursor stays as a tombstone (G1). What was owed is
    settled. Raises NotFound."""
    return await _change(store, name, lambda row, _now: paused_plan(row, row.note, Status.REMOVED), settle=True)


async def sleep(store: ReadableStore, name: str) -> ScheduleRecord:
    """No ticks until some replica declares it again. What was owed is settled. Raises NotFound."""

    def wanted(row: ScheduleRecord, _now: int) -> Change | None:
        return paused_plan(row, row.note, Status.DORMANT) if row.status is Status.ACTIVE else None

    return await _change(store, name, wanted, settle=True)


async def raise_cursor(store: ReadableStore, name: str, remembered: int) -> ScheduleRecord:
    """The store was rolled back: bring the cursor to where it is known to have been. Raises NotFound."""

    def wanted(row: ScheduleRecord, now: int) -> Change | None:
        return raised_plan(row, trigger_of(row), min(remembered, now)) if row.cursor < min(remembered, now) else None

    return await _change(store, name, wanted, settle=False)


def trigger_of(row: ScheduleRecord) -> Trigger:
    """The bound trigger of a stored row. Raises InvalidTrigger for a text that this release cannot read."""
    return parse(row.definition.trigger)
