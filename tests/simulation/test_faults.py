"""Faults that others had, each played in virtual time; the numbers are those of the book of faults."""

from __future__ import annotations

from collections import Counter

import pytest

from oncron._engine.spec import Execution
from oncron._model import Missed, Overlap, RunState
from oncron.triggers import every
from tests.simulation.fleet import fleet_in_virtual_time
from tests.simulation.network import Weather
from tests.simulation.test_fleet import lateness, scheduled
from tests.simulation.world import SECOND, START, passes

ALL = {"overlap": Overlap.ALLOW, "missed": Missed.ALL, "missed_limit": 1000}


async def five_seconds(_execution: Execution, _chance: object) -> None:
    await passes(5)


def test_B043_two_schedulers_with_a_few_milliseconds_between_them_run_a_thousand_ticks_a_thousand_times() -> None:
    with fleet_in_virtual_time(replicas=2, skews=(0, 15_000)) as fleet:
        fleet.definitions = [scheduled("each", every(seconds=0.2), **ALL)]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(200.1))

    fleet.oracle.verdict(fleet.store, drained=False)
    assert Counter(line.run.tick for line in fleet.oracle.lines) == Counter(
        START + k * SECOND // 5 for k in range(1, 1001)
    )


def test_B055_replicas_started_at_different_moments_share_one_grid() -> None:
    with fleet_in_virtual_time() as fleet:
        fleet.definitions = [scheduled("minute", every(seconds=60))]

        async def story() -> None:
            for replica, pause in zip(fleet.replicas, (17, 24, 560), strict=True):
                replica.boot()
                await fleet.sleep(pause)

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store, drained=False)
    assert [line.run.tick for line in fleet.oracle.lines] == [START + k * 60 * SECOND for k in range(1, 11)]


@pytest.mark.parametrize("skew", [-3600, -3, 3, 3600])
def test_B057_B119_a_replica_whose_clock_is_wrong_takes_no_live_claim_and_fires_nothing_early(skew: int) -> None:
    async def long(_execution: object, _chance: object) -> None:
        await passes(100)

    with fleet_in_virtual_time(bodies={"long": long}, skews=(0, skew * SECOND)) as fleet:
        fleet.definitions = [scheduled(f"s{k}", every(seconds=120), "long") for k in range(5)]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(601))

    fleet.oracle.verdict(fleet.store, drained=False)
    assert fleet.oracle.reaped == []
    assert len(lateness(fleet)) == 25
    assert lateness(fleet)[-1] < 100_000


def test_B065_a_rolling_restart_runs_each_tick_once() -> None:
    with fleet_in_virtual_time(replicas=4) as fleet:
        fleet.definitions = [scheduled("each", every(seconds=5), **ALL)]

        async def story() -> None:
            for replica in fleet.replicas[:3]:
                replica.boot()
            await fleet.sleep(12)
            for old, new in zip(fleet.replicas, fleet.replicas[1:] + fleet.replicas[:1], strict=True):
                if not new.up:
                    new.boot()
                await fleet.sleep(40)
                await old.stop()
            await fleet.sleep(20)

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store, drained=False)
    assert fleet.oracle.in_gaps["each"] == 0
    assert max(Counter(line.run.tick for line in fleet.oracle.lines).values()) == 1


MATRIX = [(method, when) for method in ("fire", "claim", "finish", "heartbeat", "poll") for when in ("before", "after")]


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.ALLOW])
@pytest.mark.parametrize(("method", "when"), MATRIX)
def test_B075_B093_B097_B107_B111_killed_around_any_step_every_schedule_is_runnable_within_two_leases(
    method: str, when: str, overlap: Overlap
) -> None:
    """Half done is nothing: a tick is there with its run or not at all, and what was claimed comes back."""
    bodies = {"send": five_seconds}
    with fleet_in_virtual_time(replicas=1, bodies=bodies, weather=Weather(hint_lost=1)) as fleet:
        fleet.definitions = [
            scheduled(f"s{k}", every(seconds=10), "send", overlap=overlap, missed=Missed.ALL, jitter=k * SECOND)
            for k in range(3)
        ]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(33)
            fleet.replicas[0].link.fates[method] = [when]
            await fleet.sleep(20)
            assert not fleet.replicas[0].up, f"it died in {method}"
            fleet.replicas[0].boot()  # on the same host, at once: what was its own is not taken for its own
            await fleet.sleep(30)
            runnable_from = fleet.loop.now_us
            await fleet.sleep(30)
            ran = {line.run.schedule for line in fleet.oracle.lines if line.began >= runnable_from}
            assert ran == {"s0", "s1", "s2"}

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store, drained=False)
    lost = [line.run for line in fleet.oracle.lines if line.how == "killed"]
    assert all(fleet.store._run_rows[run.id].attempt >= 2 for run in lost)


