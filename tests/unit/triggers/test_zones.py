"""Zones: the tables say what zoneinfo says, and the rules hold around every jump."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import random
import subprocess
import sys
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oncron.errors import InvalidTrigger
from oncron.triggers import cron, tzdata_version
from oncron.triggers.zones import load_zone, zone_names
from tests.unit.triggers.slow import SlowRule, zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def distinct_zones() -> list[str]:
    """One name for each different content."""
    found: dict[str, str] = {}
    for name in sorted(zone_names()):
        data = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
        found.setdefault(hashlib.sha256(data).hexdigest(), name)
    return sorted(found.values())


def offset_of(name: str, second: int) -> int:
    offset = (EPOCH + timedelta(seconds=second)).astimezone(zone(name)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def test_the_tables_say_what_zoneinfo_says_at_every_jump_and_anywhere_else() -> None:
    wrong: list[str] = []
    chance = random.Random(2026)
    for name in distinct_zones():
        table = load_zone(name)
        table.reach(int(datetime(2110, 1, 1, tzinfo=UTC).timestamp()))
        asked = {jump + step for jump in table.jumps if jump > -(10**10) for step in (-1, 0)}
        asked |= {chance.randrange(-4 * 10**9, 4 * 10**9) for _ in range(25)}
        wrong += [
            f"{name} at {second}"
            for second in asked
            if table.offsets[bisect_right(table.jumps, second)] != offset_of(name, second)
        ]
    assert wrong == []


def test_no_two_jumps_are_so_close_that_their_gaps_or_folds_meet() -> None:
    close = [
        name
        for name in distinct_zones()
        for before, after in zip(load_zone(name).jumps, load_zone(name).jumps[1:], strict=False)
        if after - before < 2 * 86_400
    ]
    assert close == []


def around(name: str, jump: int, minutes: set[int], hours: set[int], text: str, gap: str, fold: str) -> str | None:
    start = EPOCH + timedelta(seconds=jump - 4 * 3600)
    end = start + timedelta(hours=8)
    trigger = cron(text, timezone=name, gap=gap, fold=fold)  # pyright: ignore[reportArgumentType]
    rule = SlowRule(
        lambda _: True,
        frozenset(hours),
        frozenset(minutes),
        follows_clock=text.startswith("*"),
        gap=gap,
        fold=fold,
    )
    got, expected = trigger.between(start, end), rule.ticks(name, start, end)
    return None if got == expected else f"{trigger} from {start}: {got} is not {expected}"


def jumps(oldest: int) -> list[tuple[str, int]]:
    last = int(datetime(2040, 1, 1, tzinfo=UTC).timestamp())
    return [(name, jump) for name in distinct_zones() for jump in load_zone(name).jumps if oldest <= jump < last]


def wrong_around(chosen: list[tuple[str, int]]) -> list[str]:
    found: list[str | None] = []
    chance = random.Random(len(chosen))
    options = [(gap, fold) for gap in ("next", "skip", "shift") for fold in ("first", "second", "both")]
    every_hour = set(range(24))
    for name, jump in chosen:
        gap, fold = chance.choice(options)
        minute = chance.randrange(60)
        found.append(around(name, jump, set(range(0, 60, 20)), every_hour, "*/20 * * * *", gap, fold))
        found.append(around(name, jump, {0, 30, minute}, every_hour, f"0,30,{minute} 0-23 * * *", gap, fold))
        hour = offset_hour(name, jump)
        found.append(around(name, jump, {minute}, {hour}, f"{minute} {hour} * * *", gap, fold))
    return [line for line in found if line is not None]


def offset_hour(name: str, jump: int) -> int:
    """The local hour in which a jump happens, by the old offset."""
    return (jump + offset_of(name, jump - 1)) // 3600 % 24


def test_the_rules_hold_around_a_sample_of_all_jumps() -> None:
    recent = jumps(int(datetime(1950, 1, 1, tzinfo=UTC).timestamp()))
    assert wrong_around(random.Random(1).sample(recent, 250)) == []


@pytest.mark.long
def test_the_rules_hold_around_all_jumps() -> None:
    assert wrong_around(jumps(int(datetime(1890, 1, 1, tzinfo=UTC).timestamp()))) == []


def test_the_whole_lost_day_of_samoa_has_no_ticks() -> None:
    daily = cron("0 12 * * *", timezone="Pacific/Apia")
    ticks = daily.between(datetime(2011, 12, 29, tzinfo=UTC), datetime(2012, 1, 1, tzinfo=UTC))
    assert [tick.astimezone(zone("Pacific/Apia")).day for tick in ticks] == [29, 31, 1]


def test_rules_run_on_to_the_end_of_the_calendar() -> None:
    trigger = cron("30 2 * * *", timezone="Europe/Berlin")
    last = datetime(9999, 12, 31, 1, 30, tzinfo=UTC)
    assert trigger.next_after(last - timedelta(hours=2)) == last
    assert trigger.next_after(last) is None
    assert trigger.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert trigger.next_after(datetime.min.replace(tzinfo=UTC)) is not None
    west = cron("0 * * * *", timezone="America/New_York").bind("x")
    assert west.next_after(datetime(9999, 12, 31, 22, 30, tzinfo=UTC)) == datetime(9999, 12, 31, 23, tzinfo=UTC)
    assert west.next_after(datetime(9999, 12, 31, 23, tzinfo=UTC)) is None
    summer = cron("30 12 1 7 *", timezone="Europe/Berlin").next_after(datetime(2999, 1, 1, tzinfo=UTC))
    assert summer == datetime(2999, 7, 1, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "near"),
    [("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin"), ("America/NewYork", "America/New_York")],
)
def test_an_unknown_zone_is_refused_with_the_nearest_names(name: str, near: str) -> None:
    with pytest.raises(InvalidTrigger, match=near) as caught:
        cron("0 3 * * *", timezone=name)
    assert caught.value.field == "timezone"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "", "/etc/localtime", "Europe", "x" * 10_000, "Europe/Berlin\0", 5]
)
def test_what_is_no_zone_at_all_is_refused(name: object) -> None:
    with pytest.raises(InvalidTrigger, match="zone"):
        cron("0 3 * * *", timezone=name)  # type: ignore[arg-type]


def test_the_version_of_the_rules_is_that_of_the_tzdata_package() -> None:
    import tzdata

    assert tzdata_version() == tzdata.IANA_VERSION


def test_the_hosts_zone_and_zone_files_are_never_read(tmp_path: Path) -> None:
    script = (
        "from datetime import UTC, datetime\n"
        "from oncron.triggers import cron, daily, every\n"
        "t = datetime(2026, 3, 28, tzinfo=UTC)\n"
        "berlin = cron('30 2 * * *', timezone='Europe/Berlin')\n"
        "for trigger in (berlin, cron('0 0 * * *'), daily('00:00'), every(hours=7)):\n"
        "    print(trigger, *trigger.between(t, t.replace(month=4, day=1)))\n"
    )
    answers: set[str] = set()
    for host in ("Pacific/Chatham", "America/New_York", ":/nonsense"):
        environment = {**os.environ, "TZ": host, "PYTHONTZPATH": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        answers.add(ran.stdout)
    assert len(answers) == 1
    assert "2026-03-29 01:00:00+00:00" in answers.pop()
