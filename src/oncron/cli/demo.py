"""`oncron demo`: real replicas on one store, one of them killed; the ledger tells how it went."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import click

from oncron import Oncron
from oncron._clock import SECOND, boot_us, sleep_us
from oncron.cli import logs, render
from oncron.cli.demo_picture import Picture, picture
from oncron.cli.demo_replicas import BEATS, DemoFailed, Place, Replica, Replicas, Tail
from oncron.cli.demo_store import place
from oncron.cli.ledger import Line, Verdict, judge, open_runs
from oncron.cli.target import Target

_LOOK_EVERY = 50_000
_START_WITHIN = 60 * SECOND
_KILL_WITHIN = 15 * SECOND
_DRAIN_WITHIN = 60 * SECOND
_STOP_WITHIN = 20 * SECOND
_HELD_FOR = 150_000
"""How long the victim has held its run when it is killed."""
_QUIET_FOR = 15_000
"""How long the victim has written nothing, and no tick was due, when it is killed."""
_AHEAD = 5_000
"""How far the next tick is away then."""
_HUNT_EVERY = 7_000
_RECENT = 500


@click.command("demo")
@click.option("--store", metavar="URL", help="Where the replicas meet.  [default: a temporary SQLite file]")
@click.option("--replicas", type=click.IntRange(2, 9), default=3, show_default=True, help="How many processes.")
@click.option("--seconds", type=click.FloatRange(3, 3600), default=20, show_default=True, help="For how long.")
@click.option("--ledger", "kept", type=click.Path(dir_okay=False, path_type=Path), help="Keep the ledger in this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary alone, as one line of JSON.")
def demo_command(store: str | None, replicas: int, seconds: float, kept: Path | None, as_json: bool) -> int:
    """Start real replica processes on one store, kill one by SIGKILL while it holds a run, and count.

    Schedules of 200 ms and of one second tick in every replica. Their tasks append to a ledger when
    they start and when they end; the summary is counted from it, whatever the store says. In a given
    store the demo uses a namespace of its own, which it removes. Exits 1 on a duplicate or a missed tick.
    """
    out = sys.stderr if as_json else sys.stdout
    with place(store) as where, logs.notes("oncron.stores"):
        verdict, story = asyncio.run(_until_terminated(where, replicas, round(seconds * SECOND), out))
        if kept is not None:
            shutil.copyfile(where.ledger, kept)
    if as_json:
        for fault in verdict.faults:
            print(fault, file=sys.stderr)
        print(json.dumps(verdict.summary()))
    else:
        _tell(verdict, story)
    return 0 if verdict.clean else 1


async def _until_terminated(where: Place, replicas: int, duration: int, out: TextIO) -> tuple[Verdict, list[str]]:
    """SIGTERM ends a demo as Ctrl-C does: replicas stopped, namespace removed."""
    task = asyncio.ensure_future(_Demo(where, replicas, duration, out).carry_out())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@dataclass
class _Killed:
    replica: Replica
    held: Line
    at: int


class _Demo:
    def __init__(self, where: Place, replicas: int, duration: int, out: TextIO) -> None:
        self._where, self._number, self._duration, self._out = where, replicas, duration, out
        self._target = Target(Oncron(where.store, namespace=where.namespace), where.store, in_code=False)
        self._app = self._target.app
        self._tail = Tail(where.ledger)
        self._began = 0

    async def carry_out(self) -> tuple[Verdict, list[str]]:
        """Raises StoreError, DemoFailed."""
        await self._app.migrate()
        with Replicas(self._where, self._number) as replicas, picture(BEATS, self._out) as shown:
            await self._all_there(replicas, shown)
            since = await self._resume_all()
            killed = await self._tick(replicas, shown)
            until = await self._pause_all()
            await self._drained(replicas, shown)
            await replicas.stop(_STOP_WITHIN)
            shown.show(self._tail.follow(), self._elapsed)
        lines = self._tail.follow()
        grids = {name: beat.grid(after=since, until=until[name]) for name, beat in BEATS.items()}
        return judge(lines, grids), _story(lines, killed)

    @property
    def _elapsed(self) -> int:
        return boot_us() - self._began

    # --- the acts -------------------------------------------------------------------------

    async def _all_there(self, replicas: Replicas, shown: Picture) -> None:
        """Until every replica and every schedule is in the store. They are paused until then."""
        shown.say(f"{self._number} replicas start, each with the same {len(BEATS)} schedules ...")
        until = boot_us() + _START_WITHIN
        while True:
            stats = await self._app.stats()
            if len(stats.workers) >= self._number and sum(stats.schedules.values()) >= len(BEATS):
                return
            replicas.check()
            if boot_us() > until:
                raise DemoFailed(f"the replicas did not start within {_START_WITHIN / SECOND:g} s")
            await sleep_us(_LOOK_EVERY)

    async def _resume_all(self) -> int:
        """The instant of the store's clock from which every schedule ticks."""
        self._began = boot_us()
        for name in BEATS:
            await self._app.resume(name)
        return await self._target.ask(lambda store: store.now())

    async def _tick(self, replicas: Replicas, shown: Picture) -> _Killed:
        """Let them tick; in the second half of the time kill one that holds a run."""
        killed: _Killed | None = None
        while self._elapsed < self._duration or killed is None:
            replicas.check()
            lines = self._tail.follow()
            shown.show(lines, self._elapsed)
            if killed is not None or self._elapsed < self._duration // 2:
                await sleep_us(_LOOK_EVERY)
                continue
            killed = await self._kill_one(replicas, lines)
            if killed is not None:
                shown.say(
                    f"{self._elapsed / SECOND:5.1f} s  SIGKILL to replica {killed.replica.name}, which holds the "
                    f"run of {killed.held.schedule} at {render.utc(killed.held.tick)[11:]}"
                )
            elif self._elapsed > self._duration + _KILL_WITHIN:
                raise DemoFailed("no replica could be killed in the middle of a run; is this machine very busy?")
            await sleep_us(_HUNT_EVERY)
        return killed

    async def _kill_one(self, replicas: Replicas, lines: Sequence[Line]) -> _Killed | None:
        """Kill a replica in the middle of a slow run, and of nothing else: one that has written its end
        but not yet told the store would rightly run again (at least once), and prove nothing. So between
        two ticks, of a replica that by the ledger and by the store holds this one run."""
        now = self._target.now_us()
        open_now = list(open_runs(lines[-_RECENT:]).values())
        for replica in replicas.living:
            held = [line for line in open_now if line.worker == replica.name]
            spoke = max((line.at for line in lines[-_RECENT:] if line.worker == replica.name), default=now)
            if len(held) != 1 or held[0].schedule != "slow" or now - held[0].at < _HELD_FOR or now - spoke < _QUIET_FOR:
                continue
            running = await self._app.runs(state="running")
            holder = next((run.worker for run in running if run.id == held[0].run), None)
            if [run.id for run in running if run.worker == holder] == [held[0].run] and self._between_ticks():
                replica.kill()
                return _Killed(replica, held[0], now)
        return None

    def _between_ticks(self) -> bool:
        now = self._target.now_us()
        into = [(now - beat.offset) % beat.every for beat in BEATS.values()]
        return min(into) > _QUIET_FOR and min(b.every - i for b, i in zip(BEATS.values(), into, strict=True)) > _AHEAD

    async def _pause_all(self) -> dict[str, int]:
        """No more ticks; the last tick of each schedule that has to run."""
        for name in BEATS:
            await self._app.pause(name)
        return {schedule.name: schedule.record.cursor for schedule in await self._app.schedules()}

    async def _drained(self, replicas: Replicas, shown: Picture) -> None:
        """Until no run is open; that of the killed replica among them."""
        until = boot_us() + _DRAIN_WITHIN
        while boot_us() < until:
            runs = (await self._app.stats()).runs
            if not runs.get("pending", 0) and not runs.get("running", 0):
                return
            replicas.check()
            shown.show(self._tail.follow(), self._elapsed)
            await sleep_us(_LOOK_EVERY)
        shown.say(f"runs are still open {_DRAIN_WITHIN / SECOND:g} s after the last tick; they count as missed")


def _story(lines: Sequence[Line], killed: _Killed) -> list[str]:
    """What became of the run that the killed replica held."""
    starts = [line for line in lines if line.run == killed.held.run and line.what == "start"]
    told = f"Replica {killed.replica.name} was killed while it held the run of {killed.held.schedule}"
    if len(starts) < 2:
        return [f"{told}; nobody took it over."]
    after = render.span(starts[1].at - killed.at)
    return [f"{told}; replica {starts[1].worker} took it over {after} later, as attempt {starts[1].attempt}."]


def _tell(verdict: Verdict, story: Sequence[str]) -> None:
    p50, p99 = verdict.lateness_ms(50), verdict.lateness_ms(99)
    render.lines(["", *story])
    render.lines([f"Lateness by the store's clock: p50 {p50} ms, p99 {p99} ms."])
    render.lines(
        [
            (
                "Counted from the ledger: "
                f"{render.count(verdict.ticks, 'tick')}, {render.count(verdict.runs, 'run')}, "
                f"{render.count(len(verdict.duplicates), 'duplicate')}, {len(verdict.missed)} missed, "
                f"{render.count(len(verdict.takeovers), 'take-over')}."
            )
        ]
    )
    render.lines(verdict.faults, style="red")