def test_B095_a_replica_that_dies_while_it_reaps_leaves_reaping_to_any_other() -> None:
    with fleet_in_virtual_time(replicas=3, bodies={"send": five_seconds}) as fleet:
        fleet.definitions = [scheduled(f"s{k}", every(seconds=10), "send", retries=5) for k in range(9)]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(32)
            fleet.replicas[0].kill()
            fleet.replicas[1].link.fates["reap"] = ["before"] * 3
            await fleet.sleep(60)

        fleet.loop.run_until_complete(story())

    killed = {line.run.id for line in fleet.oracle.lines if line.how == "killed"}
    assert killed
    assert killed <= {run_id for _, run_id in fleet.oracle.reaped}
    fleet.oracle.verdict(fleet.store, drained=False)


def test_B145_one_dead_workers_run_is_found_among_many_long_ones_that_are_well() -> None:
    async def long(_execution: object, _chance: object) -> None:
        await passes(10_000)

    with fleet_in_virtual_time(replicas=2, bodies={"long": long}, concurrency=400) as fleet:
        fleet.definitions = [scheduled(f"s{k}", every(seconds=3600), "long") for k in range(300)]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(3601)
            fleet.replicas[0].kill()
            await fleet.sleep(30)

        fleet.loop.run_until_complete(story())

    killed = {line.run.id for line in fleet.oracle.lines if line.how == "killed"}
    assert len(killed) > 50
    assert {run_id for _, run_id in fleet.oracle.reaped} == killed
    fleet.oracle.verdict(fleet.store, drained=False)


def test_B185_of_reapers_in_lock_step_each_expired_run_is_taken_once() -> None:
    async def long(_execution: object, _chance: object) -> None:
        await passes(10_000)

    with fleet_in_virtual_time(replicas=5, bodies={"long": long}, concurrency=60) as fleet:
        fleet.definitions = [scheduled(f"s{k}", every(seconds=60), "long", retries=9) for k in range(50)]
        fleet.boot()

        async def story() -> None:
            await fleet.sleep(61)
            fleet.replicas[0].kill()
            held = [line.run.id for line in fleet.oracle.lines if line.how == "killed"]
            await fleet.sleep(40)
            assert Counter(run_id for _, run_id in fleet.oracle.reaped) == Counter(held)
            assert all(fleet.store._run_rows[run_id].attempt == 2 for run_id in held)

        fleet.loop.run_until_complete(story())

    fleet.oracle.verdict(fleet.store, drained=False)


def test_B113_B115_a_unique_key_is_held_by_a_run_that_waits_for_its_retry_and_by_none_that_is_dead() -> None:
    async def fails(_execution: object, _chance: object) -> None:
        await passes(1)
        raise ValueError

    with fleet_in_virtual_time(replicas=2, bodies={"fails": fails}) as fleet:
        fleet.definitions = [
            scheduled("each", every(seconds=20), "fails", unique="the one", overlap=Overlap.ALLOW, retries=3)
        ]
        fleet.boot()
        fleet.loop.run_until_complete(fleet.sleep(219))

    fleet.oracle.verdict(fleet.store, drained=False)
    ended = [run for run in fleet.store._run_rows.values() if run.state is RunState.FAILED]
    assert len(ended) == 10, "each tick's run was dead after ten seconds, and the next tick's was accepted"
    assert all(run.attempt == 4 for run in ended)
