"""Claiming: who may execute what, until when, under which token (G4, G5, G7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from oncron._model import Claimed, ClaimSpec, RunRecord, RunState
from oncron.stores.sqlite._rows import run_of
from oncron.stores.sqlite._step import Step, listed

Group = tuple[str, int]
"""A queue and a priority."""
_LOWEST = -(1 << 63)
_EQUALS = 64
"""Runs that are due at one instant go by id as far as so many, then as they were made: the index
knows no ids, because those of a herd would scatter every insert and claim over all of it."""


class Candidate(NamedTuple):
    """A run that could be claimed now; compares in the order of claiming within its queue."""

    order_key: int
    due_at: int
    run_id: str
    task: str
    queue: str


class Room:
    """How many more claims the tasks and queues of a spec, and the fleet, may have: what is held counts
    until finish or reap frees it, expired or not (G10)."""

    def __init__(self, step: Step, spec: ClaimSpec) -> None:
        self._tasks = sorted(set(spec.tasks))
        self._of_task, self._of_queue, self._of_all = dict(spec.max_running), dict(spec.queue_limits), spec.fleet_limit
        if self._of_task:
            for task, held in step.rows("claim.running", tasks=listed(self._of_task)):
                self._of_task[task] -= held
        if self._of_queue:
            for queue, held in step.rows("claim.running_in", queues=listed(self._of_queue)):
                self._of_queue[queue] -= held
        if self._of_all is not None:
            self._of_all -= step.value("stats.running")

    def open_tasks(self) -> list[str]:
        return [task for task in self._tasks if self._of_task.get(task, 1) > 0]

    def open_groups(self, groups: Iterable[Group]) -> list[Group]:
        return [] if self.is_full() else [group for group in groups if self._of_queue.get(group[0], 1) > 0]

    def is_full(self) -> bool:
        """Whether the fleet may have no more, of whatever task and queue."""
        return self._of_all is not None and self._of_all <= 0

    def admits(self, task: str, queue: str) -> bool:
        """Whether one more may be claimed; if so, it counts from now on."""
        if self.is_full() or min(self._of_task.get(task, 1), self._of_queue.get(queue, 1)) <= 0:
            return False
        if task in self._of_task:
            self._of_task[task] -= 1
        if queue in self._of_queue:
            self._of_queue[queue] -= 1
        if self._of_all is not None:
            self._of_all -= 1
        return True


def claim(step: Step, spec: ClaimSpec) -> Claimed:
    groups = waiting_groups(step, spec.queues, paused_queues(step))
    runs = held_by(step, spec) or lease(step, _waiting(step, spec, groups), spec)
    until = renewed(step, spec) if runs else step.value("worker.lease", worker=spec.worker) or 0
    room = Room(step, spec)
    left = room.open_groups(group for stage in groups for group in stage)
    next_due_at = next_due(step, room.open_tasks(), left)
    return Claimed(runs=tuple(runs), now=step.now, lease_until=until, next_due_at=next_due_at)


def held_by(step: Step, spec: ClaimSpec) -> list[RunRecord]:
    """What an earlier call with this claim_id took and still holds (G7), in claim's order."""
    found = [run_of(row) for row in step.rows("claim.held", worker=spec.worker, claim_id=spec.claim_id)]
    place = _places(spec)
    return sorted(found, key=lambda run: (place.get(run.queue, 0), run.order_key, run.due_at, run.id))


def take(step: Step, candidates: Iterable[Candidate], spec: ClaimSpec) -> list[str]:
    """Ids of the candidates, runs that this step has just made, that the spec may have."""
    tasks, place = set(spec.tasks), _places(spec)
    fitting = [c for c in candidates if c.task in tasks and (spec.queues is None or c.queue in place)]
    if not fitting:
        return []
    room, paused = Room(step, spec), paused_queues(step)
    taken: list[str] = []
    for candidate in sorted(fitting, key=lambda c: (place.get(c.queue, 0), c)):
        if len(taken) >= spec.limit:
            break
        if candidate.queue not in paused and room.admits(candidate.task, candidate.queue):
            taken.append(candidate.run_id)
    return taken


def _places(spec: ClaimSpec) -> dict[str, int]:
    return {queue: place for place, queue in reversed(list(enumerate(spec.queues or ())))}


def paused_queues(step: Step) -> set[str]:
    return {row[0] for row in step.rows("claim.paused")}


