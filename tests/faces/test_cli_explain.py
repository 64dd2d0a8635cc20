"""`oncron explain`: words, instants, and what clock changes do."""

from __future__ import annotations

from datetime import datetime

import pytest

from oncron import cron, daily, every
from oncron._clock import to_us
from oncron._clock_changes import clock_changes

JANUARY = to_us(datetime.fromisoformat("2027-01-01T00:00:00Z"))


def effects(trigger) -> list[str]:
    return [change.what for change in clock_changes(trigger.bind("s", "Europe/Berlin"), JANUARY)]


def test_it_says_the_words_and_the_next_instants_in_both_zones(oncron):
    told = oncron("explain", "30 2 * * mon-fri", "--timezone", "Europe/Berlin", "-n", "3")
    assert told.code == 0
    assert "02:30" in told.out
    assert "Europe/Berlin" in told.out
    assert len([line for line in told.out.splitlines() if " 02:30:00+0" in line]) == 3


def test_its_json_is_one_object(oncron):
    told = oncron("explain", "0 3 * * *", "-n", "2", "--json").json
    assert told["trigger"] == 'cron("0 3 * * *", timezone="UTC")'
    assert told["timezone"] == "UTC"
    assert [set(item) for item in told["next"]] == [{"at", "local"}] * 2
    assert told["next"][0]["at"].endswith("T03:00:00Z")
    assert told["clock_changes"] == []


def test_the_text_that_show_prints_is_understood(oncron):
    assert oncron("explain", 'daily("08:00", timezone="Asia/Tokyo")', "--json").json["timezone"] == "Asia/Tokyo"
    assert "clock changes do not touch it" in oncron("explain", "every(minutes=5)").out


def test_it_shows_ten_instants_and_says_so_if_the_clocks_never_change(oncron):
    told = oncron("explain", "45 1 * * *", "--timezone", "Asia/Tokyo").out
    assert told.count(" 01:45:00+09:00") == 10
    assert "The clocks of Asia/Tokyo do not change in the coming 3 years." in told
    assert "The clocks of UTC do not change" in oncron("explain", "0 3 * * *").out


GONE, TWICE = "02:30 does not exist that day", "02:30 comes twice"
EFFECTS = [
    (cron("30 2 * * *"), [f"{GONE}: runs at 03:00", f"{TWICE}: runs the first time only"]),
    (cron("30 2 * * *", gap="skip", fold="second"), [f"{GONE}: left out", f"{TWICE}: runs the second time only"]),
    (cron("30 2 * * *", gap="shift", fold="both"), [f"{GONE}: runs at 03:30", f"{TWICE}: runs both times"]),
    (
        cron("*/30 * * * *"),
        ["02:00, 02:30 do not exist that day: left out", "02:00, 02:30 come twice: runs both times"],
    ),
    (
        daily(["02:10", "02:50", "05:00"]),
        ["02:10, 02:50 do not exist that day: runs at 03:00", "02:10, 02:50 come twice: runs the first time only"],
    ),
    (cron("0 5 * * *"), ["touches no tick", "touches no tick"]),
    (every(minutes=5), []),
]


@pytest.mark.parametrize(("trigger", "what"), EFFECTS, ids=[str(trigger) for trigger, _ in EFFECTS])
def test_what_a_clock_change_does_is_what_the_trigger_does(trigger, what):
    assert effects(trigger) == what


def test_a_value_drawn_from_the_name_needs_the_name(oncron):
    refused = oncron("explain", "H 3 * * *")
    assert refused.code == 2
    assert "--name" in refused.err
    assert oncron("explain", "H 3 * * *", "--name", "nightly").code == 0


def test_surprises_are_said(oncron):
    assert "starts anew every hour" in oncron("explain", "*/7 * * * *").out
    assert oncron("explain", "*/7 * * * *", "--json").json["warnings"]


def test_six_fields_need_seconds(oncron):
    assert oncron("explain", "*/10 * * * * *").code == 2
    assert oncron("explain", "*/10 * * * * *", "--seconds", "-n", "1").code == 0
