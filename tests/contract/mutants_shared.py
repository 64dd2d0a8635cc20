"""MemoryStore with one guard of its locks, limiters or batches broken each. See `mutants`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from oncron._groups import Acquired, BatchRecord, LimitRule, Take, Taken
from oncron._model import EnqueueResult, NewRun, RunState, new_id
from oncron.stores import _limits
from oncron.stores.memory import MemoryStore
from oncron.stores.memory.tables import Limiter
from tests.contract.given import DAY
from tests.contract.torn import Torn

# --- locks ----------------------------------------------------------------------------------


class LockTokenIsTheClock(MemoryStore):
    """The last token is not remembered."""

    async def acquire(self, name: str, **options: Any) -> Acquired:
        self._lock_tokens.clear()
        return await super().acquire(name, **options)


class SlotsIgnored(MemoryStore):
    async def acquire(self, name: str, *, slots: int = 1, **options: Any) -> Acquired:
        return await super().acquire(name, slots=slots + 1, **options)


class OwnerForgotten(MemoryStore):
    async def acquire(self, name: str, *, owner: str, **options: Any) -> Acquired:
        return await super().acquire(name, owner=new_id(), **options)


class ExpiredHoldsOn(MemoryStore):
    async def acquire(self, name: str, *, now: int | None = None, **options: Any) -> Acquired:
        self._holders[name] = [replace(one, lease_until=2**62) for one in self._holders.get(name, [])]
        return await super().acquire(name, now=now, **options)


class LeaseEndsEarly(MemoryStore):
    async def acquire(self, name: str, *, now: int | None = None, **options: Any) -> Acquired:
        return await super().acquire(name, now=None if now is None else now + 1, **options)


class StaleTokenExtends(MemoryStore):
    async def extend(self, name: str, token: int, **options: Any) -> int | None:
        holders = self._holders.get(name) or []
        return await super().extend(name, holders[0].token if holders else token, **options)


class ExpiredCannotBeExtended(MemoryStore):
    async def extend(self, name: str, token: int, *, lease_for: int, now: int | None = None) -> int | None:
        await self.acquire(name, owner=new_id(), lease_for=0, slots=0 if self._holders.get(name) else 1, now=now)
        return await super().extend(name, token, lease_for=lease_for, now=now)


class ReleasesForOthers(MemoryStore):
    async def release(self, name: str, token: int, **options: Any) -> bool:
        return any([await super(ReleasesForOthers, self).release(name, one.token) for one in self._holders[name]])


class PruneForgetsLocks(MemoryStore):
    def _forget_locks(self, now: int) -> None:
        super()._forget_locks(now + 2 * DAY)


# --- limiters -------------------------------------------------------------------------------


class GrantsAll(MemoryStore):
    def _judge(self, limiter: Limiter, rule: LimitRule, cost: int, now: int) -> _limits.Verdict:
        return super()._judge(Limiter(rule), rule, cost, now)


class CountsTheFuture(MemoryStore):
    """What was granted later than now does not count: a clock that goes back grants anew."""

    def _judge(self, limiter: Limiter, rule: LimitRule, cost: int, now: int) -> _limits.Verdict:
        takes = {nonce: row for nonce, row in limiter.takes.items() if row.at <= now}
        return super()._judge(Limiter(rule, limiter.empty_at, takes), rule, cost, now)


class ForgetsAtTheEnd(MemoryStore):
    """A take is forgotten the moment it counts no more."""

    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        answer = await super().take(take, now=now)
        takes = self._limiters[take.limiter].takes
        takes |= {nonce: row._replace(until=min(row.until, row.at + take.rule.per)) for nonce, row in takes.items()}
        return answer


class RefusedCounts(MemoryStore):
    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        answer = await super().take(take, now=now)
        if not answer.granted:
            more = replace(take, nonce=new_id(), rule=replace(take.rule, amount=10**6))
            await super().take(more, now=now)
        return answer


class NonceForgotten(MemoryStore):
    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        return await super().take(replace(take, nonce=new_id()), now=now)


class OneMore(MemoryStore):
    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        return await super().take(replace(take, rule=replace(take.rule, amount=take.rule.amount + 1)), now=now)


class TellsTooLate(MemoryStore):
    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        answer = await super().take(take, now=now)
        return answer if answer.granted else replace(answer, retry_in=answer.retry_in + 1)


class SettleAdds(MemoryStore):
    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> Taken | None:
        row = self._limiters[limiter].takes.get(nonce) if limiter in self._limiters else None
        return await super().settle(limiter, nonce, cost + (row.cost if row else 0), now=now)


class SettleGivesBackTheDrained(MemoryStore):
    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> Taken | None:
        if limiter in self._limiters and nonce in (takes := self._limiters[limiter].takes):
            takes[nonce] = takes[nonce]._replace(empty_at=2**62)
        return await super().settle(limiter, nonce, cost, now=now)


class LookingTakes(MemoryStore):
    async def taken(self, limiter: str, rule: LimitRule, *, now: int | None = None) -> Taken:
        answer = await super().taken(limiter, rule, now=now)
        await self.take(Take(limiter=limiter, nonce=new_id(), rule=rule), now=now)
        return answer


class LookingChangesTheRule(MemoryStore):
    async def taken(self, limiter: str, rule: LimitRule, *, now: int | None = None) -> Taken:
        self._limiters[limiter].rule = rule
        return await super().taken(limiter, rule, now=now)


class PruneForgetsTakes(MemoryStore):
    def _forget_takes(self, now: int) -> None:
        self._limiters.clear()


class PruneForgetsBuckets(MemoryStore):
    def _forget_takes(self, now: int) -> None:
        super()._forget_takes(now)
        self._limiters = {name: limiter for name, limiter in self._limiters.items() if limiter.takes}


# --- batches --------------------------------------------------------------------------------


class CompletesWhileOpen(MemoryStore):
    def _settle(self, batch_id: str, now: int) -> None:
        self._batch_rows[batch_id] = replace(self._batch_rows[batch_id], closed=True)
        super()._settle(batch_id, now)


class CompletesBeforeItsRuns(MemoryStore):
    def _runs_by_state(self, batch_id: str) -> Counter[str]:
        runs = super()._runs_by_state(batch_id)
        return Counter({state: count for state, count in runs.items() if not RunState(state).is_open})


class CompletesBeforeItsBatches(MemoryStore):
    def _settle(self, batch_id: str, now: int) -> None:
        rows = self._batch_rows
        inner = {row.id: row for row in rows.values() if row.parent == batch_id}
        rows |= {row.id: replace(row, parent=None) for row in inner.values()}
        super()._settle(batch_id, now)
        rows |= inner


class ParentForgotten(MemoryStore):
    def _settle(self, batch_id: str, now: int) -> None:
        row = self._batch_rows[batch_id]
        self._batch_rows[batch_id] = replace(row, parent=None)
        super()._settle(batch_id, now)
        self._batch_rows[batch_id] = replace(self._batch_rows[batch_id], parent=row.parent)


class CallsAgain(MemoryStore):
    def _settle(self, batch_id: str, now: int) -> None:
        row = self._batch_rows[batch_id]
        self._batch_rows[batch_id] = replace(row, died_at=None, completed_at=None, succeeded_at=None)
        super()._settle(batch_id, now)

    def _call_back(self, callback: NewRun | None, now: int) -> None:
        super()._call_back(callback and replace(callback, id=new_id()), now)


class CancelledSucceeds(MemoryStore):
    def _runs_by_state(self, batch_id: str) -> Counter[str]:
        runs = super()._runs_by_state(batch_id)
        runs["skipped"] += runs.pop("cancelled", 0)
        return runs


class DeathUntold(MemoryStore):
    def _call_back(self, callback: NewRun | None, now: int) -> None:
        died = {row.on_death.id for row in self._batch_rows.values() if row.on_death is not None}
        super()._call_back(None if callback is not None and callback.id in died else callback, now)


class ReopenedForgotten(MemoryStore):
    async def retry(self, *args: Any, **options: Any) -> EnqueueResult:
        answer = await super().retry(*args, **options)
        self._reopened.clear()
        return answer


class AddsToComplete(MemoryStore):
    def _takes_more(self, batch: str) -> bool:
        return batch in self._batch_rows


class CallbackMustFit(MemoryStore):
    """A callback that names what is not there is written all the same."""

    def _may_write(self, new: NewRun) -> bool:
        return True


class OpenedTwice(MemoryStore):
    async def open_batch(self, batch: Any, **options: Any) -> BatchRecord:
        self._batch_rows.pop(batch.id, None)
        return await super().open_batch(batch, **options)


class PrunesRunsOfBatches(MemoryStore):
    async def prune(self, **options: Any) -> int:
        rows, self._batch_rows = self._batch_rows, {}
        pruned = await super().prune(**options)
        self._batch_rows = rows
        return pruned


class PrunesFromUnderABatch(MemoryStore):
    def _prune_batches(self, before: int, limit: int) -> int:
        rows = self._batch_rows
        self._batch_rows = {row.id: replace(row, parent=None) for row in rows.values()}
        return super()._prune_batches(before, limit)


class PrunesReopened(MemoryStore):
    def _prune_batches(self, before: int, limit: int) -> int:
        rows, self._open = self._open, {}
        pruned = super()._prune_batches(before, limit)
        self._open = rows
        return pruned


# --- steps that are not one -----------------------------------------------------------------


class TornAcquire(Torn):
    """Between counting the holders and becoming one."""

    def __init__(self) -> None:
        super().__init__()
        store = self

        class Tokens(dict[str, int]):
            def get(self, name: str, default: Any = None) -> Any:
                store._let_others_in()
                return super().get(name, default)

        self._lock_tokens = Tokens()


class TornTake(Torn):
    """Between judging a take and counting it."""

    def _judge(self, limiter: Limiter, rule: LimitRule, cost: int, now: int) -> _limits.Verdict:
        verdict = super()._judge(limiter, rule, cost, now)
        self._let_others_in()
        return verdict


class TornSettle(Torn):
    """Between looking at a batch's runs and writing what has become of it."""

    def _runs_by_state(self, batch_id: str) -> Counter[str]:
        runs = super()._runs_by_state(batch_id)
        self._let_others_in()
        return runs


class TornAdding(Torn):
    """Between looking whether a batch takes more and adding to it."""

    def _takes_more(self, batch: str) -> bool:
        takes_more = super()._takes_more(batch)
        self._let_others_in()
        return takes_more
