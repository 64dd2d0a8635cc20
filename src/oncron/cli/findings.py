"""What is wrong with a store, from what was read of it. Pure; one line each: what, which, what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from oncron import _defaults as limits
from oncron._groups import QueueRecord
from oncron._model import RunRecord, RunState, ScheduleRecord, Status, WorkerRecord
from oncron._plan import next_tick
from oncron._unclaimable import nobody_takes
from oncron.cli import render
from oncron.errors import InvalidTrigger
from oncron.triggers import Trigger, parse

UNCLAIMED_AFTER = 600 * limits.SECOND
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    name: str
    """One word, for programs."""
    what: str
    """The sentence."""
    which: tuple[str, ...] = ()
    wrong: bool = True
    """Whether a guarantee is in danger, or ticks or runs stand still; otherwise it is worth knowing."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was read. Instants and durations in microseconds."""

    url: str
    now: int
    """The store's clock, read after everything else."""
    skew: int
    """How far the store's clock is ahead of this machine's, at least; behind if negative."""
    schedules: Sequence[ScheduleRecord]
    workers: Sequence[WorkerRecord]
    open_runs: Sequence[RunRecord]
    expired: bool
    """Whether there is something to reap."""
    lease_for: int
    tzdata: str
    """Of the zone data here, sortable."""
    tasks: frozenset[str] | None = None
    """Those of the target's code; None without code."""
    declared: frozenset[str] = frozenset()
    queues: Sequence[QueueRecord] = ()

    def live(self, role: str) -> list[WorkerRecord]:
        return [worker for worker in self.workers if role in worker.roles and worker.is_counted_on(self.now)]

    def due(self, since: int = 0) -> list[RunRecord]:
        """Runs that a worker could have taken for so long, were there one for them."""
        paused = {queue.name for queue in self.queues if queue.paused}
        return [
            run
            for run in self.open_runs
            if run.state is RunState.PENDING
            and not (run.parked or run.cancel_requested)
            and run.queue not in paused
            and run.due_at <= self.now - since
        ]

    @property
    def active(self) -> list[ScheduleRecord]:
        return [row for row in self.schedules if row.status is Status.ACTIVE]


def examine(facts: Facts) -> list[Finding]:
    """What is wrong first."""
    found = [finding for check in _CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: not finding.wrong)


def misplaced(runs: Iterable[RunRecord]) -> tuple[list[str], list[str]]:
    """Schedules whose open runs wait for a place that nobody has, and those of which several have it."""
    heads: dict[str, int] = defaultdict(int)
    waiting: set[str] = set()
    for run in runs:
        if run.schedule is not None and run.serial and run.state.is_open:
            heads[run.schedule] += not run.parked
            if run.parked and run.state is RunState.PENDING:
                waiting.add(run.schedule)
    without = sorted(name for name in waiting if not heads[name])
    return without, sorted(name for name, count in heads.items() if count > 1)


# --- clocks -----------------------------------------------------------------------------------


def _skew(facts: Facts) -> Iterator[Finding]:
    if abs(facts.skew) > limits.SKEW_WARNING:
        side = "ahead of" if facts.skew > 0 else "behind"
        yield Finding(
            "clock_skew",
            f"the store's clock is {render.span(abs(facts.skew))} {side} this machine's: ticks go by the store's; "
            "look at both machines' time synchronisation",
            wrong=False,
        )
    for worker in facts.workers:
        if worker.is_counted_on(facts.now) and abs(worker.skew) > limits.SKEW_WARNING:
            side = "ahead of" if worker.skew > 0 else "behind"
            yield Finding(
                "replica_skew",
                f"the clock of replica {worker.id} is {render.span(abs(worker.skew))} {side} the store's: ticks go by "
                "the store's, but the times in its logs are off; look at that machine's time synchronisation",
                wrong=False,
            )


def _cursor_ahead(facts: Facts) -> Iterator[Finding]:
    names = [row.name for row in facts.schedules if row.cursor > facts.now]
    if names:
        yield Finding(
            "cursor_ahead",
            f"{_schedules(names)} settled up to an instant in the future: the store's clock went back, or its data "
            "were edited; nothing ticks before that instant; set the clock right",
            tuple(names),
        )


# --- schedules --------------------------------------------------------------------------------


def _overdue(facts: Facts) -> Iterator[Finding]:
    late = [row for row in facts.active if row.next_at is not None and row.next_at < facts.now - limits.OVERDUE_AFTER]
    if late:
        longest = max(facts.now - (row.next_at or 0) for row in late)
        mend = (
            "schedulers are alive but do not fire them: look at their logs"
            if facts.live("scheduler")
            else "no scheduler is alive: start a replica"
        )
        names = [row.name for row in late]
        yield Finding(
            "overdue", f"{_schedules(names)} overdue, the worst by {render.span(longest)}; {mend}", tuple(names)
        )


