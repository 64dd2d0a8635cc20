"""`oncron plan`: what a deploy of this code would change in the store. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from oncron._clock import wall_us
from oncron._load import MINUTE, Load, coming_day
from oncron._model import Definition, ScheduleRecord, Status, WorkerRecord
from oncron.cli import render
from oncron.cli.look import json_option
from oncron.cli.target import Target, load
from oncron.errors import InvalidTrigger, SchemaOutdated
from oncron.triggers import parse

What = Literal["added", "changed", "revived", "waits", "refused", "dormant", "unchanged", "elsewhere"]
_QUIET = ("unchanged", "elsewhere")

_SIGNS: Mapping[What, tuple[str, str]] = {
    "added": ("+", "green"),
    "changed": ("~", "yellow"),
    "revived": ("+", "green"),
    "waits": ("!", "red"),
    "refused": ("!", "red"),
    "dormant": ("-", "magenta"),
}
_ASIDE = {"name", "origin", "release", "tzdata", "paused"}
"""No part of what a change of a schedule is."""
_PEAKS = 3
_NAMED = 3


@dataclass(frozen=True)
class Planned:
    """What becomes of one schedule."""

    name: str
    what: What
    note: str = ""
    before: Definition | None = None
    after: Definition | None = None

    @property
    def differences(self) -> list[tuple[str, str, str]]:
        """(field, before, after), as people read them."""
        if self.before is None or self.after is None:
            return []
        fields = [name for name in Definition.__struct_fields__ if name not in _ASIDE]
        pairs = [(name, getattr(self.before, name), getattr(self.after, name)) for name in fields]
        return [(name, _shown(name, old), _shown(name, new)) for name, old, new in pairs if old != new]

    def moved(self, now: int) -> tuple[list[int], list[int]] | None:
        """Ticks of the coming day that fall away, and new ones; None if they are too many to tell apart."""
        before = coming_day(self.before, now) if self.before is not None else []
        after = coming_day(self.after, now) if self.after is not None else []
        if before is None or after is None:
            return None if self.before is None or self.after is None or self._moves else ([], [])
        return sorted(set(before) - set(after)), sorted(set(after) - set(before))

    @property
    def _moves(self) -> bool:
        return self.before is None or self.after is None or not self.before.same_instants(self.after)


def compare(
    declared: Mapping[str, Definition],
    rows: Sequence[ScheduleRecord],
    workers: Sequence[WorkerRecord],
    now: int,
    *,
    tasks: Collection[str] = (),
) -> list[Planned]:
    """Schedule by schedule, by name, as the first replica with this code would do it. `tasks` are those it has."""
    live = [worker for worker in workers if worker.is_counted_on(now)]
    newest = max((worker.release for worker in live if worker.release is not None), default=None)
    stored = {row.name: row for row in rows}
    found = [_declared(definition, stored.get(name), newest) for name, definition in declared.items()]
    found += [
        _undeclared(row.definition, live, tasks)
        for row in rows
        if row.name not in declared and row.definition.origin == "code" and row.status is Status.ACTIVE
    ]
    return sorted(found, key=lambda planned: planned.name)


def _undeclared(definition: Definition, live: Sequence[WorkerRecord], tasks: Collection[str]) -> Planned:
    """One that this code does not declare: it used to, or another app that shares the namespace does. That is known if
    a live replica has its task and none of those that are here: an older release of this code would share some."""
    for worker in live:
        if definition.task in worker.tasks and tasks and set(worker.tasks).isdisjoint(tasks):
            note = f"declared by another app, whose tasks {worker.host}:{worker.pid} has"
            return Planned(definition.name, "elsewhere", note, before=definition, after=definition)
    note = "no longer declared here: it sleeps an hour after the last replica that declares it has gone"
    return Planned(definition.name, "dormant", note, before=definition)


def _declared(definition: Definition, row: ScheduleRecord | None, newest: int | None) -> Planned:
    if row is None:
        note = "starts paused" if definition.paused else ""
        return Planned(definition.name, "added", note, after=definition)
    before = row.definition
    if row.status is Status.REMOVED:
        if (definition.release or 0) > (before.release or 0):
            return Planned(row.name, "revived", "it was removed; its ticks begin anew", after=definition)
        note = "it was removed; it comes back by a higher release=, or by put_schedule"
        return Planned(row.name, "refused", note)
    if before.origin != definition.origin:
        return Planned(row.name, "refused", "it was put by put_schedule, and the stored one stands; rename one of them")
    if before.digest() == definition.digest() and row.status in (Status.ACTIVE, Status.PAUSED):
        return Planned(row.name, "unchanged", before=before, after=definition)
    if newest is not None and definition.release is not None and definition.release < newest:
        note = f"a replica of release {newest} is alive: it stays as stored until that has gone"
        return Planned(row.name, "waits", note, before=before, after=definition)
    if row.status is Status.DORMANT:
        return Planned(row.name, "revived", "it sleeps; its ticks begin anew", after=definition)
    paused = "stays paused" if row.status is Status.PAUSED else ""
    return Planned(row.name, "changed", paused, before=before, after=definition)


def loads(planned: Iterable[Planned], rows: Iterable[ScheduleRecord], now: int) -> tuple[Load, Load]:
    """The coming day as it is in the store, and as it would be."""
    before, after = Load(now), Load(now)
    touched = {item.name: item for item in planned}
    paused = {row.name for row in rows if row.status is Status.PAUSED}
    for row in rows:
        if row.status is Status.ACTIVE:
            before.add([row.definition])
            if row.name not in touched:
                after.add([row.definition])
    for item in touched.values():
        if item.what in ("waits", "refused"):
            after.add([item.before] if item.before is not None else [])
        elif item.after is not None and item.name not in paused and not (item.what == "added" and item.after.paused):
            after.add([item.after])
    return before, after


# --- the command ------------------------------------------------------------------------------


@click.command("plan")
@click.argument("target")
@json_option
def plan_command(target: str, as_json: bool) -> None:
    """Say what a deploy of TARGET would change in its store: schedules that are new, changed, gone from the
    code; ticks of the coming day that move; the busiest minutes. Writes nothing.
    """
    found = load(target)
    found.import_all()
    try:
        rows, workers, now, note = found.app.sync(_look(found))
    finally:
        found.close()
    declared = {name: item.definition for name, item in found.declared.items()}
    planned = compare(declared, rows, workers, now, tasks=found.tasks.keys())
    before, after = loads(planned, rows, now)
    peaks = sorted({*after.busiest(_PEAKS), *before.busiest(_PEAKS)}, key=lambda minute: (-after.at(minute), minute))
    if as_json:
        render.as_json(_plain(found, planned, now, note) | {"load": [_load(at, before, after) for at in peaks]})
        return
    _print(found, planned, now, note)
    if peaks:
        render.lines(["", "Busiest minutes of the coming day, ticks"], style="bold")
        render.table(
            ["MINUTE", "NOW", "THEN"],
            [(render.utc(at * MINUTE), str(before.at(at)), str(after.at(at))) for at in peaks[:_PEAKS]],
        )


async def _look(target: Target) -> tuple[list[ScheduleRecord], list[WorkerRecord], int, str]:
    """Beside the app, which would migrate the store first. A store without a schema has no schedules yet."""
    async with target.own_store() as store:
        try:
            await store.check()
        except SchemaOutdated as error:
            return [], [], wall_us(), f"{error}, or let the first replica do it"
        return await store.schedules(), await store.workers(), await store.now(), ""


def _of(planned: Iterable[Planned], *kinds: What) -> list[Planned]:
    return [item for item in planned if item.what in kinds]


def _print(target: Target, planned: list[Planned], now: int, note: str) -> None:
    counts = [
        (len(_of(planned, "added")), "new"),
        (len(_of(planned, "changed")), "changed"),
        (len(_of(planned, "revived")), "revived"),
        (len(_of(planned, "waits", "refused")), "refused"),
        (len(_of(planned, "dormant")), "gone from the code"),
        (len(_of(planned, "unchanged")), "as they are"),
        (len(_of(planned, "elsewhere")), "of another app"),
    ]
    said = ", ".join(f"{count} {what}" for count, what in counts if count) or "no schedules"
    render.lines([f"{target.name} on {target.store_url}: {said}"], style="bold")
    if note:
        render.lines([f"! {note}"], style="yellow")
    for item in planned:
        if item.what not in _QUIET:
            _print_one(item, now)


def _print_one(item: Planned, now: int) -> None:
    sign, colour = _SIGNS[item.what]
    rule = item.after or item.before
    words = "" if rule is None else f": {_words(rule.trigger)}"
    render.lines([f"{sign} {item.name}{words}"], style=colour)
    if item.note:
        render.lines([f"    {item.note}"])
    render.lines([f"    {name}: {old} -> {new}" for name, old, new in item.differences])
    if item.what not in ("added", "changed", "revived"):
        return
    moved = item.moved(now)
    if moved is None:
        render.lines(
            [f"    {'it' if item.before is None else 'the old one or the new one'} ticks more than once a minute"]
        )
    elif item.before is None:
        render.lines([f"    {_ticks(moved[1], 'tick', 'ticks')} in the coming day"])
    elif moved[0] or moved[1]:
        gone, new = _ticks(moved[0], "tick falls away", "ticks fall away"), _ticks(moved[1], "is new", "are new")
        render.lines([f"    in the coming day {gone}, {new}"])


def _ticks(ticks: Sequence[int], one: str, many: str) -> str:
    named = ", ".join(render.utc(tick) for tick in ticks[:_NAMED]) + (", ..." if len(ticks) > _NAMED else "")
    return f"{len(ticks)} {one if len(ticks) == 1 else many}" + (f" ({named})" if ticks else "")


def _plain(target: Target, planned: list[Planned], now: int, note: str) -> dict[str, Any]:
    return {
        "target": target.name,
        "store": target.store_url,
        "now": render.iso(now),
        "note": note or None,
        "schedules": [_plain_one(item, now) for item in planned if item.what not in _QUIET],
        "unchanged": len(_of(planned, "unchanged")),
        "elsewhere": [item.name for item in _of(planned, "elsewhere")],
    }


def _plain_one(item: Planned, now: int) -> dict[str, Any]:
    moved = item.moved(now) if item.what in ("added", "changed", "revived") else (list[int](), list[int]())
    return {
        "name": item.name,
        "what": item.what,
        "note": item.note or None,
        "differences": [{"field": name, "before": old, "after": new} for name, old, new in item.differences],
        "ticks_gone": None if moved is None else [render.iso(tick) for tick in moved[0]],
        "ticks_new": None if moved is None else [render.iso(tick) for tick in moved[1]],
    }


def _load(minute: int, before: Load, after: Load) -> dict[str, Any]:
    return {"minute": render.iso(minute * MINUTE), "before": before.at(minute), "after": after.at(minute)}


def _words(trigger: str) -> str:
    try:
        return parse(trigger).describe()
    except InvalidTrigger:
        return trigger


_SPANS = {"timeout", "jitter", "missed_within", "retry_delay"}


def _shown(field: str, value: Any) -> str:
    if value is None or value in ((), ""):
        return "none"
    if field == "trigger":
        return _words(value)
    if field in _SPANS:
        return render.span(value)
    if field in ("start_at", "end_at"):
        return render.utc(value)
    return ", ".join(value) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]
