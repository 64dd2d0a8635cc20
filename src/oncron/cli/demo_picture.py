"""The live picture of a demo: for each schedule, which replica ran which tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from oncron._clock import SECOND
from oncron.cli.demo_replicas import Beat
from oncron.cli.ledger import Line

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow")


_RECENT = 2000
"""Lines that are looked at: more than fit any terminal's width."""


class Picture(Protocol):
    """Shows the ledger as it grows, and what happens beside it."""

    def show(self, lines: Sequence[Line], elapsed: int) -> None: ...
    def say(self, text: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def picture(beats: Mapping[str, Beat], out: TextIO) -> Picture:
    """A live one on a terminal, plain lines elsewhere."""
    return _LivePicture(beats, out) if out.isatty() else _PlainPicture(beats, out)


def strip(lines: Sequence[Line], schedule: str, beat: Beat, since: int, until: int) -> list[tuple[str, bool]]:
    """For each tick in (since, until]: the replica that ran it last ("·" if none has yet), and whether
    it was taken over."""
    ran: dict[int, list[str]] = {}
    for line in lines:
        if line.schedule == schedule and line.what == "start":
            ran.setdefault(line.tick, []).append(line.worker)
    ticks = beat.grid(since, until).promised()
    return [(ran[tick][-1], len(ran[tick]) > 1) if tick in ran else ("·", False) for tick in ticks]


def _newest(lines: Sequence[Line]) -> int:
    return max((line.tick for line in lines), default=0)


class _LivePicture:
    def __init__(self, beats: Mapping[str, Beat], out: TextIO) -> None:
        self._beats = beats
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, refresh_per_second=10, transient=False)
        self._said: list[str] = []

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        self._said.append(text)

    def show(self, lines: Sequence[Line], elapsed: int) -> None:
        label = max(map(len, self._beats), default=0) + 2
        wide = max(10, self._console.width - label - 1)
        until, first = _newest(lines), lines[0].tick - 1 if lines else 0
        shown = Text(f"{elapsed / SECOND:5.1f} s   each digit: the replica that ran that tick\n\n")
        for name, beat in self._beats.items():
            shown.append(f"{name:<{label}}", style="bold")
            for who, taken_over in strip(lines[-_RECENT:], name, beat, max(first, until - wide * beat.every), until):
                colour = _COLOURS[(int(who) - 1) % len(_COLOURS)] if who.isdigit() else "dim"
                shown.append(who[-1], style=f"{colour} reverse" if taken_over else colour)
            shown.append("\n")
        for text in self._said:
            shown.append(f"\n{text}")
        self._live.update(shown)


class _PlainPicture:
    """A line a second: the ticks of that second, and who ran them."""

    def __init__(self, beats: Mapping[str, Beat], out: TextIO) -> None:
        self._beats, self._out = beats, out
        self._told_until: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.flush()

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def show(self, lines: Sequence[Line], elapsed: int) -> None:
        # A second is told when the next one is well under way, so that late starts are in.
        if not lines:
            return
        until = (_newest(lines) - SECOND // 2) // SECOND * SECOND
        if self._told_until is None:
            self._told_until = until
        if until <= self._told_until:
            return
        parts = [
            f"{name} {''.join(who for who, _ in strip(lines[-_RECENT:], name, beat, self._told_until, until))}"
            for name, beat in self._beats.items()
        ]
        self._told_until = until
        self.say(f"{elapsed / SECOND:5.1f} s  " + "  ".join(parts))
