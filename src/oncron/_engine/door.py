"""The engine's one door to the store: deadlines, fresh connections, and the store's clock.

Every call has a deadline; a call that failed leaves its connection behind, so that the next
one starts on a fresh one; how long the contact has been unbroken is known, because a reaper
must not take runs from workers that the same outage kept from renewing (G8). It is broken by
a silence, whatever the reason (a store that is away, a process that was stopped, a machine
that slept), and not by one failed call among others that were answered: on a line that loses
every twentieth call nothing would ever be taken over. A store that answers and lets nobody
write (its disk is full) keeps the others from renewing as a silent one does, so it is no
contact either. Nor is one that lets writes wait (somebody holds its lock): they succeed in the
end, so this shows only in when the last one did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncron import _defaults as limits
from oncron._clock import boot_us, sleep_us
from oncron._store import ReadableStore
from oncron.errors import StoreError, StoreUnavailable

T = TypeVar("T")

_DRIFT_PER_SECOND = 50
"""Microseconds per second by which two healthy clocks may drift apart: 50 ppm."""
_STEADY = 30 * limits.SECOND
"""A contact that is lost again so soon after it was found is unsteady until nothing failed for as long."""


def is_for_the_operator(error: Exception) -> bool:
    """Whether the whole store cannot be used as it is (its schema, its rights), whoever asks for what. A plain
    StoreError is not: it refuses what was handed in."""
    return isinstance(error, StoreError) and type(error) is not StoreError


class StoreClock:
    """The store's clock, from this machine's boot clock plus an offset that every answer narrows.

    An answer that was asked for at `sent`, came at `received` and tells `now` bounds the
    offset: now - received <= offset <= now - sent. The bounds of many answers are intersected
    and widened by drift; an empty intersection means that a clock was set, and starts anew.
    The lower bound is used, so a tick that is due by this clock is due by the store's.
    """

    def __init__(self) -> None:
        self._low = 0
        self._high = 0
        self._at: int | None = None

    @property
    def known(self) -> bool:
        return self._at is not None

    def heard(self, sent: int, received: int, now: int) -> None:
        low, high = now - received, now - sent
        if self._at is not None:
            drift = (received - self._at) * _DRIFT_PER_SECOND // 1_000_000 + 1
            before = self._low - drift, self._high + drift
            if low <= before[1] and high >= before[0]:
                low, high = max(low, before[0]), min(high, before[1])
        self._low, self._high, self._at = low, high, received

    def now_us(self) -> int:
        return boot_us() + self._low

    def boot_at(self, instant: int) -> int:
        """When, on the boot clock, the store's clock will surely have reached the instant."""
        return instant - self._low


