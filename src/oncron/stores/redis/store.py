"""RedisStore: the contract of `_store.py` on Redis and Valkey.

Every step is one script (`lua/*.lua`), which the server runs alone. There the work is done; here plans
become msgpack and answers records.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

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
from oncron.errors import InvalidOption, NotSupported, StoreError
from oncron.stores import _missing
from oncron.stores._no_guards import NoGuards
from oncron.stores._no_transactions import NoTransactions
from oncron.stores.redis import _address, _errors, _safety, _steps, _wakeups
from oncron.stores.redis._link import Link
from oncron.stores.redis._queue_steps import QueueSteps
from oncron.stores.redis._reads import Reads
from oncron.stores.redis._wire import encode

log = logging.getLogger("oncron.stores.redis")

MINOR = 1
_NAMES_AT_ONCE = 500


class RedisStore(Reads, QueueSteps, NoTransactions, NoGuards):
    """Replicas meet in the keys `{namespace}:...` of a Redis (6.2 or newer) or Valkey (7.2 or newer).

    `url` leads to one server, to sentinels or to a cluster (see `_address.FORMS`). Its parameters
    `volatile=true` lets a server be used that keeps nothing over a restart, `wait_replicas=N` has every
    write acknowledged by N replicas.
    """

    def __init__(self, url: str, *, namespace: str = "oncron") -> None:
        self._address = _address.parsed(url)
        self._namespace = _checked_namespace(namespace)
        self._link = Link(self._address, namespace)
        self._channel = f"{{{namespace}}}:wake"
        self.url = self._address.shown

    def __repr__(self) -> str:
        return f"RedisStore({self.url!r}, namespace={self._namespace!r})"

    # --- life cycle -----------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await _safety.refuse_unsafe(self._link, self._address)
        except StoreError:
            await self.reset()
            raise

    async def close(self) -> None:
        await self.reset()

    async def reset(self) -> None:
        await self._link.reset()

    async def migrate(self) -> None:
        found = await self._write("migrate", {"major": _errors.MAJOR, "minor": MINOR})
        if found > _errors.MAJOR:
            raise _errors.other_schema(found, self.url)

    async def check(self) -> None:
        await self._read("get_runs", {"ids": ()})

    async def drop(self) -> None:
        """Delete every key of the namespace, whatever it holds. There is no way back."""
        at = b"0"
        while True:
            at = await self._write("drop", {"at": at.decode()})
            if at == b"0":
                return

    async def now(self) -> int:
        return int(await self._read("now", {}))

    # --- schedules and ticks --------------------------------------------------------------

    async def declare(self, changes: Sequence[Change], *, now: int | None = None) -> list[Changed]:
        results: list[Changed] = []
        for start in range(0, len(changes), _steps.CHUNK):
            chunk = changes[start : start + _steps.CHUNK]
            results += _steps.changed(chunk, await self._write_raw("declare", _steps.changes(chunk), now))
        return results

    async def register(self, set_id: str, names: Sequence[str] | None, *, now: int | None = None) -> bool:
        return await self._write("register", {"set_id": set_id, "names": names}, now) == 1

    async def unheld(self, before: int, *, limit: int = 1000, now: int | None = None) -> list[str]:
        found: list[str] = []
        after = ""
        while len(found) < limit:
            asked = {"before": before, "after": after, "page": _NAMES_AT_ONCE}
            last, *names = await self._write("unheld", asked, now)
            found += [name.decode() for name in names]
            after = last.decode()
            if not after:
                break
        return found[:limit]

    async def due(
        self, horizon: int, *, after: tuple[int, str] | None = None, exclude: Sequence[str] = (), limit: int = 1000
    ) -> list[Due]:
        mark = None if after is None else {"at": str(after[0]), "name": after[1]}
        asked = {"horizon": str(horizon), "after": mark, "exclude": exclude, "limit": limit}
        return _steps.due(await self._read("due", asked))

    async def fire(
        self, plans: Sequence[FirePlan], claim: ClaimSpec | None = None, *, fire_id: str, now: int | None = None
    ) -> Fired:
        batch = _steps.FireBatch(plans, claim, fire_id)
        for places, payload in batch.chunks():
            batch.note(places, await self._write_raw("fire", payload, now))
        at = batch.now if batch.now is not None else now
        return batch.fired(await self.now() if at is None else at)

    # --- runs -----------------------------------------------------------------------------

    async def enqueue(self, runs: Sequence[NewRun], *, now: int | None = None) -> list[EnqueueResult]:
        results: list[EnqueueResult] = []
        if (checks := _steps.checks(runs)) is not None:
            _steps.enqueued(await self._write_raw("enqueue", checks, now))
        for chunk in _steps.sized(runs):
            results += _steps.enqueued(await self._write_raw("enqueue", _steps.new_runs(chunk), now))
        return results

    async def claim(self, spec: ClaimSpec, *, now: int | None = None) -> Claimed:
        return _steps.claimed(await self._write("claim", spec, now))

    async def heartbeat(
        self,
        worker: WorkerRecord,
        lease_for: int,
        held: Sequence[tuple[str, int]] = (),
        reports: Sequence[Report] = (),
        *,
        now: int | None = None,
    ) -> Pulse:
        asked = {
            "worker": worker,
            "lease_for": lease_for,
            "held": [{"run_id": run_id, "token": str(token)} for run_id, token in held],
            "reports": [
                {
                    "run_id": said.run_id,
                    "token": str(said.token),
                    "progress": said.progress,
                    "checkpoint": said.checkpoint,
                    "log": said.log,
                }
                for said in reports
            ],
        }
        return _steps.pulse(await self._write("heartbeat", asked, now))

    async def leave(self, worker: str) -> None:
        await self._write("leave", {"worker": worker})

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[FinishResult]:
        results: list[FinishResult] = []
        for start in range(0, len(outcomes), _steps.CHUNK):
            chunk = _steps.outcomes(outcomes[start : start + _steps.CHUNK])
            results += _steps.finished(await self._write_raw("finish", chunk, now))
        return results

    async def reap(self, limit: int = 1000, *, now: int | None = None) -> Reaped:
        return _steps.reaped(await self._write("reap", {"limit": limit}, now))

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> RunRecord:
        found = await self._write("cancel", {"run_id": run_id, "opening": opening}, now)
        if not found:
            raise _missing.no_run(run_id)
        return _steps.run(found[0])

    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> EnqueueResult:
        found = await self._write("retry", {"run_id": run_id, "opening": opening}, now)
        if not found:
            raise _missing.no_run(run_id)
        return _steps.enqueue_result(*found)

    async def prune(
        self,
        *,
        ended_before: int,
        failed_before: int,
        keep_failed: int | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> int:
        asked = {
            "ended_before": ended_before,
            "failed_before": failed_before,
            "keep_failed": keep_failed,
            "limit": limit,
        }
        return await self._write("prune", asked, now)

    # --- waking up ------------------------------------------------------------------------

    async def poll(self, tasks: Sequence[str], queues: Sequence[str] | None, *, now: int | None = None) -> Poll:
        [raw] = await self._read("poll", {"tasks": tasks, "queues": queues}, now)
        return _steps.polled(raw)

    async def hint(self) -> None:
        """A lost one is found by the poll."""
        try:
            await self._link.command("PUBLISH", self._channel, "")
        except StoreError as error:
            log.debug("hint.lost: %s", error)

    def wakeups(self) -> AsyncIterator[None]:
        return _wakeups.wakeups(self._link, self._channel, self.url)

    # --- guards ---------------------------------------------------------------------------

    async def refuse_guard(self, guard: str) -> None:
        """Only another scheduler's slots, and those not on a cluster: their keys lie in other slots of it."""
        if not guard.startswith("slot:"):
            raise self._no_guard(guard)
        if self._address.kind == "cluster":
            raise NotSupported(
                f"guard={guard!r} is a key without oncron's hash tag, and {self.url} is a cluster: no step could write "
                "both; leave the guard out, or meet on one server"
            )

    # --- one step -------------------------------------------------------------------------

    async def _read(self, name: str, payload: Any, now: int | None = None) -> Any:
        return await self._link.run(name, encode(payload), now, writes=False)

    async def _write(self, name: str, payload: Any, now: int | None = None) -> Any:
        return await self._link.run(name, encode(payload), now, writes=True)

    async def _write_raw(self, name: str, payload: bytes, now: int | None) -> Any:
        return await self._link.run(name, payload, now, writes=True)


def _checked_namespace(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
        raise InvalidOption(
            f"namespace {name!r} cannot begin Redis keys; use 1 to 100 letters, digits, '.', '-' and '_'"
        )
    return name
