"""The scheduler: lets every tick pass once, at its time.

It keeps an agenda of what is due within a minute. At a tick, the replica that is *first* for
the schedule's shard fires; the others look a few milliseconds later whether anything is still
due (a lock-free read) and fire what is. Who is first is a matter of speed alone: the store's
compare-and-set lets a tick pass once whoever comes (G1), refuses it before its time by the
store's clock (G2), and a schedule whose first replica is dead is some milliseconds late.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._clock import boot_us, from_us, nap_us, wait_us
from oncron._engine import registrar
from oncron._engine.aside import Aside
from oncron._engine.definitions import Definitions
from oncron._engine.door import Door, is_for_the_operator
from oncron._engine.shards import Shards
from oncron._events import Say
from oncron._model import (
    ClaimSpec,
    Due,
    Fired,
    FireOutcome,
    FirePlan,
    FireResult,
    GapReason,
    RunRecord,
    ScheduleRecord,
    new_id,
)
from oncron._plan import next_tick, plan
from oncron.errors import StoreError, StoreUnavailable
from oncron.triggers import Trigger

log = logging.getLogger("oncron.scheduler")

_HORIZON = limits.SLEEP_AT_MOST
_REFRESH = _HORIZON * 3 // 4
_FAR = 2**62
_CHUNK = 500
_PARTS = 8
"""A chunk that fails is tried again in so many parts."""
_FAILURES = 20
"""After so many in one turn the store is taken to be in trouble as a whole."""
_PAGE = 1000
_LOOK_AFTER = 10_000
"""The others look this long after the tick, plus their own hash."""
_LOOK_SPREAD = 10_000
_CROWD = 100
_LOOK_PER_DUE = 100
"""When more than a crowd is due, once more so much later for each of them."""
_SUSPECT_FOR = 10 * limits.SECOND
"""How long a first replica that did not come is passed over; then it is tried again."""
_REMEMBERED = 200_000
_SPIN = 1_300
"""An event loop wakes up to a millisecond late (its timers are in whole milliseconds): it is
woken this much early and the rest is slept in the thread itself."""


@dataclass(slots=True)
class Entry:
    """A schedule that is due soon, as far as this replica knows."""

    row: ScheduleRecord
    trigger: Trigger
    revision: int
    cursor: int
    next_at: int
    exact: bool
    """Whether cursor and next_at are what the store has; otherwise another replica has fired since."""
    mine: bool
    wake_at: int | None = None
    """When its turn comes; None while it is in nobody's heap."""
    left_to_first: bool = False


