"""The frozen meaning of trigger texts: a release that changes a line of the file breaks stored schedules."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oncron.triggers import cron, parse
from tests.unit.triggers.slow import SlowRule

GOLDEN = Path(__file__).parents[2] / "golden" / "triggers.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def test_the_same_text_always_means_the_same_instants() -> None:
    changed: list[str] = []
    for row in ROWS:
        trigger = parse(row["text"])
        got: list[str] = []
        tick = trigger.next_after(datetime.fromisoformat(row["after"]))
        while tick is not None and len(got) < 10:
            got.append(tick.isoformat().replace("+00:00", "Z"))
            tick = trigger.next_after(tick)
        if got != row["next"] or str(trigger) != row["text"]:
            changed.append(f"{row['text']}: {got}, not {row['next']}")
    assert changed == []


def test_the_same_name_always_draws_the_same_values() -> None:
    named = [row for row in ROWS if "name" in row]
    assert len(named) >= 50
    changed = [
        f"{row['unbound']} for {row['name']}"
        for row in named
        if str(parse(row["unbound"]).bind(row["name"])) != row["text"]
    ]
    assert changed == []


def test_the_file_is_large_enough_to_notice() -> None:
    texts = {row["text"] for row in ROWS}
    assert len(texts) >= 300
    assert sum(text.startswith("cron") for text in texts) >= 300


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"])
def test_the_frozen_lines_are_right_where_a_slow_reading_reaches(zone: str) -> None:
    hours = {"30 2": {2}, "15 1": {1}, "30 0": {0}, "0 3": {3}, "59 23": {23}, "30 1-3": {1, 2, 3}}
    for times, chosen in hours.items():
        text = f'cron("{times} * * *", timezone="{zone}")'
        (row,) = [row for row in ROWS if row["text"] == text]
        slow = SlowRule(lambda _: True, frozenset(chosen), frozenset({int(times.split()[0])}))
        start = datetime.fromisoformat(row["after"])
        expected = slow.ticks(zone, start, start + timedelta(days=12))[:10]
        assert [datetime.fromisoformat(tick) for tick in row["next"]] == expected
        assert parse(text) == cron(f"{times} * * *", timezone=zone)
