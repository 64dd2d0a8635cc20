"""Schedules of other schedulers as oncron has them, and what could not come along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oncron.triggers import Trigger


@dataclass
class Rule:
    """What oncron has for when another scheduler runs something."""

    trigger: Trigger
    was: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    differs: list[str] = field(default_factory=list[str])
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of a cron-like one: its fields, as the other scheduler takes them."""


@dataclass(frozen=True)
class TaskCode:
    """A task, and the source that defines it; no source where only its name is known."""

    name: str
    imports: tuple[str, ...] = ()
    """Modules, dotted."""
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What belongs to the task and not to a schedule of it."""


@dataclass(frozen=True)
class Moved:
    """A schedule that came along."""

    name: str
    trigger: Trigger
    """With its zone."""
    task: TaskCode
    options: Mapping[str, Any]
    """As `add_schedule` takes them."""
    was: str
    """What it was, in the other scheduler's words."""
    differs: tuple[str, ...] = ()
    """What will not be as before, a sentence each."""


@dataclass(frozen=True)
class Refused:
    """One that has no equivalent, and why."""

    name: str
    why: str


@dataclass
class Found:
    """Everything that a source holds."""

    origin: str
    """Where it was read, in words."""
    moved: list[Moved] = field(default_factory=list[Moved])
    refused: list[Refused] = field(default_factory=list[Refused])
    notes: list[str] = field(default_factory=list[str])
    """What holds for all of them."""

    def note(self, text: str) -> None:
        """Say it once."""
        if text not in self.notes:
            self.notes.append(text)


class NoEquivalent(Exception):
    """Why one schedule cannot come along: a sentence with the mend."""