def _unreadable(facts: Facts) -> Iterator[Finding]:
    names = [row.name for row in facts.schedules if row.status is not Status.REMOVED and _trigger(row) is None]
    if names:
        yield Finding(
            "unreadable_trigger",
            f"{_schedules(names)} of a trigger that this release cannot read: upgrade oncron here, or put them anew",
            tuple(names),
        )


def _wrong_next(facts: Facts) -> Iterator[Finding]:
    names = [row.name for row in facts.schedules if _has_wrong_next(row, facts)]
    if names:
        yield Finding(
            "wrong_next_tick",
            f"{_schedules(names)} planned for another instant than the trigger says: a replica that declares them puts "
            "that right within ten minutes; pause and resume does it at once",
            tuple(names),
        )


def _has_wrong_next(row: ScheduleRecord, facts: Facts) -> bool:
    if row.status is not Status.ACTIVE:
        return row.next_at is not None
    trigger = _trigger(row)
    # One that is due is looked at anew by whoever fires it; other zone data than the replicas' prove nothing.
    if trigger is None or (row.next_at is not None and row.next_at <= facts.now):
        return False
    if trigger.timezone not in (None, "UTC") and any(w.tzdata != facts.tzdata for w in facts.live("scheduler")):
        return False
    if row.definition.limit is not None and row.created_count >= row.definition.limit:
        return False
    return next_tick(row.definition, trigger, row.cursor) != row.next_at


def _dormant(facts: Facts) -> Iterator[Finding]:
    names = [row.name for row in facts.schedules if row.status is Status.DORMANT]
    if names:
        yield Finding(
            "dormant",
            f"{_schedules(names)} dormant: no replica's code declares them; declare them again, or remove them",
            tuple(names),
            wrong=False,
        )


def _undeclared(facts: Facts) -> Iterator[Finding]:
    names = sorted(facts.declared - {row.name for row in facts.schedules})
    if names:
        yield Finding(
            "undeclared",
            f"{_schedules(names)} declared in this code and not in the store: no replica with this code has started",
            tuple(names),
            wrong=False,
        )


def _without_task(facts: Facts) -> Iterator[Finding]:
    if facts.tasks is None:
        return
    names = [row.name for row in facts.active if row.definition.task not in facts.tasks]
    if names:
        yield Finding(
            "foreign_task",
            f"{_schedules(names)} of a task that this code does not have: only another service's replicas can run it",
            tuple(names),
            wrong=False,
        )


# --- runs -------------------------------------------------------------------------------------


def _unclaimable(facts: Facts) -> Iterator[Finding]:
    """At once: nothing but another replica changes that."""
    waiting: dict[str, list[RunRecord]] = defaultdict(list)
    for run in facts.due() if facts.live("worker") else ():
        if (why := nobody_takes(run.task, run.queue, facts.workers, facts.now)) is not None:
            waiting[why].append(run)
    for why, runs in sorted(waiting.items()):
        longest = render.span(facts.now - min(run.due_at for run in runs))
        yield Finding(
            "unclaimable",
            f"{render.count(len(runs), 'run')} due for up to {longest} will wait, as {why}: start one that does, or "
            f"cancel {'it' if len(runs) == 1 else 'them'}",
            tuple(sorted({run.task for run in runs})),
        )


def _unattended(facts: Facts) -> Iterator[Finding]:
    named: dict[str, list[str]] = defaultdict(list)
    for row in facts.active if facts.live("worker") else ():
        why = nobody_takes(row.definition.task, row.definition.queue, facts.workers, facts.now)
        if why is not None and row.next_at is not None:
            named[why].append(row.name)
    for why, names in sorted(named.items()):
        yield Finding(
            "unattended",
            f"{_schedules(names)} whose runs would wait, as {why}: start one that does, or remove them",
            tuple(names),
            wrong=False,
        )


def _unclaimed(facts: Facts) -> Iterator[Finding]:
    """Of those that somebody could take."""
    running = {run.task for run in facts.open_runs if run.state is RunState.RUNNING}
    due: dict[str, list[RunRecord]] = defaultdict(list)
    for run in facts.due(UNCLAIMED_AFTER):
        if run.task not in running and nobody_takes(run.task, run.queue, facts.workers, facts.now) is None:
            due[run.task].append(run)
    for task, runs in sorted(due.items()):
        longest = render.span(facts.now - min(run.due_at for run in runs))
        yield Finding(
            "unclaimed",
            f"{render.count(len(runs), 'run')} of task {task!r} due for up to {longest}, and none is running: workers "
            "that could take them are busy, or a limit keeps them back (`oncron queues`, max_running=); start another "
            "one, or cancel them",
            (task,),
        )


