"""What a fleet promises, each in a story of its own: virtual time, real engines."""

from __future__ import annotations

import copy

import pytest

from oncron._engine import registrar, scheduler
from oncron._engine.shards import Shards
from oncron._model import Definition, GapReason, Missed, NewRun, Overlap, RunState, new_run_id
from oncron.triggers import Trigger, cron, daily, every
from tests.simulation.fleet import Fleet, fleet_in_virtual_time, quick
from tests.simulation.network import Weather
from tests.simulation.oracle import WatchedStore
from tests.simulation.world import SECOND, START, passes


def scheduled(name: str, trigger: Trigger, task: str = "quick", **options: object) -> Definition:
    fields = {"name": name, "trigger": str(trigger.bind(name)), "task": task, "retry_delay": 0} | options
    return Definition(**fields)  # pyright: ignore[reportArgumentType]


def lateness(fleet: Fleet) -> list[int]:
    return sorted(line.began - line.run.tick for line in fleet.oracle.lines if line.run.tick is not None)


def test_three_replicas_run_each_second_once_and_within_milliseconds() -> None:
    with fleet_in_virtual_time(skews=(0, 3600 * SECOND, -3600 * SECOND)) as fleet:
        fleet.definitions = [scheduled("beat", every(seconds=1), overlap=Overlap.ALLOW, missed=Missed.ALL)]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(300.5))

    fleet.oracle.verdict(fleet.store, drained=False)
    assert fleet.oracle.passed["beat"] == 300
    assert fleet.oracle.in_gaps["beat"] == 0
    assert len(fleet.oracle.lines) == 300
    assert lateness(fleet)[-2] < 30_000
    assert {line.process.name for line in fleet.oracle.lines} <= {"r0.1", "r1.1", "r2.1"}


@pytest.mark.parametrize("lease_for", [3 * SECOND, 15 * SECOND])
def test_the_runs_of_a_killed_replica_are_taken_over_within_two_leases(lease_for: int) -> None:
    async def long(_execution: object, _chance: object) -> None:
        await passes(1000)

    options = {"lease_for": lease_for, "bodies": {"long": long}, "concurrency": 30, "weather": Weather(hint_lost=1)}
    with fleet_in_virtual_time(**options) as fleet:
        fleet.definitions = [scheduled(f"s{k}", cron("1 0 * * *"), "long") for k in range(20)]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(70)
            for replica in fleet.replicas[:2]:
                replica.kill()

        fleet.loop.run_until_complete(story())
        killed_at = fleet.loop.now_us
        held = [line.run.id for line in fleet.oracle.lines if line.how == "killed"]
        fleet.loop.run_until_complete(fleet.sleep(2 * lease_for / SECOND))
        taken = {run_id for _, run_id in fleet.oracle.reaped}
        fleet.loop.run_until_complete(fleet.sleep(10))

    assert held
    assert taken == set(held)
    again = {line.run.id for line in fleet.oracle.lines if line.began > killed_at and line.how == "runs"}
    assert again >= set(held)
    fleet.oracle.verdict(fleet.store, drained=False)


def test_B101_a_run_of_many_leases_whose_worker_lives_is_executed_once() -> None:
    async def long(_execution: object, _chance: object) -> None:
        await passes(90)

    with fleet_in_virtual_time(lease_for=15 * SECOND, bodies={"long": long}) as fleet:
        fleet.definitions = [scheduled("long", cron("1 0 * * *"), "long")]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(200))

    fleet.oracle.verdict(fleet.store)
    assert [line.how for line in fleet.oracle.lines] == ["returned"]


def test_without_any_hint_a_change_and_new_work_are_seen_within_the_poll() -> None:
    with fleet_in_virtual_time(weather=Weather(hint_lost=1)) as fleet:
        fleet.definitions = [scheduled("hourly", every(hours=1))]
        fleet.boot()

        async def story() -> int:
            await fleet.sleep(10)
            run = NewRun(id=new_run_id(), task="quick")
            await fleet.desk(lambda store: store.enqueue([run]))
            await fleet.desk(lambda store: registrar.put(store, scheduled("new", every(seconds=1), origin="api")))
            return fleet.loop.now_us

        asked = fleet.loop.run_until_complete(story())
        fleet.loop.run_until_complete(fleet.sleep(8))

    enqueued = [line.began for line in fleet.oracle.lines if line.run.tick is None]
    ticked = [line.began for line in fleet.oracle.lines if line.run.schedule == "new"]
    assert len(enqueued) == 1
    assert enqueued[0] - asked <= 5.2 * SECOND
    assert ticked[0] - asked <= 6.2 * SECOND


