"""What holds for every trigger, checked against a slow reading of the rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, assume, given, settings, strategies as st

from oncron.triggers import Trigger, cron, every, parse
from tests.unit.triggers.rules import ZONES, Pair, calendars, crons, starts
from tests.unit.triggers.slow import zone

SPAN = timedelta(days=2)
usual = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def ticks(trigger: Trigger, start: datetime, end: datetime) -> list[datetime]:
    return trigger.between(start, end)


@usual
@given(pair=crons(), start=starts())
def test_a_cron_expression_skips_nothing_and_invents_nothing(pair: Pair, start: datetime) -> None:
    assert ticks(pair.trigger, start, start + SPAN) == pair.slow.ticks(pair.zone, start, start + SPAN)


@settings(usual, max_examples=40)
@given(pair=crons(seconds=True), start=starts())
def test_six_fields_skip_nothing_and_invent_nothing(pair: Pair, start: datetime) -> None:
    end = start + timedelta(hours=3)
    assert ticks(pair.trigger, start, end) == pair.slow.ticks(pair.zone, start, end)


@usual
@given(pair=calendars(), start=starts())
def test_a_calendar_trigger_skips_nothing_and_invents_nothing(pair: Pair, start: datetime) -> None:
    end = start + timedelta(days=70)
    assert ticks(pair.trigger, start, end) == pair.slow.ticks(pair.zone, start, end)


@usual
@given(pair=crons() | calendars(), start=starts(1950, 2300))
def test_ticks_strictly_increase_and_lie_in_the_future(pair: Pair, start: datetime) -> None:
    previous = start
    for _ in range(20):
        following = pair.trigger.next_after(previous)
        if following is None:
            break
        assert following > previous
        assert following.tzinfo is UTC
        previous = following


@usual
@given(pair=crons() | calendars(), start=starts(), data=st.data())
def test_the_next_tick_is_a_function_of_the_instant_alone(pair: Pair, start: datetime, data: st.DataObject) -> None:
    """In any order of questions, in any zone, from a fresh trigger or a used one."""
    used, following = pair.trigger, pair.trigger.next_after(start)
    asked = [start + timedelta(seconds=data.draw(st.integers(-200_000, 200_000))) for _ in range(5)]
    for t in [*asked, start]:
        fresh = parse(str(used))
        elsewhere = t.astimezone(zone(data.draw(st.sampled_from(ZONES))))
        assert used.next_after(elsewhere) == fresh.next_after(t)
    assert used.next_after(start) == following
    if following is not None:
        for t in (start + (following - start) / 2, following - timedelta(microseconds=1)):
            assert used.next_after(t) == following or t < start


@usual
@given(pair=crons() | calendars())
def test_the_text_gives_the_same_trigger_back(pair: Pair) -> None:
    bound = pair.trigger.bind("a-name", "Asia/Tokyo")
    for trigger in (pair.trigger, bound):
        again = parse(str(trigger))
        assert (again, hash(again), str(again)) == (trigger, hash(trigger), str(trigger))
        assert again.describe() == trigger.describe()
        assert again.warnings() == trigger.warnings()


@usual
@given(pair=crons() | calendars(), start=starts(), span=st.integers(0, 40 * 86_400_000_000), n=st.integers(0, 12))
def test_counting_and_the_newest_ticks_agree_with_walking(pair: Pair, start: datetime, span: int, n: int) -> None:
    since = round(start.timestamp()) * 1_000_000
    walked: list[int] = []
    tick = pair.trigger.next_after_us(since)
    while tick is not None and tick <= since + span:
        walked.append(tick)
        tick = pair.trigger.next_after_us(tick)
    assume(len(walked) < 20_000)
    assert pair.trigger.count_between_us(since, since + span, 300) == (min(len(walked), 300), len(walked) > 300)
    assert pair.trigger.latest_in_us(since, since + span, n) == walked[len(walked) - min(n, len(walked)) :]


@usual
@given(
    period=st.integers(1, 10**12), anchor=st.integers(-(10**15), 10**15), a=st.integers(0, 10**15), n=st.integers(0, 9)
)
def test_interval_arithmetic_agrees_with_walking(period: int, anchor: int, a: int, n: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    trigger = every(timedelta(microseconds=period), anchor=epoch + timedelta(microseconds=anchor))
    assert parse(str(trigger)) == trigger
    walked: list[int] = []
    tick = a
    for _ in range(7):
        following = trigger.next_after_us(tick)
        assert following is not None
        assert following > tick
        assert (following - anchor) % period == 0
        assert following - tick <= period
        walked.append(following)
        tick = following
    assert trigger.count_between_us(a, walked[-1]) == (7, False)
    assert trigger.count_between_us(a, walked[-1], 3) == (3, True)
    assert trigger.count_between_us(a, walked[0] - 1) == (0, False)
    assert trigger.latest_in_us(a, walked[-1], n) == walked[7 - min(7, n) :]


@usual
@given(least=st.integers(1, 10**9), more=st.integers(2, 10**9), name=st.text(max_size=20), t=st.integers(0, 4 * 10**15))
def test_drawn_intervals_keep_their_bounds(least: int, more: int, name: str, t: int) -> None:
    unbound = every(between=(timedelta(microseconds=least), timedelta(microseconds=least + more)))
    trigger = unbound.bind(name)
    assert parse(str(trigger)) == trigger
    assert trigger == unbound.bind(name)
    previous = trigger.next_after_us(t)
    assert previous is not None
    for _ in range(10):
        following = trigger.next_after_us(previous)
        assert following is not None
        assert least <= following - previous <= least + more
        assert trigger.next_after_us(following - 1) == following
        previous = following


@settings(usual, max_examples=60)
@given(start=starts(2020, 2030))
def test_the_fold_of_a_question_does_not_matter(start: datetime) -> None:
    trigger = cron("*/7 * * * *", timezone="Europe/Berlin")
    for hours in (0, 1):
        local = datetime(start.year, 10, 25, 1 + hours, start.minute, tzinfo=ZoneInfo("UTC"))
        there = local.astimezone(zone("Europe/Berlin"))
        assert trigger.next_after(there) == trigger.next_after(local)
        assert trigger.next_after(there.replace(fold=there.fold)) == trigger.next_after(there.astimezone(UTC))
