"""PostgresStore: the contract of `_store.py` on PostgreSQL.

Every step is one function in the database (`functions/*.sql`), called in one message and in one
transaction, READ COMMITTED. There the work is done; here plans become JSON and answers records.
"""

from __future__ import annotations

import asyncio
import logging
import re
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
from msgspec.structs import replace

from oncron import _defaults as limits
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
    NewRun,
    Outcome,
    Poll,
    Pulse,
    Reaped,
    Report,
    RunRecord,
    WorkerRecord,
)
from oncron.errors import InvalidOption, StoreError, StoreUnavailable, StoreUnsafe
from oncron.stores import _missing, _sql
from oncron.stores.postgres import _errors, _steps, _wire
from oncron.stores.postgres._address import Address
from oncron.stores.postgres._apart import Apart
from oncron.stores.postgres._batches import Batches
from oncron.stores.postgres._ends import FinishBatch
from oncron.stores.postgres._guards import AdvisoryGuards
from oncron.stores.postgres._names import Names
from oncron.stores.postgres._pool import Pool, connected
from oncron.stores.postgres._reads import Reads
from oncron.stores.postgres._schema import PACKAGE, Schema
from oncron.stores.postgres._transactions import InTransactions
from oncron.stores.postgres._wakeups import Listener

log = logging.getLogger("oncron.stores.postgres")

DEADLINE_S = limits.CALL_DEADLINE / 1_000_000
FIRE_LANES = 2
"""Connections kept for `fire`: a herd goes out on both, on disjoint chunks."""
CHUNK = 500
"""Plans, or changes, in one transaction: the first runs need not wait for the last."""
FIRE_PATIENCE_MS, FINISH_PATIENCE_MS = 1000, 2000
"""How long these wait for a row that a transaction holds: oncron's own hold one for milliseconds."""
ATTEMPTS = 4
"""Of a step that PostgreSQL broke off to end a deadlock: nothing was written."""