def test_a_schedule_put_without_a_hint_is_on_time_for_its_first_tick() -> None:
    with fleet_in_virtual_time(weather=Weather(hint_lost=1)) as fleet:
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(10)
            await fleet.desk(lambda store: registrar.put(store, scheduled("new", every(seconds=25), origin="api")))
            await fleet.sleep(30)

        fleet.loop.run_until_complete(story())

    assert [line.run.tick for line in fleet.oracle.lines] == [START + 25 * SECOND]
    assert lateness(fleet)[0] < 50_000


def test_with_hints_new_work_is_seen_at_once() -> None:
    with fleet_in_virtual_time() as fleet:
        fleet.boot()

        async def story() -> int:
            await fleet.sleep(11)
            run = NewRun(id=new_run_id(), task="quick")
            await fleet.desk(lambda store: store.enqueue([run]))
            await fleet.desk(lambda store: store.hint())
            return fleet.loop.now_us

        asked = fleet.loop.run_until_complete(story())
        fleet.loop.run_until_complete(fleet.sleep(5))

    assert [line.began - asked < SECOND for line in fleet.oracle.lines] == [True]


def test_B117_a_store_clock_that_jumps_a_day_gives_one_run_a_schedule() -> None:
    with fleet_in_virtual_time() as fleet:
        fleet.definitions = [scheduled(f"s{k}", every(minutes=1 + k)) for k in range(5)]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(30))
        clock = fleet.store._clock
        fleet.store._clock = lambda: clock() + 24 * 3600 * SECOND
        fleet.oracle.now = fleet.store._clock
        fleet.loop.run_until_complete(fleet.sleep(20))

    fleet.oracle.verdict(fleet.store)
    assert sorted(line.run.schedule or "" for line in fleet.oracle.lines) == [f"s{k}" for k in range(5)]
    assert all(line.run.is_catchup or line.run.missed_count for line in fleet.oracle.lines)


def test_B117_B119_a_replica_whose_own_clock_jumps_a_day_fires_nothing_early() -> None:
    with fleet_in_virtual_time(replicas=2) as fleet:
        fleet.definitions = [scheduled("hourly", every(minutes=10))]
        fleet.boot()

        async def story() -> None:
            for _ in range(4):
                await fleet.sleep(200)
                for replica in fleet.replicas:
                    replica.process.wall_offset += 24 * 3600 * SECOND

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store)
    assert [line.run.tick for line in fleet.oracle.lines] == [START + 600 * SECOND]


def after_an_outage(outages: int = 1, away: float = 45, between: float = 4) -> Fleet:
    """Three replicas hold twelve runs while the store is away for three leases; one hears it before the others."""

    async def long(_execution: object, _chance: object) -> None:
        await passes(300)

    with fleet_in_virtual_time(bodies={"stubborn": long}) as fleet:
        fleet.definitions = [
            scheduled(f"s{k}", cron("1 0 * * *"), "stubborn", overlap=Overlap.ALLOW) for k in range(12)
        ]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(90)
            for _ in range(outages):
                for replica in fleet.replicas:
                    replica.link.cut = True
                await fleet.sleep(away)
                for replica in fleet.replicas:
                    replica.link.cut = False
                    await fleet.sleep(between)
            await fleet.sleep(400)

        fleet.loop.run_until_complete(story())
    return fleet


def test_G8_two_outages_in_a_row_are_no_massacre_though_a_reap_was_being_waited_for() -> None:
    """The first one leaves every reaper patient; its patience must not run out within the second."""
    fleet = after_an_outage(outages=2, away=46.5, between=2)

    fleet.oracle.verdict(fleet.store)
    assert fleet.oracle.reaped == []


def test_G8_a_store_outage_longer_than_a_lease_is_no_massacre() -> None:
    fleet = after_an_outage()

    fleet.oracle.verdict(fleet.store)
    assert fleet.oracle.reaped == []
    assert [line.how for line in fleet.oracle.lines] == ["returned"] * 12


def after_many_cuts(store: type[WatchedStore] = WatchedStore) -> Fleet:
    """A line is cut for two leases, again and again, at every phase of the heartbeat; the others, which write all the
    time, take over at once."""

    async def long(_execution: object, _chance: object) -> None:
        await passes(10_000)

    lease = 3 * SECOND
    bodies = {"long": long, "quick": quick}
    with fleet_in_virtual_time(lease_for=lease, bodies=bodies, concurrency=40, store=store) as fleet:
        fleet.definitions = [scheduled(f"s{k}", cron("1 0 * * *"), "long", retries=1000) for k in range(12)]
        fleet.definitions += [scheduled(f"q{k}", every(seconds=1), "quick") for k in range(12)]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(62)
            for at in range(40):
                link = fleet.replicas[at % 3].link
                await fleet.sleep(5 + fleet.chance.random())
                link.cut = True
                await fleet.sleep(2 * lease / SECOND)
                link.cut = False

        fleet.loop.run_until_complete(story())
    return fleet


