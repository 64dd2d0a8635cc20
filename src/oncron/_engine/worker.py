"""The worker: claims due runs while it has free slots, executes them, records how they ended.

A slot is taken from the reservation before a claim until the run's end is recorded, so what a
worker holds is never more than `concurrency`, and a heartbeat lists all of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from msgspec.structs import replace

from oncron import _defaults as limits
from oncron._clock import boot_us, wait_us
from oncron._engine.door import Door
from oncron._engine.endings import Endings
from oncron._engine.executor import Executor
from oncron._engine.guard import under_guard
from oncron._engine.spec import CHAIN_KEY, Execution, Settings, TaskSpec
from oncron._events import Say
from oncron._lifecycle import judge, released
from oncron._model import (
    ClaimSpec,
    FinishResult,
    FinishStatus,
    Outcome,
    OutcomeKind,
    RunRecord,
    RunState,
    new_id,
)
from oncron.errors import StoreUnavailable

log = logging.getLogger("oncron.worker")

_REMEMBERED = 60 * limits.SECOND
"""How long ended runs are known; a process may be stopped that long while an answer waits for it."""
_SKIPPED_LOCKED = 20_000
"""A claim that found due runs but got none met locks of others: again after this."""

_NO_LOOP = 250_000
"""How soon a worker with async tasks only looks again whether the user's loop runs."""

_EVENTS = {
    RunState.SUCCEEDED: "run.succeeded",
    RunState.FAILED: "run.failed",
    RunState.LOST: "run.lost",
    RunState.CANCELLED: "run.cancelled",
    RunState.SKIPPED: "run.skipped",
}


