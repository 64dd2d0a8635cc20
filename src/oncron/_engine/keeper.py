"""The keeper: heartbeats, and how long this replica may trust its own lease.

A holder counts its lease from the moment it *sent* the claim or heartbeat, on a clock that
runs on while the machine sleeps, and stops acting a margin before others may take over. So a
process that was stopped, cut off or suspended lets go by itself before a second one starts;
what it writes later is refused by its token (G5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from oncron import _defaults as limits
from oncron._clock import boot_us, wait_us, wall_us
from oncron._engine.door import Door
from oncron._engine.spec import Settings, TaskSpec
from oncron._engine.worker import Worker
from oncron._model import Pulse, WorkerRecord
from oncron.errors import StoreUnavailable

log = logging.getLogger("oncron.keeper")


class Keeper:
    def __init__(
        self,
        door: Door,
        settings: Settings,
        me: Callable[[], WorkerRecord],
        worker: Worker,
        tasks: Mapping[str, TaskSpec],
        *,
        on_trust: Callable[[int], None],
    ) -> None:
        self._door, self._settings, self._me = door, settings, me
        self._worker, self._tasks = worker, tasks
        self._on_trust = on_trust
        self._trusted_until = 0
        self._without_reports = False
        self._at_once = False
        self._due: int | None = None
        """When the next heartbeat comes (boot clock); None: when an idle replica's comes."""
        self._sooner = asyncio.Event()
        door.renew_now = self._beat_at_once
        self._wall_minus_boot = wall_us() - boot_us()
        self._margin = settings.lease_for // 6
        # Soon after one that failed, whatever the other loops heard: a store that was away for less than half
        # a lease, which reapers take for no silence, is told in time.
        self._again = min(limits.SECOND // 2, settings.lease_for // 12)

    def trust(self, sent: int, lease_left: int) -> bool:
        """The store said at some moment after `sent` (boot clock) that the lease has this long to go.
        Whether that answer still holds: one that came too late says nothing of what was taken away
        meanwhile, whatever a later heartbeat renewed. Then the next heartbeat comes at once."""
        self._trusted_until = max(self._trusted_until, sent + lease_left)
        # A worker process that this replica cannot stop in time lets go by itself, a little later than it would.
        self._on_trust(self._trusted_until - self._margin // 4)
        if boot_us() > sent + lease_left - self._margin:
            self._beat_at_once()
            return False
        return True

    @property
    def doubtful(self) -> bool:
        return boot_us() > self._trusted_until - self._margin

    async def once(self) -> Pulse:
        """One heartbeat. Raises StoreUnavailable. After one that failed the next comes without the reports, which
        may be the reason: the leases must not depend on them."""
        worker = self._worker
        held = worker.held
        told = () if self._without_reports else list(worker.executions.values())
        reports = [report for execution in told if (report := execution.report())]
        self._without_reports = bool(reports)
        sent = boot_us()
        try:
            pulse = await self._door.renew(
                lambda store: store.heartbeat(self._me(), self._settings.lease_for, held, reports),
                deadline=min(limits.CALL_DEADLINE, max(500_000, self._settings.lease_for // 3)),
            )
        except Exception:
            for execution in worker.executions.values():
                if execution.has_news:
                    execution.reported = False
            raise
        self._without_reports = False
        self._heard(pulse, dict(held), sent, sure=self.trust(sent, pulse.lease_until - pulse.now))
        return pulse

    def _heard(self, pulse: Pulse, held: dict[str, int], sent: int, *, sure: bool) -> None:
        for run_id in pulse.lost:
            self._worker.lose(run_id, held[run_id])
        for run_id in pulse.cancel:
            execution = self._worker.executions.get(run_id)
            if execution is not None and execution.stop_reason is None:
                execution.ask_to_stop("cancelled")
        for run in pulse.strays if sure else ():
            self._worker.accept(run, sent)

    async def run(self) -> None:
        """Every third of a lease while anything is held, every twenty seconds when idle."""
        while True:
            self._at_once = False
            try:
                await self.once()
            except StoreUnavailable:
                self._due = boot_us() + self._again
            else:
                self._due = self._a_third_gone if self._worker.executions else None
            await self._until_due(boot_us() + limits.IDLE_HEARTBEAT)
            self._worker.forget_old()

    @property
    def _a_third_gone(self) -> int:
        return self._trusted_until - self._settings.lease_for * 2 // 3

    async def _until_due(self, idle_until: int) -> None:
        while not self._at_once:
            self._sooner.clear()
            wait = (idle_until if self._due is None else self._due) - boot_us()
            if wait <= 0:
                return
            await wait_us(self._sooner, wait)

    def _beat_at_once(self) -> None:
        self._at_once = True
        self._sooner.set()

    async def watch(self) -> None:
        """Notice that the lease can no longer be trusted, between heartbeats."""
        step = max(20_000, self._settings.lease_for // 12)
        while True:
            await self._quiet_or(step)
            self._look_at_clocks()
            self._worker.look_at_loop()
            if self._worker.executions and self.doubtful:
                self._doubt()

    async def _quiet_or(self, step: int) -> None:
        """While nothing is held there is nothing to watch: sleep until something is."""
        if not self._worker.executions:
            await self._worker.busy.wait()
        if self._due is None:
            # What was claimed renewed the lease. A replica that is busy for moments, again and again, must not
            # ask at each of them, and must not put its heartbeat off at each either. Looked at each time: it may
            # have been idle only for the moment in which a heartbeat was answered.
            self._due = self._a_third_gone
            self._sooner.set()
        await wait_us(self._worker.quiet, step)

    def _look_at_clocks(self) -> None:
        """A jump between the two clocks of more than a third of a lease: a suspended machine, a restored
        snapshot, a clock set by hand. What the lease is worth is then unknown until the store was asked."""
        difference = wall_us() - boot_us()
        if abs(difference - self._wall_minus_boot) > self._settings.lease_for // 3:
            log.warning("the clocks of this machine jumped; leases are asked for again")
            self._trusted_until = 0
            self._beat_at_once()
        self._wall_minus_boot = difference

    def _doubt(self) -> None:
        self._beat_at_once()
        for execution in list(self._worker.executions.values()):
            spec = self._tasks.get(execution.run.task)
            if spec is not None and spec.on_doubt == "continue":
                continue
            if (execution.started or execution.handed_over) and execution.stop_reason is None:
                log.warning(
                    "run %s of task %r is stopped: its lease could not be renewed in time",
                    execution.run.id,
                    execution.run.task,
                    extra={"event": "lease.lost", "run": execution.run.id},
                )
                execution.ask_to_stop("doubt")
