"""The same app on a store or an engine that was broken on purpose: `oncron run tests.fault.mutants:app`.

FAULT_MUTANT names what is broken. What the oracle does not report of these it would not report
of a real defect either. "none" breaks nothing but has every replica fire every tick, as the others do.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable

from msgspec.structs import replace

from oncron import _clock as _clock_module, _plan
from oncron._engine import door, keeper, registrar, replica, scheduler, shards
from oncron._model import Reaped, new_run_id
from oncron.stores import _occupancy as occupancy
from oncron.stores.postgres import _connection, _pool
from oncron.stores.sqlite import _fire, _reads, _workers
from tests.fault.app import app


def everybody_is_first() -> None:
    shards.Shards.is_mine = lambda self, name: True


def compare_and_set_dropped() -> None:
    """A cursor lets a tick pass for whoever comes, and a run's id is no function of its tick."""
    everybody_is_first()
    _fire.Row.is_as_planned = lambda self, plan: self.status == "active"
    _fire.Row.repeats = lambda self, plan, fire_id: False
    _plan.tick_run_id = lambda name, tick: new_run_id()


def every_tenth_run_dropped() -> None:
    """The cursor has passed the tick, but there is neither run nor gap."""
    create, count = _fire.Firing._create, itertools.count(1)

    def forgetful(self, row, tick, **place):
        if next(count) % 10:
            create(self, row, tick, **place)

    _fire.Firing._create = forgetful


def never_reaped() -> None:
    _workers.reap = lambda step, limit: Reaped(runs=())


def living_reaped() -> None:
    """Leases are taken for expired while their workers are alive."""
    poll, reap = _reads.poll, _workers.reap

    def alarmed(*given):
        found = poll(*given)
        return type(found)(**{name: getattr(found, name) for name in found.__struct_fields__} | {"expired": True})

    def impatient(step, limit):
        step.connection.execute("update oncron_workers set lease_until = 0")
        return reap(step, limit)

    _reads.poll, _workers.reap = alarmed, impatient


def fired_early() -> None:
    """Replicas believe that it is 50 ms later than the store's clock says, and the store does not check."""
    heard, fire = door.StoreClock.heard, _fire.fire

    def ahead(self, sent, received, now):
        heard(self, sent, received, now + 50_000)

    def unchecked(step, plans, claim, fire_id):
        step.now += 60_000
        try:
            return fire(step, plans, claim, fire_id)
        finally:
            step.now -= 60_000

    door.StoreClock.heard, _fire.fire = ahead, unchecked


def place_never_taken() -> None:
    """Runs that would have to wait for their turn, or to be skipped, find nobody in their way."""
    _fire.admit = occupancy.admit = lambda overlap, serial, *, catchup: occupancy.Verdict()


def skipped_in_silence() -> None:
    """Ticks that are refused for an overlap leave no record."""
    record = _fire.record_gaps

    def selective(step, gaps):
        record(step, [(name, seen, [gap for gap in of if gap.reason != "overlap"]) for name, seen, of in gaps])

    _fire.record_gaps = selective


def owed_dropped() -> None:
    """A changed trigger moves the cursor past ticks that the old one owes."""

    async def nothing(store, row, now):
        return False

    registrar._settle = nothing


def no_patience() -> None:
    """A reaper that never lost its contact, whatever the store did."""
    door.Door.contact_for = lambda self: 10**12


def nothing_remembered() -> None:
    """A cursor that the store shows is taken as it is."""

    async def believed(self, dues):
        return dues

    scheduler.Scheduler._not_rolled_back = believed


def lease_never_doubted() -> None:
    """A replica that cannot renew its lease goes on executing."""
    keeper.Keeper.doubtful = property(lambda self: False)


def late_answers_believed() -> None:
    """What a claim answered is started however long ago it was asked."""
    trust = keeper.Keeper.trust
    keeper.Keeper.trust = lambda self, sent, left: trust(self, sent, left) or True


def strays_ignored() -> None:
    """Leases that a heartbeat tells of, and no answer brought, are nobody's business."""
    heard = keeper.Keeper._heard

    def deaf(self, pulse, *given, **options):
        heard(self, replace(pulse, strays=()), *given, **options)

    keeper.Keeper._heard = deaf


def first_failure_last() -> None:
    """A loop that met an error is not started again."""

    async def once(self, name, loop):
        await loop()

    replica.Replica._supervised = once


def no_deadline() -> None:
    """A call waits for its answer as long as it takes."""

    class Patient:
        """The module `asyncio`, but for its limits."""

        def __getattr__(self, name):
            return getattr(asyncio, name)

        def timeout(self, _within):
            return asyncio.timeout(None)

        timeout_at = timeout

    door.asyncio = _pool.asyncio = _connection.asyncio = Patient()


def broken_connections_kept() -> None:
    """A connection that failed is taken for the next call."""

    @contextlib.asynccontextmanager
    async def connection(self, until):
        async with self._free:
            taken = await self._take(until)
            try:
                yield taken
            finally:
                self._idle.append(taken)

    async def nothing(self):
        pass

    _pool.Pool.connection, _pool.Pool.renew = connection, nothing
    _connection.Connection.is_usable = lambda self: True


def time_by_the_wall() -> None:
    """Waits and leases are measured on the clock that somebody may set."""

    class Wall:
        """The module `time`, but for the clock that nobody sets."""

        def __getattr__(self, name):
            return getattr(time, name)

        def clock_gettime_ns(self, _clock):
            return _clock_module.wall_us() * 1000

    _clock_module.time = Wall()


def session_settings() -> None:
    """The namespace is told to each connection once, not in each step."""
    connect, send = _connection.Connection.open.__func__, _connection.Connection.send

    async def told(cls, *given):
        connection = await connect(cls, *given)
        await connection._line.execute(b"set search_path = oncron")
        return connection

    async def unqualified(self, message, **options):
        return await send(self, re.sub(rb'select "?oncron"?[.]', b"select ", message), **options)

    _connection.Connection.open, _connection.Connection.send = classmethod(told), unqualified


MUTANTS: dict[str, Callable[[], None]] = {
    "none": everybody_is_first,
    "compare-and-set dropped": compare_and_set_dropped,
    "every tenth run dropped": every_tenth_run_dropped,
    "never reaped": never_reaped,
    "living reaped": living_reaped,
    "fired early": fired_early,
    "lease never doubted": lease_never_doubted,
    "place never taken": place_never_taken,
    "skipped in silence": skipped_in_silence,
    "no patience": no_patience,
    "nothing remembered": nothing_remembered,
    "owed ticks dropped by a change": owed_dropped,
    "late answers believed": late_answers_believed,
    "strays ignored": strays_ignored,
    "first failure the last": first_failure_last,
    "no deadline": no_deadline,
    "broken connections kept": broken_connections_kept,
    "time by the wall": time_by_the_wall,
    "settings of the session": session_settings,
}

__all__ = ["app"]

MUTANTS[os.environ["FAULT_MUTANT"]]()