class Door:
    """Calls the store. `on_change(up, why)` hears of contact lost (why) and found again. Of one that comes and
    goes (a disk is full: reads are answered, writes fail) it hears that it is lost, and that it is found when
    nothing has failed for a while. `on_call(microseconds, error)` hears of every call."""

    def __init__(
        self,
        store: ReadableStore,
        on_change: Callable[[bool, str], None],
        *,
        silence: int = limits.LEASE_FOR // 2,
        clock: StoreClock | None = None,
        on_call: Callable[[int, StoreError | None], None] | None = None,
    ) -> None:
        self.store = store
        self._on_call = on_call
        self.clock = clock or StoreClock()
        self._on_change, self._silence = on_change, silence
        self.up = True
        self.answers = asyncio.Event()
        """Set while the store answers, as far as is known: as `up`."""
        self.answers.set()
        self._told_up, self._unsteady = True, False
        self._found_at = self._failed_at = boot_us() - _STEADY - 1
        self.contact_since = boot_us()
        self.last_contact = boot_us() - silence - 1  # none yet: the first answer begins the contact
        self.renew_now: Callable[[], None] = lambda: None
        """Called when a write failed and the last heartbeat did not, some time ago: the next one tells whether
        leases can still be renewed."""
        self._renewed_at = boot_us()
        self._unrenewed_since: int | None = None
        """When the first heartbeat was sent that failed, with none since that succeeded."""
        self._writing_since = self._wrote_at = boot_us() - silence - 1
        self._reset_at = boot_us()

    async def write(self, work: Callable[[ReadableStore], Awaitable[T]], *, deadline: int = limits.CALL_DEADLINE) -> T:
        """A call that writes, and may fail or wait while reads are answered."""
        try:
            answer = await self(work, deadline=deadline)
        except StoreUnavailable:
            # Not after each failure: an answer makes loops that failed start again at once.
            if self._unrenewed_since is None and boot_us() - self._renewed_at > self._silence // 4:
                self.renew_now()
            raise
        self._wrote()
        return answer

    async def renew(self, work: Callable[[ReadableStore], Awaitable[T]], *, deadline: int) -> T:
        """A heartbeat: as this replica's, so go the others'."""
        sent = boot_us()
        try:
            answer = await self(work, deadline=deadline)
        except StoreUnavailable:
            if self._unrenewed_since is None and sent >= self._renewed_at:
                self._unrenewed_since = sent
            raise
        self._wrote()
        self._renewed_at = boot_us()
        if self._nobody_renews():
            self.contact_since = self._renewed_at
        self._unrenewed_since = None
        return answer

    def _wrote(self) -> None:
        before, self._wrote_at = self._wrote_at, boot_us()
        if self._wrote_at - before > self._silence:
            self._writing_since = self._wrote_at

    def writes_for(self) -> int | None:
        """How long writes have been getting through one after the other; None if there was none lately, and a
        heartbeat has to find out."""
        now = boot_us()
        return None if now - self._wrote_at > self._silence else now - self._writing_since

    def _nobody_renews(self) -> bool:
        return self._unrenewed_since is not None and boot_us() - self._unrenewed_since > self._silence

    async def __call__(
        self, work: Callable[[ReadableStore], Awaitable[T]], *, deadline: int = limits.CALL_DEADLINE
    ) -> T:
        """One call. Raises StoreUnavailable when it failed or took too long: its outcome is unknown."""
        sent = boot_us()
        try:
            async with asyncio.timeout(deadline / 1_000_000):
                answer = await work(self.store)
        except TimeoutError:
            error = StoreUnavailable(
                f"{self.store.url} did not answer within {deadline / 1_000_000:g} s; "
                "check that the server runs and that nothing holds its locks"
            )
            self._tell(sent, error)
            await self._failed(error, sent)
            raise error from None
        except StoreError as error:
            self._tell(sent, error)
            await self._failed(error, sent)
            raise
        self._tell(sent, None)
        now = getattr(answer, "now", None)
        self._answered(sent, now if isinstance(now, int) else None)
        return answer

    def _tell(self, sent: int, error: StoreError | None) -> None:
        if self._on_call is not None:
            self._on_call(boot_us() - sent, error)

    async def sync_clock(self) -> int:
        """Ask for the store's now, a few times for a narrow bound."""
        now = 0
        for _ in range(3):
            sent = boot_us()
            now = await self(lambda store: store.now())
            self.clock.heard(sent, boot_us(), now)
        return now

    async def persist(self, work: Callable[[ReadableStore], Awaitable[T]], within: int) -> T:
        """Repeat a call until it succeeds or `within` has passed. Only for repeatable work (G7)."""
        deadline = min(within, limits.CALL_DEADLINE)
        return await self.keep_trying(lambda: self(work, deadline=deadline), within)

    async def keep_trying(self, call: Callable[[], Awaitable[T]], within: int) -> T:
        """Repeat something that calls through this door while the store is unavailable."""
        until = boot_us() + within
        pause = 50_000
        while True:
            try:
                return await call()
            except StoreUnavailable:
                if boot_us() + pause >= until:
                    raise
            await sleep_us(pause)
            pause = min(pause * 2, 1_000_000)

    def contact_for(self) -> int:
        """How long the contact has been unbroken: nothing while the store is silent or takes no heartbeats, even
        before its next answer says so. In an outage a reap may be the first call that gets through again."""
        now = boot_us()
        broken = now - self.last_contact > self._silence or self._nobody_renews()
        return 0 if broken else now - self.contact_since

    def _answered(self, sent: int, now: int | None) -> None:
        before, self.last_contact = self.last_contact, boot_us()
        if self.last_contact - before > self._silence:
            self.contact_since = self.last_contact
        if now is not None:
            self.clock.heard(sent, self.last_contact, now)
        if not self.up:
            self.up = True
            self.answers.set()
        if not self._told_up and not (self._unsteady and self.last_contact - self._failed_at < _STEADY):
            self._told_up, self._found_at = True, self.last_contact
            self._on_change(True, "")

    async def _failed(self, error: StoreError, sent: int) -> None:
        if type(error) is StoreError:
            return  # it answers: it refuses what was handed in
        if isinstance(error, StoreUnavailable) and sent >= self._reset_at:
            # Once for all that were on the way: the second one would leave the fresh connection, and those that are
            # on their way over it would fail, and leave the next one, for as long as calls take longer than retries.
            self._reset_at = boot_us()
            await self.store.reset()
        self._failed_at = boot_us()
        if self.up and sent >= self.last_contact:  # not what was asked before others were answered
            self.up = False
            self.answers.clear()
            if self._told_up:
                self._told_up, self._unsteady = False, self._failed_at - self._found_at < _STEADY
                self._on_change(False, str(error))
