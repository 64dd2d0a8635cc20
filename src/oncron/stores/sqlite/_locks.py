"""Named locks with a lease and a token (G5, G7)."""

from __future__ import annotations

from oncron import _defaults as limits
from oncron._groups import Acquired, LockRecord
from oncron.stores.sqlite._step import Step


def acquire(step: Step, name: str, owner: str, lease_for: int, slots: int) -> Acquired:
    holders = step.rows("lock.holders", name=name)
    live = [row for row in holders if row[3] > step.now]
    if len(live) < len(holders):
        step.do("lock.forget_expired", name=name, now=step.now)
    until = step.now + lease_for
    for token, holder, _, _ in live:
        if holder == owner:
            step.do("lock.prolong", name=name, token=token, until=until)
            return Acquired(now=step.now, token=token, lease_until=until, holders=len(live))
    if len(live) >= slots:
        first_end = min(lease_until for *_, lease_until in live)
        return Acquired(now=step.now, token=None, lease_until=first_end, holders=len(live))
    token = max((step.value("lock.last_token", name=name) or 0) + 1, step.now)
    step.do("lock.put_token", name=name, token=token)
    step.do("lock.hold", name=name, token=token, owner=owner, now=step.now, until=until)
    return Acquired(now=step.now, token=token, lease_until=until, holders=len(live) + 1)


def extend(step: Step, name: str, token: int, lease_for: int) -> int | None:
    until = step.now + lease_for
    return until if step.do("lock.prolong", name=name, token=token, until=until) else None


def release(step: Step, name: str, token: int) -> bool:
    return step.do("lock.release", name=name, token=token) > 0


def locks(step: Step) -> list[LockRecord]:
    return [
        LockRecord(name=name, owner=owner, token=token, since=since, lease_until=lease_until)
        for name, owner, token, since, lease_until in step.rows("lock.list", now=step.now)
    ]


def forget(step: Step, limit: int) -> None:
    """A token is never below the store's clock, so a name that was idle for long needs no memory of its last."""
    idle = step.rows("lock.idle", before=step.now - limits.DAY, limit=limit)
    step.each("lock.forget_holders", idle)
    step.each("lock.forget", idle)
