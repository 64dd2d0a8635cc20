"""SQLiteStore: every method of the contract is one transaction on one connection."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from oncron import _defaults as limits, _model as m
from oncron.errors import InvalidOption, SchemaOutdated
from oncron.stores._no_guards import NoGuards
from oncron.stores.sqlite import (
    _claim,
    _declare,
    _endings,
    _enqueue,
    _fire,
    _reads,
    _schema,
    _wakeups,
    _workers,
)
from oncron.stores.sqlite._groups import Groups
from oncron.stores.sqlite._lane import Lane
from oncron.stores.sqlite._step import Step, statements, store_now
from oncron.stores.sqlite._transactions import InTransactions

T = TypeVar("T")

_inherited: list[Lane] = []
"""Lanes of a parent process. They are kept for good: letting go of one would close its connection
here, and with it the parent's locks."""


class SQLiteStore(InTransactions, Groups, NoGuards):
    """A store in a file. `path_or_url` is a path, `sqlite:///relative.db` or `sqlite:////absolute.db`;
    `namespace` begins the names of the tables, so that several apps may share the file.

    May be used from any thread and event loop; in a forked child it opens the file anew.
    Raises InvalidOption for an address or a namespace that means nothing.
    """

    def __init__(self, path_or_url: str | os.PathLike[str], *, namespace: str = "oncron") -> None:
        self.path = _path_of(path_or_url)
        self.url = f"sqlite:///{self.path}"
        if re.fullmatch(r"[a-z][a-z0-9_]{0,39}", namespace) is None:
            raise InvalidOption(
                f"namespace {namespace!r} cannot begin the name of a table: use 1 to 40 small letters, "
                "digits and underscores, a letter first"
            )
        self._prefix = namespace
        self._where = f"SQLite file {self.path}"
        self._sql = statements(namespace)
        self._lane: Lane | None = None
        self._choosing = threading.Lock()
        self._within = limits.CALL_DEADLINE
        self._activity = _wakeups.Activity()

    # --- life cycle -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises StoreUnsafe if the file cannot be written, is no database, cannot do write-ahead
        logging, or is in use by another machine."""
        self._activity.is_over = False
        try:
            # A write that says nothing new: what cannot be written is found out now, not at the first tick.
            await self._write(lambda step: step.do("meta.now", now=step.now))
        except SchemaOutdated:
            pass  # no tables yet: `check` tells, `migrate` makes them

    async def close(self) -> None:
        self._activity.is_over = True
        lane, self._lane = self._lane, None
        if lane is not None and lane.pid == os.getpid():
            await lane.end()

    async def reset(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None and lane.pid == os.getpid():
            lane.leave()

    async def migrate(self) -> None:
        if await self._stored_schema() != (_schema.MAJOR, _schema.minor()):
            await self._run(self._upgrade)

    def _upgrade(self, connection: sqlite3.Connection, lane: Lane) -> None:
        lane.until_free(lambda: connection.execute("begin immediate"))
        try:
            _schema.upgrade(Step(connection, self._sql), self._prefix, self._where)
            lane.until_free(lambda: connection.execute("commit"))
        except BaseException:
            lane.roll_back(connection)
            raise

    async def check(self) -> None:
        _schema.check(await self._stored_schema(), self._where)

    async def _stored_schema(self) -> tuple[int, int] | None:
        return await self._run(
            lambda connection, lane: lane.until_free(lambda: _schema.stored(Step(connection, self._sql)))
        )

    async def now(self) -> int:
        """Raises StoreUnavailable while the file's clock is more than a minute ahead of this machine's."""
        return await self._read(lambda step: store_now(step.now, self._where))

    # --- schedules and ticks --------------------------------------------------------------------

    async def declare(self, changes: Sequence[m.Change], *, now: int | None = None) -> list[m.Changed]:
        return await self._write(lambda step: _declare.declare(step, changes), now)

    async def register(self, set_id: str, names: Sequence[str] | None, *, now: int | None = None) -> bool:
        return await self._write(lambda step: _declare.register(step, set_id, names), now)

    async def unheld(self, before: int, *, limit: int = 1000, now: int | None = None) -> list[str]:
        return await self._write(lambda step: _declare.unheld(step, before, limit), now)

    async def due(
        self, horizon: int, *, after: tuple[int, str] | None = None, exclude: Sequence[str] = (), limit: int = 1000
    ) -> list[m.Due]:
        return await self._read(lambda step: _declare.due(step, horizon, after, exclude, limit))

    async def fire(
        self, plans: Sequence[m.FirePlan], claim: m.ClaimSpec | None = None, *, fire_id: str, now: int | None = None
    ) -> m.Fired:
        fired = await self._write(lambda step: _fire.fire(step, plans, claim, fire_id), now)
        self._activity.took(fired.leases)
        return fired

    # --- runs -----------------------------------------------------------------------------------

    async def enqueue(self, runs: Sequence[m.NewRun], *, now: int | None = None) -> list[m.EnqueueResult]:
        return await self._write(lambda step: _enqueue.enqueue(step, runs), now)

    async def claim(self, spec: m.ClaimSpec, *, now: int | None = None) -> m.Claimed:
        claimed = await self._write(lambda step: _claim.claim(step, spec), now)
        self._activity.took(claimed.runs)
        return claimed

    async def heartbeat(
        self,
        worker: m.WorkerRecord,
        lease_for: int,
        held: Sequence[tuple[str, int]] = (),
        reports: Sequence[m.Report] = (),
        *,
        now: int | None = None,
    ) -> m.Pulse:
        pulse = await self._write(lambda step: _workers.heartbeat(step, worker, lease_for, held, reports), now)
        self._activity.holds({run_id for run_id, _ in held} - set(pulse.lost))
        return pulse

    async def leave(self, worker: str) -> None:
        await self._write(lambda step: _workers.leave(step, worker))

    async def finish(self, outcomes: Sequence[m.Outcome], *, now: int | None = None) -> list[m.FinishResult]:
        results = await self._write(lambda step: _endings.finish(step, outcomes), now)
        self._activity.gave(result.run_id for result in results)
        return results

    async def reap(self, limit: int = 1000, *, now: int | None = None) -> m.Reaped:
        return await self._write(lambda step: _workers.reap(step, limit), now)

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> m.RunRecord:
        return await self._write(lambda step: _endings.cancel(step, run_id, opening), now)

    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> m.EnqueueResult:
        return await self._write(lambda step: _endings.retry(step, run_id, opening), now)

    async def prune(
        self,
        *,
        ended_before: int,
        failed_before: int,
        keep_failed: int | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> int:
        return await self._write(
            lambda step: _endings.prune(step, ended_before, failed_before, keep_failed, limit), now
        )

    # --- waking up ------------------------------------------------------------------------------

    async def poll(self, tasks: Sequence[str], queues: Sequence[str] | None, *, now: int | None = None) -> m.Poll:
        return await self._read(lambda step: _reads.poll(step, tasks, queues, _schema.meta(step, self._where)[3]), now)

    async def hint(self) -> None:
        """Nothing to do: the write itself is what the others see."""

    def wakeups(self) -> AsyncIterator[None]:
        return _wakeups.changes(self.path, self._activity, self._data_version)

    async def _data_version(self) -> int:
        """Changes when another connection has committed, and only then."""
        return await self._run(lambda connection, _: connection.execute("pragma data_version").fetchone()[0])

    # --- reading --------------------------------------------------------------------------------

    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[m.ScheduleRecord]:
        return await self._read(lambda step: _declare.schedules(step, names, tag, after, limit))

    async def gaps(
        self, schedule: str, *, since: int | None = None, until: int | None = None, limit: int = 100
    ) -> list[m.Gap]:
        return await self._read(lambda step: _reads.gaps(step, schedule, since, until, limit))

    async def get_run(self, run_id: str) -> m.RunRecord | None:
        found = await self.get_runs([run_id])
        return found[0] if found else None

    async def get_runs(self, run_ids: Sequence[str]) -> list[m.RunRecord]:
        return await self._read(lambda step: _reads.get_runs(step, run_ids))

    async def runs(self, where: m.RunFilter) -> list[m.RunRecord]:
        return await self._read(lambda step: _reads.runs(step, where))

    async def workers(self) -> list[m.WorkerRecord]:
        return await self._read(_reads.workers)

    async def stats(self, *, now: int | None = None) -> m.Stats:
        return await self._read(_reads.stats, now)

    # --- transactions ---------------------------------------------------------------------------

    async def _write(self, work: Callable[[Step], T], now: int | None = None) -> T:
        """One step that may write: begun with the only write lock, so that what it reads stays true."""
        result, wrote = await self._run(lambda connection, lane: self._transact(connection, lane, work, now))
        if wrote:
            self._activity.wrote()
        return result

    def _transact(
        self, connection: sqlite3.Connection, lane: Lane, work: Callable[[Step], T], now: int | None
    ) -> tuple[T, bool]:
        lane.until_free(lambda: connection.execute("begin immediate"))
        try:
            before = connection.total_changes
            step = Step(connection, self._sql)
            _schema.begin(step, now, self._where)
            result = work(step)
            wrote = connection.total_changes != before
            if wrote and now is None:
                step.do("meta.now", now=step.now)
            # Nothing written, nothing to sync: whoever lost a race costs no disk access.
            lane.until_free(lambda: connection.execute("commit" if wrote else "rollback"))
            return result, wrote
        except BaseException:
            lane.roll_back(connection)
            raise

    async def _read(self, work: Callable[[Step], T], now: int | None = None) -> T:
        """One look at one moment's state. Takes no lock that a writer would wait for."""

        def transact(connection: sqlite3.Connection, lane: Lane) -> T:
            return lane.until_free(lambda: self._look(connection, lane, work, now))

        return await self._run(transact)

    def _look(self, connection: sqlite3.Connection, lane: Lane, work: Callable[[Step], T], now: int | None) -> T:
        connection.execute("begin")
        try:
            step = Step(connection, self._sql)
            _schema.look(step, now, self._where)
            return work(step)
        finally:
            lane.roll_back(connection)

    async def _run(self, work: Callable[[sqlite3.Connection, Lane], T]) -> T:
        lane = self._current_lane()
        return await lane.call(lambda connection: work(connection, lane), self._within)

    def _current_lane(self) -> Lane:
        with self._choosing:
            return self._chosen_lane()

    def _chosen_lane(self) -> Lane:
        lane = self._lane
        if lane is not None and lane.pid != os.getpid():
            _inherited.append(lane)
            lane = None
        if lane is None or lane.is_gone():
            lane = self._lane = Lane(self.path)
        return lane


def _path_of(path_or_url: str | os.PathLike[str]) -> Path:
    """The file of an address, absolute: a process may change its working directory later."""
    text = os.fspath(path_or_url)
    if text.startswith("sqlite:"):
        if not text.startswith("sqlite:///"):
            raise InvalidOption(f"{text!r}: write sqlite:///relative.db, or sqlite:////absolute.db with four slashes")
        text = text.removeprefix("sqlite:///")
        if "?" in text or "#" in text:
            raise InvalidOption(f"{path_or_url!r}: an SQLite address takes no options; leave out what follows the path")
    if not text or text == ":memory:":
        raise InvalidOption(f"{str(path_or_url)!r} names no file; for a store in memory write memory://")
    return Path(text).absolute()
