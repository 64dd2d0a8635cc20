"""Twins: random calls on MemoryStore and on another store, whose answers and rows must stay the same."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from oncron._model import (
    Change,
    Definition,
    FirePlan,
    Gap,
    GapReason,
    NewRun,
    Outcome,
    OutcomeKind,
    Overlap,
    Report,
    RunFilter,
    RunRecord,
    RunState,
    ScheduleRecord,
    Status,
    TickRun,
    WorkerRecord,
    tick_run_id,
)
from oncron._store import ReadableStore
from oncron.stores.memory import MemoryStore
from tests.contract.comparable import comparable, leases_in
from tests.contract.given import LEASE, SECOND, at, picture, spec
from tests.contract.machine_groups import QUEUES, Groups

PLAYS = int(os.environ.get("ONCRON_PLAYS", "30"))
STEPS = 40

NAMES = ("a", "b", "ß/c")
TASKS = ("send", "scarce")
KEYS = tuple(f"k1 {name}" for name in NAMES)
WORKERS = ("w1", "w2", "w3")

QUEUE_LIMITS = ((), (), (("slow", 1),), (("slow", 2), ("default", 1)), (("default", 0),))
FLEET_LIMITS = (None, None, 1, 3)

names = st.sampled_from(NAMES)
workers = st.sampled_from(WORKERS)
whichever = st.integers(0, 10_000)
"""Picks one of what is there: see `_pick`."""


class Twins(Groups, RuleBasedStateMachine):
    """Each rule makes one call on both stores. `make` opens the store that is compared with memory."""

    run: Callable[[Coroutine[Any, Any, Any]], Any]
    make: Callable[[], ReadableStore]

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.other = MemoryStore(), type(self).make()
        self.now = at(0)
        self.ids = itertools.count(1)
        self.claims: dict[str, Any] = {}
        self.fires: list[tuple[FirePlan, Any, str]] = []
        self.enqueued: list[NewRun] = []
        self.tokens: list[tuple[str, int]] = []
        """(run, token) of every lease, as memory gave it; `twin` is what the other store gave."""
        self.twin: dict[tuple[str, int], int] = {}
        self.newest: dict[str, int] = {}
        type(self).run(self._open())
        self.versions = type(self).run(self._versions())

    async def _open(self) -> None:
        await self.other.open()
        await self.other.migrate()

    async def _versions(self) -> list[int]:
        return [(await store.poll([], None, now=self.now)).version for store in (self.memory, self.other)]

    def teardown(self) -> None:
        type(self).run(self.other.close())

    # --- both at once ---------------------------------------------------------------------

    def both(self, call: Callable[[ReadableStore], Coroutine[Any, Any, Any]]) -> Any:
        """The answer, which must be the same."""

        async def ask() -> tuple[Any, Any]:
            return await call(self.memory), await call(self.other)

        expected, actual = type(self).run(ask())
        leases = zip(leases_in(expected), leases_in(actual), strict=False)
        for mine, theirs in sorted(leases, key=lambda pair: pair[1].token):
            self._remember(mine, theirs)
        wanted, got = comparable(expected), comparable(actual)
        assert got == wanted, f"{self.other!r} answers\n{got!r}\nand memory\n{wanted!r}"
        return expected

    def rows(self) -> list[ScheduleRecord]:
        return list(self.memory._schedule_rows.values())

    def runs(self, *states: RunState) -> list[RunRecord]:
        runs = sorted(self.memory._run_rows.values(), key=lambda run: run.id)
        return [run for run in runs if not states or run.state in states]

    def new_id(self) -> str:
        return f"00000000-0000-7000-8000-{next(self.ids):012}"

    @invariant()
    def what_can_be_read_is_the_same(self) -> None:
        self.both(picture)
        self.both(lambda store: store.stats(now=self.now))
        self.both(lambda store: store.poll(TASKS, QUEUES, now=self.now))
        risen = type(self).run(self._versions())
        rose = [new > old for new, old in zip(risen, self.versions, strict=True)]
        assert rose[0] is rose[1], f"the version rose in {'memory' if rose[0] else repr(self.other)} alone"
        self.versions = risen

    # --- time -----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.5, 1, 2, 7, 14.999999, 15, 31, 61, 90)))
    def time_passes(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    # --- schedules ------------------------------------------------------------------------

    @initialize(
        overlaps=st.permutations(Overlap),
        limit=st.sampled_from((None, None, 3)),
        unique=st.sampled_from((None, None, None, "k1")),
    )
    def begin(self, overlaps: Sequence[Overlap], limit: int | None, unique: str | None) -> None:
        for name, overlap in zip(NAMES, overlaps, strict=False):
            self.declare(name, overlap, TASKS[0], QUEUES[0], Status.ACTIVE, limit, unique, 1, 0, moves=True)

    @rule(
        name=names,
        overlap=st.sampled_from(Overlap),
        task=st.sampled_from(TASKS),
        queue=st.sampled_from(QUEUES),
        status=st.sampled_from((Status.ACTIVE,) * 6 + (Status.PAUSED, Status.REMOVED)),
        limit=st.sampled_from((None, None, None, 1, 3)),
        unique=st.sampled_from((None, None, None, "k1", "k2")),
        retries=st.integers(0, 2),
        stale=st.integers(0, 9),
        moves=st.booleans(),
    )
    def declare(
        self,
        name: str,
        overlap: Overlap,
        task: str,
        queue: str,
        status: Status,
        limit: int | None,
        unique: str | None,
        retries: int,
        stale: int,
        moves: bool,
    ) -> None:
        row = self.memory._schedule_rows.get(name)
        definition = Definition(
            name=name,
            trigger="every 1s",
            task=task,
            queue=queue,
            overlap=overlap,
            limit=limit,
            unique=unique and f"{unique} {name}",  # which of two in one fire gets a shared one is left open
            retries=retries,
            retry_delay=3 * SECOND,
            guard=(None, None, "advisory")[retries],
            tags=(("odd", "even")[retries % 2], name),
        )
        cursor = self.now if row is None or moves else row.cursor
        gaps: tuple[Gap, ...] = ()
        if row is not None and cursor > row.cursor:
            gaps = (Gap(schedule=name, first=row.cursor + 1, last=cursor, count=0, reason=GapReason.CHANGED),)
        change = Change(
            name=name,
            definition=definition,
            status=status,
            new_cursor=cursor + (SECOND if stale == 1 else 0),
            next_at=cursor + SECOND,
            seen_revision=None if row is None else row.revision - (stale == 2),
            seen_cursor=None if row is None else row.cursor - (stale == 3),
            gaps=gaps,
            note=f"note {stale}",
        )
        self.both(lambda store: store.declare([change], now=self.now))

    @rule(horizon=st.integers(0, 100), limit=st.integers(1, 3), exclude=st.sets(names, max_size=1))
    def due(self, horizon: int, limit: int, exclude: set[str]) -> None:
        until = self.now + (horizon - 50) * SECOND
        page = self.both(lambda store: store.due(until, exclude=sorted(exclude), limit=limit))
        if page:
            last = (page[-1].next_at, page[-1].name)
            self.both(lambda store: store.due(until, after=last, limit=limit))

    # --- ticks ----------------------------------------------------------------------------

    @rule(
        picks=st.lists(
            st.tuples(whichever, st.integers(0, 3), st.integers(0, 2), st.integers(0, 12)), min_size=1, max_size=3
        ),
        worker=st.none() | workers,
        room=st.integers(1, 3),
        scarce=st.integers(0, 2),
        narrow=st.sampled_from(QUEUE_LIMITS),
        fleet=st.sampled_from(FLEET_LIMITS),
    )
    def fire(
        self,
        picks: list[tuple[int, int, int, int]],
        worker: str | None,
        room: int,
        scarce: int,
        narrow: tuple[tuple[str, int], ...],
        fleet: int | None,
    ) -> None:
        rows = {row.name: (row, rest) for n, *rest in picks if (row := _pick(self.rows(), n)) is not None}
        plans = [self._plan(row, *rest) for row, rest in rows.values()]
        claim = worker and spec(
            worker,
            claim_id=self.new_id(),
            limit=room,
            tasks=TASKS,
            queues=QUEUES,
            max_running=(("scarce", scarce),) if scarce else (),
            queue_limits=narrow,
            fleet_limit=fleet,
        )
        fire_id = f"fire-{next(self.ids)}"
        self.fires += [(plan, claim, fire_id) for plan in plans]
        self.both(lambda store: store.fire(plans, claim, fire_id=fire_id, now=self.now))

    @rule(n=whichever, worker=st.none() | workers)
    def tick(self, n: int, worker: str | None) -> None:
        """The next tick of a schedule, fired in time."""
        active = [row for row in self.rows() if row.status is Status.ACTIVE]
        if (row := _pick(active, n)) is not None:
            self.now = max(self.now, row.cursor + SECOND)
            newest_first = len(self.rows()) - 1 - self.rows().index(row)
            self.fire([(newest_first, 1, 0, 0)], worker, 3, 2 * (n % 2), (), None)

    def _plan(self, row: ScheduleRecord, ticks: int, passed: int, wrong: int) -> FirePlan:
        """The next `passed` seconds after the cursor become a gap, the next `ticks` become runs."""
        first = row.cursor + SECOND
        gaps: tuple[Gap, ...] = ()
        if passed:
            last = first + (passed - 1) * SECOND
            gaps = (Gap(schedule=row.name, first=first, last=last, count=passed, reason=GapReason.MISSED),)
        instants = [first + (passed + n) * SECOND for n in range(ticks)]
        cursor = row.cursor + (passed + ticks) * SECOND
        if wrong != 5:
            self.now = max(self.now, cursor)
        return FirePlan(
            name=row.name,
            seen_revision=row.revision - (wrong == 1),
            seen_cursor=row.cursor - (wrong == 2),
            new_cursor=cursor,
            next_at=cursor + SECOND,
            ticks=tuple(
                TickRun(
                    run_id=tick_run_id(row.name, tick),
                    tick=tick,
                    due_at=tick + (SECOND // 2 if wrong == 3 else 0),
                    is_catchup=wrong == 4,
                    missed_count=passed,
                )
                for tick in instants
            ),
            gaps=gaps,
        )

    @rule(n=whichever)
    def fire_again(self, n: int) -> None:
        if (again := _pick(self.fires, n)) is not None:
            plan, claim, fire_id = again
            self.both(lambda store: store.fire([plan], claim, fire_id=fire_id, now=self.now))

    # --- runs -----------------------------------------------------------------------------

    @rule(
        task=st.sampled_from(TASKS),
        queue=st.sampled_from(QUEUES),
        unique=st.sampled_from((None, None, *KEYS)),
        schedule=st.none() | whichever,
        backfill=st.sampled_from((None, None, "b1")),
        overlap=st.sampled_from((None, None, *Overlap)),
        delay=st.sampled_from((0, 0, SECOND, -SECOND, 40 * SECOND)),
        priority=st.integers(-1, 1),
        retries=st.integers(0, 2),
    )
    def enqueue(
        self,
        task: str,
        queue: str,
        unique: str | None,
        schedule: int | None,
        backfill: str | None,
        overlap: Overlap | None,
        delay: int,
        priority: int,
        retries: int,
    ) -> None:
        row = None if schedule is None else _pick(self.rows(), schedule)
        new = NewRun(
            id=self.new_id(),
            task=task,
            queue=queue,
            unique=unique,
            schedule=row and row.name,
            backfill=backfill if row else None,
            overlap=overlap if row and backfill else None,
            tick=at(-100) if row and backfill else None,
            delay=delay,
            priority=priority,
            retries=retries,
            retry_delay=2 * SECOND,
            guard="advisory" if retries else None,
        )
        self.enqueued.append(new)
        self.both(lambda store: store.enqueue([new], now=self.now))

    @rule(n=whichever)
    def enqueue_again(self, n: int) -> None:
        if (new := _pick(self.enqueued, n)) is not None:
            self.both(lambda store: store.enqueue([new], now=self.now))

    @rule(
        worker=workers,
        limit=st.integers(0, 3),
        tasks=st.sampled_from((TASKS, TASKS, TASKS[:1])),
        queues=st.sampled_from((None, QUEUES, QUEUES[::-1], QUEUES[:1])),
        scarce=st.integers(0, 3),
        narrow=st.sampled_from(QUEUE_LIMITS),
        fleet=st.sampled_from(FLEET_LIMITS),
    )
    def claim(
        self,
        worker: str,
        limit: int,
        tasks: tuple[str, ...],
        queues: tuple[str, ...] | None,
        scarce: int,
        narrow: tuple[tuple[str, int], ...],
        fleet: int | None,
    ) -> None:
        wants = spec(
            worker,
            claim_id=self.new_id(),
            limit=limit,
            tasks=tasks,
            queues=queues,
            max_running=(("scarce", scarce),) if scarce else (),
            queue_limits=narrow,
            fleet_limit=fleet,
        )
        self.claims[wants.claim_id] = wants
        self.both(lambda store: store.claim(wants, now=self.now))

    @rule(n=whichever)
    def claim_again(self, n: int) -> None:
        """While something is held under it: an empty answer may be followed by a full one."""
        held = sorted({run.claim_id for run in self.runs(RunState.RUNNING)} & set(self.claims))
        if (claim_id := _pick(held, n)) is not None:
            self.both(lambda store: store.claim(self.claims[claim_id], now=self.now))

    @rule(
        picks=st.lists(st.tuples(whichever, st.sampled_from(OutcomeKind)), min_size=1, max_size=3),
        delay=st.sampled_from((0, SECOND, 20 * SECOND)),
        spend=st.booleans(),
        followers=st.integers(0, 1),
        then=st.sampled_from((None, "", "", "a", "nobody")),
        batch=st.none() | whichever,
    )
    def finish(
        self,
        picks: list[tuple[int, OutcomeKind]],
        delay: int,
        spend: bool,
        followers: int,
        then: str | None,
        batch: int | None,
    ) -> None:
        said: list[Outcome] = []
        for n, kind in picks:
            claim = _pick(self.tokens, n)
            if claim is None:
                return
            into = None if batch is None else self._batch(batch)
            new = [NewRun(id=self.new_id(), task="send", unique=KEYS[0], batch=into) for _ in range(followers)]
            after = None if then is None else NewRun(id=self.new_id(), task="send", schedule=then or None, batch=into)
            said.append(
                Outcome(
                    run_id=claim[0],
                    token=claim[1],
                    kind=kind,
                    result='"r"',
                    error="e",
                    reason="because",
                    delay=delay,
                    retry_delay=5 * SECOND,
                    spend_attempt=spend,
                    checkpoint=str(n),
                    log=f"line {n}" if n % 2 else None,
                    enqueue=tuple(new),
                    then=after,
                )
            )
        self.both(lambda store: store.finish(self._in(store, said), now=self.now))

    @rule(worker=workers, n=whichever, listed=st.integers(0, 3), reporting=st.booleans())
    def heartbeat(self, worker: str, n: int, listed: int, reporting: bool) -> None:
        listed = min(listed, len(self.tokens))
        claims = list(dict(self.tokens[(n + k) % len(self.tokens)] for k in range(listed)).items())
        record = WorkerRecord(id=worker, pid=n, started_at=at(0), roles=("scheduler", "worker")[n % 2 :])

        def beat(store: ReadableStore) -> Coroutine[Any, Any, Any]:
            held = [(run, token if store is self.memory else self.twin[run, token]) for run, token in claims]
            reports = [
                Report(run_id=run, token=token, progress=f"p{n}", log=f"said {n}") for run, token in held if reporting
            ]
            return store.heartbeat(record, LEASE, held, reports, now=self.now)

        self.both(beat)

    @rule(worker=workers)
    def leave(self, worker: str) -> None:
        self.both(lambda store: store.leave(worker))

    @rule()
    def reap(self) -> None:
        self.both(lambda store: store.reap(now=self.now))

    @rule(n=whichever, kind=st.sampled_from(OutcomeKind))
    def end(self, n: int, kind: OutcomeKind) -> None:
        """Something that is held ends, in time."""
        if (run := _pick(self.runs(RunState.RUNNING), n)) is not None:
            said = Outcome(run_id=run.id, token=run.token, kind=kind)
            self.both(lambda store: store.finish(self._in(store, [said]), now=self.now))

    @rule(n=whichever, ended=st.booleans(), opening=st.sampled_from((None, None, 1, 2)))
    def cancel(self, n: int, ended: bool, opening: int | None) -> None:
        if (run := _pick([run for run in self.runs() if ended or run.state.is_open], n)) is not None:
            self.both(lambda store: store.cancel(run.id, opening=opening, now=self.now))

    @rule(n=whichever, opening=st.sampled_from((None, None, 1, 2)))
    def retry(self, n: int, opening: int | None) -> None:
        ended = [run for run in self.runs() if not run.state.is_open] or self.runs()
        if (run := _pick(ended, n)) is not None:
            self.both(lambda store: store.retry(run.id, opening=opening, now=self.now))

    @rule(age=st.sampled_from((0, 5, 60)), failed_age=st.sampled_from((0, 60)), keep=st.sampled_from((None, 0, 1, 3)))
    def prune(self, age: int, failed_age: int, keep: int | None) -> None:
        self.both(
            lambda store: store.prune(
                ended_before=self.now - age * SECOND,
                failed_before=self.now - failed_age * SECOND,
                keep_failed=keep,
                now=self.now,
            )
        )

    @rule(
        after=st.sampled_from((None, "a", "b")),
        limit=st.integers(1, 2),
        queue=st.sampled_from(QUEUES),
        batch=whichever,
    )
    def pages(self, after: str | None, limit: int, queue: str, batch: int) -> None:
        self.both(lambda store: store.schedules(after=after, limit=limit))
        self.both(lambda store: store.schedules(tag="odd", after=after))
        self.both(lambda store: store.runs(RunFilter(queue=queue, limit=limit)))
        self.both(lambda store: store.runs(RunFilter(batch=self._batch(batch), limit=limit)))

    def _remember(self, mine: RunRecord, theirs: RunRecord) -> None:
        """G5: a new token is greater than every earlier one of its run and its schedule, and no less than now."""
        claim = (mine.id, mine.token)
        if claim in self.twin:
            return
        self.tokens.append(claim)
        self.twin[claim] = theirs.token
        for key in (f"run {mine.id}", f"schedule {mine.schedule}") if mine.schedule else (f"run {mine.id}",):
            assert theirs.token > self.newest.get(key, 0), f"{theirs.token} is no new token of {key}"
            self.newest[key] = theirs.token
        assert theirs.token >= self.now

    def _in(self, store: ReadableStore, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes with the tokens that this store gave."""
        if store is self.memory:
            return list(outcomes)
        return [replace(said, token=self.twin[said.run_id, said.token]) for said in outcomes]


def _pick(things: Sequence[Any], n: int) -> Any:
    """The n-th from the end, round and round: small numbers, newest things."""
    return things[-1 - n % len(things)] if things else None


def played(make: Callable[[], ReadableStore], plays: int, *, shrink: bool = True) -> None:
    """So many plays, each on a store made for it."""
    with asyncio.Runner() as runner:
        machine = type("Played", (Twins,), {"make": staticmethod(make), "run": staticmethod(runner.run)})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=plays,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                derandomize=bool(os.environ.get("CI")),
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
                print_blob=True,
            ),
        )
