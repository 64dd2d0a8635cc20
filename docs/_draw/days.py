"""The two days of a year on which the local clock jumps, and what each kind of schedule does on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from paper import BAD, BAND, FAINT, GOOD, GROUND, INK, MUTED, Paper

from oncron import Trigger, cron, daily, every

ZONE = "Europe/Berlin"
HALF = timedelta(minutes=30)
LEFT, STEP, TOP, ROW = 352, 74, 120, 54

Row = tuple[str, str, Trigger]
"""What one writes, what it does that day, and the trigger that says when."""


def over(ground: str) -> dict[str, object]:
    """For words that stand on a line."""
    return {"stroke": ground, "stroke_width": 5, "paint_order": "stroke"}


def local(instant: datetime) -> str:
    return f"{instant.astimezone(ZoneInfo(ZONE)):%H:%M}"


def day(paper: Paper, start: datetime, jump: datetime, end: datetime, rows: Sequence[Row]) -> None:
    def x(instant: datetime) -> float:
        return LEFT + (instant - start) / HALF * STEP

    bottom = TOP + ROW * len(rows) - 10
    paper.text(LEFT - 36, 58, "clock in Berlin", colour=MUTED, anchor="end")
    paper.text(LEFT - 36, 82, "UTC", colour=MUTED, anchor="end")
    before = local(jump - timedelta(microseconds=1))[:2]
    paper.box(x(jump) - 88, 8, 176, 22, fill=BAD)
    paper.text(
        x(jump), 24, f"{int(before) + 1:02}:00 becomes {local(jump)}", colour="#ffffff", anchor="middle", bold=True
    )
    instant = start
    while instant <= end:
        paper.line(x(instant), 90, x(instant), bottom, colour=FAINT, width=1)
        colour, bold = (BAD, True) if instant == jump else (INK, False)
        paper.text(x(instant), 58, local(instant), anchor="middle", mono=True, colour=colour, bold=bold)
        paper.text(x(instant), 82, f"{instant:%H:%M}", anchor="middle", mono=True, colour=MUTED, size=12)
        instant += HALF
    paper.line(x(jump), 90, x(jump), bottom, colour=BAD, width=1.5, dash="4 3")
    for number, (code, what, trigger) in enumerate(rows):
        middle = TOP + ROW * number + 8
        if number % 2 == 0:
            paper.box(10, middle - 24, paper.width - 20, ROW - 4, fill=BAND)
            paper.line(x(jump), middle - 24, x(jump), middle - 28 + ROW, colour=BAD, width=1.5, dash="4 3")
        paper.text(22, middle - 3, code, mono=True, size=12.5)
        paper.text(22, middle + 15, what, colour=MUTED, size=12)
        ground = BAND if number % 2 == 0 else GROUND
        paper.begin(class_="row", data_rule=str(trigger.bind("picture", ZONE)))
        for tick in trigger.between(start - timedelta(microseconds=1), end):
            paper.dot(x(tick), middle + 10, colour=GOOD, data_at=f"{tick:%Y-%m-%dT%H:%M:%SZ}")
            paper.text(
                x(tick), middle - 3, local(tick), anchor="middle", mono=True, size=11.5, colour=GOOD, **over(ground)
            )
        paper.end()


def gap() -> Paper:
    rows: list[Row] = [
        (
            'cron("*/30 * * * *")',
            "follows the clock: 02:00 and 02:30 are not there",
            cron("*/30 * * * *", timezone=ZONE),
        ),
        ('daily("02:30")', 'gap="next", the default: once, at the jump', daily("02:30", timezone=ZONE)),
        ('daily("02:30", gap="skip")', "not on that day", daily("02:30", timezone=ZONE, gap="skip")),
        ('daily("02:30", gap="shift")', "an hour on, as the clock", daily("02:30", timezone=ZONE, gap="shift")),
        ("every(minutes=30)", "elapsed time: nothing happened", every(minutes=30)),
    ]
    paper = Paper(
        LEFT + STEP * 5 + 50, TOP + ROW * len(rows) + 6, "The day on which an hour is missing",
        "On 28 March 2027 the clock in Berlin goes from 02:00 to 03:00. A cron rule that follows the clock "
        "has no ticks at 02:00 and 02:30. A job for 02:30 runs at 03:00 by default, not at all with gap=skip, "
        "at 03:30 with gap=shift. An interval goes on.",
    )  # fmt: skip
    day(paper, datetime(2027, 3, 28, 0, 0, tzinfo=UTC), datetime(2027, 3, 28, 1, 0, tzinfo=UTC),
        datetime(2027, 3, 28, 2, 30, tzinfo=UTC), rows)  # fmt: skip
    return paper


def fold() -> Paper:
    rows: list[Row] = [
        ('cron("*/30 * * * *")', "follows the clock: 02:00 and 02:30 come twice", cron("*/30 * * * *", timezone=ZONE)),
        ('daily("02:30")', 'fold="first", the default: once, the first time', daily("02:30", timezone=ZONE)),
        ('daily("02:30", fold="second")', "once, the second time", daily("02:30", timezone=ZONE, fold="second")),
        ('daily("02:30", fold="both")', "both times", daily("02:30", timezone=ZONE, fold="both")),
        ("every(minutes=30)", "elapsed time: nothing happened", every(minutes=30)),
    ]
    paper = Paper(
        LEFT + STEP * 6 + 50, TOP + ROW * len(rows) + 6, "The day on which an hour comes twice",
        "On 31 October 2027 the clock in Berlin goes from 03:00 back to 02:00. A cron rule that follows the "
        "clock ticks at 02:00 and 02:30 twice. A job for 02:30 runs the first time by default, the second "
        "time with fold=second, both times with fold=both. An interval goes on.",
    )  # fmt: skip
    day(paper, datetime(2027, 10, 30, 23, 30, tzinfo=UTC), datetime(2027, 10, 31, 1, 0, tzinfo=UTC),
        datetime(2027, 10, 31, 2, 30, tzinfo=UTC), rows)  # fmt: skip
    return paper
