"""Draws the pictures of the documentation anew: `python docs/_draw`, or into another folder than theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import days
import stories

PICTURES = {
    "gap-day": days.gap,
    "fold-day": days.fold,
    "lock-or-name": stories.lock_or_name,
    "one-tick": stories.one_tick,
    "clocks": stories.clocks,
    "lease": stories.lease,
    "effect": stories.effect,
}


def main(folder: Path) -> None:
    for name, draw in PICTURES.items():
        draw().write(folder / f"{name}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "explanation" / "pictures")
