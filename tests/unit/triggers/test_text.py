"""Trigger texts: total to read, the same back, and refused with a sentence."""

from __future__ import annotations

import importlib
import time
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given, settings, strategies as st

from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, cron, daily, every, monthly, once, parse, weekly
from oncron.triggers.fields import parse_field

ANCHOR = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)

TEXTS = {
    'cron("0 3 * * *")': cron("0 3 * * *"),
    'cron("0 3 * * *", timezone="Europe/Berlin")': cron(" 0\t3  * * * ", timezone="Europe/Berlin"),
    'cron("0 3 * * *", gap="shift", fold="both")': cron("0 3 * * *", gap="shift", fold="both"),
    'cron("*/5 0 3 * * *", seconds=True)': cron("*/5 0 3 * * *", seconds=True),
    'cron("30 3 * * *")': cron("00 30 3 * * *", seconds=True),
    'cron("@daily", timezone="UTC")': cron(" @Daily ", timezone="UTC"),
    'cron("H H(0-5) * * *")': cron("H H(0-5) * * *"),
    "every(hours=2)": every(minutes=120),
    "every(minutes=90)": every(hours=1.5),
    "every(seconds=0.000001)": every(timedelta(microseconds=1)),
    "every(seconds=61.5)": every(minutes=1, seconds=1.5),
    'every(hours=1, anchor="2026-01-01T00:00:00.250000Z")': every(hours=1, anchor=ANCHOR),
    "every(between=[30, 90.5])": every(between=(30, timedelta(seconds=90.5))),
    'daily("03:00")': daily("3:00"),
    'daily(["03:00", "21:30:15"], days=3, anchor="2026-01-05")': daily(
        ["21:30:15", "03:00", "3:00"], days=3, anchor=date(2026, 1, 5)
    ),
    'weekly(["mon", "tue", "sun"], "09:00", weeks=2)': weekly(["mon-tue", 0], "09:00", weeks=2),
    'monthly([1, -1], "00:00", missing="last", timezone="Asia/Tokyo")': monthly(
        [-1, 1], "00:00", missing="last", timezone="Asia/Tokyo"
    ),
    'once("2026-01-01T00:00:00.250000Z", "2026-01-02T00:00:00Z")': once(datetime(2026, 1, 2, tzinfo=UTC), ANCHOR),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_trigger_writes_its_canonical_text_and_reads_it_back(text: str) -> None:
    trigger = TEXTS[text]
    assert str(trigger) == text
    assert parse(text) == trigger
    assert repr(trigger) == text


def test_bound_text_needs_nothing_else() -> None:
    hashed = cron("H H(1-4) * * *", timezone="Asia/Tokyo").bind("report", "Europe/Berlin")
    assert "H" not in str(hashed).split('"')[1]
    assert hashed.timezone == "Asia/Tokyo"
    drawn = every(between=(30, 90)).bind("report")
    for bound in (hashed, drawn):
        again = parse(str(bound))
        t = datetime(2026, 5, 1, tzinfo=UTC)
        assert again.is_bound
        assert again == bound == again.bind("another name", "UTC")
        assert again.next_after(t) == bound.next_after(t)


def test_binding_fills_the_zone_in_only_where_there_is_none() -> None:
    unbound = cron("0 3 * * *")
    assert (unbound.timezone, unbound.is_bound) == (None, False)
    assert unbound.bind("a", "Europe/Berlin").timezone == "Europe/Berlin"
    assert unbound.bind("a").timezone == "UTC"
    assert unbound.bind("a").next_after(ANCHOR) == unbound.next_after(ANCHOR)
    assert daily("3:00").bind("a", "Asia/Tokyo").timezone == "Asia/Tokyo"
    assert daily("3:00", timezone="Asia/Tokyo").bind("a", "UTC").timezone == "Asia/Tokyo"
    assert every(hours=1).bind("a", "Asia/Tokyo") == every(hours=1)
    with pytest.raises(InvalidTrigger, match="no such time zone"):
        unbound.bind("a", "Mars/Olympus")


def test_triggers_are_equal_if_their_texts_are() -> None:
    assert cron("0 3 * * *") == cron("0  3 * * *")
    assert cron("0 3 * * *") != cron("0 3 * * *", timezone="UTC")
    assert cron("0 3 * * *") != daily("03:00")
    assert cron("0 3 * * *") != 'cron("0 3 * * *")'
    assert len({every(hours=1), every(minutes=60), every(timedelta(hours=1))}) == 1


REFUSED = (
    "",
    "0 3 * * *",
    "@daily",
    "cron",
    "cron(",
    "cron()",
    "cron)",
    'cron("0 3 * * *"',
    'cron("0 3 * * *") ',
    'cron("0 3 * * *",)',
    'cron("0 3 * * *", )',
    'cron("0 3 * * *" "x")',
    "cron('0 3 * * *')",
    'cron(["0 3 * * *"])',
    'cron("0 3 * * *", timezone=5)',
    'cron("0 3 * * *", timezone=["UTC"])',
    'cron("0 3 * * *", seconds="x")',
    'cron("0 3 * * *", gap=["next"])',
    'cron("0 3 * * *", gap="next", gap="next")',
    'cron("0 3 * * *", other=1)',
    'cron(expr="0 3 * * *")',
    "cron(5)",
    'eval("1")',
    '__import__("os")',
    "every()",
    "every(5)",
    "every(hours=0)",
    "every(hours=-1)",
    'every(hours="1")',
    "every(hours=True)",
    "every(hours=[1])",
    "every(days=1)",
    "every(hours=999999999999999999)",
    'every(hours=1, anchor="yesterday")',
    'every(hours=1, anchor="2026-01-01T00:00:00")',
    "every(hours=1, anchor=5)",
    'every(hours=1, seed="0123456789abcdef")',
    "every(between=30)",
    "every(between=[30])",
    "every(between=[30, 90, 120])",
    'every(between=["a", "b"])',
    "every(between=[90, 30])",
    "every(between=[30, 90], hours=1)",
    'every(between=[30, 90], seed="x")',
    "daily()",
    "daily(5)",
    'daily("25:00")',
    "daily([])",
    'daily("03:00", days=0)',
    'daily("03:00", days=1.5)',
    'daily("03:00", days=999999999999999999)',
    'daily("03:00", anchor="x")',
    'daily("03:00", anchor=5)',
    'weekly("mon")',
    'weekly("monday", "03:00")',
    'weekly(8, "03:00")',
    'weekly("fri-tue", "03:00")',
    'monthly(0, "03:00")',
    'monthly(32, "03:00")',
    'monthly("1", "03:00")',
    'monthly(True, "03:00")',
    'monthly(30, "03:00", months=12, anchor="2026-02-01")',
    'monthly(1, "03:00", missing="x")',
    "once()",
    "once(5)",
    'once("x")',
    'once("2026-01-01T00:00:00")',
    'once("2026-01-01T00:00:00Z", timezone="UTC")',
    "x" * 100_000,
    'cron("' + "0" * 70_000 + '")',
    "every(between=[" + "1, " * 20_000 + "1])",
    "[" * 60_000,
    "cron(" * 10_000,
)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidTrigger):
        parse(text)


