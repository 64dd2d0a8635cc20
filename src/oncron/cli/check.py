"""`oncron check`: what a target declares, and what may surprise. Imports it; asks no store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from oncron._clock import SECOND, wall_us
from oncron._plan import next_tick
from oncron._registry import Declared
from oncron.cli import render
from oncron.cli.look import json_option
from oncron.cli.target import ImportFailed, Target, load
from oncron.triggers import parse, surprises
from oncron.triggers.local import LocalTrigger

_AHEAD = 24 * 3600 * SECOND
_SOON = 366 * _AHEAD
_TICKS = 200
"""Crowds are looked for among so many ticks of each schedule, a day ahead at most."""
_CROWD = 10


@dataclass
class Finding:
    """One schedule, and what is to say about it."""

    name: str
    declared: Declared
    words: str
    next_at: int | None
    wrong: list[str] = field(default_factory=list[str])
    """What cannot work."""
    warnings: list[str] = field(default_factory=list[str])
    """What may surprise."""

    def plain(self) -> dict[str, Any]:
        rule = self.declared.definition
        return {
            "name": self.name,
            "task": rule.task,
            "trigger": rule.trigger,
            "words": self.words,
            "next_at": render.iso(self.next_at),
            "place": self.declared.place,
            "wrong": self.wrong,
            "warnings": self.warnings,
        }


@click.command("check")
@click.argument("target")
@click.option("--strict", is_flag=True, help="Exit 1 on warnings too.")
@json_option
def check_command(target: str, strict: bool, as_json: bool) -> int:
    """Import TARGET, list what it declares, and say what may surprise: no timeout, times that clock
    changes touch, uneven steps, a next tick years away, many ticks at one instant, a store that others do not see.

    Exits 1 when something is wrong, a definition that is refused for instance.
    """
    try:
        loaded = load(target)
        loaded.import_all()
    except ImportFailed as error:
        click.echo(f"oncron check: {error.message}", err=True)
        return 1
    now = wall_us()
    findings = examine(loaded.declared, set(loaded.tasks), now)
    crowds = crowded(loaded.declared, now, most=max(_CROWD, loaded.concurrency))
    store, notes = about_store(loaded)
    wrong = sum(len(finding.wrong) for finding in findings)
    warnings = sum(len(finding.warnings) for finding in findings) + len(crowds) + len(store)
    if as_json:
        render.as_json(
            {
                "target": loaded.name,
                "tasks": sorted(loaded.tasks),
                "schedules": [finding.plain() for finding in findings],
                "crowds": crowds,
                "store": store,
                "notes": notes,
                "wrong": wrong,
                "warnings": warnings,
            }
        )
    else:
        _print(loaded, findings, crowds + store, notes, now)
    return 1 if wrong or (strict and warnings) else 0


def examine(declared: Mapping[str, Declared], tasks: set[str], now: int) -> list[Finding]:
    """What is to say about each schedule by itself."""
    return [_examined(name, item, tasks, now) for name, item in sorted(declared.items())]


def _examined(name: str, declared: Declared, tasks: set[str], now: int) -> Finding:
    rule = declared.definition
    trigger = parse(rule.trigger)
    found = Finding(name, declared, trigger.describe(), next_tick(rule, trigger, now))
    if found.next_at is None:
        found.wrong.append("it never ticks again: its last tick has passed")
    elif found.next_at > now + _SOON:
        found.warnings.append(f"its next tick is more than a year away, at {render.utc(found.next_at)}: is that meant?")
    if rule.task not in tasks:
        found.warnings.append(f"task {rule.task!r} is not defined here: only another service can run it")
    if rule.timeout is None:
        held = " and skips every tick meanwhile" if rule.overlap.value == "skip" else ""
        found.warnings.append(f"no timeout: a run that hangs holds its place for ever{held}; give timeout=")
    known = surprises.of_local(trigger, now) if isinstance(trigger, LocalTrigger) and _says_how(trigger) else []
    found.warnings += [said for said in surprises.coming(trigger, now) if said not in known]
    return found


def _says_how(trigger: LocalTrigger) -> bool:
    """Whether its author has thought of clock changes, and wrote gap= or fold=."""
    return (trigger.gap, trigger.fold) != ("next", "first")


def crowded(declared: Mapping[str, Declared], now: int, *, most: int) -> list[str]:
    """The instant at which most schedules tick together, if they are more than `most`."""
    at: dict[int, list[str]] = defaultdict(list)
    for name, item in sorted(declared.items()):
        rule = item.definition
        if rule.jitter:
            continue
        trigger, tick = parse(rule.trigger), now
        for _ in range(_TICKS):
            following = next_tick(rule, trigger, tick)
            if following is None or following > now + _AHEAD:
                break
            at[following].append(name)
            tick = following
    worst = max(at, key=lambda tick: len(at[tick]), default=None)
    if worst is None or len(at[worst]) <= most:
        return []
    names = ", ".join(at[worst][:3])
    said = f"{len(at[worst])} schedules tick at {render.utc(worst)} ({names}, ...), more than the {most} runs that"
    return [f"{said} one replica executes at once; spread them with H in cron, or jitter="]


def about_store(target: Target) -> tuple[list[str], list[str]]:
    """Of a store that only this machine, or only one process, sees: a warning if nobody chose it, else a note."""
    if target.store_url.startswith("memory"):
        return [], ["memory:// lives in one process and ends with it: replicas need another store"]
    if not target.store_url.startswith("sqlite"):
        return [], []
    said = f"{target.store_url} is a file: replicas on other hosts do not see it and would run every tick again"
    if target.by_default:
        return [f"no store was given: {said}; pass a URL, or set ONCRON_STORE"], []
    return [], [f"{said}; for several hosts use PostgreSQL"]


def _print(target: Target, findings: list[Finding], overall: list[str], notes: list[str], now: int) -> None:
    render.lines(
        [f"{target.name}: {render.count(len(findings), 'schedule')}, {render.count(len(target.tasks), 'task')}"],
        style="bold",
    )
    if findings:
        render.lines([""])
        render.table(
            ["SCHEDULE", "-TASK", "+WHEN", "NEXT"],
            [
                (
                    finding.name,
                    finding.declared.definition.task,
                    finding.words,
                    "never" if finding.next_at is None else render.away(finding.next_at, now),
                )
                for finding in findings
            ],
        )
    said = [(finding.name, text, "red") for finding in findings for text in finding.wrong]
    said += [(finding.name, text, "yellow") for finding in findings for text in finding.warnings]
    said += [("all", text, "yellow") for text in overall]
    if said:
        render.lines([""])
    for name, text, colour in said:
        render.lines([f"{'wrong' if colour == 'red' else 'warning'}: {name}: {text}"], style=colour)
    if not said:
        render.lines(["", "Nothing to complain about."], style="green")
    render.lines([f"note: {text}" for text in notes])
