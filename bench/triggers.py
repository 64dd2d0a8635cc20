"""What the next tick costs: a trigger compiled once, beside cronsim and croniter in the same run.

    python bench/triggers.py [--json]

Two questions, each in microseconds of the fastest of five turns:

* *walk*: tick after tick, from the last answer to the next. The peers walk their own iterators.
* *ask*: the next tick after an arbitrary instant, as a scheduler asks it. The peers keep no
  compiled form that can be asked, so they read the expression each time.

Then 100,000 schedules: their expressions read and the next tick of each found.
"""

from __future__ import annotations

import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from oncron.triggers import cron, parse

ZONE = "Europe/Berlin"
START = datetime(2026, 3, 1, tzinfo=UTC)
USUAL = (
    "* * * * *",
    "*/5 * * * *",
    "*/15 9-17 * * 1-5",
    "0 * * * *",
    "5,35 6,18 * * *",
    "0 0 * * *",
    "0 3 * * *",
    "30 2 * * *",
    "30 9 * * MON-FRI",
    "0 3 * * 1",
    "0 12 1 * *",
    "0 0 1 1 *",
    "0 0 13 * 5",
)
RARE = ("0 0 29 2 *", "0 0 * 2 MON#5", "0 0 31 * *", "15 1 * * 0")
TURNS = 5
FLEET = 100_000


def fastest(do: Callable[[], object], count: int) -> float:
    """Microseconds each."""
    best = float("inf")
    for _ in range(TURNS):
        started = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - started)
    return best / count * 1e6


def questions(count: int) -> list[datetime]:
    chance = random.Random(1)
    return [START + timedelta(seconds=chance.randrange(5 * 365 * 86_400)) for _ in range(count)]


def ours(expr: str) -> dict[str, float]:
    trigger = cron(expr, timezone=ZONE)
    asked = questions(500)
    asked_us = [round(t.timestamp()) * 1_000_000 for t in asked]

    def walk() -> None:
        tick = START
        for _ in range(500):
            tick = trigger.next_after(tick) or START

    def walk_us() -> None:
        tick = asked_us[0]
        for _ in range(500):
            tick = trigger.next_after_us(tick) or 0

    return {
        "walk": fastest(walk, 500),
        "walk_us": fastest(walk_us, 500),
        "ask": fastest(lambda: [trigger.next_after(t) for t in asked], 500),
        "ask_us": fastest(lambda: [trigger.next_after_us(t) for t in asked_us], 500),
    }


def cronsim(expr: str) -> dict[str, float]:
    from cronsim import CronSim

    zone = ZoneInfo(ZONE)
    start, asked = START.astimezone(zone), [t.astimezone(zone) for t in questions(20)]
    return {
        "walk": fastest(lambda: list(islice(CronSim(expr, start), 20)), 20),
        "ask": fastest(lambda: [next(CronSim(expr, t)) for t in asked], 20),
    }


def croniter(expr: str) -> dict[str, float]:
    import croniter as library

    zone = ZoneInfo(ZONE)
    start, asked = START.astimezone(zone), [t.astimezone(zone) for t in questions(20)]

    def walk() -> None:
        walker = library.croniter(expr, start)
        for _ in range(20):
            walker.get_next(datetime)

    return {
        "walk": fastest(walk, 20),
        "ask": fastest(lambda: [library.croniter(expr, t).get_next(datetime) for t in asked], 20),
    }


PEERS: dict[str, Callable[[str], dict[str, float]]] = {"cronsim": cronsim, "croniter": croniter}


def fleet() -> dict[str, float]:
    """Seconds for 100,000 schedules, by expression and by stored text."""
    chance = random.Random(1)
    shapes = ["{m} {h} * * *", "{m} {h} * * {w}", "*/{s} * * * *", "{m} {h} {d} * *", "{m} * * * *"]
    zones = ("Europe/Berlin", "America/New_York", "UTC", "Asia/Tokyo")
    texts = [
        chance.choice(shapes).format(
            m=chance.randrange(60),
            h=chance.randrange(24),
            w=chance.randrange(7),
            d=chance.randrange(1, 29),
            s=chance.randrange(2, 31),
        )
        for _ in range(FLEET)
    ]
    now = round(START.timestamp()) * 1_000_000
    started = time.perf_counter()
    triggers = [cron(text, timezone=zones[n & 3]) for n, text in enumerate(texts)]
    for trigger in triggers:
        trigger.next_after_us(now)
    by_expression = time.perf_counter() - started
    stored = [str(trigger) for trigger in triggers]
    started = time.perf_counter()
    for text in stored:
        parse(text).next_after_us(now)
    return {"expressions": by_expression, "stored texts": time.perf_counter() - started}


def main() -> None:
    peers = {name: run for name, run in PEERS.items() if importlib.util.find_spec(name)}
    # Side by side, expression by expression: a busy minute of the machine is everybody's.
    runs = {"oncron": ours, **peers}
    figures: dict[str, Any] = {expr: {name: run(expr) for name, run in runs.items()} for expr in USUAL + RARE}
    fleets = fleet()
    if "--json" in sys.argv:
        print(json.dumps({"next_after": figures, "fleet": fleets}))
        return
    print(f"next_after in {ZONE}, microseconds (in brackets: times as slow as oncron)")
    header = "".join(f"{name + ' ' + question:>22}" for question in ("walk", "ask") for name in peers)
    print(f"{'':20}{'walk':>8}{'in us':>8}{'ask':>8}{'in us':>8}{header}")
    for expr, row in figures.items():
        mine = row["oncron"]
        line = f"{expr:20}" + "".join(f"{mine[key]:8.2f}" for key in ("walk", "walk_us", "ask", "ask_us"))
        for question in ("walk", "ask"):
            for name in peers:
                theirs = row[name][question]
                line += f"{theirs:12.1f} ({theirs / mine[question]:6.1f}x)"
        print(line)
    for name in peers:
        for question in ("walk", "ask"):
            ratios = [figures[expr][name][question] / figures[expr]["oncron"][question] for expr in USUAL]
            middle, least = statistics.median(ratios), min(ratios)
            print(f"{name}, {question}, usual expressions: median {middle:.1f}x, least {least:.1f}x")
    for what, seconds in fleets.items():
        print(f"{FLEET:,} {what} read and planned: {seconds:.2f} s")


if __name__ == "__main__":
    main()
