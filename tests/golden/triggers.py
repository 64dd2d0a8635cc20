"""Adds what is missing to `triggers.jsonl`; never changes a line that is there.

A line says: this text, asked after this instant, gives these ten. Lines with `name` say also
which text a trigger has once bound to that name. A release that changes a line moves the
ticks of stored schedules, which is a breaking change.

    python tests/golden/triggers.py
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oncron.triggers import Trigger, parse

FILE = Path(__file__).with_suffix(".jsonl")
COUNT = 10

# Jumps lie soon after the starts; all of them in the past, so that new zone rules leave the lines alone.
STARTS = {
    "UTC": "2024-01-10T06:07:08Z",
    "Europe/Berlin": "2024-03-30T12:00:00Z",
    "America/New_York": "2023-11-04T12:00:00Z",
    "Australia/Lord_Howe": "2024-04-05T12:00:00Z",
    "America/Santiago": "2022-09-10T12:00:00Z",
    "America/Havana": "2022-11-05T12:00:00Z",
    "Asia/Kolkata": "2024-02-28T00:00:00Z",
    "Pacific/Apia": "2011-12-29T00:00:00Z",
    "Antarctica/Troll": "2023-03-25T12:00:00Z",
    "Africa/Casablanca": "2022-03-26T12:00:00Z",
}

ANYWHERE = (
    """
* * * * *|*/5 * * * *|*/7 * * * *|*/45 * * * *|0 * * * *|30 * * * *|15,45 * * * *|0 0 * * *|30 2 * * *|15 1 * * *
30 0 * * *|0 3 * * *|59 23 * * *|0 */2 * * *|0 */5 * * *|30 1-3 * * *|0,30 2 * * *|0 0-23 * * *|*/15 9-17 * * 1-5
0 9 * * MON-FRI|15 1 * * 0|0 0 * * 7|0 12 * * FRI-SUN|@hourly|@daily|@weekly|1-59/20 2 * * *
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

