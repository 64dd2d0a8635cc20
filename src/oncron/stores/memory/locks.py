"""Locks with a lease and a token, and limiters (G5, G7)."""

from __future__ import annotations

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._groups import Acquired, LimitKind, LimitRule, LockRecord, Take, Taken
from oncron.stores import _limits
from oncron.stores.memory.tables import Limiter, Tables, TakeRow


class Locks(Tables):
    """The steps on names that only have holders, and on limiters."""

    async def acquire(
        self, name: str, *, owner: str, lease_for: int, slots: int = 1, now: int | None = None
    ) -> Acquired:
        with self._step(now) as at:
            holders = self._holders[name] = [one for one in self._holders.get(name, []) if one.lease_until > at]
            mine = next((one for one in holders if one.owner == owner), None)
            if mine is not None:
                self._prolong(mine, at + lease_for)
                return Acquired(now=at, token=mine.token, lease_until=at + lease_for, holders=len(holders))
            if len(holders) >= slots:
                until = min(one.lease_until for one in holders)
                return Acquired(now=at, token=None, lease_until=until, holders=len(holders))
            token = max(self._lock_tokens.get(name, 0) + 1, at)
            self._lock_tokens[name] = token
            holders.append(LockRecord(name=name, owner=owner, token=token, since=at, lease_until=at + lease_for))
            return Acquired(now=at, token=token, lease_until=at + lease_for, holders=len(holders))

    async def extend(self, name: str, token: int, *, lease_for: int, now: int | None = None) -> int | None:
        with self._step(now) as at:
            mine = next((one for one in self._holders.get(name, []) if one.token == token), None)
            return None if mine is None else self._prolong(mine, at + lease_for)

    async def release(self, name: str, token: int, *, now: int | None = None) -> bool:
        with self._step(now):
            holders = self._holders.get(name, [])
            self._holders[name] = [one for one in holders if one.token != token]
            return len(self._holders[name]) < len(holders)

    async def locks(self, *, now: int | None = None) -> list[LockRecord]:
        with self._step(now) as at:
            held = [one for holders in self._holders.values() for one in holders if one.lease_until > at]
            return sorted(held, key=lambda one: (one.name, one.token))

    def _prolong(self, holder: LockRecord, until: int) -> int:
        others = [one for one in self._holders[holder.name] if one.token != holder.token]
        self._holders[holder.name] = [*others, replace(holder, lease_until=until)]
        return until

    def _forget_locks(self, now: int) -> None:
        """A token is never below the store's clock, so a name that was idle for long needs no memory of its last."""
        before = now - limits.DAY
        for name, token in list(self._lock_tokens.items()):
            if token < before and all(one.lease_until < before for one in self._holders.get(name, [])):
                del self._lock_tokens[name]
                self._holders.pop(name, None)

    # --- limiters -------------------------------------------------------------------------

    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        with self._step(now) as at:
            limiter = self._limiters.setdefault(take.limiter, Limiter(rule=take.rule))
            limiter.rule = take.rule
            limiter.takes = {nonce: row for nonce, row in limiter.takes.items() if row.until > at}
            if take.nonce in limiter.takes:
                return self._said(limiter, take.rule, at)
            verdict = self._judge(limiter, take.rule, take.cost, at)
            if verdict.granted:
                until = _limits.remembered_until(take.rule, at, take.keep_for)
                limiter.takes[take.nonce] = TakeRow(at, take.cost, until, verdict.empty_at)
                limiter.empty_at = verdict.empty_at
            return Taken(granted=verdict.granted, now=at, used=verdict.used, retry_in=verdict.retry_in)

    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> Taken | None:
        with self._step(now) as at:
            found = self._limiters.get(limiter)
            row = None if found is None else found.takes.get(nonce)
            if found is None or row is None:
                return None
            later = 0
            if found.rule.kind is LimitKind.BUCKET:
                later = _limits.settled(found.rule, row.empty_at, row.cost, cost, at)
            found.takes[nonce] = row._replace(cost=cost, empty_at=row.empty_at + later)
            found.empty_at += later
            return self._said(found, found.rule, at)

    async def taken(self, limiter: str, rule: LimitRule, *, now: int | None = None) -> Taken:
        with self._step(now) as at:
            found = self._limiters.get(limiter) or Limiter(rule=rule)
            verdict = self._judge(found, rule, 1, at)
            used = self._said(found, rule, at).used
            return Taken(granted=verdict.granted, now=at, used=used, retry_in=verdict.retry_in)

    def _judge(self, limiter: Limiter, rule: LimitRule, cost: int, now: int) -> _limits.Verdict:
        takes = sorted((row.at, row.cost) for row in limiter.takes.values())
        return _limits.judge(rule, takes, limiter.empty_at, cost, now)

    def _said(self, limiter: Limiter, rule: LimitRule, now: int) -> Taken:
        """What is used, by a take of nothing."""
        return Taken(granted=True, now=now, used=self._judge(limiter, rule, 0, now).used)

    def _forget_takes(self, now: int) -> None:
        for name, limiter in list(self._limiters.items()):
            limiter.takes = {nonce: row for nonce, row in limiter.takes.items() if row.until > now}
            if not limiter.takes and limiter.empty_at <= now:
                del self._limiters[name]
