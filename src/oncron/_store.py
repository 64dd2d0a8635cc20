"""THE CONTRACT: what a store promises. No code.

A store is where replicas meet. Each method is **one atomic step** (one transaction, one
script): it happened wholly or not at all, and what it acknowledged stays. Its clock is the
law: every method reads the store's own "now" inside the step; the optional `now=` is for
tests, which move time instead of sleeping. It knows no time rules: triggers are evaluated
by the callers, the store compares.

The guarantees, cited everywhere by number:

G1  One run per tick. For every (schedule, instant) at most one scheduled run is ever
    created: any number of callers, crashes, repeats, and pruning. The cursor refuses what
    it has passed; the run's id, a function of (schedule, instant), is the second belt.
G2  Never early. A tick later than the store's clock is refused.
G3  None lost. The cursor moves only by compare-and-set, in a step that records what it
    passes, as runs or as a gap.
G4  One holder. At any instant of the store's clock a run has at most one live lease.
G5  Fencing. A claim's token is the greatest of (last token of the run + 1, last token of
    its schedule + 1, store-now in microseconds), made under the run's or schedule's lock.
    A stale token changes nothing.
G6  One ending. A run ends once per opening; only `retry` re-opens it (opening + 1), and is
    refused while its unique key or its schedule's place is taken.
G7  Repeatable. Every write carries an id made by the caller; repeating it after an unknown
    outcome returns the first answer (`fire` and `claim` return their leases again while
    held).
G8  No orphan. After a lease expired any replica's next `reap` makes the run pending or
    lost. A heartbeat revives an expired lease that was not reaped.
G9  Hints only. Wake-ups may be lost, doubled, reordered; `poll` finds what they would have
    told.
G10 Occupancy exact. `skip`: at most one open run per schedule. `wait`: one running and one
    waiting; a newer tick supersedes the waiting one if that never started. `cancel`: the
    same, and the running one is asked to stop. `queue`: one running, the rest by tick
    order, a retry keeps its place at the head. Several ticks in one plan are a catch-up:
    they wait as under `queue` whatever the policy but `allow`, and are not superseded.
    `max_running`: claims held per task; `queue_limits`: per queue; `fleet_limit`: of all. Only
    finish, cancel and reap free a place. Judged inside the step, serialised per schedule (and per
    task, per queue, for the fleet).
G11 Nothing silent. Every tick passed by a cursor has a record that says what became of it.

How occupancy is kept: among the open `serial` runs of a schedule (all but those of
overlap="allow" and backfills) at most one is not `parked`: the *head*. Claim takes unparked
runs only; whatever ends the head unparks the next in order of (position, created_at, id) in
the same step (one that runs already comes first: a changed policy may leave several). A head
that waits for a retry stays the head. "Running" in G10 is the head, claimed or not; only
parked runs that never started (`attempt` 0) and are no catch-up (`is_catchup`) are superseded,
and when `wait` or `cancel` finds another kind waiting, the new tick is refused. `cancel` asks a
head to stop only while it runs: a pending one keeps its place and its turn.

A lease is live while now < lease_until; a worker without a row has none. `now=` is taken as it
is and not remembered.

Batches: a result per item, in order; one item's refusal does not fail the others. Errors:
any method may raise StoreUnavailable (the outcome is unknown: repeat with the same ids).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from oncron._groups import Acquired, BatchRecord, LimitRule, LockRecord, NewBatch, QueueRecord, Take, Taken
from oncron._model import (
    Change,
    Changed,
    Claimed,
    ClaimSpec,
    Due,
    EnqueueResult,
    FinishResult,
    Fired,
    FirePlan,
    Gap,
    NewRun,
    Outcome,
    Poll,
    Pulse,
    Reaped,
    Report,
    RunFilter,
    RunRecord,
    ScheduleRecord,
    Stats,
    WorkerRecord,
)


class Store(Protocol):
    """What the engine and the app write through. See the module for G1-G11."""

    url: str
    """The address, without its password: for messages."""

    # --- life cycle -------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises StoreUnavailable, StoreUnsafe (read-only, wrong host)."""
        ...

    async def close(self) -> None:
        """Let go of every connection. May be called twice, and on a store that never opened."""
        ...

    async def reset(self) -> None:
        """Drop the connections after a failed call, so that the next call starts on a fresh one.
        Never raises; nothing acknowledged is lost."""
        ...

    async def migrate(self) -> None:
        """Create or upgrade the schema. Idempotent, additive within a major version, safe when
        N replicas call it at once. Raises SchemaTooNew for a newer major."""
        ...

    async def check(self) -> None:
        """Raise SchemaOutdated or SchemaTooNew (a newer major only). Changes nothing."""
        ...

    async def now(self) -> int:
        """The store's clock."""
        ...

    # --- schedules and ticks ----------------------------------------------------------

    async def declare(self, changes: Sequence[Change], *, now: int | None = None) -> list[Changed]:
        """New definitions, changed ones, pause, resume, dormancy, removal: one step with `fire`.

        Per change: if the row is as seen (`seen_revision` and `seen_cursor`, or absent for
        None), write definition, status, note and gaps, move cursor and next_at, raise the
        revision by one and the store's version; otherwise `changed=False` and the row as it
        is. A new row starts with revision 1. The cursor never goes back: it becomes
        max(cursor, new_cursor); it may not be moved past the store's now (then `changed=False`,
        G2). Only an active row keeps a next_at. A changed overlap policy re-parks the open runs: under `allow` no
        run is serial or parked; otherwise all open runs that are no backfill are serial, and
        one that runs, else one that has started, else the first in order, is the head. G3, G7 (a repetition
        answers `changed=False` with the row it made).
        """
        ...

    async def due(
        self, horizon: int, *, after: tuple[int, str] | None = None, exclude: Sequence[str] = (), limit: int = 1000
    ) -> list[Due]:
        """Active schedules with next_at <= horizon, ordered by (next_at, name), beginning after
        the pair `after`, without those in `exclude`. A lock-free read."""
        ...

    async def fire(
        self, plans: Sequence[FirePlan], claim: ClaimSpec | None = None, *, fire_id: str, now: int | None = None
    ) -> Fired:
        """Let each schedule's cursor pass its due ticks, once (G1, G2, G3, G11).

        Per plan, under the schedule's lock: unless the row is active, at `seen_revision` and
        at `seen_cursor`, and every tick and gap lies in (seen_cursor, new_cursor]: STALE. If
        new_cursor lies past the store's now: EARLY. A plan made with older zone data than a live
        scheduler has is STALE (`tzdata`; "" has no age). Nothing is written then. Otherwise FIRED:
        per tick, oldest first, judge occupancy (G10), then `limit`, then the unique key; insert
        the runs (task, args, options copied from the definition; `is_catchup` if the plan says
        so or has several ticks; a tick whose run is on record is passed over), record the
        plan's gaps, then one for the refused ticks, move cursor and next_at (None once `limit`
        is reached). A gap extends the schedule's newest one (its last, count and at_least)
        instead of adding a row if both have the same reason and that one's `last` is
        `seen_cursor`.

        With `claim`, the same step leases new unparked runs that are due now to the caller,
        under the same filter and the same limits as `claim`.

        G7: a plan that this very `fire_id` has fired before, and nothing since, is FIRED
        again (`created` and `skipped` as then), with its leases while they are held.
        """
        ...

    # --- runs -------------------------------------------------------------------------

    async def enqueue(self, runs: Sequence[NewRun], *, now: int | None = None) -> list[EnqueueResult]:
        """Write runs. An id that exists returns that run, `is_new` as the first time (G7). A new one's
        `batch` must exist and not be complete: raises NotFound, before anything is written. An
        open run with the same unique key is returned instead. With `schedule` (and no
        `backfill`, or one with `overlap`) the schedule's occupancy rules as in `fire` apply; a refusal answers
        `occupied` with the run in the way. Raises NotFound for a schedule that does not
        exist, before anything is written."""
        ...

    async def claim(self, spec: ClaimSpec, *, now: int | None = None) -> Claimed:
        """Lease due, unparked, uncancelled pending runs of the spec's tasks and queues: at most
        `limit`, queue by queue in the order given, within a queue by (order_key, due_at).
        attempt + 1, token by G5, started_at on the first. Never waits for rows others hold.
        If it returns runs, the worker's lease reaches at least two thirds of `lease_for` past
        now afterwards (a worker without a row gets one). Repeating a claim_id returns its runs
        while any is still held, and takes no more (G7). `next_due_at` counts what is left and
        could be had but for its time or for `limit`: in the past if more is due. A paused queue
        gives nothing, nor does a task, a queue or a fleet that holds as many claims as it may (G10):
        what waits for them is not counted."""
        ...

    async def heartbeat(
        self,
        worker: WorkerRecord,
        lease_for: int,
        held: Sequence[tuple[str, int]] = (),
        reports: Sequence[Report] = (),
        *,
        now: int | None = None,
    ) -> Pulse:
        """Extend the worker's lease, and with it every run it holds, to now + lease_for (G8), and
        store the reports whose token is current. `held` is (run id, token) of what it executes."""
        ...

    async def leave(self, worker: str) -> None:
        """Forget a worker that stopped: it is listed no more. What it still holds is left to
        expire by its old lease."""
        ...

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[FinishResult]:
        """End claims, by token.

        The first outcome recorded for a token wins; the same token again is REPEATED with the
        state that resulted (G6, G7); a token that is not the run's newest, or was reaped, is
        LEASE_LOST and changes nothing (G5). Cancel is sticky: retry and release of a run that
        was asked to cancel end it as cancelled; success stays success. A release does not
        spend an attempt (ten in a row at most; a further one that spends the last ends the run
        as lost), a retry does unless `spend_attempt` is False. A retry or release makes the run
        pending, due at now + delay, still the head of its schedule. Everything else ends the
        run, frees its place (G10), its unique key. `enqueue` is written only with SUCCEEDED, `then` with
        every end, after the place and the key are free: both as `enqueue` writes, but one that would be
        refused, or that names a schedule or a batch that does not exist, is dropped.
        """
        ...

    async def reap(self, limit: int = 1000, *, now: int | None = None) -> Reaped:
        """Take runs from workers whose lease has expired (G8): cancelled if that was asked for,
        pending again after `retry_delay` (which then doubles, up to an hour) if an attempt is
        left, lost otherwise. Their tokens are void. Skips what is locked by a transaction in
        flight. A worker without runs whose lease ended over a minute ago is dropped."""
        ...

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> RunRecord:
        """Pending: ends as cancelled here and now. Running: asked to stop. Ended, or of another
        opening: unchanged. Raises NotFound."""
        ...

    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> EnqueueResult:
        """Re-open an ended run (G6): opening + 1, pending, due now, its attempt budget as new
        (given_back = attempt), cancel request, end, result, error and reason cleared. An open
        one, or another opening, is returned unchanged with `is_new` False; `occupied` with the
        run in the way if its unique key or its schedule's place is taken. Raises NotFound."""
        ...

    async def prune(
        self,
        *,
        ended_before: int,
        failed_before: int,
        keep_failed: int | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> int:
        """Delete at most `limit` ended runs and gaps older than that (failed and lost ones by
        `failed_before`, gaps by the later of `last` and `created_at`); how many. With `keep_failed`
        also the failed and lost ones but for the newest so many (by created_at, id). Never a
        cursor, never an open run, never a run of a batch that is on record. Batches that completed
        before `failed_before`, have no open run and are in no batch on record count among them; so do
        takes that need not be remembered any more, and locks that nobody has held for a day."""
        ...

    # --- waking up --------------------------------------------------------------------

    async def poll(self, tasks: Sequence[str], queues: Sequence[str] | None, *, now: int | None = None) -> Poll:
        """The one idle question (G9): cheap, lock-free, one round trip."""
        ...

    async def hint(self) -> None:
        """Tell the others (sessions, not necessarily this one) to look. May be lost; never part
        of another step."""
        ...

    def wakeups(self) -> AsyncIterator[None]:
        """Yields whenever there may be something new. Ends or raises if it cannot go on; the
        caller starts another after a wait."""
        ...


class Queues(Protocol):
    """Queues as the whole fleet sees them. A queue exists by being named."""

    async def set_queue(self, name: str, *, paused: bool, note: str = "", now: int | None = None) -> QueueRecord:
        """Pause or resume a queue for everybody: from here on no claim, and no claim within `fire`, takes
        from a paused one; runs are enqueued in it as before. Repeating writes nothing; what is held goes on."""
        ...


class Locks(Protocol):
    """Named locks with a lease and a fencing token, and limiters; all by the store's clock."""

    async def acquire(
        self, name: str, *, owner: str, lease_for: int, slots: int = 1, now: int | None = None
    ) -> Acquired:
        """Hold one of the `slots` of that name until now + lease_for, if fewer than that have a live holder.
        The token is the greatest of (last token of the name + 1, store-now in microseconds) (G5). The
        same owner gets its token again while it holds one, its lease extended (G7). Holders whose lease
        has expired (lease_until <= now) are forgotten in the same step."""
        ...

    async def extend(self, name: str, token: int, *, lease_for: int, now: int | None = None) -> int | None:
        """The new end of the holder's lease, now + lease_for; also of one that expired and that no `acquire` of
        the name has met since. None: the lock is lost, nothing changed."""
        ...

    async def release(self, name: str, token: int, *, now: int | None = None) -> bool:
        """Let go. False: it was not held under that token any more. May be repeated."""
        ...

    async def take(self, take: Take, *, now: int | None = None) -> Taken:
        """Grant the cost if the rule allows it now, and count it; otherwise count nothing. Serialised per
        limiter, so that no interleaving grants more than the rule. The store's clock may stand or go
        back: what was granted later than `now` counts as granted now. A nonce that was granted is
        granted again, and counted once, while it is remembered (G7). A changed rule judges what is on record by its own
        measure: amounts and `per` may be changed while takes are counted.

        window and sliding count costs; a sliding take exactly `per` ago counts no more. A bucket keeps the
        instant `empty_at` at which it will be empty: a take moves max(empty_at, now) by ceil(cost x per /
        amount), and fits if that is at most now + per, and what all that rounding makes of it: min(amount,
        ceil(per / amount)) - 1, or 0 if amount divides per (the generic cell rate algorithm, ITU-T I.371)."""
        ...

    async def settle(self, limiter: str, nonce: str, cost: int, *, now: int | None = None) -> Taken | None:
        """Put the true cost in the place of what a granted take estimated, more or less; it is not refused.
        A bucket gives back nothing that it has drained by now: it counts what a take poured as drained at the
        instant at which it was to be empty after that take. None: the nonce is not remembered. May be repeated."""
        ...


class Batches(Protocol):
    """Runs that belong together, and runs that are enqueued when all of them have ended."""

    async def open_batch(self, batch: NewBatch, *, now: int | None = None) -> BatchRecord:
        """Write a batch's row; one whose id exists is returned as it is (G7). Raises NotFound for a parent that
        does not exist or is complete."""
        ...

    async def close_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        """Nothing more comes from outside; settles it at once. May be repeated. Raises NotFound."""
        ...

    async def invalidate_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        """Note that its runs need not do their work any more. Raises NotFound."""
        ...

    async def delete_batch(self, batch_id: str, *, now: int | None = None) -> bool:
        """Forget the batch, complete or not: none of its callbacks comes any more, nothing is added to it, and
        whatever it is in is settled without it. Its runs stay, and go on; batches in it are in none from then
        on. False: there is none."""
        ...

    async def settle_batches(
        self, ids: Sequence[str] | None = None, *, after: str = "", limit: int = 100, now: int | None = None
    ) -> list[BatchRecord]:
        """Look at batches that have not succeeded, by id order from `after`: these, or (None) all that are not
        complete or had a run re-opened since. Under the batch's lock: a run that failed or was lost sets
        `died_at`; closed, without an open run and an incomplete child, it is complete; complete, and
        no run of it failed, lost or cancelled, and all its children succeeded, it has succeeded. What is
        set stays set. Setting each of the three enqueues its callback in the same step, so once. A
        batch that completes or succeeds settles its parent as well. Answers those that were looked at, as
        they are now; a page that is full (`limit`) goes on after its last id."""
        ...


class Guards(Protocol):
    """`guard="advisory"`: a lock outside of oncron's tables, which another scheduler takes for the same name. It is
    held while a run executes, so that both fleets stay out of each other's way while work moves over."""

    async def refuse_guard(self, guard: str) -> None:
        """Raises NotSupported for a guard that is not this store's, StoreUnsafe where it would keep nobody out."""
        ...

    def guarded(self, name: str, lost: Callable[[str], None]) -> AbstractAsyncContextManager[bool]:
        """Whether the lock of that name is ours until the block is left; never waits for it. `lost` is called, with the
        reason and on the same loop, when it is not any more. Raises StoreUnavailable, StoreUnsafe, NotSupported."""
        ...


class Declared(Protocol):
    """Who still declares which schedules, so that those which nobody declares can go dormant.
    Replicas of one release declare the same set: its names are written once."""

    async def register(self, set_id: str, names: Sequence[str] | None, *, now: int | None = None) -> bool:
        """Note that a replica declares this set now. With None the names are not sent: False then
        says that the store does not know the set, and nothing was written."""
        ...

    async def unheld(self, before: int, *, limit: int = 1000, now: int | None = None) -> list[str]:
        """Active schedules of origin "code", by name, that changed before the instant and are in no
        set noted since. Forgets sets that were noted last before it."""
        ...


class Transactions(Protocol):
    """Effects that commit together with a run's end, or with the enqueueing of a run, on
    connections of the store's own driver. May be called from any thread or loop, also on a store
    that was never opened: nothing here touches the engine's connections. What is called with a
    sync connection works in the caller's thread, and blocks it.

    A caller's connection may be the driver's, or one of SQLAlchemy (Connection, Session,
    AsyncConnection, AsyncSession) or Django that wraps it. NotSupported: a store without
    transactions, a connection of another driver, database or file. DefinitionError: no
    transaction is open on it, or it failed. SchemaOutdated: nobody has migrated. StoreUnavailable:
    the caller's transaction cannot go on; it has to be rolled back and begun anew."""

    def transaction(self, *, within: int) -> AbstractContextManager[Any]:
        """A driver connection in a transaction. The caller commits nothing: leaving normally commits,
        an exception rolls back and passes through. StoreUnavailable at leaving: whether it was
        committed is unknown (`finish` by the same token tells). `within` microseconds without a
        statement end the session (PostgreSQL); on SQLite the transaction holds the fleet's only
        write lock, and may last `within` or a second in all, whichever is less: then it is rolled
        back, with StoreUnavailable."""
        ...

    def transaction_async(self, *, within: int) -> AbstractAsyncContextManager[Any]:
        """The same with the driver's async connection. SQLite's driver has none: there it is one whose
        `execute` and `executemany` are awaited, and their cursors' `fetchone`, `fetchmany` and
        `fetchall`; its `connection` is the driver's."""
        ...

    def finish_in(self, connection: Any, outcome: Outcome) -> FinishResult:
        """`finish` of one outcome inside the connection's open transaction, the last statement of it:
        it holds when that commits. Raises LeaseLost for a stale token, and for one whose end is on
        record already, so that the transaction is rolled back (G5, G6)."""
        ...

    async def finish_in_async(self, connection: Any, outcome: Outcome) -> FinishResult: ...

    def enqueue_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        """`enqueue` inside the caller's open transaction; the caller commits."""
        ...

    async def enqueue_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        """The same; also for an async connection."""
        ...

    def close_transactions(self) -> None:
        """Let go of the connections that are kept for `transaction`. Part of `close`; may be called twice."""
        ...

    def still_open(self, connection: Any) -> Callable[[], bool] | None:
        """After `enqueue_in`, with its connection: a question that any thread may ask, without I/O,
        whether that transaction is still open: once it is not, a hint is in place. None where
        others see a commit without one."""
        ...


class Reader(Protocol):
    """Reads for CLI, web and metrics: a face cannot write by accident."""

    async def schedules(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRecord]:
        """Rows by name order, removed ones too; with `names` only those that exist, with `tag` only those
        that have it; at most `limit`, beginning after the name `after`."""
        ...

    async def gaps(
        self, schedule: str, *, since: int | None = None, until: int | None = None, limit: int = 100
    ) -> list[Gap]:
        """Newest first; those that touch [since, until]."""
        ...

    async def get_run(self, run_id: str) -> RunRecord | None: ...

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunRecord]:
        """Those that exist, in any order."""
        ...

    async def runs(self, where: RunFilter) -> list[RunRecord]: ...

    async def workers(self) -> list[WorkerRecord]: ...

    async def stats(self, *, now: int | None = None) -> Stats: ...

    async def queues(self, *, now: int | None = None) -> list[QueueRecord]:
        """By name: those that have open runs, and those that are paused."""
        ...

    async def locks(self, *, now: int | None = None) -> list[LockRecord]:
        """Live holders by (name, token)."""
        ...

    async def taken(self, limiter: str, rule: LimitRule, *, now: int | None = None) -> Taken:
        """What the limiter says of a take of 1 now, without taking it: `granted` means it would be."""
        ...

    async def get_batch(self, batch_id: str) -> BatchRecord | None: ...

    async def batches(self, *, dead: bool = False, before: str | None = None, limit: int = 100) -> list[BatchRecord]:
        """Newest first (by created_at, id); with `dead` only those in which a run failed or was lost; page on
        with the last one's id."""
        ...


class ReadableStore(Store, Queues, Locks, Batches, Guards, Declared, Transactions, Reader, Protocol):
    """What `_app.py` holds: everything."""
