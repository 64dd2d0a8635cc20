"""Triggers in words: what a person reads in `explain` and on the dashboard."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from oncron.triggers import Trigger, cron, daily, every, monthly, once, weekly

BERLIN = "Europe/Berlin"

CLAMPED = (
    "on the 31st and the 3rd last day of every 3rd month (or the nearest day that a month has) at 00:00, "
    "counted from 1970-01-01"
)
SAID: list[tuple[Trigger, str]] = [
    (cron("0 3 * * *", timezone=BERLIN), "every day at 03:00 (Europe/Berlin)"),
    (cron("0 0 13 * 5"), "on the 13th or on Fridays at 00:00"),
    (cron("* * * * *"), "every minute"),
    (cron("*/5 * * * *"), "every 5 minutes"),
    (cron("0 * * * *"), "every hour"),
    (cron("20 * * * *"), "every hour at minute 20"),
    (cron("0 */2 * * *"), "every 2 hours"),
    (cron("0 9-17 * * MON-FRI"), "every hour from 09:00 to 17:59 on Mondays to Fridays"),
    (cron("*/15 9-17 * * *"), "every 15 minutes from 09:00 to 17:59"),
    (cron("*/45 * * * *"), "at minutes 0 and 45 of every hour"),
    (cron("*/7 */3 * * *"), "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every 3rd hour"),
    (cron("0-29 3 * * *"), "every minute from 0 to 29 in the hour of 03:00"),
    (cron("0 6,18 * * *"), "every day at 06:00 and 18:00"),
    (cron("0 0 29 2 *"), "on the 29th in February at 00:00"),
    (cron("0 0 1-7 6-8 *"), "on the 1st to 7th in June to August at 00:00"),
    (cron("0 0 */2 * 1"), "on every 2nd day from the 1st to the 31st, only on Mondays, at 00:00"),
    (cron("0 0 L * *"), "on the last day at 00:00"),
    (cron("0 0 L-2 * *"), "on the 3rd last day at 00:00"),
    (cron("0 0 LW * *"), "on the last day from Monday to Friday at 00:00"),
    (cron("0 0 15W * *"), "on the day from Monday to Friday nearest to the 15th at 00:00"),
    (cron("0 0 * * 5L,MON#2"), "on the last Friday and the second Monday at 00:00"),
    (cron("0 0 * * 0"), "on Sundays at 00:00"),
    (cron("0 0 1 1 0-6"), "every day in January at 00:00"),
    (cron("* * * * * *", seconds=True), "every second"),
    (cron("*/10 * * * * *", seconds=True), "every 10 seconds"),
    (cron("30 * * * * *", seconds=True), "every minute at second 30"),
    (cron("* 3 * * * *", seconds=True), "every second of minute 3 of every hour"),
    (cron("30 */5 * * * *", seconds=True), "at second 30 of every 5th minute"),
    (cron("5 4 3 * * *", seconds=True), "every day at 03:04:05"),
    (cron("H 3 * * *"), "as H 3 * * *, each H a fixed value drawn from the schedule's name"),
    (
        cron("30 2 * * *", timezone=BERLIN, gap="skip", fold="both"),
        "every day at 02:30 (Europe/Berlin); a time that a clock change skips is dropped; a repeated time counts twice",
    ),
    (every(minutes=5), "every 5 minutes"),
    (every(seconds=1), "every second"),
    (every(hours=1.5), "every 1 hour 30 minutes"),
    (every(seconds=0.25), "every 0.25 seconds"),
    (
        every(hours=2, anchor=datetime(2026, 1, 1, tzinfo=UTC)),
        "every 2 hours, counted from 2026-01-01 00:00:00 UTC",
    ),
    (every(between=(30, 90)), "every 30 seconds to 1 minute 30 seconds, drawn from the schedule's name"),
    (daily("03:00", timezone=BERLIN), "every day at 03:00 (Europe/Berlin)"),
    (
        daily(["03:00", "04:00"], days=3, anchor=date(2026, 1, 1)),
        "every 3rd day at 03:00 and 04:00, counted from 2026-01-01",
    ),
    (weekly("mon-fri", "09:00"), "on Mondays to Fridays at 09:00"),
    (weekly("sun", "09:00", weeks=2), "every 2nd week on Sundays at 09:00, counted from 1970-01-01"),
    (monthly([1, -1], "00:00"), "on the 1st and the last day of every month at 00:00"),
    (
        monthly([31, -3], "00:00", months=3, missing="last"),
        CLAMPED,
    ),
    (once(datetime(2026, 1, 1, tzinfo=UTC)), "once, at 2026-01-01 00:00:00 UTC"),
    (
        once(*[datetime(2026, 1, d, tzinfo=UTC) for d in range(1, 9)]),
        "8 times, from 2026-01-01 00:00:00 UTC to 2026-01-08 00:00:00 UTC",
    ),
]


@pytest.mark.parametrize(("trigger", "said"), SAID, ids=[said for _, said in SAID])
def test_a_trigger_is_described_in_words(trigger: Trigger, said: str) -> None:
    assert trigger.describe() == said


@pytest.mark.parametrize(
    ("trigger", "warned"),
    [
        (cron("*/45 * * * *"), ["every(minutes=45) is even"]),
        (cron("*/7 * * * * *", seconds=True), ["every(seconds=7) is even"]),
        (cron("0 */5 * * *", timezone="UTC"), ["every(hours=5) is even"]),
        (cron("0 0 */3 * *"), ["starts anew every month"]),
        (cron("0 0 * */5 *"), ["starts anew every year"]),
        (cron("0 0 * * */2"), ["starts anew every Sunday"]),
        (cron("*/90 * * * *"), ["larger than the minute field"]),
        (cron("*/5 * * * *", gap="skip"), ["do not matter"]),
        (every(timedelta(days=1)), ["24 hours of elapsed time"]),
        (cron("*/5 * * * *", timezone=BERLIN), []),
        (cron("*/15 */6 * * *"), []),
        (cron("0 12 * * *", timezone=BERLIN), []),
        (every(hours=5), []),
        (daily("02:30", timezone="Asia/Tokyo"), []),
        (once(datetime(2026, 1, 1, tzinfo=UTC)), []),
        (cron("H/7 * * * *"), []),
    ],
)
def test_what_may_surprise_is_said(trigger: Trigger, warned: list[str]) -> None:
    found = trigger.warnings()
    assert len(found) == len(warned)
    assert all(part in sentence for part, sentence in zip(warned, found, strict=True))


def test_times_that_a_clock_change_touches_are_named_with_what_happens() -> None:
    for trigger in (cron("30 2 * * *", timezone=BERLIN), daily("02:30", timezone=BERLIN)):
        missing, twice = trigger.warnings()
        assert missing.startswith("02:30 does not exist on 20")
        assert "runs at 03:00" in missing
        assert twice.startswith("02:30 comes twice on 20")
        assert "fold='first'" in twice
    (shifted, _) = daily("02:30", timezone=BERLIN, gap="shift").warnings()
    assert "runs at 03:30" in shifted
    (left_out, _) = daily("02:30", timezone=BERLIN, gap="skip").warnings()
    assert "left out" in left_out
