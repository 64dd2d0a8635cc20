"""The janitor: takes runs from workers that died, drops what is old, checks next ticks.

Stateless statements, from every replica, in no job and under no lock of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence

from oncron import _defaults as limits
from oncron._clock import sleep_us, wait_us
from oncron._engine import registrar
from oncron._engine.door import Door
from oncron._engine.spec import Settings
from oncron._events import Say
from oncron._model import Definition, Reaped, RunState, ScheduleRecord, Status, new_id
from oncron._plan import next_tick, plan
from oncron.errors import InvalidTrigger, StoreUnavailable
from oncron.triggers import parse

log = logging.getLogger("oncron.janitor")

_REAP = 500
_PRUNE = 1000
_PRUNE_EVERY = 600 * limits.SECOND
_AUDIT = 500
_NOTE_EVERY = 600 * limits.SECOND
_REVIVE_GAP = 30 * limits.SECOND
"""Changes closer together than this cost one look at this replica's schedules; what another release overruled is
offered again so often."""


class Janitor:
    def __init__(
        self,
        door: Door,
        settings: Settings,
        definitions: Callable[[], Sequence[Definition]],
        *,
        due: Callable[[], None],
        look_again: Callable[[], None],
        declare_again: Callable[[], None],
        run_ended: Callable[[str | None], None],
        worker_died: Callable[[], None],
        say: Say,
    ) -> None:
        self._run_ended, self._worker_died = run_ended, worker_died
        self._door, self._settings, self._definitions = door, settings, definitions
        self._due, self._look_again, self._declare_again, self._say = due, look_again, declare_again, say
        self._expired = asyncio.Event()
        self._changed = asyncio.Event()

    def _names(self) -> list[str]:
        return [definition.name for definition in self._definitions()]

    def something_expired(self) -> None:
        self._expired.set()

    def schedules_changed(self) -> None:
        self._changed.set()

    async def reap_loop(self) -> None:
        """When a poll saw an expired lease: reap, once the workers which an outage kept away have had time to renew
        first (G8)."""
        while True:
            await self._expired.wait()
            self._expired.clear()
            while (patience := self._patience()) > 0:
                await sleep_us(patience)
            await self._reap()

    def _patience(self) -> int:
        """How long the others may still need. After a silence a lease's length of unbroken contact. After a time in
        which this replica's writes waited, or in which it had none, they renew within a twelfth of a lease of the
        moment when writes get through; twice that is left to them."""
        lease_for = self._settings.lease_for
        if (patience := lease_for - self._door.contact_for()) > 0:
            return patience
        if (writes_for := self._door.writes_for()) is None:
            self._door.renew_now()
            return lease_for // 30
        return lease_for // 6 - writes_for

    async def _reap(self) -> None:
        # One that hangs for long would be answered after an outage, before the others could renew.
        deadline = min(limits.CALL_DEADLINE, max(limits.SECOND // 2, self._settings.lease_for // 2))
        while True:
            try:
                reaped = await self._door.write(lambda store: store.reap(_REAP), deadline=deadline)
            except StoreUnavailable:
                self._expired.set()  # not reaped yet: the loop starts again, after its pause, and does it then
                raise
            self._tell(reaped)
            if len(reaped.runs) < _REAP:
                return

    def _tell(self, reaped: Reaped) -> None:
        for run in reaped.runs:
            if not run.state.is_open:
                self._run_ended(run.batch)
            if run.state is RunState.PENDING:
                self._say("run.retried", run, reason="its worker died")
            else:
                self._say(f"run.{run.state}", run, reason=run.reason)
            log.warning(
                "run %s of task %r was held by a worker whose lease expired; it is %s now",
                run.id,
                run.task,
                run.state,
                extra={"event": "run.lost", "run": run.id},
            )
        for worker in reaped.workers:
            self._say("worker.dead", worker=worker)
        if reaped.runs:
            self._due()
        if reaped.runs or reaped.workers:
            self._worker_died()

    async def prune_loop(self) -> None:
        """Old ends and gaps, in small batches, so that firing never waits for it. A replica that lives for
        less than ten minutes does its part, too, and what failed is tried again soon."""
        while True:
            now = self._door.clock.now_us()
            kept = now - self._settings.keep_for, now - self._settings.keep_failed_for
            while (
                await self._door(
                    lambda store, kept=kept: store.prune(ended_before=kept[0], failed_before=kept[1], limit=_PRUNE)
                )
                >= _PRUNE
            ):
                await sleep_us(50_000)
            await sleep_us(_PRUNE_EVERY)

    async def dormancy_loop(self) -> None:
        """Note what this replica's code declares; what no replica has declared for an hour goes dormant. Not
        after an outage, and not at the start: whoever was kept away notes first."""
        await self._note()
        while True:
            await sleep_us(_NOTE_EVERY)
            await self._note()
            if self._door.contact_for() >= limits.DORMANT_AFTER:
                await self._put_to_sleep()

    async def _put_to_sleep(self) -> None:
        before = self._door.clock.now_us() - limits.DORMANT_AFTER
        for name in await self._door(lambda store: store.unheld(before)):
            await self._door(lambda store, name=name: registrar.sleep(store, name))
            log.warning(
                "schedule %r goes dormant: no replica has declared it for an hour",
                name,
                extra={"event": "schedule.dormant", "schedule": name},
            )
            self._say("schedule.dormant", schedule=name)

    async def revive_loop(self) -> None:
        """What this replica's code declares is there, and awake: a restore may have dropped it, and the others
        may have put it to sleep while this replica was away. Where another release's definition stands, this one's
        is offered again now and then: the highest release that is alive has the word, also after a crash."""
        pause = _REVIVE_GAP  # a declaration may have been refused at the start
        while True:
            await wait_us(self._changed, pause)
            self._changed.clear()
            missing, contested = await self._astray()
            if missing:
                log.warning(
                    "this replica's code declares %s, which the store has not, or as dormant; declared again",
                    ", ".join(map(repr, missing[:5])) + (" and others" if len(missing) > 5 else ""),
                    extra={"event": "schedule.revived"},
                )
                await self._note()
            if missing or contested:
                self._declare_again()
            pause = 0 if contested else _NOTE_EVERY
            await sleep_us(_REVIVE_GAP)

    async def _astray(self) -> tuple[list[str], bool]:
        """What of the declared is not there or asleep, and whether anything is as another release has it."""
        missing: list[str] = []
        contested = False
        definitions = list(self._definitions())
        for at in range(0, len(definitions), _AUDIT):
            page = {definition.name: definition for definition in definitions[at : at + _AUDIT]}
            rows = await self._door(lambda store, names=list(page): store.schedules(names))
            found = {row.name: row for row in rows}
            missing += [name for name in page if name not in found or _is_asleep(found[name])]
            contested = contested or any(registrar.is_contested(row, page[row.name]) for row in rows)
        return missing, contested

    async def _note(self) -> None:
        names = sorted(self._names())
        if not names:
            return
        set_id = hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]
        if not await self._door(lambda store: store.register(set_id, None)):
            await self._door(lambda store: store.register(set_id, names))

    async def audit_loop(self) -> None:
        """A next tick that is not what the trigger says (set by hand, by a restore) is put right."""
        while True:
            names = self._names()
            for at in range(0, len(names), _AUDIT):
                page = names[at : at + _AUDIT]
                for row in await self._door(lambda store, page=page: store.schedules(page)):
                    await self._audit(row)
            await sleep_us(_PRUNE_EVERY)

    async def _audit(self, row: ScheduleRecord) -> None:
        if row.status is not Status.ACTIVE or row.definition.is_used_up(row.created_count):
            return
        try:
            trigger = parse(row.definition.trigger)
        except InvalidTrigger:
            return
        now = self._door.clock.now_us()
        expected = next_tick(row.definition, trigger, row.cursor)
        if row.next_at == expected or (row.next_at is not None and row.next_at <= now):
            return
        made = plan(row, trigger, now)
        if made is not None:
            log.warning("schedule %r had a wrong next tick; it is put right", row.name)
            await self._door(lambda store: store.fire([made], fire_id=new_id()))
            self._look_again()


def _is_asleep(row: ScheduleRecord) -> bool:
    return row.status is Status.DORMANT and row.definition.origin == "code"
