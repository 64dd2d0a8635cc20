"""Endings: how claims ended, from the moment that this replica knows until the store has it.

What could not be written is kept and tried again, by its token: writing twice is harmless (G7).
One that cannot be written holds up no other.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from oncron import _defaults as limits
from oncron._clock import boot_us, sleep_us, wait_us
from oncron._engine.door import Door, is_for_the_operator
from oncron._lifecycle import error_text
from oncron._model import FinishResult, Outcome, OutcomeKind
from oncron.errors import StoreUnavailable

log = logging.getLogger("oncron.worker")

_BATCH = 500
_GATHERED_FOR = 2000
"""While every slot is taken an end waits so long for others to be written with it."""
_PARTS = 8
"""A batch that fails is tried again in so many parts."""
_PUT_OFF, _PUT_OFF_AT_MOST = limits.SECOND, 10 * limits.SECOND


@dataclass(slots=True)
class Apart:
    """How an outcome is written that failed together with others."""

    company: int
    """At most so many together."""
    pause: int = _PUT_OFF
    not_before: int = 0
    """On the boot clock."""


class Endings:
    """`settled` hears of each batch that is on record, with the answers; with none if nobody can record it.
    `may_gather` says whether more will end soon and nobody waits for those that have."""

    def __init__(
        self,
        door: Door,
        *,
        settled: Callable[[list[Outcome], list[FinishResult]], None],
        may_gather: Callable[[], bool],
    ) -> None:
        self._door, self._on_settled, self._may_gather = door, settled, may_gather
        self._outcomes: dict[tuple[str, int], Outcome] = {}
        self._apart: dict[tuple[str, int], Apart] = {}
        """Those of them that are no longer written with others."""
        self._flush = asyncio.Event()
        self._set_aside = asyncio.Event()

    def record(self, outcome: Outcome) -> None:
        self._outcomes[outcome.run_id, outcome.token] = outcome
        self._flush.set()

    def __contains__(self, claim: tuple[str, int]) -> bool:
        return claim in self._outcomes

    def __len__(self) -> int:
        return len(self._outcomes)

    def _settled(self, batch: list[Outcome], results: list[FinishResult]) -> None:
        for outcome in batch:
            self._outcomes.pop((outcome.run_id, outcome.token), None)
            self._apart.pop((outcome.run_id, outcome.token), None)
        self._on_settled(batch, results)

    async def finish_loop(self) -> None:
        """Write outcomes together: while one batch is on its way the next one gathers. What could not
        be written is kept and tried again, by its token: writing twice is harmless (G7). A batch that is
        refused, or fails twice while the store answers, is left to `finish_apart_loop`."""
        failures = 0
        while True:
            batch = list(itertools.islice((o for key, o in self._outcomes.items() if key not in self._apart), _BATCH))
            if not batch:
                self._flush.clear()
                await self._flush.wait()
                if self._may_gather():
                    await sleep_us(_GATHERED_FOR)
                continue
            try:
                results = await self._door.write(lambda store, batch=batch: store.finish(batch))
            except StoreUnavailable:
                failures += 1
                if failures > 1 and await self._store_answers():
                    failures = 0
                    self._set_apart(batch)
                else:
                    await sleep_us(100_000)
            except Exception as error:
                if is_for_the_operator(error):
                    raise
                log.exception("a batch of %d outcomes could not be written", len(batch))
                failures = 0
                self._set_apart(batch)
            else:
                failures = 0
                self._settled(batch, results)

    async def _store_answers(self) -> bool:
        try:
            await self._door(lambda store: store.now())
        except StoreUnavailable:
            return False
        return True

    def _set_apart(self, batch: list[Outcome]) -> None:
        company = max(1, len(batch) // _PARTS)
        self._apart.update(((outcome.run_id, outcome.token), Apart(company)) for outcome in batch)
        self._set_aside.set()

    async def finish_apart_loop(self) -> None:
        """Write the outcomes that failed in company, in ever smaller parts, so that one whose row is locked by
        somebody, or that no store would take, holds up no other. One that fails alone waits, longer each time."""
        while True:
            self._set_aside.clear()
            part = self._next_part()
            if part:
                await self._finish_part(part)
            else:
                times = [apart.not_before for apart in self._apart.values()]
                wait = min(times) - boot_us() if times else limits.SLEEP_AT_MOST
                await wait_us(self._set_aside, max(1000, wait))

    def _next_part(self) -> list[Outcome]:
        """Those whose time has come, as many as may be written together."""
        now = boot_us()
        due = [(key, apart.company) for key, apart in self._apart.items() if apart.not_before <= now]
        company = due[0][1] if due else 0
        alike = [key for key, least in due if least == company]
        return [self._outcomes[key] for key in alike[:company]]

    async def _finish_part(self, part: list[Outcome]) -> None:
        keys = [(outcome.run_id, outcome.token) for outcome in part]
        company = self._apart[keys[0]].company
        try:
            results = await self._door.write(lambda store: store.finish(part))
        except StoreUnavailable as error:
            if company == 1:
                self._put_off(part[0], error)
                return
        except Exception as error:
            if is_for_the_operator(error):
                raise
            if company == 1:
                await self._finish_as_failed(part[0], error)
                return
        else:
            self._settled(part, results)
            return
        for key in keys:
            self._apart[key].company = max(1, company // _PARTS)

    def _put_off(self, outcome: Outcome, error: StoreUnavailable) -> None:
        """To the back of the line."""
        key = outcome.run_id, outcome.token
        apart = self._apart.pop(key)
        if apart.pause == _PUT_OFF:
            log.warning(
                "the end of run %s (%s) could not be written yet, and is tried again: %s",
                outcome.run_id, outcome.kind, error,
            )  # fmt: skip
        apart.not_before = boot_us() + apart.pause
        apart.pause = min(2 * apart.pause, _PUT_OFF_AT_MOST)
        self._apart[key] = apart

    async def _finish_as_failed(self, outcome: Outcome, error: Exception) -> None:
        """Its end cannot be written as it is: the run has failed, with the reason."""
        log.error("the end of run %s (%s) is refused: %s", outcome.run_id, outcome.kind, error)
        failed = _unwritable(outcome, error)
        try:
            results = await self._door.write(lambda store: store.finish([failed]))
        except StoreUnavailable as unavailable:
            self._put_off(outcome, unavailable)
        except Exception as again:
            if is_for_the_operator(again):
                raise
            log.exception("the outcome of run %s could not be written", outcome.run_id)
            self._settled([outcome], [])
        else:
            self._settled([outcome], results)


def _unwritable(outcome: Outcome, error: Exception) -> Outcome:
    return Outcome(
        run_id=outcome.run_id,
        token=outcome.token,
        kind=OutcomeKind.FAILED,
        error=error_text(error),
        reason=f"its end ({outcome.kind}) could not be written: {type(error).__name__}",
    )