class Worker:
    def __init__(
        self,
        door: Door,
        me: str,
        settings: Settings,
        tasks: Mapping[str, TaskSpec],
        executor: Executor,
        *,
        trust: Callable[[int, int], bool],
        tell_others: Callable[[], None],
        run_ended: Callable[[str | None], None],
        has_settled: Callable[[str, int], None],
        say: Say,
    ) -> None:
        self._door, self._me, self._settings, self._tasks = door, me, settings, tasks
        self._executor, self._trust, self._tell_others, self._say = executor, trust, tell_others, say
        self._run_ended, self._has_settled = run_ended, has_settled
        self._running: dict[str, asyncio.Task[None]] = {}
        self.executions: dict[str, Execution] = {}
        """By run id: everything this worker holds."""
        self._ended: dict[tuple[str, int], int] = {}
        """(run id, token) that were recorded lately: a late answer must not start them again."""
        self.endings = Endings(door, settled=self._settle, may_gather=self._is_full)
        self._reserved = 0
        self._wake = asyncio.Event()
        self.quiet = asyncio.Event()
        """Set while nothing is held."""
        self.quiet.set()
        self.busy = asyncio.Event()
        """Set while something is held."""
        self.answered = asyncio.Event()
        """Set while no fire or claim that may lease runs is on its way."""
        self.answered.set()
        self.moved = asyncio.Event()
        """Set by every claim and every end that is on record, for who steps this worker."""
        self._next_due: int | None = 0
        self._loopless_since: int | None = None
        self._said_loopless = False
        self.accepting = False

    # --- what is held -----------------------------------------------------------------

    @property
    def held(self) -> list[tuple[str, int]]:
        return [(run_id, execution.run.token) for run_id, execution in self.executions.items()]

    @property
    def slots(self) -> tuple[int, int]:
        """Taken, of all. A replica that only schedules has none."""
        return len(self.executions), self._settings.concurrency if self._tasks else 0

    @property
    def free(self) -> int:
        return max(0, self._settings.concurrency - len(self.executions) - self._reserved)

    def due_at(self, instant: int | None) -> None:
        """Something may be claimable then (store time); None: nothing known."""
        if instant is not None and (self._next_due is None or instant < self._next_due):
            self._next_due = instant
            self._wake.set()

    def reserve(self, at_most: int | None = None) -> ClaimSpec | None:
        """All free slots, or some of them, for one claim; give them back with `take`."""
        free, tasks = self.free if at_most is None else min(self.free, at_most), self._claimable()
        if not self.accepting or free == 0 or not tasks:
            return None
        self._reserved += free
        self.answered.clear()
        return ClaimSpec(
            claim_id=new_id(),
            worker=self._me,
            limit=free,
            lease_for=self._settings.lease_for,
            tasks=tuple(spec.name for spec in tasks),
            queues=self._queue_order(),
            max_running=tuple((spec.name, spec.max_running) for spec in tasks if spec.max_running is not None),
            queue_limits=tuple(self._settings.queue_limits.items()),
            fleet_limit=self._settings.fleet_limit,
        )

    def _claimable(self) -> list[TaskSpec]:
        """The tasks that can be executed here: none that are async while the user's loop does not run, or each
        of their runs would be taken, given back and taken again."""
        if self._executor.loop_runs:
            self._loopless_since, self._said_loopless = None, False
            return list(self._tasks.values())
        self._say_loopless()
        return [spec for spec in self._tasks.values() if not spec.needs_loop]

    def look_at_loop(self) -> None:
        """What waits for its turn on the user's loop is given back when that does not run any more."""
        if not self._executor.loop_runs:
            for execution in self.executions.values():
                execution.changed.set()

    def _say_loopless(self) -> None:
        """Once, and not if the loop only pauses between two calls of `run_until_complete`."""
        now = boot_us()
        self._loopless_since = now if self._loopless_since is None else self._loopless_since
        if self._said_loopless or now - self._loopless_since < limits.SECOND:
            return
        if any(spec.needs_loop for spec in self._tasks.values()):
            self._said_loopless = True
            log.error(
                "the event loop that the app was started in does not run any more, though the app was not stopped: "
                "this replica takes no runs of async tasks; await app.stop() before the loop ends (`async with app:` "
                "does), then start the app again"
            )

    def _queue_order(self) -> tuple[str, ...] | None:
        queues = self._settings.queues
        if not isinstance(queues, Mapping):
            return queues
        keys = {name: random.random() ** (1 / weight) for name, weight in queues.items()}
        return tuple(sorted(keys, key=lambda name: -keys[name]))

    def take(self, spec: ClaimSpec, runs: Iterable[RunRecord], sent: int, lease_left: int | None) -> None:
        """The answer to a claim or a fire under this reservation; `lease_left` None: no answer came, and
        the next heartbeat, which comes at once, tells what it took.

        An answer that took so long that its lease may be over starts nothing: what is still this
        worker's comes back with the next heartbeat, as a stray."""
        self._reserved -= spec.limit
        if not self._reserved:
            self.answered.set()
        sure = self._trust(sent, 0) if lease_left is None else lease_left > 0 and self._trust(sent, lease_left)
        if sure or not self.accepting:
            for run in runs:
                self.accept(run, sent)
        self._wake.set()

    def accept(self, run: RunRecord, sent: int) -> None:
        """Start a leased run, once per token: the same lease may be told by claim, by a repetition
        and as a stray. `sent` is when this replica asked (boot clock)."""
        if boot_us() - sent > _REMEMBERED:
            return  # it may have ended here and been forgotten; if not, a heartbeat brings it back
        held = self.executions.get(run.id)
        if (run.id, run.token) in self._ended or (held is not None and held.run.token >= run.token):
            return
        execution = Execution(run=run, store_now=self._door.clock.now_us, claimed_at=self._door.clock.now_us())
        if held is not None:
            held.ask_to_stop("lease lost")
        spec = self._tasks.get(run.task)
        if spec is not None and run.unique is not None and run.unique.endswith(CHAIN_KEY):
            execution.chained = spec.chained
        self.executions[run.id] = execution
        self.moved.set()
        self.quiet.clear()
        self.busy.set()
        if run.schedule is not None and run.tick is not None and run.backfill is None:
            self._has_settled(run.schedule, run.tick)
        self._say("run.claimed", run, late_by=_span(execution.claimed_at - run.due_at))
        if spec is None or not self.accepting:
            self._record(released(run, "this worker cannot take it", started=False))
            return
        before = self._running.get(run.id)
        task = asyncio.get_running_loop().create_task(self._execute(execution, spec, before))
        self._running[run.id] = task

    async def _execute(self, execution: Execution, spec: TaskSpec, before: asyncio.Task[None] | None) -> None:
        run = execution.run
        if before is not None:
            # The same run under a lease that was lost: it was told to stop, and two copies at once are one too many.
            await asyncio.wait({before})
        try:
            outcome = await self._run(execution, spec)
        except BaseException as error:
            me = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and me is not None and me.cancelling():
                raise  # the engine is closed
            log.exception("run %s of task %r could not be executed", run.id, run.task)
            outcome = judge(run, error)
        if self._running.get(run.id) is asyncio.current_task():
            del self._running[run.id]
        if outcome is None:
            self._let_go(execution)
        else:
            self._record(outcome)

    async def _run(self, execution: Execution, spec: TaskSpec) -> Outcome | None:
        if execution.run.guard != "advisory":
            return await self._executor.run(execution, spec)
        return await under_guard(self._door.store, execution, spec, lambda: self._executor.run(execution, spec))

    def _record(self, outcome: Outcome) -> None:
        execution = self.executions.get(outcome.run_id)
        if execution is not None:
            execution.say_how_it_ended(outcome)
            if execution.lines is not None:
                outcome = replace(outcome, log=execution.log)
            if outcome.then is None and (then := execution.follower) is not None:
                outcome = replace(outcome, then=then)
        self.endings.record(outcome)

    def _let_go(self, execution: Execution) -> None:
        run = execution.run
        if self.executions.get(run.id) is execution:
            del self.executions[run.id]
        self._ended[run.id, run.token] = boot_us()
        self.moved.set()
        if not self.executions:
            self.quiet.set()
            self.busy.clear()
        self._wake.set()

    def lose(self, run_id: str, token: int) -> None:
        """The store says that the run is no longer this worker's under that token."""
        execution = self.executions.get(run_id)
        if execution is None or execution.run.token != token or execution.stop_reason == "lease lost":
            return
        if execution.may_have_ended:
            return  # by its own transaction, which fails if the lease is lost indeed
        if (run_id, token) in self.endings:
            return  # it has ended here: its finish overtook this answer, or will be told that it came too late
        self._say("lease.lost", execution.run)
        log.warning("run %s of task %r: lease lost", run_id, execution.run.task, extra={"event": "lease.lost"})
        execution.ask_to_stop("lease lost")

    # --- claiming ---------------------------------------------------------------------

    async def step(self) -> int | None:
        """Instead of `claim_loop`, where time stands still: claim what is due, as far as slots are free. When more
        is due."""
        while self._next_due is not None and self._next_due <= self._door.clock.now_us():
            spec, before = self.reserve(), len(self.executions)
            if spec is None:
                break
            await self._claim(spec)
            if len(self.executions) <= before:
                break
        return self._next_due

    async def claim_loop(self) -> None:
        while True:
            await self._wait_for_work()
            # In two waves: while the store is asked about one, the other executes.
            spec = self.reserve(at_most=(self._settings.concurrency + 1) // 2)
            if spec is None:
                continue
            await self._claim(spec)

    async def _wait_for_work(self) -> None:
        """Until a slot is free and something is due."""
        while True:
            self._wake.clear()
            if self.accepting and self.free and self._tasks and self._next_due is not None:
                wait = self._door.clock.boot_at(self._next_due) - boot_us()
                if wait <= 0 and self._claimable():
                    return
                wait = min(wait, limits.SLEEP_AT_MOST) if wait > 0 else _NO_LOOP
            else:
                wait = limits.SLEEP_AT_MOST
            await wait_us(self._wake, wait)

    async def _claim(self, spec: ClaimSpec) -> None:
        runs: tuple[RunRecord, ...] = ()
        lease_left = None
        self._next_due = None
        sent = boot_us()
        try:
            try:
                claimed = await self._door.write(lambda store: store.claim(spec))
            except StoreUnavailable:
                # The outcome is unknown: the same claim_id brings back what it leased (G7).
                self._next_due = 0
                sent = boot_us()
                claimed = await self._door.write(lambda store: store.claim(spec))
                self._next_due = None
            runs, lease_left = claimed.runs, claimed.lease_until - claimed.now
        finally:
            self.take(spec, runs, sent, lease_left)
        if len(runs) == spec.limit:
            self.due_at(0)
        elif claimed.next_due_at is not None:
            floor = 0 if runs else claimed.now + _SKIPPED_LOCKED
            self.due_at(max(claimed.next_due_at, floor))

    # --- recording --------------------------------------------------------------------

    def _settle(self, batch: list[Outcome], results: list[FinishResult]) -> None:
        freed = False
        by_id = {result.run_id: result for result in results}
        for outcome in batch:
            execution = self.executions.get(outcome.run_id)
            if execution is None or execution.run.token != outcome.token:
                continue
            self._let_go(execution)
            result = by_id.get(outcome.run_id)
            if result is not None:
                # Who was told of the places that a repeated end has freed is unknown.
                repeated = result.status is FinishStatus.REPEATED
                freed = freed or result.freed or repeated or self._is_limited(execution.run)
                self._tell(execution, outcome, result)
                if not result.state.is_open:
                    self._run_ended(execution.run.batch)
                self.due_at(result.due_at if result.state is RunState.PENDING else None)
        if freed:
            self.due_at(0)
        if any(outcome.enqueue or outcome.then for outcome in batch) or (freed and not self.free):
            self.due_at(0)
            self._tell_others()

    def _is_full(self) -> bool:
        """Whether all slots are taken by runs that go on, none of which keeps a place of a schedule that others may
        wait for."""
        if self.free or len(self.executions) <= len(self.endings):
            return False
        return all(execution.run.schedule is None for execution in self.executions.values())

    def _is_limited(self, run: RunRecord) -> bool:
        """Whether each end of such a run may let another one begin: of its task, its queue, or any."""
        spec, settings = self._tasks.get(run.task), self._settings
        by_task = spec is not None and spec.max_running is not None
        return by_task or run.queue in settings.queue_limits or settings.fleet_limit is not None

    def _tell(self, execution: Execution, outcome: Outcome, result: FinishResult) -> None:
        run, took = execution.run, _span(self._door.clock.now_us() - execution.claimed_at)
        if result.status is FinishStatus.LEASE_LOST:
            self._say("lease.lost", run, took=took)
        elif result.state is RunState.PENDING:
            name = "run.retried" if _is_again(outcome) else "run.released"
            self._say(name, run, reason=outcome.reason, took=took)
        elif name := _EVENTS.get(result.state):
            self._say(name, run, reason=outcome.reason, took=took)
        self._log_end(run, outcome, result)

    def _log_end(self, run: RunRecord, outcome: Outcome, result: FinishResult) -> None:
        """With the task's name, which events do not carry."""
        bad = result.state in (RunState.FAILED, RunState.LOST)
        again = result.state is RunState.PENDING and _is_again(outcome)
        name = "run.retried" if again else f"run.{result.state}"
        log.log(
            logging.WARNING if bad or (again and outcome.spend_attempt) else logging.DEBUG,
            "%s task=%r schedule=%r run=%r attempt=%d reason=%r",
            name,
            run.task,
            run.schedule,
            run.id,
            run.attempt,
            outcome.reason,
            extra={"event": name, "task": run.task, "schedule": run.schedule, "run": run.id, "reason": outcome.reason},
        )

    # --- stopping ---------------------------------------------------------------------

    def forget_old(self) -> None:
        """Drop the memory of ends that no late answer can still be about: the oldest, which were noted first."""
        before = boot_us() - _REMEMBERED
        while self._ended and (first := next(iter(self._ended.items())))[1] <= before:
            del self._ended[first[0]]

    def wind_down(self) -> None:
        """Claim no more; tell what runs that it should come to an end."""
        self.accepting = False
        for execution in self.executions.values():
            execution.ask_to_come_to_an_end()

    def stop_all(self) -> None:
        for execution in list(self.executions.values()):
            execution.ask_to_stop("stopped")

    @property
    def has_unwritten(self) -> bool:
        """Whether something has ended that the store has not heard of yet."""
        return len(self.endings) > 0

    @property
    def unfinished(self) -> list[RunRecord]:
        return [execution.run for execution in self.executions.values()]


def _is_again(outcome: Outcome) -> bool:
    """Whether it is a retry after an error: one that was interrupted and got further has none."""
    return outcome.kind is OutcomeKind.RETRY and outcome.error is not None


def _span(duration: int) -> timedelta:
    """Never negative: the clock may have been corrected meanwhile."""
    return timedelta(microseconds=max(0, duration))