def test_a_replica_that_is_cut_off_stops_its_runs_before_another_starts_them() -> None:
    fleet = after_many_cuts()

    fleet.oracle.verdict(fleet.store, drained=False)
    assert len(fleet.oracle.reaped) >= 30
    stopped = [line for line in fleet.oracle.lines if line.how == "cancelled"]
    assert len(stopped) >= len(fleet.oracle.reaped)


def after_late_answers() -> Fleet:
    """One answer of seven comes up to four leases late, while the work goes on elsewhere."""
    lease = 1 * SECOND
    weather = Weather(answered_late=0.15, refused=0.02, stall_for=4 * lease)
    with fleet_in_virtual_time(lease_for=lease, weather=weather) as fleet:
        fleet.definitions = [
            scheduled(f"s{k}", every(seconds=2), ("quick", "slow")[k % 2], overlap=Overlap.ALLOW, retries=50)
            for k in range(6)
        ]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(120))
    return fleet


def test_an_answer_that_comes_late_starts_nothing_that_is_no_longer_held() -> None:
    fleet = after_late_answers()

    fleet.oracle.verdict(fleet.store, drained=False)
    assert len(fleet.oracle.reaped) > 2


def test_B069_replicas_that_restart_every_minute_lose_no_tick() -> None:
    with fleet_in_virtual_time(replicas=3) as fleet:
        fleet.definitions = [
            scheduled("minute", every(minutes=1), missed=Missed.ALL, overlap=Overlap.ALLOW),
            scheduled("fast", every(seconds=1), missed=Missed.ALL, overlap=Overlap.ALLOW),
        ]
        fleet.boot()

        async def story() -> None:
            for at in range(30):
                replica = fleet.replicas[at % 3]
                await fleet.sleep(29)
                if at % 2:
                    await replica.stop()
                else:
                    replica.kill()
                await fleet.sleep(30)
                replica.boot()
            await fleet.sleep(60)

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store, drained=False)
    assert fleet.oracle.passed["minute"] == 30
    assert fleet.oracle.in_gaps == {"minute": 0, "fast": 0}
    ended = [run for run in fleet.store._run_rows.values() if run.state is RunState.SUCCEEDED]
    assert len(ended) >= fleet.oracle.passed["fast"] + 30 - 1


def after_deaths() -> Fleet:
    """Of three replicas the one that fires is killed, and then the next one that does; ticks every second."""
    with fleet_in_virtual_time(weather=Weather(hint_lost=1)) as fleet:
        fleet.definitions = [scheduled("beat", every(seconds=1), overlap=Overlap.ALLOW, missed=Missed.ALL)]
        fleet.boot()

        async def story() -> None:
            for seconds in (20.5, 20):
                await fleet.sleep(seconds)
                last = fleet.oracle.lines[-1].process
                [first] = [replica for replica in fleet.replicas if replica.process is last]
                first.kill()
            await fleet.sleep(21)

        fleet.loop.run_until_complete(story())
    return fleet


def is_on_time_in_spite_of_deaths(fleet: Fleet) -> None:
    fleet.oracle.verdict(fleet.store, drained=False)
    assert fleet.oracle.passed["beat"] == 61
    late = lateness(fleet)
    assert len(late) == 61
    assert late[-1] < 100_000, "a dead first costs its ticks some milliseconds"
    assert sum(lag > 10_000 for lag in late) <= 14, "and after three of them it is passed over"


def test_when_the_replica_that_fires_dies_the_others_fire_milliseconds_later() -> None:
    is_on_time_in_spite_of_deaths(after_deaths())


def test_replicas_that_all_think_they_are_first_race_and_each_stays_in_the_race(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Shards, "is_mine", lambda self, name: True)

    is_on_time_in_spite_of_deaths(after_deaths())


def test_a_replica_that_only_schedules_wakes_one_that_only_works() -> None:
    with fleet_in_virtual_time(replicas=2) as fleet:
        fleet.definitions = [scheduled("beat", every(seconds=7))]
        fleet.replicas[0].roles = {"scheduler": True, "worker": False}
        fleet.replicas[1].roles = {"scheduler": False, "worker": True}
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(100))

    fleet.oracle.verdict(fleet.store)
    assert {line.process.name for line in fleet.oracle.lines} == {"r1.1"}
    assert len(lateness(fleet)) == 14
    assert lateness(fleet)[-1] < 100_000


