"""A random story from a seed: schedules, weather, deaths, stops, steps of clocks, operators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._engine import janitor, registrar
from oncron._model import Definition, Missed, NewRun, Overlap, RunFilter, ScheduleRecord, new_run_id
from oncron.triggers import Trigger, cron, daily, every, once, parse
from tests.simulation.fleet import Fleet, Replica, fleet_in_virtual_time
from tests.simulation.network import Weather
from tests.simulation.oracle import Oracle, Violation, WatchedStore
from tests.simulation.world import SECOND, START, passes

FAST: list[Trigger] = [every(seconds=0.2), every(seconds=1), every(seconds=1.7), every(seconds=5)]
SLOW: list[Trigger] = [
    every(minutes=15),
    every(minutes=1),
    cron("*/7 * * * *"),
    cron("* * * * *"),
    daily(["00:10", "00:25", "03:00"]),
    every(between=(20, 40)),
    cron("30 0 * * *", timezone="Europe/Berlin"),
    once(datetime(2026, 1, 1, 0, 5, tzinfo=UTC), datetime(2026, 1, 1, 0, 6, tzinfo=UTC)),
]


@dataclass
class Told:
    """What came of a story."""

    steps: int
    runs: int
    executions: int
    takeovers: int
    callbacks: int


def play(
    seed: int,
    *,
    minutes: float | None = None,
    calm: bool = False,
    store: Callable[[Oracle, Callable[[], int]], WatchedStore] = WatchedStore,
) -> Told:
    """The story of this seed. Raises Violation with what the oracle found."""
    story = Story(seed, minutes=minutes, calm=calm)
    try:
        with pytest.MonkeyPatch.context() as patch, fleet_in_virtual_time(seed, store=store, **story.options) as fleet:
            patch.setattr(limits, "DORMANT_AFTER", 60 * SECOND)
            patch.setattr(janitor, "_NOTE_EVERY", 20 * SECOND)
            patch.setattr(janitor, "_PRUNE_EVERY", 30 * SECOND)
            fleet.loop.run_until_complete(story.told_until_alarm(fleet))
        fleet.oracle.verdict(fleet.store)
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from None
    oracle = fleet.oracle
    return Told(oracle.steps, len(fleet.store._run_rows), len(oracle.lines), len(oracle.reaped), fleet.loop.callbacks)


class Story:
    fleet: Fleet

    def __init__(self, seed: int, *, minutes: float | None, calm: bool) -> None:
        self.chance = chance = random.Random(f"story {seed}")
        self.calm = calm
        self.lease = chance.choice([1, 3, 6, 15]) * SECOND
        self.length = minutes if minutes is not None else chance.choice([2, 4, 10])
        self.options: dict[str, Any] = {
            "replicas": chance.choice([1, 2, 3, 3, 5]),
            "lease_for": self.lease,
            "weather": Weather() if calm else self._weather(),
            "skews": (0, 0, 200_000, -3 * SECOND, 3600 * SECOND, -24 * 3600 * SECOND),
            "concurrency": chance.choice([1, 3, 10]),
            "keep_for": chance.choice([30 * SECOND, 3600 * SECOND]),
            "max_running": chance.choice([None, {"slow": 1}, {"slow": 2, "quick": 1}]),
            "queues": chance.choice([None, None, ("mail", "default"), {"mail": 1, "default": 5}]),
        }
        self.roles = [(True, True)] + [chance.choice([(True, True), (True, False), (False, True)]) for _ in range(4)]
        self.lacks = [frozenset[str]()] + [
            frozenset(chance.choice([(), (), ("slow",), ("quick", "moody")])) for _ in range(4)
        ]
        self.release = chance.choice([None, 1])
        pool = SLOW + (FAST if self.length < 5 else FAST[2:])
        self.definitions = [self._definition(f"s{k}", pool) for k in range(chance.randint(1, 6))]

    def _weather(self) -> Weather:
        chance = self.chance
        bad = chance.choice([0, 0.002, 0.02, 0.1])
        return Weather(
            refused=bad * chance.random(),
            answer_lost=bad * chance.random(),
            stalled=bad * chance.random() / 3,
            answered_late=bad * chance.random() / 3,
            hint_lost=chance.choice([0, 0.5, 1]),
            stall_for=3 * self.lease,
            latency=chance.choice([300, 1500, 30_000]),
        )

    def _definition(self, name: str, pool: list[Trigger]) -> Definition:
        chance = self.chance
        return Definition(
            name=name,
            trigger=str(chance.choice(pool).bind(name)),
            task=chance.choice(["quick", "quick", "slow", "moody", "stubborn"]),
            missed=chance.choice(list(Missed)),
            missed_within=chance.choice([None, None, 30 * SECOND]),
            missed_limit=chance.choice([1, 5, 100]),
            overlap=chance.choice(list(Overlap)),
            jitter=chance.choice([0, 0, 3 * SECOND]),
            end_at=chance.choice([None, None, None, START + 100 * SECOND]),
            limit=chance.choice([None, None, None, 20]),
            retries=chance.choice([0, 1, 3]),
            retry_delay=chance.choice([0, SECOND]),
            timeout=chance.choice([None, 3 * SECOND]),
            unique=chance.choice([None, None, None, "the one"]),
            priority=chance.choice([0, 0, 5]),
            queue=chance.choice(["default", "mail"]),
        )

    # --- the plot ---------------------------------------------------------------------

    async def told_until_alarm(self, fleet: Fleet) -> None:
        telling = asyncio.ensure_future(self.told(fleet))
        alarm = asyncio.ensure_future(fleet.oracle.alarm.wait())
        await asyncio.wait({telling, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            telling.result()

    async def told(self, fleet: Fleet) -> None:
        self.fleet = fleet
        fleet.definitions, fleet.release = self.definitions, self.release
        for replica in fleet.replicas:
            scheduler, worker = self.roles[replica.number]
            replica.roles, replica.lacks = {"scheduler": scheduler, "worker": worker}, self.lacks[replica.number]
        fleet.boot()
        end = fleet.loop.now_us + round(self.length * 60 * SECOND)
        while fleet.loop.now_us < end:
            await passes(self.chance.expovariate(1 / 5))
            if not self.calm and self.chance.random() < 0.5:
                self._misfortune(self.chance.choice(fleet.replicas))
            if self.chance.random() < 0.5:
                await self._operator()
        await self._epilogue()

    async def _epilogue(self) -> None:
        """Everything heals; ticks go on for a while; then the schedules pause and all runs end, or are cancelled."""
        fleet = self.fleet
        await fleet.heal()
        await passes(4 * self.lease / SECOND + 30)
        for name in [row.name for row in await fleet.desk(lambda store: store.schedules())]:
            await fleet.desk(lambda store, name=name: registrar.pause(store, name))
        await fleet.drain(300)
        for run_id in list(fleet.store._open):  # a backlog that would take hours is cancelled
            await fleet.desk(lambda store, run_id=run_id: store.cancel(run_id))
        await fleet.drain(1800)
        for replica in fleet.replicas:
            await replica.stop()

    def _misfortune(self, replica: Replica) -> None:
        chance, loop = self.chance, self.fleet.loop
        if not replica.up or replica.process.stopped:
            return
        how_long = round(chance.choice([0.3, 1, 2, 4]) * self.lease * (0.5 + chance.random()))
        match chance.randrange(8):
            case 0:
                replica.kill()
                loop.at(how_long, self._boot, replica)
            case 1:
                process = replica.process
                replica.freeze()
                loop.at(how_long, self._go_on, replica, process)
            case 2:
                loop.create_task(self._restart(replica, how_long), context=loop.outside.copy())
            case 3:
                replica.link.cut = True
                loop.at(how_long, self._join, replica)
            case 4:
                replica.process.wall_offset += chance.choice([-1, 1]) * chance.choice(
                    [SECOND, self.lease, 86400 * SECOND]
                )
            case 5 if chance.random() < 0.1:
                clock, jump = self.fleet.store._clock, chance.choice([2 * SECOND, 60 * SECOND, 3600 * SECOND])
                self.fleet.store._clock = self.fleet.oracle.now = lambda: clock() + jump
                self.fleet.oracle.froze()
            case 6 if chance.random() < 0.3:
                for other in self.fleet.replicas:
                    other.link.cut = True
                    loop.at(how_long, self._join, other)
            case _:
                pass

    def _boot(self, replica: Replica) -> None:
        if not replica.up:
            replica.boot()

    def _go_on(self, replica: Replica, process: object) -> None:
        if replica.process is process and replica.process.stopped:
            replica.go_on()

    def _join(self, replica: Replica) -> None:
        replica.link.cut = False

    async def _restart(self, replica: Replica, pause: int) -> None:
        await replica.stop()
        await passes(pause / SECOND)
        self._boot(replica)

    async def _operator(self) -> None:
        fleet, chance = self.fleet, self.chance
        rows = await fleet.desk(lambda store: store.schedules())
        if not rows:
            return
        row = chance.choice(rows)
        match chance.randrange(12):
            case 0:
                await fleet.desk(lambda store: registrar.pause(store, row.name, "by the operator"))
            case 1 | 2:
                await fleet.desk(lambda store: registrar.resume(store, row.name))
            case 3:
                self._redefine()
            case 4:
                run = NewRun(
                    id=new_run_id(), task=row.definition.task, schedule=row.name, retries=row.definition.retries
                )
                await fleet.desk(lambda store: store.enqueue([run]))
                await fleet.desk(lambda store: store.hint())
            case 5:
                run = NewRun(id=new_run_id(), task=chance.choice(["quick", "slow", "moody"]), unique="the one")
                await fleet.desk(lambda store: store.enqueue([run]))
            case 6 | 7:
                runs = await fleet.desk(lambda store: store.runs(RunFilter(limit=20)))
                if runs:
                    run_id = chance.choice(runs).id
                    if chance.random() < 0.5:
                        await fleet.desk(lambda store: store.cancel(run_id))
                    else:
                        await fleet.desk(lambda store: store.retry(run_id))
            case 8:
                await self._backfill(row)
            case 9:
                new = replace(self._definition(f"api{chance.randrange(2)}", SLOW + FAST[2:]), origin="api")
                await fleet.desk(lambda store: registrar.put(store, new))
            case 10:
                await fleet.desk(lambda store: registrar.remove(store, row.name))
            case _:
                at = fleet.loop.now_us - 60 * SECOND
                await fleet.desk(lambda store: store.prune(ended_before=at, failed_before=at))

    async def _backfill(self, row: ScheduleRecord) -> None:
        """Three instants of the schedule, under one backfill id."""
        fleet, definition = self.fleet, row.definition
        trigger, tick = parse(definition.trigger), fleet.oracle.now() - 120 * SECOND
        runs: list[NewRun] = []
        while len(runs) < 3 and (following := trigger.next_after_us(tick)) is not None:
            if following > fleet.oracle.now():
                break
            tick = following
            runs.append(
                NewRun(
                    id=new_run_id(),
                    task=definition.task,
                    schedule=row.name,
                    tick=tick,
                    backfill="b1",
                    retries=definition.retries,
                )
            )
        await fleet.desk(lambda store: store.enqueue(runs))

    def _redefine(self) -> None:
        """A deploy: one definition changes, and those that run declare it."""
        fleet, chance = self.fleet, self.chance
        at = chance.randrange(len(fleet.definitions))
        if chance.random() < 0.3 and len(fleet.definitions) > 1:
            fleet.definitions.pop(at)  # no code declares it any more: it goes dormant, until one does again
            at = 0
        old = fleet.definitions[at]
        new = self._definition(f"s{chance.randrange(6)}" if chance.random() < 0.2 else old.name, SLOW + FAST[2:])
        if new.name != old.name:
            fleet.definitions = [d for d in fleet.definitions if d.name != new.name] + [new]
            at = len(fleet.definitions) - 1
        elif chance.random() < 0.5:
            new = replace(new, trigger=old.trigger, start_at=old.start_at, end_at=old.end_at)
        fleet.definitions[at] = new
        if fleet.release is not None:
            fleet.release += 1
        for replica in fleet.live():
            if replica.engine.running and (fleet.release is None or chance.random() < 0.5):
                replica.adopt()
                replica.engine.changed()