class Scheduler:
    """`reserve` says what `fire` may lease on the spot (None: nothing), `take` gets what it leased."""

    def __init__(
        self,
        door: Door,
        shards: Shards,
        *,
        reserve: Callable[[], ClaimSpec | None],
        take: Callable[[ClaimSpec, Iterable[RunRecord], int, int | None], None],
        left_due: Callable[[], None],
        say: Say,
        tzdata: str = "",
    ) -> None:
        self._door, self._shards, self._reserve, self._lease = door, shards, reserve, take
        self._left_due, self._say, self._tzdata = left_due, say, tzdata
        self._agenda: dict[str, Entry] = {}
        self._heap: list[tuple[int, str]] = []
        self._definitions = Definitions(door, tzdata)
        self._settled: dict[str, int] = {}
        """How far each schedule's ticks are known to be settled, to notice a store that went back."""
        self._told: dict[str, int] = {}
        """The same from runs that were seen since the last read: one on its way may not show them yet."""
        self._aside = Aside()
        self._failures = 0
        self._wake = asyncio.Event()
        self._stale = True
        self._refresh_at = 0
        self._ahead: Due | None = None
        """What `step` saw last to be next."""

    def look_again(self) -> None:
        """Read the agenda anew."""
        self._stale = True
        self._wake.set()

    def schedules_changed(self) -> None:
        """Read the agenda anew, and what could not be read: it may be mended."""
        self._definitions.try_again()
        self.look_again()

    def has_settled(self, name: str, tick: int) -> None:
        """A run of that tick was seen: the schedule's cursor has passed it, whoever fired it."""
        self._told[name] = max(tick, self._told.get(name, tick))

    def regroup(self) -> None:
        """The replicas changed: who is first is drawn anew."""
        for entry in self._agenda.values():
            entry.mine = self._shards.is_mine(entry.row.name)
            self._put(entry)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Raises StoreUnavailable; starting again continues where the store stands."""
        self._stale = True
        while True:
            if self._stale or boot_us() >= self._refresh_at:
                await self._refresh()
            await self._sleep()
            await self._turn()

    async def step(self) -> int | None:
        """Instead of `run`, where time stands still: fire all that is due now. When the next tick is; None: never."""
        before: Due | None = None
        while self._stale or (self._ahead is not None and self._ahead.next_at <= self._door.clock.now_us()):
            self._stale = False
            first = self._ahead = await self._first_due(None)
            now = self._door.clock.now_us()
            if first is None or first.next_at > now:
                break
            if first == before:  # it cannot be fired; it must not hide the others
                self._ahead = await self._first_due((now, chr(0x10FFFF)))
                break
            before = first
            await self._refresh()
            await self._turn()
            self._stale = True
        return None if self._ahead is None else self._ahead.next_at

    async def _first_due(self, after: tuple[int, str] | None) -> Due | None:
        exclude = self._definitions.left_alone
        dues = await self._door(lambda store: store.due(_FAR, after=after, exclude=exclude, limit=1))
        return dues[0] if dues else None

    # --- the agenda -------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Read what is due within the horizon. Schedules not in the answer are left out again."""
        self._stale = False
        self._refresh_at = boot_us() + _REFRESH
        seen = await self._read_due(self._door.clock.now_us() + _HORIZON)
        for name in [name for name in self._agenda if name not in seen]:
            del self._agenda[name]
        self._definitions.keep(self._agenda)
        self._aside.keep(self._agenda)

    async def _read_due(self, until: int) -> dict[str, None]:
        """Read what is due until then, into the agenda; the names, longest due first."""
        names: dict[str, None] = {}
        after: tuple[int, str] | None = None
        while True:
            told, self._told = self._told, {}
            self._remember(told)
            page = await self._door(
                lambda store, after=after: store.due(
                    until, after=after, exclude=self._definitions.left_alone, limit=_PAGE
                )
            )
            await self._take(page)
            names.update(dict.fromkeys(due.name for due in page))
            if len(page) < _PAGE:
                return names
            after = (page[-1].next_at, page[-1].name)

    async def _take(self, dues: list[Due]) -> None:
        """Bring the agenda's entries to what the store says."""
        dues = await self._not_rolled_back(dues)
        await self._definitions.learn(dues)
        for due in dues:
            known = self._definitions.get(due.name)
            if known is None:
                self._agenda.pop(due.name, None)
                continue
            row, trigger = known
            before = self._agenda.get(due.name)
            entry = Entry(
                row=row,
                trigger=trigger,
                revision=due.revision,
                cursor=due.cursor,
                next_at=due.next_at,
                exact=True,
                mine=self._shards.is_mine(due.name),
            )
            self._agenda[due.name] = entry
            if before is not None:
                entry.wake_at = before.wake_at
                entry.left_to_first = before.left_to_first and before.cursor == due.cursor
            self._put(entry)

    def _leave_alone(self, row: ScheduleRecord, why: str) -> None:
        self._agenda.pop(row.name, None)
        self._definitions.leave_alone(row.name, row.revision, why)

    async def _not_rolled_back(self, dues: list[Due]) -> list[Due]:
        """Without those whose cursor is behind what this replica knows to be settled: the store went back
        to an older state. Their cursors are raised first, so that nothing runs again (G1)."""
        behind = [due for due in dues if due.cursor < self._settled.get(due.name, 0)]
        for due in behind:
            log.error(
                "schedule %r: the store has forgotten ticks that were settled (a restore, a fail-over); "
                "they are recorded as a gap and not run again",
                due.name,
                extra={"event": "store.rolled_back", "schedule": due.name},
            )
            self._say("store.rolled_back", schedule=due.name)
            remembered = self._settled[due.name]
            await self._door(lambda store, due=due, to=remembered: registrar.raise_cursor(store, due.name, to))
            self._stale = True
        self._remember({due.name: due.cursor for due in dues})
        return [due for due in dues if due not in behind] if behind else dues

    def _remember(self, settled: dict[str, int]) -> None:
        if len(self._settled) > _REMEMBERED:
            self._settled.clear()
        self._settled.update((name, at) for name, at in settled.items() if at > self._settled.get(name, 0))

    def _put(self, entry: Entry) -> None:
        at = entry.next_at if entry.mine else entry.next_at + self._look_delay()
        if entry.row.name in self._aside:
            at = max(at, self._door.clock.now_us() + self._aside.wait_for(entry.row.name))
        self._wake_for(entry, at)

    def _wake_for(self, entry: Entry, at: int) -> None:
        """Its turn comes then. What the heap says of it otherwise is void; it never holds a turn twice."""
        if entry.wake_at != at:
            entry.wake_at = at
            heapq.heappush(self._heap, (at, entry.row.name))

    def _look_delay(self) -> int:
        return _LOOK_AFTER + self._shards.own_hash % _LOOK_SPREAD

    # --- sleeping ---------------------------------------------------------------------

    def _next_wake(self) -> int | None:
        while self._heap:
            at, name = self._heap[0]
            entry = self._agenda.get(name)
            if entry is not None and entry.wake_at == at:
                return at
            heapq.heappop(self._heap)
        return None

    async def _sleep(self) -> None:
        """Until the next entry's time, a change, or the next refresh: whichever is first."""
        clock = self._door.clock
        at = self._next_wake()
        until = self._refresh_at if at is None else min(self._refresh_at, clock.boot_at(at))
        wait = until - boot_us() - _SPIN
        if wait > 0 and not self._stale:
            self._wake.clear()
            if await wait_us(self._wake, wait):
                return
        rest = until - boot_us()
        if 0 < rest <= _SPIN:
            nap_us(rest)

    # --- firing -----------------------------------------------------------------------

    async def _turn(self) -> None:
        """Fire what is due: own exact entries at once, the others after a look at what is still due."""
        now = self._door.clock.now_us()
        mine: list[Entry] = []
        others: list[Entry] = []
        while (at := self._next_wake()) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            entry = self._agenda[name]
            entry.wake_at = None
            if entry.mine and entry.exact:
                mine.append(entry)
            else:
                others.append(entry)
        if mine:
            await self._fire(mine)
        if others:
            await self._look(others)

    async def _look(self, turns: list[Entry]) -> None:
        """What the first replica has not fired is still due: fire it. The rest is set to its next tick."""
        now = self._door.clock.now_us()
        still = await self._read_due(now)
        for entry in turns:
            if entry.row.name not in still and self._agenda.get(entry.row.name) is entry:
                self._passed_by_another(entry, now)
        entries = [self._agenda[name] for name in still if name in self._agenda]
        others = [entry for entry in entries if not entry.mine]
        if len(others) > _CROWD:
            self._leave_to_first(others, now)
        ready = [entry for entry in entries if entry.wake_at is not None and entry.wake_at <= now + _SPIN]
        if ready:
            await self._fire(ready)

    def _leave_to_first(self, others: list[Entry], now: int) -> None:
        """A crowd is due: its first replica is likely at work on it. Look again when it should be through."""
        for entry in others:
            if not entry.left_to_first:
                entry.left_to_first = True
                self._wake_for(entry, now + _LOOK_PER_DUE * len(others))

    def _passed_by_another(self, entry: Entry, now: int) -> None:
        self._shards.came(entry.row.name)
        next_at = next_tick(entry.row.definition, entry.trigger, now)
        if next_at is None or next_at > now + _HORIZON:
            del self._agenda[entry.row.name]
            return
        entry.next_at, entry.exact = next_at, False
        self._put(entry)

    async def _fire(self, entries: list[Entry]) -> None:
        """One store step a chunk, two chunks at a time (a store with two connections uses both). What was
        set aside comes last, each alone, and two of them at most: they may take long."""
        self._failures = 0
        planned = self._planned(entries)
        together = [each for each in planned if each[1].name not in self._aside]
        chunks = [together[at : at + _CHUNK] for at in range(0, len(together), _CHUNK)]
        for at in range(0, len(chunks), 2):
            await asyncio.gather(*(self._fire_chunk(chunk) for chunk in chunks[at : at + 2]))
        alone = [each for each in planned if each[1].name in self._aside]
        for entry, _ in alone[2:]:
            self._wake_for(entry, self._door.clock.now_us() + limits.SECOND)
        await asyncio.gather(*(self._fire_chunk([each], repeat=False) for each in alone[:2]))

    def _planned(self, entries: list[Entry]) -> list[tuple[Entry, FirePlan]]:
        now = self._door.clock.now_us()
        planned: list[tuple[Entry, FirePlan]] = []
        for entry in entries:
            row = _as_seen(entry)
            try:
                made = plan(row, entry.trigger, now, tzdata=self._tzdata if _is_zoned(entry.trigger) else "")
            except Exception as error:  # one bad schedule must not stop the others
                log.debug("schedule %r could not be planned", row.name, exc_info=True)
                self._leave_alone(row, f"could not be planned and is left alone: {type(error).__name__}: {error}")
                continue
            if made is None:
                self._put(entry)
            else:
                planned.append((entry, made))
        return planned

    async def _fire_chunk(self, chunk: list[tuple[Entry, FirePlan]], *, repeat: bool = True) -> None:
        try:
            fired = await self._fired(chunk, repeat=repeat)
        except StoreError as error:
            if is_for_the_operator(error) and not isinstance(error, StoreUnavailable):
                raise
            await self._fire_apart(chunk, error)
        else:
            self._settle(chunk, fired)

    async def _fired(self, chunk: list[tuple[Entry, FirePlan]], *, repeat: bool) -> Fired:
        plans = [made for _, made in chunk]
        fire_id = new_id()
        spec = self._reserve()
        leases: tuple[RunRecord, ...] = ()
        sent, lease_left = boot_us(), None
        try:
            try:
                fired = await self._door.write(lambda store: store.fire(plans, spec, fire_id=fire_id))
            except StoreUnavailable:
                if not repeat:
                    raise
                # The outcome is unknown: the same fire_id asks again and brings the leases back (G7).
                sent = boot_us()
                fired = await self._door.write(lambda store: store.fire(plans, spec, fire_id=fire_id))
            leases, lease_left = fired.leases, fired.lease_until - fired.now
        finally:
            if spec is not None:
                self._lease(spec, leases, sent, lease_left)
        return fired

    async def _fire_apart(self, chunk: list[tuple[Entry, FirePlan]], error: StoreError) -> None:
        """A chunk failed. If the store answers otherwise, one schedule may be in the way (somebody holds its row):
        the others are fired in ever smaller parts, and it is set aside. Should the chunk have been written
        after all, its plans are stale now, and the heartbeat tells what they leased."""
        self._failures += 1
        if self._failures > _FAILURES:
            raise error
        await self._door(lambda store: store.now())
        if len(chunk) == 1:
            entry, made = chunk[0]
            self._aside.put(made.name, error)
            self._put(entry)
            return
        size = -(-len(chunk) // _PARTS)
        for at in range(0, len(chunk), size):
            await self._fire_chunk(chunk[at : at + size], repeat=False)

    def _settle(self, chunk: list[tuple[Entry, FirePlan]], fired: Fired) -> None:
        created = 0
        taken_over: list[str] = []
        for (entry, made), result in zip(chunk, fired.results, strict=True):
            self._aside.back(made.name)
            if result.outcome is FireOutcome.FIRED:
                created += result.created
                if not entry.mine:
                    taken_over.append(made.name)
                entry.cursor, entry.exact = made.new_cursor, True
                self._settled[made.name] = made.new_cursor
                self._advance(entry, made.next_at, fired.now)
                self._tell(made, result)
            elif result.outcome is FireOutcome.STALE:
                entry.exact = False
                self._lost_race(entry, made, fired.now)
            else:
                self._put(entry)
        if created > len(fired.leases):
            self._left_due()
        if taken_over and self._shards.absent(taken_over, boot_us() + _SUSPECT_FOR):
            self.regroup()

    def _advance(self, entry: Entry, next_at: int | None, now: int) -> None:
        if next_at is None or next_at > now + _HORIZON:
            self._agenda.pop(entry.row.name, None)
        else:
            entry.next_at = next_at
            self._put(entry)

    def _lost_race(self, entry: Entry, made: FirePlan, now: int) -> None:
        """Another replica fired it (normal), or the row changed: the next look tells."""
        log.debug("schedule %r: another replica fired", made.name, extra={"event": "tick.lost", "schedule": made.name})
        entry.next_at = made.next_at if made.next_at is not None and made.next_at > now else now + limits.SECOND
        self._put(entry)

    def _tell(self, made: FirePlan, result: FireResult) -> None:
        for gap in made.gaps:
            self._say("tick.missed", schedule=made.name, tick=from_us(gap.last), reason=f"{gap.reason} ({gap.count})")
        # They go oldest first: what is refused comes last, what was on record already came before.
        created = made.ticks[: result.created] if result.skipped else made.ticks[len(made.ticks) - result.created :]
        for tick in created:
            self._say("tick.fired", schedule=made.name, tick=from_us(tick.tick), run=tick.run_id)
        if result.skipped:
            reason = result.reason or GapReason.OVERLAP
            self._say("tick.skipped", schedule=made.name, tick=from_us(made.new_cursor), reason=reason.value)
            if reason is GapReason.OVERLAP:
                self._say("schedule.overdue", schedule=made.name, reason="its run is still open at its next tick")
        for run_id in result.superseded:
            self._say("run.skipped", schedule=made.name, run=run_id, reason="superseded")


def _is_zoned(trigger: Trigger) -> bool:
    """Whether the zone data play a part in the trigger's instants."""
    return trigger.kind not in ("every", "once") and trigger.timezone not in (None, "UTC")


def _as_seen(entry: Entry) -> ScheduleRecord:
    """The row with the cursor and next_at as the store had them last."""
    row = entry.row
    if (row.cursor, row.next_at, row.revision) == (entry.cursor, entry.next_at, entry.revision):
        return row
    return replace(row, revision=entry.revision, cursor=entry.cursor, next_at=entry.next_at)