@pytest.mark.parametrize("text", [None, 5, 1.5, b"cron", [], {}, object(), datetime.now(UTC), ("cron",)])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(InvalidTrigger):
        parse(text)  # type: ignore[arg-type]
    with pytest.raises(InvalidTrigger):
        cron(text)  # type: ignore[arg-type]


crony = st.text(alphabet="*/,-?#LWH0123456789 MONFRIabc@()\t\n=\x00é５", max_size=60)
texty = st.text(alphabet='cronevrydailwkmthus("=[],)0123456789*/ TrueFalse.-:', max_size=80)


@settings(max_examples=400, deadline=None)
@given(text=st.one_of(st.text(max_size=300), crony))
@example("0 0 * * \udc80")
@example("\ud800")
@example("5" * 256)
@example("* * * * " + "1," * 124)
def test_an_expression_is_a_trigger_or_an_invalid_trigger(text: str) -> None:
    for seconds in (False, True):
        try:
            found = cron(text, seconds=seconds)
        except InvalidTrigger:
            continue
        assert parse(str(found)) == found


@settings(max_examples=400, deadline=None)
@given(text=st.one_of(st.text(max_size=300), texty, st.sampled_from(sorted(TEXTS))), cut=st.integers(0, 60), put=texty)
def test_a_text_is_a_trigger_or_an_invalid_trigger(text: str, cut: int, put: str) -> None:
    for mutated in (text, text[:cut] + put[:3] + text[cut + 1 :]):
        try:
            found: Trigger = parse(mutated)
        except InvalidTrigger:
            continue
        assert parse(str(found)) == found


def forget() -> None:
    """Empty the caches of parsed fields."""
    module = importlib.import_module("oncron.triggers.cron")
    for cached in (parse_field, module._days, module._times):
        cached.cache_clear()