@pytest.mark.parametrize("replicas", [1, 3, 10, 100])
def test_fire_attempts_per_tick_do_not_grow_with_the_replicas(replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_SPIN", 0)  # a nap blocks its own process, here it would block all of them
    seconds = 20 if replicas == 100 else 200
    with fleet_in_virtual_time(replicas=replicas) as fleet:
        fleet.definitions = [scheduled(f"s{k}", every(seconds=2)) for k in range(8)]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(20))
        before, offered = sum(fleet.oracle.passed.values()), fleet.oracle.fire_plans
        fleet.loop.run_until_complete(fleet.sleep(seconds))

    ticks = sum(fleet.oracle.passed.values()) - before
    assert ticks == 8 * seconds // 2
    assert (fleet.oracle.fire_plans - offered) / ticks <= 1.2
    fleet.oracle.verdict(fleet.store, drained=False)


def test_an_idle_replica_asks_the_store_less_than_once_in_three_seconds() -> None:
    with fleet_in_virtual_time(replicas=1) as fleet:
        fleet.definitions = [scheduled("nightly", daily("03:00"))]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(60))
        before = sum(fleet.replicas[0].link.calls.values())
        fleet.loop.run_until_complete(fleet.sleep(600))
        calls = sum(fleet.replicas[0].link.calls.values()) - before

    assert calls / 600 <= 0.3, fleet.replicas[0].link.calls


def test_replicas_that_slept_together_take_nothing_from_each_other_when_they_wake() -> None:
    """A suspended machine: its replicas wake in any order, and each one's lease is long over for the store."""

    async def long(_execution: object, _chance: object) -> None:
        await passes(600)

    with fleet_in_virtual_time(bodies={"stubborn": long}) as fleet:
        fleet.definitions = [
            scheduled(f"s{k}", cron("1 0 * * *"), "stubborn", overlap=Overlap.ALLOW) for k in range(12)
        ]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(90)
            for replica in fleet.replicas:
                replica.freeze()
            await fleet.sleep(120)
            for replica in fleet.replicas:
                replica.go_on()
                await fleet.sleep(4)
            await fleet.sleep(700)

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store)
    assert fleet.oracle.reaped == []
    assert [line.how for line in fleet.oracle.lines] == ["returned"] * 12


def _half_a_minute_is_forgotten(fleet: Fleet) -> None:
    """A restore, a fail-over to a standby that lagged."""
    tables = ("_schedule_rows", "_run_rows", "_open", "_open_of", "_gap_rows", "_worker_rows")
    kept = {table: copy.deepcopy(dict(getattr(fleet.store, table))) for table in tables}
    fleet.loop.run_until_complete(fleet.sleep(30))
    for table, rows in kept.items():
        dict.clear(getattr(fleet.store, table))
        dict.update(getattr(fleet.store, table), rows)


def test_what_a_replica_executed_it_remembers_as_settled_though_another_fired_it() -> None:
    with fleet_in_virtual_time(replicas=2) as fleet:
        fleet.definitions = [
            scheduled(f"s{k}", every(seconds=7 + k), overlap=Overlap.ALLOW, missed=Missed.ALL) for k in range(20)
        ]
        fires, executes = fleet.replicas
        fires.roles = {"scheduler": True, "worker": False}
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(46.5))  # so that nobody reads the agenda in what is forgotten
        _half_a_minute_is_forgotten(fleet)
        fires.kill()
        fleet.loop.run_until_complete(fleet.sleep(60))

    assert executes.up
    executed = [(line.run.schedule, line.run.tick) for line in fleet.oracle.lines]
    assert len(executed) == len(set(executed))


def test_a_store_that_goes_back_half_a_minute_runs_no_tick_again_that_a_live_replica_remembers() -> None:
    """Cursors are raised to where they are known to have been."""
    with fleet_in_virtual_time() as fleet:
        fleet.definitions = [
            scheduled(f"s{k}", every(seconds=7 + k), overlap=Overlap.ALLOW, missed=Missed.ALL) for k in range(4)
        ]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(60.5))
        _half_a_minute_is_forgotten(fleet)
        fleet.loop.run_until_complete(fleet.sleep(60))

    executed = [(line.run.schedule, line.run.tick) for line in fleet.oracle.lines]
    assert len(executed) == len(set(executed))
    assert {event.schedule for event in fleet.events if event.name == "store.rolled_back"} == {"s0", "s1", "s2", "s3"}
    for name in ("s0", "s1", "s2", "s3"):
        reasons = {gap.reason for gap in fleet.store._gap_rows[name]}
        assert reasons == {GapReason.STORE_ROLLED_BACK}
    late = [line for line in fleet.oracle.lines if line.began > START + 100 * SECOND]
    assert {line.run.schedule for line in late} == {"s0", "s1", "s2", "s3"}, "and the ticks after it run"