def _paused_queues(facts: Facts) -> Iterator[Finding]:
    for queue in facts.queues:
        if queue.paused and queue.ready:
            since = "" if queue.changed_at is None else f" for {render.span(facts.now - queue.changed_at)}"
            note = f" ({queue.note})" if queue.note else ""
            yield Finding(
                "paused_queue",
                f"queue {queue.name!r} is paused{since}{note}, and {render.count(queue.ready, 'run')} in it due: "
                f"`oncron queue resume {queue.name}`",
                (queue.name,),
                wrong=False,
            )


def _stuck(facts: Facts) -> Iterator[Finding]:
    leases = {worker.id: worker.lease_until for worker in facts.workers}
    before = facts.now - 2 * facts.lease_for

    def left_behind(run: RunRecord) -> bool:
        if run.worker in leases:
            return leases[run.worker] < before
        # A worker that left has no row; its claim's token is the instant of the claim.
        return facts.expired and run.token < before

    runs = [run.id for run in facts.open_runs if run.state is RunState.RUNNING and left_behind(run)]
    if runs:
        yield Finding(
            "left_behind",
            f"{render.count(len(runs), 'run')} running by workers whose lease ended long ago ({_named(runs)}): nobody "
            "takes over; start a replica, any of this namespace does it",
            tuple(runs),
        )


def _places(facts: Facts) -> Iterator[Finding]:
    without, several = misplaced(facts.open_runs)
    if without:
        yield Finding(
            "no_head",
            f"{_schedules(without)} with runs that wait for a place which no run has: cancel one of them, "
            "which frees the next, and report it",
            tuple(without),
        )
    if several:
        yield Finding(
            "several_heads",
            f"{_schedules(several)} with several runs in the one place: they may run at once; cancel all but one, "
            "and report it",
            tuple(several),
        )


# --- workers ----------------------------------------------------------------------------------


def _nobody(facts: Facts) -> Iterator[Finding]:
    if any(row.next_at is not None for row in facts.active) and not facts.live("scheduler"):
        yield Finding("no_scheduler", "no scheduler is alive, so nothing ticks: start a replica (`oncron run`)")
    if (facts.open_runs or facts.active) and not facts.live("worker"):
        yield Finding("no_worker", "no worker is alive, so nothing is executed: start a replica (`oncron run`)")


def _zone_data(facts: Facts) -> Iterator[Finding]:
    live = {worker.id: worker for role in ("scheduler", "worker") for worker in facts.live(role) if worker.tzdata}
    versions = {worker.tzdata for worker in live.values()} | {facts.tzdata}
    if len(versions) > 1:
        newest = max(versions)
        old = sorted(f"{w.host}:{w.pid} has {w.tzdata}" for w in live.values() if w.tzdata != newest)
        old += [f"here it is {facts.tzdata}"] if facts.tzdata != newest else []
        yield Finding(
            "old_zone_data",
            f"zone data differ, the newest are {newest} ({_named(old)}): install the same tzdata everywhere",
            tuple(old),
            wrong=False,
        )


def _sqlite_hosts(facts: Facts) -> Iterator[Finding]:
    hosts = sorted({worker.host for role in ("scheduler", "worker") for worker in facts.live(role)})
    if facts.url.startswith("sqlite") and len(hosts) > 1:
        yield Finding(
            "several_hosts",
            f"replicas of {len(hosts)} hosts on one SQLite file ({_named(hosts)}): right for containers of one machine "
            "only; use PostgreSQL for several",
            tuple(hosts),
            wrong=False,
        )


_CHECKS: Sequence[Callable[[Facts], Iterable[Finding]]] = (
    _cursor_ahead,
    _nobody,
    _overdue,
    _unreadable,
    _wrong_next,
    _unclaimable,
    _unclaimed,
    _stuck,
    _places,
    _skew,
    _dormant,
    _undeclared,
    _without_task,
    _unattended,
    _paused_queues,
    _zone_data,
    _sqlite_hosts,
)


def _trigger(row: ScheduleRecord) -> Trigger | None:
    try:
        return parse(row.definition.trigger)
    except InvalidTrigger:
        return None


def _schedules(names: Sequence[str]) -> str:
    return f"{render.count(len(names), 'schedule')} ({_named(names)})"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