def waiting_groups(step: Step, queues: Sequence[str] | None, paused: set[str]) -> list[list[Group]]:
    """The (queue, priority) in which anything waits for a claim, queue by queue in the order given; without
    one, all in one list. Jumps from one to the next in the index, so what is paused costs nothing."""
    if queues is not None:
        return [_priorities(step, queue) for queue in dict.fromkeys(queues) if queue not in paused]
    found: list[Group] = []
    queue = ""
    while (queue := step.value("claim.next_queue", queue=queue)) is not None:
        found += [] if queue in paused else _priorities(step, queue)
    return [found]


def _priorities(step: Step, queue: str) -> list[Group]:
    found: list[Group] = []
    priority = _LOWEST
    while (priority := step.value("claim.next_priority", queue=queue, priority=priority)) is not None:
        found.append((queue, priority))
    return found


def _waiting(step: Step, spec: ClaimSpec, groups: Sequence[Sequence[Group]]) -> list[str]:
    """Ids of what the spec may have, in the order of claiming."""
    room = Room(step, spec)
    taken: dict[str, None] = {}
    for stage in groups:
        # Again while a task or a queue became full on the way: others may stand behind its runs.
        while len(taken) < spec.limit and _take_stage(step, spec, stage, room, taken):
            pass
    return list(taken)


def _take_stage(step: Step, spec: ClaimSpec, stage: Sequence[Group], room: Room, taken: dict[str, None]) -> bool:
    """Take from one queue (or from all, merged). True if runs of a full task or queue were passed over."""
    tasks, most = listed(room.open_tasks()), spec.limit + len(taken)
    rows = [candidate for group in room.open_groups(stage) for candidate in _first_due(step, group, tasks, most)]
    passed_over = False
    for candidate in sorted(rows):
        if len(taken) >= spec.limit or room.is_full():
            return False
        if candidate.run_id not in taken:
            if room.admits(candidate.task, candidate.queue):
                taken[candidate.run_id] = None
            else:
                passed_over = True
    return passed_over


def _first_due(step: Step, group: Group, tasks: str, most: int) -> list[Candidate]:
    """The first of a group's due runs: `most` of them, and a few more where the cut parts equals."""
    queue, priority = group
    values: dict[str, Any] = {"queue": queue, "priority": priority, "now": step.now, "tasks": tasks}
    rows = step.rows("claim.due", limit=most + 1, **values)
    if len(rows) > most and rows[-1][:2] == rows[-2][:2]:
        rows = step.rows("claim.due", limit=most + _EQUALS, **values)
    return [Candidate(order_key, due_at, run_id, task, queue) for order_key, due_at, run_id, task in rows]


def next_due(step: Step, tasks: Sequence[str], groups: Iterable[Group]) -> int | None:
    """When the first waiting run of these tasks is due: past, if one is due now."""
    wanted = listed(tasks)
    found = [step.value("claim.next_due", queue=queue, priority=priority, tasks=wanted) for queue, priority in groups]
    return min((due_at for due_at in found if due_at is not None), default=None)


def lease(step: Step, run_ids: Sequence[str], spec: ClaimSpec) -> list[RunRecord]:
    """Hand these pending runs to the spec's worker, in this order."""
    if not run_ids:
        return []
    waiting = {row[0]: run_of(row) for row in step.rows("run.get", ids=listed(run_ids))}
    names = sorted({run.schedule for run in waiting.values() if run.schedule is not None})
    tokens: dict[str, int] = dict(step.rows("schedule.tokens", names=listed(names))) if names else {}
    leased: list[RunRecord] = []
    for run in (waiting[run_id] for run_id in run_ids):
        token = max(run.token + 1, step.now)
        if run.schedule in tokens:
            token = tokens[run.schedule] = max(token, tokens[run.schedule] + 1)
        leased.append(_leased(run, spec, token, step.now))
    step.each("claim.lease", [(step.now, spec.worker, spec.claim_id, run.token, run.id) for run in leased])
    step.each("schedule.put_token", [(token, name) for name, token in tokens.items()])
    return leased


def _leased(run: RunRecord, spec: ClaimSpec, token: int, now: int) -> RunRecord:
    return replace(
        run,
        state=RunState.RUNNING,
        attempt=run.attempt + 1,
        started_at=now if run.started_at is None else run.started_at,
        worker=spec.worker,
        claim_id=spec.claim_id,
        token=token,
        outcome=None,
    )


def renewed(step: Step, spec: ClaimSpec) -> int:
    """The worker's lease reaches at least two thirds of `lease_for` past now. Answers its end."""
    until, has_left = step.row("worker.lease", worker=spec.worker) or (0, True)
    is_short = until < step.now + spec.lease_for * 2 // 3
    if is_short:
        until = step.now + spec.lease_for
    if is_short or has_left:
        step.do("worker.renew", worker=spec.worker, now=step.now, until=until)
    return until