class PostgresStore(Reads, Names, Batches, InTransactions, AdvisoryGuards):
    """Replicas meet in one schema of a PostgreSQL database (13 or newer).

    `namespace` is the schema's name. `listen_url` is a direct way to the server for LISTEN, if `url`
    leads through a pooler. At most `pool_size` connections, of which two are kept for firing, and one
    that listens."""

    def __init__(
        self, url: str, *, namespace: str = "oncron", listen_url: str | None = None, pool_size: int = 5
    ) -> None:
        if pool_size <= FIRE_LANES:
            raise InvalidOption(f"pool_size={pool_size} is too small: {FIRE_LANES} connections are kept for firing")
        self._address = Address(url)
        self._namespace = _checked_namespace(namespace)
        self._quoted = f'"{namespace}"'
        self._queries = _sql.statements(PACKAGE)
        self._firing = Pool(self._address, FIRE_LANES)
        self._others = Pool(self._address, pool_size - FIRE_LANES)
        self._schema = Schema(namespace, self._address.shown)
        self._direct = self._address if listen_url is None else Address(listen_url)
        self._listener = Listener(self._direct, self._queries, self._quoted)
        self._hinting = False
        self._hint_again = False
        self._apart = Apart(self._address)
        self._identity: str | None = None
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()
        self.url = self._address.shown

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r}, namespace={self._namespace!r})"

    # --- life cycle -----------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await self._refuse_unsafe()
        except StoreError:
            await self.reset()
            raise

    async def _refuse_unsafe(self) -> None:
        row = (await self._send(self._firing, self._queries["probe"]))[0]
        standby, read_only, version, encoding, synchronous, fsync, _ = row
        if standby or read_only == "on":
            what = "is a standby" if standby else "is read-only (default_transaction_read_only)"
            raise StoreUnsafe(
                f"{self.url} {what}: nothing can be scheduled there; name the primary in the URL, or several hosts "
                "with target_session_attrs=read-write"
            )
        if int(version) < 130000:
            raise StoreUnsafe(f"{self.url} is PostgreSQL {int(version) // 10000}; oncron needs 13 or newer")
        if encoding != "UTF8":
            raise StoreUnsafe(f"{self.url} has the encoding {encoding}; create the database with encoding UTF8")
        if "off" in (synchronous, fsync):
            log.warning(
                "store.not_durable: %s has synchronous_commit=%s, fsync=%s: a tick may run twice after a crash",
                self.url, synchronous, fsync,
            )  # fmt: skip

    async def close(self) -> None:
        self.close_transactions()
        await self.reset()

    async def reset(self) -> None:
        await self._firing.renew()
        await self._others.renew()

    async def migrate(self) -> None:
        await self._with_own_connection(self._schema.migrate)

    async def check(self) -> None:
        await self._with_own_connection(self._schema.check)

    async def now(self) -> int:
        return (await self._send(self._others, self._queries["now"]))[0][0]

    # --- schedules and ticks --------------------------------------------------------------

    async def declare(self, changes: Sequence[Change], *, now: int | None = None) -> list[Changed]:
        results: list[Changed] = []
        for start in range(0, len(changes), CHUNK):
            chunk = changes[start : start + CHUNK]
            answer = await self._step("declare_schedules", _steps.changes(chunk), now)
            results += _steps.changed(chunk, answer)
        return results

    async def register(self, set_id: str, names: Sequence[str] | None, *, now: int | None = None) -> bool:
        return await self._step("register", set_id, _wire.encode(names), now) == b"true"

    async def unheld(
        self,
        before: int,
        *,
        limit: int = 1000,
        now: int | None = None,  # noqa: ARG002 - the caller says since when
    ) -> list[str]:
        return _steps.names(await self._step("unheld", before, limit))

    async def due(
        self, horizon: int, *, after: tuple[int, str] | None = None, exclude: Sequence[str] = (), limit: int = 1000
    ) -> list[Due]:
        at, name = after or (None, None)
        return _steps.due(await self._step("due", horizon, at, name, _wire.encode(exclude), limit))

    async def fire(
        self, plans: Sequence[FirePlan], claim: ClaimSpec | None = None, *, fire_id: str, now: int | None = None
    ) -> Fired:
        batch = _steps.FireBatch(plans, CHUNK, fire_id)
        if batch.is_large:
            # Only one lane leases anew, so that the claim's limit holds for all chunks together.
            spare = None if claim is None else replace(claim, limit=0)
            async with asyncio.TaskGroup() as lanes:
                for _ in range(FIRE_LANES - 1):
                    lanes.create_task(self._fire_lane(batch, spare, fire_id, now))
                await self._fire_lane(batch, claim, fire_id, now)
        else:
            await self._fire_lane(batch, claim, fire_id, now)
        return batch.fired(await self._now_or(now) if batch.now is None else batch.now)

    async def _fire_lane(self, batch: _steps.FireBatch, claim: ClaimSpec | None, fire_id: str, now: int | None) -> None:
        while (chunk := batch.take()) is not None:
            spec = None if claim is None else _wire.encode(batch.remaining(claim))
            answer = await self._step(
                chunk.function, chunk.payload, spec, fire_id, now, pool=self._firing, patience=FIRE_PATIENCE_MS
            )
            batch.note(chunk, answer)

    async def _now_or(self, now: int | None) -> int:
        return await self.now() if now is None else now

    # --- runs -----------------------------------------------------------------------------

    async def enqueue(self, runs: Sequence[NewRun], *, now: int | None = None) -> list[EnqueueResult]:
        results: list[EnqueueResult] = []
        named = _steps.named(runs)
        for chunk in _steps.sized(runs):
            results += _steps.enqueued(chunk, await self._step("enqueue", _steps.new_runs(chunk), named, now))
            named = _steps.named(chunk)
        return results

    async def claim(self, spec: ClaimSpec, *, now: int | None = None) -> Claimed:
        return _steps.claimed(await self._step("claim", _wire.encode(spec), now))

    async def heartbeat(
        self,
        worker: WorkerRecord,
        lease_for: int,
        held: Sequence[tuple[str, int]] = (),
        reports: Sequence[Report] = (),
        *,
        now: int | None = None,
    ) -> Pulse:
        known = [claim for claim in held if _steps.is_uuid(claim[0])]
        told = [report for report in reports if _steps.is_uuid(report.run_id)]
        answer = await self._step(
            "heartbeat", _wire.encode(worker), lease_for, _wire.encode(known), _wire.encode(told), now
        )
        return _steps.pulse(answer, held)

    async def leave(self, worker: str) -> None:
        await self._step("leave", worker)

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[FinishResult]:
        batch = FinishBatch(outcomes)
        if not batch.asked:
            return batch.results(None)
        return batch.results(await self._step("finish", batch.payload, batch.enqueue, now, patience=FINISH_PATIENCE_MS))

    async def reap(self, limit: int = 1000, *, now: int | None = None) -> Reaped:
        return _steps.reaped(await self._step("reap", limit, now))

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> RunRecord:
        answer = await self._step("cancel", run_id, opening, now) if _steps.is_uuid(run_id) else None
        if answer is None:
            raise _missing.no_run(run_id)
        return _steps.run(answer)

    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> EnqueueResult:
        answer = await self._step("retry", run_id, opening, now) if _steps.is_uuid(run_id) else None
        if answer is None:
            raise _missing.no_run(run_id)
        return _steps.retried(answer)

    async def prune(
        self,
        *,
        ended_before: int,
        failed_before: int,
        keep_failed: int | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> int:
        return int(await self._step("prune", ended_before, failed_before, keep_failed, limit, now))

    # --- waking up ------------------------------------------------------------------------

    async def poll(self, tasks: Sequence[str], queues: Sequence[str] | None, *, now: int | None = None) -> Poll:
        return _steps.poll(await self._step("poll", _wire.encode(tasks), _wire.encode(queues), now))

    async def hint(self) -> None:
        """Hints that come while one is on its way go out together. A lost one is found by the poll."""
        self._hint_again = True
        if self._hinting:
            return
        self._hinting = True
        try:
            while self._hint_again:
                self._hint_again = False
                await self._send(self._others, self._queries["notify"].format(schema=self._quoted))
        except StoreError as error:
            log.debug("hint.lost: %s", error)
        finally:
            self._hinting = False

    def wakeups(self) -> AsyncIterator[None]:
        return self._listener.wakeups()

    # --- one step -------------------------------------------------------------------------

    async def _step(
        self,
        function: str,
        *arguments: str | bytes | int | None,
        pool: Pool | None = None,
        patience: int | None = None,
    ) -> Any:
        """Call a function of the schema in a transaction of its own; its answer as bytes, or None. Waits at
        most `patience` milliseconds for a row that others hold."""
        statement = self._queries["step"]
        if patience is not None:
            statement = self._queries["step.impatient"].replace("{patience}", str(patience))
        rows = await self._send(pool or self._others, statement, function, arguments)
        return rows[0][0]

    async def _send(
        self, pool: Pool, statement: str, function: str = "", arguments: Sequence[str | bytes | int | None] = ()
    ) -> list[tuple[Any, ...]]:
        until = asyncio.get_running_loop().time() + DEADLINE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with pool.connection(until) as connection:
                    message = self._message(statement, function, [connection.literal(value) for value in arguments])
                    return await connection.send(message, until=until)
            except _errors.REPEATABLE as error:
                if attempt == ATTEMPTS:
                    raise _errors.translated(error, self.url) from error
            except psycopg.Error as error:
                raise _errors.translated(error, self.url) from error
            except TimeoutError:
                raise _errors.timed_out(self.url, DEADLINE_S) from None
        raise StoreUnavailable(f"{self.url}: no attempt was made")

    def _message(self, statement: str, function: str, arguments: list[bytes]) -> bytes:
        if not function:
            return statement.encode()
        head, tail = statement.split("{arguments}")
        values = {"schema": self._quoted, "function": function, "timeout": int(DEADLINE_S * 1000) - 500}
        return head.format(**values).encode() + b", ".join(arguments) + tail.encode()

    async def _with_own_connection(self, step: Any) -> None:
        """For what takes several messages: a connection that is closed afterwards."""
        connection = await connected(self._address, asyncio.get_running_loop().time() + DEADLINE_S)
        try:
            await step(connection)
        except psycopg.Error as error:
            raise _errors.translated(error, self.url) from error
        except TimeoutError:
            raise _errors.timed_out(self.url, DEADLINE_S) from None
        finally:
            await connection.discard()


def _checked_namespace(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", name) or name.startswith("pg_"):
        raise InvalidOption(
            f"namespace {name!r} cannot name a PostgreSQL schema; use up to 63 letters, digits, - and _, "
            "beginning with a letter, and not with pg_"
        )
    if name in ("public", "information_schema"):
        raise InvalidOption(f"namespace {name!r} is not oncron's alone; name a schema of its own")
    return name
