"""ManualClock: what falls due runs at its instant, as it would in production, and time is moved by hand."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies

from oncron import GiveUp, Oncron, RetryIn, RunContext, Trigger, backoff, cron, daily, every, limits, once, weekly
from oncron.errors import AlreadyRunning, DefinitionError, InvalidOption, Stopped
from oncron.testing import ManualClock

MARCH = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def app() -> Oncron:
    return Oncron("memory://")


@pytest.fixture
def clock(app: Oncron) -> Iterator[ManualClock]:
    with ManualClock(app, MARCH) as clock:
        yield clock


def minutes(*each: int) -> list[datetime]:
    return [MARCH + timedelta(minutes=minute) for minute in each]


# --- ticks ------------------------------------------------------------------------------


def test_every_tick_of_the_stretch_runs_once_with_the_clock_at_its_instant(app: Oncron, clock: ManualClock) -> None:
    seen: list[tuple[datetime | None, datetime]] = []

    @app.schedule(every(minutes=15))
    def look(ctx: RunContext) -> None:
        seen.append((ctx.tick, clock.now))

    runs = app.sync(clock.advance(timedelta(hours=1)))

    assert [run.tick for run in runs] == minutes(15, 30, 45, 60)
    assert seen == [(tick, tick) for tick in minutes(15, 30, 45, 60)]
    assert {run.state for run in runs} == {"succeeded"}
    assert clock.now == MARCH + timedelta(hours=1)


def test_a_schedule_of_the_users_zone_crosses_its_clock_change(app: Oncron, clock: ManualClock) -> None:
    @app.schedule(daily("02:30", timezone="Europe/Berlin"))
    async def report() -> None: ...

    app.sync(clock.advance(timedelta(days=30)))

    assert clock.fired("report")[-3:] == [
        datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ]


@settings(max_examples=30, deadline=None)
@given(
    triggers=strategies.lists(
        strategies.sampled_from([
            every(minutes=7), every(hours=5), every(between=(600, 5000)),
            cron("*/20 2 * * *", timezone="Europe/Berlin"),
            cron("H H * * *"), daily(["01:30", "02:30"], timezone="America/New_York"), weekly("sat,sun", "02:30"),
        ]),
        min_size=1, max_size=4,
    ),
    steps=strategies.lists(strategies.integers(0, 100_000), min_size=1, max_size=5),
    start=strategies.datetimes(datetime(2026, 3, 1), datetime(2026, 11, 5), timezones=strategies.just(UTC)),
)  # fmt: skip
def test_whatever_the_steps_exactly_the_triggers_ticks_become_runs(
    triggers: list[Trigger], steps: list[int], start: datetime
) -> None:
    app = Oncron("memory://")
    task = app.task(nothing, name="nothing")
    with ManualClock(app, start) as clock:
        for number, trigger in enumerate(triggers):
            app.add_schedule(f"s{number}", trigger, task)
        app.sync(clock.run_due())
        for step in steps:
            app.sync(clock.advance(step))
        assert clock.now == start + timedelta(seconds=sum(steps))
        for number, trigger in enumerate(triggers):
            expected = trigger.bind(f"s{number}", "UTC").between(start, clock.now)
            assert clock.fired(f"s{number}") == list(expected)


def test_run_due_moves_nothing_and_runs_what_is_due_now(app: Oncron, clock: ManualClock) -> None:
    @app.schedule(every(minutes=15))
    def look() -> None: ...

    @app.task
    def mail() -> str:
        return "sent"

    mail.enqueue_sync()
    runs = app.sync(clock.run_due())

    assert [(run.task, run.result) for run in runs] == [("mail", "sent")]
    assert clock.now == MARCH
    assert app.sync(clock.run_due()) == []


def test_ticks_of_an_outage_are_ruled_by_missed(app: Oncron, clock: ManualClock) -> None:
    @app.schedule(every(hours=1), missed="latest")
    def newest() -> None: ...

    @app.schedule(every(hours=1), missed="all")
    def each() -> None: ...

    @app.schedule(every(hours=1), missed="skip")
    def none() -> None: ...

    app.sync(clock.outage(timedelta(hours=5, minutes=30)))

    assert clock.fired("newest") == minutes(300)
    assert clock.fired("each") == minutes(60, 120, 180, 240, 300)
    assert clock.fired("none") == []


def test_a_schedule_paused_in_the_test_does_not_tick(app: Oncron, clock: ManualClock) -> None:
    @app.schedule(every(minutes=10))
    def look() -> None: ...

    app.sync(app.pause("look"))
    app.sync(clock.advance(3600))
    clock.assert_not_fired("look")

    app.sync(app.resume("look"))
    app.sync(clock.advance(1200))
    clock.assert_fired("look", *minutes(70, 80))


def test_jitter_once_limits_and_windows_are_as_in_production(app: Oncron, clock: ManualClock) -> None:
    @app.schedule(every(minutes=10), jitter=300, limit=2)
    def shaken(ctx: RunContext) -> None:
        assert ctx.due_at <= clock.now

    @app.schedule(once(MARCH + timedelta(minutes=7)), missed_within=timedelta(days=36500))
    def single() -> None: ...

    runs = app.sync(clock.advance(timedelta(hours=1)))

    assert clock.fired("shaken") == minutes(10, 20)
    assert clock.fired("single") == minutes(7)
    assert all(run.due_at >= run.tick for run in runs if run.tick)


def test_a_schedule_put_at_run_time_and_one_declared_meanwhile_tick_from_now_on(
    app: Oncron, clock: ManualClock
) -> None:
    @app.task
    def sync_tenant(tenant: int) -> int:
        return tenant

    app.sync(clock.advance(timedelta(minutes=5)))
    app.sync(app.put_schedule("tenant-7", cron("*/15 * * * *"), "sync_tenant", args={"tenant": 7}))
    app.add_schedule("tenant-8", every(minutes=20), sync_tenant, args={"tenant": 8})

    runs = app.sync(clock.advance(timedelta(minutes=30)))

    assert [(run.schedule, run.result, run.tick) for run in runs] == [
        ("tenant-7", 7, minutes(15)[0]),
        ("tenant-8", 8, minutes(20)[0]),
        ("tenant-7", 7, minutes(30)[0]),
    ]


# --- runs -------------------------------------------------------------------------------


def test_delayed_runs_and_retries_come_at_their_instants(app: Oncron, clock: ManualClock) -> None:
    tries: list[datetime] = []

    @app.task(retries=2, backoff=backoff.fixed(60))
    async def flaky() -> str:
        tries.append(clock.now)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "at last"

    flaky.options(delay=600).enqueue_sync()
    assert app.sync(clock.advance(599)) == []
    (run,) = app.sync(clock.advance(timedelta(minutes=5)))

    assert (run.state, run.attempt, run.result) == ("succeeded", 3, "at last")
    assert tries[0] == MARCH + timedelta(seconds=600)
    assert all(timedelta(0) < later - earlier <= timedelta(seconds=60) for earlier, later in itertools.pairwise(tries))


def test_give_up_retry_in_and_a_failure_end_as_they_do_in_production(app: Oncron, clock: ManualClock) -> None:
    @app.task
    def gives_up() -> None:
        raise GiveUp("no use")

    @app.task
    def later(ctx: RunContext) -> int:
        if ctx.attempt == 1:
            raise RetryIn(90)
        return ctx.attempt

    @app.task(retries=0)
    def fails() -> None:
        raise KeyError("x")

    for task in (gives_up, later, fails):
        task.enqueue_sync()
    app.sync(clock.advance(89))
    assert {run.task: run.state.value for run in clock.runs} == {
        "gives_up": "failed", "later": "pending", "fails": "failed",
    }  # fmt: skip
    app.sync(clock.advance(1))
    assert clock.enqueued(later)[0].result == 2


def test_a_task_that_sleeps_takes_time_of_this_clock_and_overlap_is_judged_by_it(
    app: Oncron, clock: ManualClock
) -> None:
    @app.schedule(every(minutes=1))
    async def slow() -> None:
        await clock.sleep(150)

    @app.schedule(every(minutes=1), overlap="allow")
    def blocking() -> None:
        clock.block(150)

    app.sync(clock.advance(timedelta(minutes=6)))

    assert clock.fired("slow") == minutes(1, 4)
    assert clock.fired("blocking") == minutes(1, 2, 3, 4, 5, 6)
    assert "still open" in str(app.sync(app.why("slow", MARCH + timedelta(minutes=2))))


def test_a_timeout_strikes_by_this_clock(app: Oncron, clock: ManualClock) -> None:
    ended: list[datetime] = []

    @app.task(timeout=60, retries=0)
    async def hangs() -> None:
        try:
            await clock.sleep(3600)
        finally:
            ended.append(clock.now)

    hangs.enqueue_sync()
    app.sync(clock.run_due())
    assert clock.runs[0].state == "running"
    (run,) = app.sync(clock.advance(timedelta(hours=2)))

    assert run.state == "failed"
    assert "TimeoutError" in (run.reason or "")
    assert ended == [MARCH + timedelta(seconds=60)]


def test_a_timeout_strikes_in_real_time_as_well(app: Oncron, clock: ManualClock) -> None:
    @app.task(timeout=0.05, retries=0)
    async def hangs() -> None:
        await asyncio.Event().wait()

    hangs.enqueue_sync()
    (run,) = app.sync(clock.run_due())
    assert run.state == "failed"


def test_overlap_cancel_and_a_cancel_by_hand_stop_a_sleeping_run(app: Oncron, clock: ManualClock) -> None:
    @app.schedule(every(minutes=1), overlap="cancel")
    async def slow() -> None:
        await clock.sleep(3600)

    app.sync(clock.advance(60))
    first = clock.runs[0]
    app.sync(clock.advance(60))
    assert app.sync(app.get_run(first.id)).state == "cancelled"

    second = clock.runs[1]
    app.sync(app.cancel(second.id))
    app.sync(clock.run_due())
    assert app.sync(app.get_run(second.id)).state == "cancelled"


def test_what_tasks_enqueue_runs_too_and_a_task_may_wait_for_its_own_run(app: Oncron, clock: ManualClock) -> None:
    @app.task
    def leaf(n: int) -> int:
        return n * 2

    @app.task
    async def parent(ctx: RunContext) -> int:
        run = await leaf.enqueue(n=4)
        ctx.enqueue(leaf, n=5)
        return await run.wait(5)

    parent.enqueue_sync()
    runs = app.sync(clock.run_due())

    assert sorted(run.result for run in runs) == [8, 8, 10]
    assert [run.args["n"] for run in clock.assert_enqueued(leaf, times=2)] == [4, 5]


def test_two_runs_that_sleep_at_once_share_the_time(app: Oncron, clock: ManualClock) -> None:
    @app.task
    async def both() -> list[str]:
        a = asyncio.create_task(clock.sleep(10, "a"))
        b = asyncio.create_task(clock.sleep(20, "b"))
        return [await a, await b]

    both.enqueue_sync()
    both.enqueue_sync()
    app.sync(clock.advance(20))
    assert [run.result for run in clock.runs] == [["a", "b"], ["a", "b"]]


def test_a_limiter_waits_by_this_clock_in_async_and_in_sync_tasks(app: Oncron, clock: ManualClock) -> None:
    slow = app.limiter("slow", limits.window(1, per=60), policy="wait")
    ran: list[tuple[str, int]] = []

    @app.task
    async def on_loop() -> None:
        async with slow:
            ran.append(("loop", round((clock.now - MARCH).total_seconds())))

    @app.task
    def in_thread() -> None:
        with slow:
            ran.append(("thread", round((clock.now - MARCH).total_seconds())))

    for task in (on_loop, in_thread, on_loop):
        task.enqueue_sync()
    app.sync(clock.advance(timedelta(minutes=5)))

    assert sorted(at for _, at in ran) == [0, 60, 120]
    assert {run.state for run in clock.runs} == {"succeeded"}


# --- async tests ------------------------------------------------------------------------


async def test_in_an_async_test_tasks_run_on_the_tests_own_loop(app: Oncron) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.schedule(every(minutes=1))
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    async with ManualClock(app, MARCH) as clock:
        runs = await clock.advance(60)
        assert await runs[0].wait(1) is None
    assert loops == [asyncio.get_running_loop()]


async def test_a_coroutine_beside_the_test_may_sleep_by_the_clock(app: Oncron) -> None:
    async with ManualClock(app, MARCH) as clock:
        beside = asyncio.create_task(clock.sleep(30, "awake"))
        await asyncio.sleep(0)
        await clock.advance(29)
        assert not beside.done()
        await clock.advance(1)
        assert await beside == "awake"


async def test_lifespan_and_events_are_as_in_production(app: Oncron) -> None:
    told: list[str] = []
    app.on("run.*")(lambda event: told.append(event.name))

    @app.task
    def mail() -> None: ...

    async with ManualClock(app, MARCH) as clock:
        await mail.enqueue()
        await clock.run_due()
        assert told == ["run.enqueued", "run.claimed", "run.started", "run.succeeded"]


# --- eager ------------------------------------------------------------------------------


def test_eager_what_is_enqueued_has_ended_when_the_call_returns(app: Oncron) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def chain(n: int) -> int:
        return await (await double.enqueue(n=n)).wait(5)

    with ManualClock(app, eager=True) as clock:
        assert double.enqueue_sync(n=2).result == 4
        assert chain.enqueue_sync(n=3).result == 6
        assert [run.result for run in app.sync(double.enqueue_many([{"n": 1}, {"n": 5}]))] == [2, 10]
        assert double.options(delay=5).enqueue_sync(n=1).state == "pending"
        assert app.sync(clock.advance(5))[0].result == 2


# --- the block --------------------------------------------------------------------------


def test_afterwards_the_app_is_as_before(app: Oncron) -> None:
    app.state = "mine"

    @app.schedule(every(minutes=1))
    def look() -> None: ...

    kept = look.enqueue_sync()
    with ManualClock(app, MARCH) as clock:
        app.state = "the test's"
        app.on("run.*")(lambda _: None)

        @app.task
        def only_here() -> None: ...

        app.sync(clock.advance(3600))
        assert len(clock.runs) == 60

    assert app.state == "mine"
    assert [run.id for run in app.sync(app.runs())] == [kept.id]
    assert repr(app) == "<Oncron memory:// new>"
    app.task(nothing, name="only_here")
    with app:
        assert app.sync(kept.wait(5)) is None


def nothing() -> None: ...


def test_two_clocks_one_after_the_other_begin_anew(app: Oncron) -> None:
    @app.schedule(every(minutes=1))
    def look() -> None: ...

    for _ in range(2):
        with ManualClock(app, MARCH) as clock:
            app.sync(clock.advance(120))
            assert clock.fired("look") == minutes(1, 2)


def test_runs_that_sleep_at_the_end_of_the_block_are_let_go(app: Oncron) -> None:
    ended: list[str] = []

    @app.task
    async def sleeps() -> None:
        try:
            await clock.sleep(60)
        finally:
            ended.append("sleeps")

    @app.task
    def blocks() -> None:
        try:
            clock.block(60)
        finally:
            ended.append("blocks")

    before = time.monotonic()
    with ManualClock(app, MARCH) as clock:
        sleeps.enqueue_sync()
        blocks.enqueue_sync()
        app.sync(clock.run_due())
    assert sorted(ended) == ["blocks", "sleeps"]
    assert time.monotonic() - before < 5


def test_a_year_of_three_schedules_takes_well_under_a_second_per_thousand_ticks(app: Oncron) -> None:
    @app.schedule(every(hours=4))
    async def often() -> None: ...

    @app.schedule(daily("02:30", timezone="Europe/Berlin"))
    def nightly() -> None: ...

    @app.schedule(cron("30 1 * * 1-5", timezone="America/New_York"))
    async def weekdays() -> None: ...

    began = time.thread_time()
    with ManualClock(app) as clock:
        started = time.process_time()
        runs = app.sync(clock.advance(timedelta(days=365)))
        spent = time.process_time() - started
    assert len(clock.fired("often")) == 6 * 365
    assert len(clock.fired("nightly")) == 365
    assert len(clock.fired("weekdays")) == 261
    assert all(run.state == "succeeded" for run in runs)
    assert spent / len(runs) < 0.001, f"{spent:.2f} s for {len(runs)} ticks"
    assert time.thread_time() - began < spent + 5


# --- wrong use --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"start": datetime(2026, 1, 1)}, "naive datetime"),
        ({"start": "2026-01-01"}, "aware datetime"),
        ({"start": None}, "start=None"),
        ({"patience": 0}, "patience=0"),
        ({"eager": "yes"}, "eager="),
    ],
)
def test_wrong_options_are_refused_with_the_mend(app: Oncron, wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        ManualClock(app, **wrong)  # pyright: ignore[reportArgumentType]


def test_an_app_that_runs_and_one_under_another_clock_are_refused(app: Oncron) -> None:
    with app, pytest.raises(AlreadyRunning, match="stop it first"), ManualClock(app):
        pass
    with ManualClock(app), pytest.raises(AlreadyRunning), ManualClock(app):
        pass


def test_what_is_no_app_a_clock_that_is_over_and_a_negative_step_are_refused(app: Oncron, clock: ManualClock) -> None:
    with pytest.raises(InvalidOption, match="give the app"):
        ManualClock("shop:app")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOption, match="not negative"):
        app.sync(clock.advance(-1))
    unused = ManualClock(Oncron("memory://"))
    with pytest.raises(Stopped, match="inside `with ManualClock"):
        app.sync(unused.run_due())
    app.sync(app.stop())
    with pytest.raises(Stopped, match="started again"):
        app.sync(clock.run_due())


async def test_a_with_block_on_a_loop_and_advancing_in_a_task_are_refused(app: Oncron) -> None:
    with pytest.raises(DefinitionError, match="async with ManualClock"), ManualClock(app):
        pass

    @app.task(retries=0)
    async def moves_time() -> None:
        await clock.advance(60)

    async with ManualClock(app, MARCH) as clock:
        await moves_time.enqueue()
        (run,) = await clock.run_due()
        assert "await clock.sleep()" in (run.reason or "")
        with pytest.raises(DefinitionError, match=r"await clock\.sleep"):
            clock.block(1)


def test_a_run_that_does_not_end_in_real_time_is_named(app: Oncron) -> None:
    @app.task
    async def hangs() -> None:
        await asyncio.Event().wait()

    with ManualClock(app, MARCH, patience=0.2) as clock:
        hangs.enqueue_sync()
        with pytest.raises(TimeoutError, match=r"'hangs'.*clock\.sleep"):
            app.sync(clock.advance(60))


def test_the_assertions_say_what_was_there_instead(app: Oncron, clock: ManualClock) -> None:
    @app.task
    def mail(to: str, at: datetime | None = None) -> None: ...

    @app.schedule(every(minutes=10))
    def look() -> None: ...

    clock.assert_not_enqueued()
    clock.assert_not_fired("look")
    with pytest.raises(AssertionError, match="no runs at all"):
        clock.assert_enqueued(mail)
    mail.enqueue_sync(to="a@example.org", at=MARCH)
    assert clock.assert_enqueued("mail", {"at": MARCH})[0].args["to"] == "a@example.org"
    with pytest.raises(AssertionError, match=r"'mail' with \{'to': 'b'\} was not enqueued.*\n.*a@example.org"):
        clock.assert_enqueued(mail, {"to": "b"})
    with pytest.raises(AssertionError, match="enqueued 1 times, not 2"):
        clock.assert_enqueued(mail, times=2)
    with pytest.raises(AssertionError, match="mail"):
        clock.assert_not_enqueued(mail)

    app.sync(clock.advance(600))
    clock.assert_fired("look")
    clock.assert_fired("look", *minutes(10))
    with pytest.raises(AssertionError, match=r"00:10:00.*not .*00:20:00"):
        clock.assert_fired("look", *minutes(20))
    with pytest.raises(AssertionError, match="00:10:00"):
        clock.assert_not_fired("look")
