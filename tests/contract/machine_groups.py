"""The twins' calls on what has no schedule: queues, locks, limiters and batches."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from oncron._groups import BatchRecord, LimitKind, LimitRule, NewBatch, Take
from oncron._model import NewRun
from oncron._store import ReadableStore
from oncron.errors import NotFound
from oncron.stores.memory import MemoryStore
from tests.contract.given import SECOND

QUEUES = ("default", "slow")
LOCKS = ("l1", "ß/l")
OWNERS = ("o1", "o2", "o3")
LIMITERS = ("m1", "m2")

RULES = (
    LimitRule(kind=LimitKind.WINDOW, amount=3, per=10 * SECOND),
    LimitRule(kind=LimitKind.SLIDING, amount=5, per=20 * SECOND),
    LimitRule(kind=LimitKind.SLIDING, amount=2, per=7 * SECOND),
    LimitRule(kind=LimitKind.BUCKET, amount=3, per=10 * SECOND),
    LimitRule(kind=LimitKind.BUCKET, amount=7, per=20 * SECOND),
)

whichever = st.integers(0, 10_000)
names = st.sampled_from(LOCKS)
limiters = st.sampled_from(LIMITERS)


class Groups:
    """Rules for a machine that has `both`."""

    memory: MemoryStore
    now: int
    both: Callable[[Callable[[ReadableStore], Coroutine[Any, Any, Any]]], Any]
    new_id: Callable[[], str]

    def __init__(self) -> None:
        super().__init__()
        self.takes: list[Take] = []

    def asked(self, call: Callable[[ReadableStore], Coroutine[Any, Any, Any]]) -> Any:
        """Both refuse with NotFound, or neither."""

        async def guarded(store: ReadableStore) -> Any:
            try:
                return await call(store)
            except NotFound:
                return "not found"

        return self.both(guarded)

    def batches(self) -> list[BatchRecord]:
        return sorted(self.memory._batch_rows.values(), key=lambda row: row.id)

    @invariant()
    def groups_are_the_same(self) -> None:
        self.both(lambda store: store.queues(now=self.now))
        self.both(lambda store: store.locks(now=self.now))
        self.both(lambda store: store.batches())
        for name in LIMITERS:
            self.both(lambda store, name=name: store.taken(name, RULES[0], now=self.now))

    # --- queues ---------------------------------------------------------------------------

    @rule(queue=st.sampled_from(QUEUES), paused=st.sampled_from((False, False, True)), note=st.sampled_from(("", "n")))
    def set_queue(self, queue: str, paused: bool, note: str) -> None:
        self.both(lambda store: store.set_queue(queue, paused=paused, note=note, now=self.now))

    # --- locks ----------------------------------------------------------------------------

    @rule(name=names, owner=st.sampled_from(OWNERS), slots=st.integers(1, 2), seconds=st.sampled_from((1, 10, 60)))
    def acquire(self, name: str, owner: str, slots: int, seconds: int) -> None:
        self.both(lambda store: store.acquire(name, owner=owner, lease_for=seconds * SECOND, slots=slots, now=self.now))

    @rule(name=names, n=whichever, wrong=st.sampled_from((0, 0, 0, 1)))
    def extend(self, name: str, n: int, wrong: int) -> None:
        token = self._token(name, n) + wrong
        self.both(lambda store: store.extend(name, token, lease_for=5 * SECOND, now=self.now))

    @rule(name=names, n=whichever, wrong=st.sampled_from((0, 0, 0, 1)))
    def release(self, name: str, n: int, wrong: int) -> None:
        token = self._token(name, n) + wrong
        self.both(lambda store: store.release(name, token, now=self.now))

    def _token(self, name: str, n: int) -> int:
        """One that is on record, expired or not."""
        tokens = sorted(holder.token for holder in self.memory._holders.get(name, ())) or [1]
        return tokens[n % len(tokens)]

    # --- limiters -------------------------------------------------------------------------

    @rule(limiter=limiters, limit=st.sampled_from(RULES), cost=st.integers(1, 4), keep=st.sampled_from((1, 60, 90)))
    def take(self, limiter: str, limit: LimitRule, cost: int, keep: int) -> None:
        take = Take(limiter=limiter, nonce=self.new_id(), rule=limit, cost=cost, keep_for=keep * SECOND)
        self.takes.append(take)
        self.both(lambda store: store.take(take, now=self.now))

    @rule(n=whichever)
    def take_again(self, n: int) -> None:
        if self.takes:
            take = self.takes[n % len(self.takes)]
            self.both(lambda store: store.take(take, now=self.now))

    @rule(n=whichever, cost=st.integers(0, 9))
    def settle(self, n: int, cost: int) -> None:
        if self.takes:
            take = self.takes[n % len(self.takes)]
            self.both(lambda store: store.settle(take.limiter, take.nonce, cost, now=self.now))

    # --- batches --------------------------------------------------------------------------

    @rule(parent=st.none() | whichever, into=st.none() | whichever, callbacks=st.booleans())
    def open_batch(self, parent: int | None, into: int | None, callbacks: bool) -> None:
        rows = self.batches()
        made = NewBatch(
            id=self.new_id(),
            parent=rows[parent % len(rows)].id if rows and parent is not None else None,
            data='{"a": "ß"}',
            **({name: self._callback(into) for name in ("on_complete", "on_success", "on_death")} if callbacks else {}),
        )
        self.asked(lambda store: store.open_batch(made, now=self.now))

    def _callback(self, into: int | None) -> NewRun:
        rows = self.batches()
        batch = rows[into % len(rows)].id if rows and into is not None else None
        return NewRun(id=self.new_id(), task="send", batch=batch, unique="callback" if into and into % 3 == 0 else None)

    @rule(n=whichever, count=st.integers(1, 3), task=st.sampled_from(("send", "scarce")), unknown=st.integers(0, 9))
    def add_to_batch(self, n: int, count: int, task: str, unknown: int) -> None:
        batch = self._batch(n) if unknown else "unknown"
        new = [NewRun(id=self.new_id(), task=task, batch=batch, retries=0) for _ in range(count)]
        self.asked(lambda store: store.enqueue(new, now=self.now))

    @rule(n=whichever)
    def close_batch(self, n: int) -> None:
        self.asked(lambda store: store.close_batch(self._batch(n), now=self.now))

    @rule(n=whichever)
    def invalidate_batch(self, n: int) -> None:
        self.asked(lambda store: store.invalidate_batch(self._batch(n), now=self.now))

    @rule(n=whichever, rarely=st.integers(0, 3))
    def delete_batch(self, n: int, rarely: int) -> None:
        if rarely == 0:
            batch = self._batch(n)
            self.both(lambda store: store.delete_batch(batch, now=self.now))

    @rule(one=st.none() | whichever, limit=st.integers(1, 3))
    def settle_batches(self, one: int | None, limit: int) -> None:
        ids = None if one is None else [self._batch(one), "unknown"]
        page = self.both(lambda store: store.settle_batches(ids, limit=limit, now=self.now))
        if len(page) == limit:
            self.both(lambda store: store.settle_batches(ids, after=page[-1].id, limit=limit, now=self.now))

    @rule(n=whichever, dead=st.booleans(), limit=st.integers(1, 3))
    def read_batches(self, n: int, dead: bool, limit: int) -> None:
        self.both(lambda store: store.get_batch(self._batch(n)))
        self.both(lambda store: store.batches(dead=dead, before=self._batch(n), limit=limit))

    def _batch(self, n: int) -> str:
        rows = self.batches()
        return rows[-1 - n % len(rows)].id if rows else "unknown"
