"""A year of a 15-minute, a daily and a weekday schedule with three replicas, in under a minute."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from oncron import _defaults as limits
from oncron._clock import to_us
from oncron._engine import janitor, scheduler
from oncron._model import Definition, Missed, Overlap
from oncron.triggers import Trigger, cron, daily, every
from tests.simulation.fleet import Fleet, fleet_in_virtual_time
from tests.simulation.world import SECOND, START

SLOWER = 480
"""The idle rounds (polls, heartbeats, refreshes, leases) are so much rarer: a year has six million
polls of five seconds, which are not what this is about. Ticks come when they come."""

SCHEDULES: dict[str, Trigger] = {
    "quarter": every(minutes=15),
    "daily": daily("02:30", timezone="Europe/Berlin"),
    "weekdays": cron("30 1 * * 1-5", timezone="America/New_York"),
}


@pytest.fixture
def rare_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POLL_EVERY", limits.POLL_EVERY * SLOWER)
    monkeypatch.setattr(limits, "SLEEP_AT_MOST", limits.SLEEP_AT_MOST * SLOWER)
    monkeypatch.setattr(limits, "IDLE_HEARTBEAT", limits.LEASE_FOR * SLOWER * 2 // 3)
    monkeypatch.setattr(scheduler, "_HORIZON", scheduler._HORIZON * SLOWER)
    monkeypatch.setattr(scheduler, "_REFRESH", scheduler._REFRESH * SLOWER)
    monkeypatch.setattr(janitor, "_PRUNE_EVERY", janitor._PRUNE_EVERY * SLOWER)
    monkeypatch.setattr(janitor, "_NOTE_EVERY", janitor._NOTE_EVERY * SLOWER)
    monkeypatch.setattr(limits, "DORMANT_AFTER", limits.DORMANT_AFTER * SLOWER * 10)


def lived(days: int) -> Fleet:
    """Every third day one replica is killed and comes back an hour later."""
    with fleet_in_virtual_time(
        lease_for=limits.LEASE_FOR * SLOWER, skews=(0, 86_400 * SECOND, -3600 * SECOND)
    ) as fleet:
        fleet.definitions = [
            Definition(
                name=name,
                trigger=str(trigger.bind(name)),
                task="quick",
                missed=Missed.ALL,
                overlap=Overlap.ALLOW,
                retry_delay=0,
            )
            for name, trigger in SCHEDULES.items()
        ]
        fleet.boot()

        async def story() -> None:
            for day in range(days):
                if day % 3 == 1:
                    replica = fleet.replicas[day % 9 // 3]
                    replica.kill()
                    await fleet.sleep(3600)
                    replica.boot()
                    await fleet.sleep(23 * 3600)
                else:
                    await fleet.sleep(24 * 3600)
            await fleet.sleep(1)

        fleet.loop.run_until_complete(story())
    return fleet


def keeps_its_promises(fleet: Fleet, days: int) -> None:
    fleet.oracle.verdict(fleet.store, drained=False)
    end = START + days * 86_400 * SECOND
    for name, trigger in SCHEDULES.items():
        ticks = trigger.bind(name).between(datetime.fromtimestamp(START / SECOND, UTC), utc(end))
        ran = sorted({line.run.tick or 0 for line in fleet.oracle.lines if line.run.schedule == name})
        assert ran == [to_us(tick) for tick in ticks], name
    late = sorted(line.began - (line.run.tick or 0) for line in fleet.oracle.lines if line.run.attempt == 1)
    assert late[len(late) * 99 // 100] < 100_000


def utc(instant: int) -> datetime:
    return datetime.fromtimestamp(instant / SECOND, UTC)


def test_three_weeks_of_three_schedules_run_every_tick_once(rare_rounds: None) -> None:
    keeps_its_promises(lived(21), 21)


@pytest.mark.long
def test_a_year_of_three_schedules_runs_every_tick_once(rare_rounds: None) -> None:
    keeps_its_promises(lived(365), 365)