HOSTILE = (
    "*" * 256,
    "*," * 128,
    "1-1," * 63 + "1 *",
    "* * * * " + "MON-" * 62,
    "*/1" * 85,
    "L" * 256,
    "H" * 250 + " * * *",
    "H(" * 125,
    "0 0 " + ",".join(["31W"] * 60) + " 2 *",
    "0 0 " + ",".join(f"L-{n}" for n in range(1, 31)) + " * " + ",".join(f"{n}#5" for n in range(7)),
    "0-" + "9" * 250,
    "0 0 * * " + "#" * 240,
    "@" * 256,
    "\x00" * 256,
    "５" * 256,
    " " * 256,
    "\t" * 256,
    "x" * 1_000_000,
    "0 0 * * 5" + "L" * 200,
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_hostile_expressions_are_answered_within_a_millisecond(text: str) -> None:
    fastest = 1.0
    for _ in range(7):
        forget()
        started = time.perf_counter()
        for seconds in (False, True):
            try:
                cron(text, seconds=seconds)
            except InvalidTrigger:
                pass
        fastest = min(fastest, (time.perf_counter() - started) / 2)
    assert fastest < 0.001


@pytest.mark.parametrize("t", [datetime(2026, 1, 1), None, 5, "2026-01-01", date(2026, 1, 1)])
def test_only_an_aware_datetime_is_an_instant(t: object) -> None:
    for trigger in TEXTS.values():
        with pytest.raises(InvalidTrigger, match=r"datetime"):
            trigger.bind("x").next_after(t)  # type: ignore[arg-type]


def test_a_naive_datetime_is_told_how_to_become_an_instant() -> None:
    with pytest.raises(InvalidTrigger, match=r"tzinfo=ZoneInfo"):
        cron("* * * * *").next_after(datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="naive"):
        cron("* * * * *").between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2))


@pytest.mark.parametrize(
    ("expr", "field", "said"),
    [
        ("61 * * * *", "minute", "0 to 59"),
        ("* 24 * * *", "hour", "0 to 23"),
        ("* * 0 * *", "day of month", "1 to 31"),
        ("* * * 13 *", "month", "1 to 12"),
        ("* * * * 8", "day of week", "Sunday is 0 or 7"),
        ("* * * FOO *", "month", "JAN"),
        ("* * * * FOO", "day of week", "MON"),
        ("30-10 * * * *", "minute", "30-59,0-10"),
        ("*/0 * * * *", "minute", "1 or more"),
        ("0 0 ? * 2", "day of month", "Quartz"),
        ("0 0 * * ?", "day of week", "Sunday"),
        ("0 0 W15 * *", "day of month", "15W"),
        ("0 0 * * L5", "day of week", "5L"),
        ("0 0 * * 5#L", "day of week", "5L"),
        ("0 0 * * 5#6", "day of week", "FRI#2"),
        ("5;x * * * *", "minute", "list"),
        ("** * * * *", "minute", "single"),
        ("*/5/2 * * * *", "minute", "one step"),
        ("1-2-3 * * * *", "minute", "a-b"),
        ("CRON_TZ=Asia/Tokyo 0 3 * * *", "expression", "timezone='Asia/Tokyo'"),
        ("TZ=UTC 0 3 * * *", "expression", "timezone='UTC'"),
        ("@reboot", "expression", "program starts"),
        ("@every 5m", "expression", "every("),
        ("@fortnightly", "expression", "@weekly"),
        ("@daily *", "expression", "without the rest"),
        ("* * * *", "expression", "4 fields"),
        ("0 0 12 1 1 * 2026", "expression", "7 fields"),
        ("0 3 * * * root", "expression", "user column"),
        ("0 0 30 2 *", "day of month", "no such date"),
        ("0 0 L-31 * *", "day of month", "L-30"),
        ("H(5-70) * * * *", "minute", "0-59"),
        ("H/0 * * * *", "minute", "1 or more"),
        ("H5 * * * *", "minute", "H(0-29)"),
        ("5 0 * * \uff15", "day of week", "ASCII"),
    ],
)
def test_a_refusal_names_the_field_and_the_mend(expr: str, field: str, said: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(expr)
    assert caught.value.field == field
    assert said in str(caught.value)


def test_seconds_need_six_fields_and_six_fields_need_seconds() -> None:
    with pytest.raises(InvalidTrigger, match="seconds=True"):
        cron("0 0 3 * * *")
    with pytest.raises(InvalidTrigger, match="5 fields where 6"):
        cron("0 3 * * *", seconds=True)
