"""A store behind which arguments, results, checkpoints and logs lie encrypted.

Everything above sees them as they were given, and the store as they may be seen. What no key here opens stays
encrypted: workers leave such runs to others, and faces say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from oncron._cipher import Keyring
from oncron._groups import BatchRecord, NewBatch
from oncron._model import (
    Change,
    Changed,
    Claimed,
    ClaimSpec,
    Definition,
    EnqueueResult,
    FinishResult,
    Fired,
    FirePlan,
    NewRun,
    Outcome,
    Pulse,
    Reaped,
    Report,
    RunFilter,
    RunRecord,
    ScheduleRecord,
    WorkerRecord,
)
from oncron._store import ReadableStore

B = TypeVar("B", NewBatch, BatchRecord)

_NOTHING = "{}"
"""No arguments: nothing to hide."""


def encrypted(store: ReadableStore, keys: Keyring | None) -> ReadableStore:
    """The store, behind its keys if there are any."""
    return store if keys is None else cast("ReadableStore", EncryptedStore(store, keys))


class EncryptedStore:
    """Arguments are bound to their task: a schedule's go over into its runs as they lie. Results, checkpoints and
    logs are bound to their run. Whatever is not named here passes as it is."""

    def __init__(self, inner: ReadableStore, keys: Keyring) -> None:
        self._inner, self._keys = inner, keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    # --- schedules and ticks ----------------------------------------------------------

    async def declare(self, changes: Sequence[Change], *, now: int | None = None) -> list[Changed]:
        shut = [replace(change, definition=self._shut_definition(change.definition)) for change in changes]
        answers = await self._inner.declare(shut, now=now)
        return [
            answer if answer.record is None else replace(answer, record=self._open_schedule(answer.record))
            for answer in answers
        ]

    async def fire(
        self, plans: Sequence[FirePlan], claim: ClaimSpec | None = None, *, fire_id: str, now: int | None = None
    ) -> Fired:
        fired = await self._inner.fire(plans, claim, fire_id=fire_id, now=now)
        return replace(fired, leases=self._open_runs(fired.leases))

    async def schedules(self, names: Sequence[str] | None = None, **page: Any) -> list[ScheduleRecord]:
        return [self._open_schedule(row) for row in await self._inner.schedules(names, **page)]

    # --- runs -------------------------------------------------------------------------

    async def enqueue(self, runs: Sequence[NewRun], *, now: int | None = None) -> list[EnqueueResult]:
        return self._open_results(await self._inner.enqueue(self._shut_runs(runs), now=now))

    async def claim(self, spec: ClaimSpec, *, now: int | None = None) -> Claimed:
        claimed = await self._inner.claim(spec, now=now)
        return replace(claimed, runs=self._open_runs(claimed.runs))

    async def heartbeat(
        self,
        worker: WorkerRecord,
        lease_for: int,
        held: Sequence[tuple[str, int]] = (),
        reports: Sequence[Report] = (),
        *,
        now: int | None = None,
    ) -> Pulse:
        shut = [
            replace(
                each,
                checkpoint=self._shut(each.checkpoint, "checkpoint", each.run_id),
                log=self._shut(each.log, "log", each.run_id),
            )
            for each in reports
        ]
        pulse = await self._inner.heartbeat(worker, lease_for, held, shut, now=now)
        return replace(pulse, strays=self._open_runs(pulse.strays))

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[FinishResult]:
        return await self._inner.finish([self._shut_outcome(outcome) for outcome in outcomes], now=now)

    async def reap(self, limit: int = 1000, *, now: int | None = None) -> Reaped:
        reaped = await self._inner.reap(limit, now=now)
        return replace(reaped, runs=self._open_runs(reaped.runs))

    async def cancel(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> RunRecord:
        return self._open_run(await self._inner.cancel(run_id, opening=opening, now=now))

    async def retry(self, run_id: str, *, opening: int | None = None, now: int | None = None) -> EnqueueResult:
        return self._open_results([await self._inner.retry(run_id, opening=opening, now=now)])[0]

    async def get_run(self, run_id: str) -> RunRecord | None:
        found = await self._inner.get_run(run_id)
        return None if found is None else self._open_run(found)

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunRecord]:
        return list(self._open_runs(await self._inner.get_runs(run_ids)))

    async def runs(self, where: RunFilter) -> list[RunRecord]:
        return list(self._open_runs(await self._inner.runs(where)))

    # --- in transactions --------------------------------------------------------------

    def finish_in(self, connection: Any, outcome: Outcome) -> FinishResult:
        return self._inner.finish_in(connection, self._shut_outcome(outcome))

    async def finish_in_async(self, connection: Any, outcome: Outcome) -> FinishResult:
        return await self._inner.finish_in_async(connection, self._shut_outcome(outcome))

    def enqueue_in(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        return self._open_results(self._inner.enqueue_in(connection, self._shut_runs(runs)))

    async def enqueue_in_async(self, connection: Any, runs: Sequence[NewRun]) -> list[EnqueueResult]:
        return self._open_results(await self._inner.enqueue_in_async(connection, self._shut_runs(runs)))

    # --- batches ----------------------------------------------------------------------

    async def open_batch(self, batch: NewBatch, *, now: int | None = None) -> BatchRecord:
        shut = self._callbacks(batch, self._shut_run)
        return self._open_batch(await self._inner.open_batch(shut, now=now))

    async def close_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        return self._open_batch(await self._inner.close_batch(batch_id, now=now))

    async def invalidate_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        return self._open_batch(await self._inner.invalidate_batch(batch_id, now=now))

    async def delete_batch(self, batch_id: str, *, now: int | None = None) -> bool:
        return await self._inner.delete_batch(batch_id, now=now)

    async def settle_batches(self, *args: Any, **options: Any) -> list[BatchRecord]:
        return [self._open_batch(found) for found in await self._inner.settle_batches(*args, **options)]

    async def get_batch(self, batch_id: str) -> BatchRecord | None:
        found = await self._inner.get_batch(batch_id)
        return None if found is None else self._open_batch(found)

    async def batches(self, **page: Any) -> list[BatchRecord]:
        return [self._open_batch(found) for found in await self._inner.batches(**page)]

    # --- one by one -------------------------------------------------------------------

    def _shut(self, text: str | None, what: str, run_id: str) -> str | None:
        return None if text is None else self._keys.encrypt(text, f"oncron {what} of run {run_id}")

    def _open(self, text: str | None, what: str, run_id: str) -> str | None:
        return None if text is None else self._keys.decrypt(text, f"oncron {what} of run {run_id}")

    def _shut_args(self, args: str, task: str) -> str:
        return args if args == _NOTHING else self._keys.encrypt(args, _of_task(task))

    def _open_args(self, args: str, task: str) -> str:
        return self._keys.decrypt(args, _of_task(task))

    def _shut_run(self, new: NewRun) -> NewRun:
        return replace(new, args=self._shut_args(new.args, new.task))

    def _shut_runs(self, runs: Iterable[NewRun]) -> list[NewRun]:
        return [self._shut_run(new) for new in runs]

    def _shut_outcome(self, outcome: Outcome) -> Outcome:
        return replace(
            outcome,
            result=self._shut(outcome.result, "result", outcome.run_id),
            checkpoint=self._shut(outcome.checkpoint, "checkpoint", outcome.run_id),
            log=self._shut(outcome.log, "log", outcome.run_id),
            enqueue=tuple(self._shut_runs(outcome.enqueue)),
            then=None if outcome.then is None else self._shut_run(outcome.then),
        )

    def _shut_definition(self, definition: Definition) -> Definition:
        return replace(definition, args=self._shut_args(definition.args, definition.task))

    def _open_run(self, run: RunRecord) -> RunRecord:
        return replace(
            run,
            args=self._open_args(run.args, run.task),
            result=self._open(run.result, "result", run.id),
            checkpoint=self._open(run.checkpoint, "checkpoint", run.id),
            log=self._open(run.log, "log", run.id),
        )

    def _open_runs(self, runs: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
        return tuple(self._open_run(run) for run in runs)

    def _open_results(self, results: Iterable[EnqueueResult]) -> list[EnqueueResult]:
        return [replace(result, run=self._open_run(result.run)) for result in results]

    def _open_schedule(self, row: ScheduleRecord) -> ScheduleRecord:
        definition = row.definition
        return replace(row, definition=replace(definition, args=self._open_args(definition.args, definition.task)))

    def _open_batch(self, batch: BatchRecord) -> BatchRecord:
        return self._callbacks(batch, self._open_new)

    def _open_new(self, new: NewRun) -> NewRun:
        return replace(new, args=self._open_args(new.args, new.task))

    def _callbacks(self, batch: B, turn: Callable[[NewRun], NewRun]) -> B:
        names = ("on_complete", "on_success", "on_death")
        turned = {name: turn(new) for name in names if (new := getattr(batch, name)) is not None}
        return replace(batch, **turned)


def _of_task(task: str) -> str:
    return f"oncron args of task {task}"