IN_UTC = (
    """
0 0 1 * *|0 0 31 * *|0 0 29 2 *|0 0 30 * *|0 0 28-31 * *|0 0 13 * 5|0 0 13 * *,5|0 0 */2 * 1|0 0 1-7 * MON|0 0 */28 2 1
0 0 * 2 MON#5|0 0 29 2 */7|0 0 L * *|0 0 L-1 * *|0 0 L-30 * *|0 0 LW * *|0 0 L,LW * *|0 0 1W * *|0 0 15W * *|0 0 31W * *
0 0 29W 2 *|0 0 * * 5L|0 0 * * FRIL|0 0 * * 7L|0 0 * * 5#2|0 0 * * SUN#1|0 0 * * 1#5|0 0 15 * 5L|0 0 L * 1#1
0 0 1,15 * 3
0 0 1-31 * 5|0 0 13 * 0-6|0 0 2,*/5 * 1|0 0 31 2 1|@yearly|@annually|@monthly|@midnight|0 0 1 JAN,jul *|0 0 1 */3 *
0 0 1 JAN-DEC/5 *
0 0 * * 5-7|0 0 * * 1-7/3|0 0 * * 0/2|0 0 * * 1-0|5-5/2 * * * *|10/20 * * * *|*/100 * * * *|0 3/2 * * *
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

SIX = [
    "* * * * * *",
    "*/10 * * * * *",
    "30 * * * * *",
    "0,30 0 2 * * *",
    "*/20 30 1 * * *",
    "5-7 59 23 * * *",
    "15 */7 2-4 * * *",
]

CALENDAR = [
    'daily("02:30"{})',
    'daily(["00:00", "12:30:15"]{})',
    'daily("06:00", days=3{})',
    'daily("06:00", days=10, anchor="2024-01-05"{})',
    'weekly("sun", "02:30"{})',
    'weekly(["mon", "thu"], ["09:00", "18:00"]{})',
    'weekly(["sat", "sun"], "00:30", weeks=2{})',
    'weekly("wed", "23:59:59", weeks=3, anchor="2024-01-01"{})',
    'monthly(1, "00:00"{})',
    'monthly([31, -1], "02:00"{})',
    'monthly(31, "12:00", missing="last"{})',
    'monthly([-31, -1], "12:00"{})',
    'monthly(29, "12:00", months=12, anchor="2024-02-01"{})',
    'monthly([10, 20], "08:00", months=5{})',
]

OTHERS = [
    "every(seconds=1)",
    "every(seconds=0.2)",
    "every(seconds=90)",
    "every(minutes=45)",
    "every(hours=7)",
    "every(hours=24)",
    'every(hours=5, anchor="2024-01-01T00:00:00.125000Z")',
    'every(minutes=7, anchor="2030-01-01T00:00:00Z")',
    'once("2024-02-01T00:00:00Z", "2025-01-01T00:00:00.000001Z")',
]

BOUND = [
    "H * * * *",
    "H H * * *",
    "H H(0-5) * * *",
    "H/15 * * * *",
    "H H/6 * * *",
    "H(0-29)/10 * * * *",
    "H H H * *",
    "H H * H *",
    "H H * * H",
    "H H H(1-7) H(1-6) *",
    "0 H * * H/2",
]
NAMES = ["report", "nightly-reindex", "tenant-7", "größe"]


def wanted() -> list[dict[str, Any]]:
    lines = [line(f'cron("{expr}", timezone="{zone}")', zone) for zone in STARTS for expr in ANYWHERE]
    lines += [line(f'cron("{expr}", timezone="UTC")', "UTC") for expr in IN_UTC]
    lines += [
        line(f'cron("{expr}", seconds=True, timezone="{zone}")', zone)
        for expr in SIX
        for zone in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
    ]
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "America/Santiago"):
        lines += [line(text.format(f', timezone="{zone}"'), zone) for text in CALENDAR]
    for gap, fold in (("skip", "second"), ("shift", "both"), ("next", "both"), ("shift", "first")):
        options = "".join(f', {k}="{v}"' for k, v in (("gap", gap), ("fold", fold)) if v not in {"next", "first"})
        lines += [
            line(f'{start}, timezone="{zone}"{options})', zone)
            for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
            for start in ('cron("30 1,2 * * *"', 'cron("*/30 2 * * *"', 'daily(["01:15", "01:45", "02:15"]')
        ]
    lines += [line(text, "UTC") for text in OTHERS]
    for name in NAMES:
        lines += [line(f'cron("{expr}", timezone="Europe/Berlin")', "Europe/Berlin", name) for expr in BOUND]
        lines += [line("every(between=[30, 90])", "UTC", name), line("every(between=[0.5, 7200])", "UTC", name)]
    return lines


def line(text: str, zone: str, name: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"text": text, "after": STARTS[zone]}
    if name is not None:
        found = {"unbound": text, "name": name, "text": str(parse(text).bind(name)), "after": STARTS[zone]}
    return {**found, "next": ticks(parse(found["text"]), found["after"])}


def ticks(trigger: Trigger, after: str) -> list[str]:
    found: list[str] = []
    tick = trigger.next_after(datetime.fromisoformat(after))
    while tick is not None and len(found) < COUNT:
        found.append(tick.astimezone(UTC).isoformat().replace("+00:00", "Z"))
        tick = trigger.next_after(tick)
    return found


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row.get("unbound", row["text"]), row.get("name", ""), row["after"]


def main() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    there = {key(json.loads(text)) for text in lines}
    new = [json.dumps(row, ensure_ascii=False) for row in wanted() if key(row) not in there]
    FILE.write_text("".join(f"{text}\n" for text in [*lines, *new]), encoding="utf-8")
    print(f"{len(lines)} lines were there, {len(new)} added")


if __name__ == "__main__":
    main()
