"""The recorded cases: what Debian's cron did under a fake clock, and what has to be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, cron, daily, every, monthly, once, parse, weekly

CASES = Path(__file__).parents[2] / "cases" / "cron"
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def classes(name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows(name):
        found.setdefault(row["class"], []).append(row)
    return found


def is_six(expr: object) -> bool:
    return isinstance(expr, str) and len(expr.replace("\t", " ").split()) == 6


def first_ticks(trigger: Trigger, start: str, count: int) -> list[str]:
    found: list[str] = []
    at = trigger.next_after(datetime.fromisoformat(start))
    while at is not None and len(found) < count:
        found.append(at.isoformat().replace("+00:00", "Z"))
        at = trigger.next_after(at)
    return found


def failures(chosen: list[Row], make: Callable[[Row], Trigger]) -> list[str]:
    failing: list[str] = []
    for row in chosen:
        for trigger in (make(row), parse(str(make(row)))):
            got = first_ticks(trigger, row["start"], row["n"])
            if got != row["expected"]:
                failing.append(f"{row['id']} {trigger} after {row['start']}: {got}, not {row['expected']}")
    return failing


def from_expression(row: Row) -> Trigger:
    return cron(row["expr"], seconds=is_six(row["expr"]), timezone=row["tz"])


def from_rule(row: Row) -> Trigger:
    rule, zone = row["rule"], row["tz"]
    kind = rule["kind"]
    if kind == "daily":
        return daily(rule["at"], days=rule["interval"], timezone=zone)
    if kind == "weekly":
        return weekly(rule["weekdays"], rule["at"], weeks=rule["interval"], timezone=zone)
    if kind == "monthly":
        return monthly(rule["days"], rule["at"], months=rule["interval"], timezone=zone)
    if kind == "once":
        return once(datetime.fromisoformat(rule["at"]), timezone=zone)
    return every(seconds=rule["seconds"], anchor=datetime.fromisoformat(row["start"]))


@pytest.mark.parametrize("kind", sorted(classes("corpus")))
def test_a_cron_expression_ticks_when_debians_cron_ran_it(kind: str) -> None:
    assert failures(classes("corpus")[kind], from_expression) == []


@pytest.mark.parametrize("kind", sorted(classes("valid_odd")))
def test_an_odd_but_valid_expression_ticks_as_it_reads(kind: str) -> None:
    assert failures(classes("valid_odd")[kind], from_expression) == []


@pytest.mark.parametrize("kind", sorted(classes("intervals")))
def test_an_interval_or_calendar_rule_ticks_on_its_grid(kind: str) -> None:
    assert failures(classes("intervals")[kind], from_rule) == []


@pytest.mark.parametrize("row", rows("invalid"), ids=lambda row: row["id"])
def test_an_expression_without_a_meaning_is_refused_with_a_mend(row: Row) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(row["expr"], seconds=is_six(row["expr"]))
    assert caught.value.reason
    assert caught.value.mend
    assert caught.value.expression == row["expr"]
    if isinstance(row["expr"], str):
        assert caught.value.field


def test_the_case_files_are_all_there() -> None:
    assert {name: len(rows(name)) for name in ("corpus", "valid_odd", "invalid", "intervals")} == {
        "corpus": 1541,
        "valid_odd": 34,
        "invalid": 122,
        "intervals": 96,
    }
