"""Runs for instants of the past: each once, whatever happens in between, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncron import Oncron, RunContext, cron, every
from oncron._backfill import FIRST, Backfill, backfill_run_id
from oncron._clock import to_us
from oncron._model import EnqueueResult, NewRun, RunState, tick_run_id
from oncron.errors import InvalidOption, NotFound, Stopped, StoreUnavailable
from oncron.stores.memory import MemoryStore
from oncron.stores.open import Opener

NOW = datetime(2027, 3, 1, 12, 0, 30, tzinfo=UTC)
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class Store(MemoryStore):
    """Its clock stands where it is put. It may fail once: before its `fails`-th enqueue, or after it."""

    def __init__(self) -> None:
        self.at = NOW
        self.enqueued = 0
        self.fails: dict[int, Exception] = {}
        self.loses: set[int] = set()
        super().__init__(clock=lambda: to_us(self.at))

    async def enqueue(self, runs: Sequence[NewRun], *, now: int | None = None) -> list[EnqueueResult]:
        self.enqueued += 1
        if self.enqueued in self.fails:
            raise self.fails[self.enqueued]
        answer = await super().enqueue(runs, now=now)
        if self.enqueued in self.loses:
            raise StoreUnavailable("the answer was lost")
        return answer


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def app(make_app: Callable[..., Oncron], store: Store) -> Oncron:
    app = make_app()
    app._open = Opener("memory://", lambda: store)
    app._life._engine = None

    @app.task
    def report(kind: str = "day") -> str:
        return kind

    return app


async def hourly(app: Oncron, **options: Any) -> None:
    await app.put_schedule("hourly", every(hours=1), "report", args={"kind": "hour"}, **options)


async def last_six(app: Oncron, **options: Any) -> Backfill:
    return await app.backfill("hourly", NOON - 5 * HOUR, NOON, **options)


async def ticks_of(app: Oncron) -> list[datetime | None]:
    return sorted(run.tick for run in await app.runs(schedule="hourly", limit=10_000) if run.tick is not None)


async def test_every_instant_of_the_stretch_becomes_a_run_both_ends_included(app: Oncron) -> None:
    await hourly(app, retries=7)
    done = await last_six(app)
    assert (done.ticks, done.created, done.on_record, done.occupied, done.owed) == (6, 6, 0, 0, 0)
    assert (done.first, done.last) == (NOON - 5 * HOUR, NOON)
    runs = await app.runs(schedule="hourly")
    assert sorted(run.id for run in runs) == sorted(done.runs)
    assert await ticks_of(app) == [NOON - k * HOUR for k in reversed(range(6))]
    for run in runs:
        assert (run.state, run.task, run.args, run.due_at) == ("pending", "report", {"kind": "hour"}, NOW)
        assert (run.record.backfill, run.record.retries, run.record.serial) == (done.id, 7, False)


async def test_the_same_call_again_makes_nothing_and_says_what_is_on_record(app: Oncron) -> None:
    await hourly(app)
    first = await last_six(app)
    again = await last_six(app)
    assert (again.created, again.on_record, again.id) == (0, 6, first.id)
    assert [(refused.reason, refused.run) for refused in again.refused] == [("on_record", run) for run in first.runs]
    assert len(await app.runs(schedule="hourly")) == 6


async def test_a_wider_stretch_makes_only_what_is_missing(app: Oncron) -> None:
    await hourly(app)
    await last_six(app)
    wider = await app.backfill("hourly", NOON - 9 * HOUR, NOON)
    assert (wider.ticks, wider.created, wider.on_record) == (10, 4, 6)


async def test_a_call_that_died_in_the_middle_goes_on_where_it_stopped(app: Oncron, store: Store) -> None:
    await app.put_schedule("minutely", every(minutes=1), "report")
    start = NOON - 1199 * MINUTE
    store.fails = {2: KeyError("the process was killed")}
    with pytest.raises(KeyError):
        await app.backfill("minutely", start, NOON)
    assert len(await app.runs(limit=10_000)) == 500
    done = await app.backfill("minutely", start, NOON)
    assert (done.ticks, done.created, done.on_record) == (1200, 700, 500)
    ticks = [run.tick for run in await app.runs(limit=10_000)]
    assert len(ticks) == len(set(ticks)) == 1200


@pytest.mark.parametrize("again", [False, True])
async def test_an_answer_that_was_lost_makes_no_second_run(app: Oncron, store: Store, again: bool) -> None:
    await hourly(app)
    if again:
        await last_six(app)
    store.loses = {store.enqueued + 1}
    done = await last_six(app, again=again)
    assert done.created == 6
    assert len(await app.runs(schedule="hourly")) == (12 if again else 6)


async def test_two_calls_at_once_make_each_run_once(app: Oncron) -> None:
    await hourly(app)
    await asyncio.gather(*(last_six(app) for _ in range(4)))
    assert len(await app.runs(schedule="hourly")) == 6


async def test_a_tick_that_was_fired_is_on_record(app: Oncron, store: Store) -> None:
    await hourly(app, overlap="allow")
    store.at += HOUR
    await app.pause("hourly")  # settles the tick at one o'clock
    fired = tick_run_id("hourly", to_us(NOON + HOUR))
    done = await app.backfill("hourly", NOON, NOON + HOUR)
    assert (done.created, done.on_record) == (1, 1)
    assert [(refused.tick, refused.run) for refused in done.refused] == [(NOON + HOUR, fired)]


async def test_a_tick_that_is_not_settled_yet_is_left_to_the_scheduler(app: Oncron, store: Store) -> None:
    await hourly(app)
    store.at += 2 * HOUR
    done = await app.backfill("hourly", NOON, NOON + 2 * HOUR)
    assert (done.ticks, done.created, done.owed) == (3, 1, 2)
    assert [(refused.tick, refused.reason) for refused in done.refused] == [
        (NOON + HOUR, "owed"),
        (NOON + 2 * HOUR, "owed"),
    ]
    assert "2 left to the scheduler" in str(done)


async def test_what_fell_in_a_pause_or_outside_of_start_and_end_is_backfilled(app: Oncron, store: Store) -> None:
    await hourly(app, start_at=NOON + 10 * HOUR, end_at=NOON + 11 * HOUR, paused=True)
    store.at += 20 * HOUR
    done = await app.backfill("hourly", NOON - HOUR, NOON + 20 * HOUR)
    assert (done.ticks, done.created) == (22, 22)
    await app.resume("hourly")
    assert (await app.backfill("hourly", NOON - HOUR, NOON + 20 * HOUR)).on_record == 22


async def test_again_runs_what_is_on_record_once_more(app: Oncron) -> None:
    await hourly(app)
    first = await last_six(app)
    second = await last_six(app, again=True)
    third = await last_six(app, again=True)
    assert len({first.id, second.id, third.id}) == 3
    assert (second.created, third.created) == (6, 6)
    assert len(await app.runs(schedule="hourly")) == 18
    assert (await last_six(app)).on_record == 6


async def test_what_again_ran_for_the_first_time_is_on_record_afterwards(app: Oncron) -> None:
    await hourly(app)
    assert (await last_six(app, again=True)).created == 6
    assert (await last_six(app)).on_record == 6


async def test_a_rate_spaces_the_due_times(app: Oncron) -> None:
    await hourly(app)
    await app.backfill("hourly", NOON - HOUR, NOON - HOUR)
    done = await last_six(app, rate=4)
    due = {run.tick: run.due_at for run in await app.runs(schedule="hourly") if run.id in done.runs}
    assert [due[tick] - NOW for tick in sorted(due)] == [timedelta(seconds=k / 4) for k in range(5)]


async def test_a_dry_run_tells_and_writes_nothing(app: Oncron, store: Store) -> None:
    await hourly(app)
    await app.backfill("hourly", NOON, NOON)
    before = store.enqueued
    told = await last_six(app, dry_run=True)
    assert (told.dry_run, told.ticks, told.created, told.on_record) == (True, 6, 5, 1)
    assert store.enqueued == before
    assert str(told) == (
        "6 ticks of 'hourly' from 2027-03-01T07:00:00Z to 2027-03-01T12:00:00Z: 5 would be created, "
        "1 have a run on record"
    )
    assert (await last_six(app)).runs == told.runs


async def test_without_a_policy_neither_place_nor_unique_key_is_judged(app: Oncron) -> None:
    await hourly(app, overlap="skip", unique=True)
    await app.fire("hourly")
    assert (await last_six(app)).created == 6


async def test_with_a_policy_backfilled_runs_take_the_schedules_place(app: Oncron) -> None:
    await hourly(app)
    queued = await last_six(app, overlap="queue")
    assert queued.created == 6
    parked = {run.tick: run.record.parked for run in await app.runs(schedule="hourly")}
    assert [parked[tick] for tick in sorted(parked)] == [False] + [True] * 5
    refused = await app.backfill("hourly", NOON - 7 * HOUR, NOON - 6 * HOUR, overlap="skip")
    assert (refused.created, refused.occupied) == (0, 2)
    assert {item.run for item in refused.refused} == {queued.runs[0]}


async def test_a_long_stretch_is_written_in_chunks_and_listed_up_to_a_bound(app: Oncron, store: Store) -> None:
    await app.put_schedule("minutely", every(minutes=1), "report")
    done = await app.backfill("minutely", NOON - 2499 * MINUTE, NOON)
    assert (done.created, len(done.runs), store.enqueued) == (2500, 1000, 5)
    assert done.runs[0] == backfill_run_id("minutely", to_us(NOON - 2499 * MINUTE), FIRST)
    assert len((await app.backfill("minutely", NOON - 2499 * MINUTE, NOON)).refused) == 1000


async def test_a_stretch_without_a_tick_is_told(app: Oncron) -> None:
    await app.put_schedule("leap", cron("0 0 29 2 *"), "report")
    done = await app.backfill("leap", NOON - HOUR, NOON)
    assert (done.ticks, done.first, done.last) == (0, None, None)
    assert str(done) == "no tick of 'leap' lies in that stretch"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"start": NOON.replace(tzinfo=None)}, "start=2027-03-01T12:00:00 is a naive datetime"),
        ({"end": "2027-03-01"}, "end='2027-03-01': give an aware datetime"),
        ({"start": None}, "needs a start and an end"),
        ({"end": NOON + HOUR}, "end=2027-03-01T13:00:00Z lies in the future: it is 2027-03-01T12:00:30Z"),
        ({"start": NOON + MINUTE}, "start lies after end"),
        ({"start": NOON - timedelta(days=365 * 20)}, "more than 100000 ticks of 'hourly'"),
        ({"rate": 0}, "runs per second"),
        ({"rate": -1}, "runs per second"),
        ({"rate": float("nan")}, "runs per second"),
        ({"rate": float("inf")}, "runs per second"),
        ({"rate": True}, "runs per second"),
        ({"rate": "10/s"}, "runs per second"),
        ({"rate": 1e-9}, "less than one run in eleven days"),
        ({"overlap": "never"}, "one of 'skip', 'wait'"),
        ({"again": "yes"}, "again='yes': give True or False"),
        ({"dry_run": 1}, "dry_run=1: give True or False"),
    ],
)
async def test_bad_input_is_refused_before_anything_is_written(
    app: Oncron, store: Store, call: dict[str, Any], says: str
) -> None:
    await hourly(app)
    with pytest.raises(InvalidOption, match=says):
        await app.backfill(**({"schedule": "hourly", "start": NOON - HOUR, "end": NOON} | call))
    assert store.enqueued == 0


async def test_an_unknown_or_removed_schedule_is_not_found(app: Oncron) -> None:
    with pytest.raises(NotFound, match="no schedule 'hourly'"):
        await last_six(app)
    await hourly(app)
    await app.remove_schedule("hourly")
    with pytest.raises(NotFound, match="no schedule 'hourly'"):
        await last_six(app)


async def test_a_stopped_app_backfills_nothing(app: Oncron) -> None:
    await hourly(app)
    async with app:
        pass
    with pytest.raises(Stopped, match="cannot backfill"):
        await last_six(app)


async def test_the_task_sees_that_its_tick_is_made_up_for(app: Oncron) -> None:
    seen: list[tuple[datetime | None, bool]] = []

    @app.task
    def watch(ctx: RunContext) -> None:
        seen.append((ctx.tick, ctx.is_catchup))

    await app.put_schedule("watched", every(hours=1), watch, paused=True)
    (run_id,) = (await app.backfill("watched", NOON, NOON)).runs
    async with app:
        await (await app.get_run(run_id)).wait(10)
    assert seen == [(NOON, True)]
    assert (await app.get_run(run_id)).state is RunState.SUCCEEDED


async def test_why_tells_of_the_backfilled_run(app: Oncron) -> None:
    await hourly(app)
    assert (await app.why("hourly", NOON)).run is None
    done = await last_six(app)
    told = await app.why("hourly", NOON)
    assert (told.verdict, told.run) == ("before", done.runs[-1])
    assert f"backfilled: its run {done.runs[-1]} waits for a worker" in str(told)


async def test_listeners_hear_of_every_run(app: Oncron) -> None:
    heard: list[str | None] = []
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.on("run.enqueued")
    def hear(event: Any) -> None:
        heard.append(event.run)
        if len(heard) == 6:
            loop.call_soon_threadsafe(enough.set)

    await hourly(app)
    done = await last_six(app)
    await asyncio.wait_for(enough.wait(), 10)
    assert sorted(map(str, heard)) == sorted(done.runs)
