"""A slot of a named lock, held on the engine's loop until it is let go or lost.

As a worker does with its runs, a holder counts its lease from the moment it *sent* the call, on
a clock that runs on while the machine sleeps, and believes in it a margin less long than others
have to wait. What it does later is for its token to be refused (G5).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable

from oncron import _defaults as limits
from oncron._clock import boot_us, wait_us
from oncron._engine.door import Door
from oncron._groups import Acquired
from oncron._model import new_id
from oncron.errors import StoreError, StoreUnavailable

log = logging.getLogger("oncron.lock")

_LOOK_FIRST, _LOOK_AT_MOST = 20_000, 250_000
"""How soon somebody who waits looks again: nobody tells it that a slot is free."""


class Hold:
    """One holder of one slot, acquired at most once. `holder` names it to operators (host and process)."""

    def __init__(self, name: str, *, holder: str, lease_for: int, slots: int = 1) -> None:
        self.name, self.lease_for, self.slots = name, lease_for, slots
        self.owner = f"{holder}/{new_id()[:8]}"
        self.token: int | None = None
        self._margin = lease_for // 6
        self._trusted_until = 0
        self._guard = threading.Lock()
        self._is_over = False
        self._was_lost = False
        self.why_lost = ""
        self._on_lost: Callable[[], None] | None = None
        self._over = asyncio.Event()
        self._trying: asyncio.Task[Acquired] | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def lost(self) -> bool:
        """Whether it was held and others may have the slot by now. A process that was stopped finds out here."""
        return self._was_lost or (not self._is_over and self._is_in_doubt)

    @property
    def left(self) -> int:
        """Microseconds before which nobody else can have the slot, if the store hears nothing more from here."""
        return self._trusted_until - boot_us()

    @property
    def _is_in_doubt(self) -> bool:
        """Whether it was held, and its lease may be over for others."""
        return self.token is not None and boot_us() > self._trusted_until - self._margin

    def when_lost(self, tell: Callable[[], None] | None) -> None:
        """Call this, on the engine's thread, when it is lost; at once if it is lost already."""
        with self._guard:
            self._on_lost = tell
            late = self._was_lost
        if late and tell is not None:
            tell()

    # --- on the engine's loop -------------------------------------------------------------

    async def acquire(self, door: Door, within: int | None) -> Acquired:
        """Hold a slot, or say who is in the way after so long (None: as long as it takes). A caller that goes
        away meanwhile holds nothing: a call that is on the way is waited for, and what it brings is let go."""
        self._trying = asyncio.ensure_future(self._acquire(door, within))
        try:
            return await asyncio.shield(self._trying)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.CancelledError, StoreError):
                await self.release(door)
            raise

    async def _acquire(self, door: Door, within: int | None) -> Acquired:
        until = None if within is None else boot_us() + within
        pause = _LOOK_FIRST
        while True:
            sent = boot_us()
            got = await door.persist(
                lambda store: store.acquire(self.name, owner=self.owner, lease_for=self.lease_for, slots=self.slots),
                limits.CALL_DEADLINE,
            )
            if got.token is not None:
                self.token, self._trusted_until = got.token, sent + self.lease_for
                if not self._is_over:
                    self._keeping = asyncio.ensure_future(self._keep(door))
                return got
            left = None if until is None else until - boot_us()
            if left is not None and left <= 0:
                return got
            rest = min(pause, max(1000, got.lease_until - got.now), pause if left is None else left)
            if await wait_us(self._over, round(rest * (0.75 + random.random() / 2))):
                return got
            pause = min(2 * pause, _LOOK_AT_MOST)

    async def _keep(self, door: Door) -> None:
        """Extend every third of the lease; more often once a call has failed."""
        pause = self.lease_for // 3
        try:
            while not await wait_us(self._over, pause):
                pause = self.lease_for // 3 if await self._extend(door) else self.lease_for // 12
                if self._was_lost:
                    return
        finally:
            if not self._is_over:
                self._lose("the app was stopped")

    async def _extend(self, door: Door) -> bool:
        """Whether the store answered."""
        sent, token = boot_us(), self.token or 0
        left = self._trusted_until - self._margin - sent
        if left <= 0:
            self._lose("its lease could not be renewed in time")
            return False
        try:
            until = await door(
                lambda store: store.extend(self.name, token, lease_for=self.lease_for),
                deadline=max(50_000, min(limits.CALL_DEADLINE, self.lease_for // 3, left)),
            )
        except StoreUnavailable:
            if self._is_in_doubt:
                self._lose("its lease could not be renewed in time")
            return False
        if until is None:
            self._lose("somebody else holds it")
        else:
            self._trusted_until = sent + self.lease_for
        return True

    def _lose(self, why: str) -> None:
        with self._guard:
            if self._was_lost or self._is_over:
                return
            self._was_lost, self.why_lost = True, why
            tell = self._on_lost
        log.warning("lock %r is lost: %s", self.name, why, extra={"event": "lock.lost", "lock": self.name})
        if tell is not None:
            tell()

    def end(self) -> bool:
        """From now on nothing is lost any more. Whether it was still held; from any thread."""
        with self._guard:
            self._was_lost, self._is_over = self._was_lost or self._is_in_doubt, True
            return not self._was_lost

    async def release(self, door: Door) -> None:
        """Let go; nothing happens if it was not held. What cannot be told to the store now ends with its lease."""
        self.end()
        self._over.set()
        if self._trying is not None and not self._trying.done():
            await asyncio.wait({self._trying})
        if self._keeping is not None and not self._keeping.done():  # one of a loop that was closed is done
            await asyncio.wait({self._keeping})
        token = self.token
        if token is not None:
            await door(lambda store: store.release(self.name, token))
