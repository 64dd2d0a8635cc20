"""Ticks counted by outcome, and said in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncron.web.pictures.facts import Mark, Outcome
from oncron.web.pictures.glyphs import WORDS

SAID = (
    Outcome.SUCCEEDED,
    Outcome.FAILED,
    Outcome.LOST,
    Outcome.CANCELLED,
    Outcome.SKIPPED,
    Outcome.MISSED,
    Outcome.RUNNING,
    Outcome.WAITING,
    Outcome.COMING,
)
"""The order in which people ask."""


class Tally:
    """How many ticks had which outcome."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._of: Counter[Outcome] = Counter()
        self.at_least = False
        for mark in marks:
            self.add(mark.outcome, mark.count, at_least=mark.at_least)

    def add(self, outcome: Outcome, count: int, *, at_least: bool = False) -> None:
        self._of[outcome] += count
        self.at_least |= at_least

    def __getitem__(self, outcome: Outcome) -> int:
        return self._of[outcome]

    @property
    def total(self) -> int:
        return self._of.total()

    @property
    def outcomes(self) -> list[Outcome]:
        """Those that occur."""
        return [outcome for outcome in SAID if self._of[outcome]]

    @property
    def worst(self) -> Outcome | None:
        return next((outcome for outcome in Outcome if self._of[outcome]), None)

    def __str__(self) -> str:
        """`24 ticks: 23 succeeded, 1 failed`."""
        if not self.total:
            return "no ticks"
        said = ", ".join(f"{grouped(self._of[outcome])} {WORDS[outcome].lower()}" for outcome in self.outcomes)
        more = "at least " if self.at_least else ""
        return f"{more}{grouped(self.total)} tick{'' if self.total == 1 else 's'}: {said}"


def grouped(count: int) -> str:
    """`12 345`, with a space that does not break."""
    return f"{count:,}".replace(",", "\u00a0")
