"""What a step reads does not grow with the tables: their plans, made whenever, look up and never scan.

The work of a step is counted in the pages that it touches, all its inner statements together. A session's
plans are cached, so each is made twice: while the tables are empty, as on the first day, and afterwards.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncron._clock import SECOND
from oncron._groups import LimitKind, LimitRule, Take
from oncron._model import NewRun, Outcome, OutcomeKind, RunFilter, WorkerRecord, new_run_id
from oncron.stores.postgres import _steps, _wire
from tests.servers import PostgresServer
from tests.unit.stores.postgres_kit import opened, plan, spec

ROWS = 100_000
DAY = 24 * 3600 * SECOND
BATCH = 100
NAMES = [f"s{n}" for n in range(BATCH)]

# All the rows at once, as they would be after a busy week: half of the runs wait, of ten tasks and two
# queues, a thousand are held by a hundred workers, the rest has ended. Nothing is analysed.
FILL = f"""
set search_path = big;
insert into schedules (name, definition, task, args, queue, priority, retries, retry_delay, overlap, created_at,
    changed_at)
select 's' || n, '{{}}', 'task' || n % 10, '{{}}', 'default', 0, 3, 1000000, 'skip', 0, 0
from generate_series(1, {ROWS}) n;
insert into cursors (name, status, revision, cursor, next_at)
select 's' || n, 'active', 1, {DAY}, {DAY} + n from generate_series(1, {ROWS}) n;
insert into runs (id, task, state, queue, priority, due_at, created_at, ended_at, retries, retry_delay, worker, token,
    schedule, batch)
select gen_random_uuid(), 'task' || n / 2 % 10, s.state, case when n % 7 = 0 then 'mail' else 'default' end, n / 20 % 2,
    {DAY} + case when n % 3 = 0 then 4000000000000000 else n end, {DAY} + n,
    case when s.state = 'succeeded' then {DAY} + n end, 3, 1000000,
    case when s.state = 'running' then 'w' || n / 100 % 100 end, case when s.state = 'running' then 7 else 0 end,
    case when n % 4 = 0 then 's' || n end, case when n % 10 = 3 then 'b' || n / 10 % 100 end
from generate_series(1, {ROWS}) n
cross join lateral (
    select case when n % 100 = 0 then 'running' when n % 2 = 0 then 'pending' else 'succeeded' end
) s(state);
insert into workers (id, lease_until, record) select 'w' || n, 4000000000000000, '{{}}' from generate_series(0, 99) n;
insert into gaps (schedule, first, last, count, reason, created_at)
select 's' || n, 1, 2, 1, 'overlap', {DAY} + n from generate_series(1, {ROWS}) n;
insert into queues (name, paused) select 'q' || n, true from generate_series(1, 100) n;
insert into locks (name, last_token) select 'l' || n, {DAY} from generate_series(1, {ROWS}) n;
insert into holders (name, token, owner, since, lease_until)
select 'l' || n, {DAY}, 'o', 0, 4000000000000000 from generate_series(1, {ROWS}) n;
insert into limiters (name, kind, amount, per) select 'm' || n, 'sliding', 100, 1000 from generate_series(1, 1000) n;
insert into takes (limiter, nonce, at, cost, until, empty_at)
select 'm' || n % 1000, n, {DAY} + n, 1, 4000000000000000, 0 from generate_series(1, {ROWS}) n;
insert into batches (id, data, created_at, closed, completed_at, succeeded_at)
select 'b' || n, 'null', n, true, {DAY} + n, case when n % 1000 > 0 then {DAY} + n end
from generate_series(0, {ROWS}) n;
"""

NOW = DAY + ROWS + 60 * SECOND


class Steps:
    """A session in which the functions are called as the store calls them; every call is undone."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def pages(self, function: str, *arguments: Any) -> int:
        """How many pages one call touches."""
        values = ", ".join(self._literal(value) for value in arguments)
        explained = f"explain (analyze, buffers, timing off) select big.{function}({values})"
        with self._connection.transaction(force_rollback=True):
            answer = self._connection.execute(explained.encode())
            text = "\n".join(row[0] for row in answer.fetchall())
        return sum(int(count) for count in re.findall(r"(?:hit|read)=(\d+)", text.split("Planning:")[0]))

    def _literal(self, value: Any) -> str:
        value = value.decode() if isinstance(value, bytes) else value
        return psycopg.sql.Literal(value).as_string(self._connection)


@pytest.fixture(scope="module")
def big_url(postgres_server: PostgresServer) -> str:
    url = postgres_server.create_database()
    asyncio.run(_migrated(url))
    return url


async def _migrated(url: str) -> None:
    async with opened(url, namespace="big"):
        pass


@pytest.fixture(scope="module", params=["planned while empty", "planned when full"])
def steps(request: pytest.FixtureRequest, big_url: str) -> Iterator[Steps]:
    with psycopg.connect(big_url, autocommit=True) as connection, psycopg.connect(big_url, autocommit=True) as other:
        steps = Steps(connection)
        if request.param == "planned while empty":
            other.execute("analyze")
            for function, arguments in CALLS.values():
                for _ in range(2):
                    steps.pages(function, *arguments())
            other.execute(FILL.encode())
        yield steps


def _plans(count: int) -> bytes:
    return _wire.encode([_steps._plan(plan(f"s{n}", DAY, DAY + n)) for n in sorted(range(1, count + 1), key=str)])


def _outcomes() -> bytes:
    return _wire.encode([Outcome(run_id=new_run_id(), token=5, kind=OutcomeKind.SUCCEEDED) for _ in range(BATCH)])


def _new_runs(key: str | None = None, batch: str | None = None) -> bytes:
    runs = [NewRun(id=new_run_id(), task="task1", unique=key and f"{key}{n}", batch=batch) for n in range(BATCH)]
    return _wire.encode(runs)


def _into(batch: str) -> bytes:
    return _wire.encode({"schedules": [], "batches": {batch: []}})


RULE = LimitRule(kind=LimitKind.SLIDING, amount=100, per=SECOND)


def _take() -> bytes:
    return _wire.encode(Take(limiter="m7", nonce=new_run_id(), rule=RULE))


def _claim(**options: Any) -> bytes:
    return _wire.encode(spec(BATCH, tasks=tuple(f"task{n}" for n in range(10)), **options))


CALLS: dict[str, tuple[str, Any]] = {
    "fire": ("fire", lambda: (_plans(BATCH), _claim(), "f", NOW)),
    "fire one": ("fire_one", lambda: (_plans(1)[1:-1], _claim(), "f", NOW)),
    "claim": ("claim", lambda: (_claim(), NOW)),
    "claim from one queue": ("claim", lambda: (_claim(queues=("mail",)), NOW)),
    "claim with a full task": ("claim", lambda: (_claim(max_running=(("task1", 1),)), NOW)),
    "finish": ("finish", lambda: (_outcomes(), None, NOW)),
    "enqueue": ("enqueue", lambda: (_new_runs(), b"[]", NOW)),
    "enqueue with keys": ("enqueue", lambda: (_new_runs(key="k"), b"[]", NOW)),
    "poll": ("poll", lambda: (b'["task1"]', None, NOW)),
    "poll for a task that has none": ("poll", lambda: (b'["task77"]', None, NOW)),
    "due": ("due", lambda: (NOW, None, None, b"[]", BATCH)),
    "heartbeat": ("heartbeat", lambda: (_wire.encode(WorkerRecord(id="w1")), 15 * SECOND, b"[]", b"[]", NOW)),
    "reap": ("reap", lambda: (BATCH, 4000000000000001)),
    "prune": ("prune", lambda: (NOW, NOW, None, BATCH, NOW)),
    "prune nothing": ("prune", lambda: (0, 0, None, BATCH, NOW)),
    "prune many failed": ("prune", lambda: (0, 0, 10, BATCH, NOW)),
    "prune nothing of batches": ("prune", lambda: (0, 1, None, BATCH, NOW)),
    "cancel": ("cancel", lambda: (new_run_id(), None, NOW)),
    "claim from a full queue": ("claim", lambda: (_claim(queue_limits=(("mail", 1),)), NOW)),
    "claim of a full fleet": ("claim", lambda: (_claim(fleet_limit=1), NOW)),
    "enqueue into a batch": ("enqueue", lambda: (_new_runs(batch="b1000"), _into("b1000"), NOW)),
    "settle": ("settle_batches", lambda: (b'["b7"]', "", 10, NOW)),
    "settle what is open": ("settle_batches", lambda: (None, "", 10, NOW)),
    "list batches": ("list_batches", lambda: (False, None, 10)),
    "list by batch": ("list_runs", lambda: (_wire.encode(RunFilter(batch="b7")),)),
    "list schedules": ("list_schedules", lambda: (None, None, "s5", 10)),
    "list schedules by name": ("list_schedules", lambda: (_wire.encode(NAMES), None, None, None)),
    "delete a batch": ("delete_batch", lambda: ("b77", NOW)),
    "acquire": ("acquire", lambda: ("l77", "me", SECOND, 1, NOW)),
    "extend": ("extend", lambda: ("l77", DAY, SECOND, NOW)),
    "release": ("release", lambda: ("l77", DAY)),
    "take": ("take", lambda: (_take(), NOW)),
    "taken": ("taken", lambda: ("m7", _wire.encode(RULE), NOW)),
    "list": ("list_runs", lambda: (_wire.encode(RunFilter(state="succeeded")),)),
}  # fmt: skip

MOST = {
    "fire": 12_000,
    "claim": 14_000,
    "claim from one queue": 12_000,
    "claim with a full task": 16_000,
    "claim from a full queue": 16_000,
    "claim of a full fleet": 16_000,
    "finish": 1_500,
    "enqueue": 2_000,
    "enqueue with keys": 3_500,
    "enqueue into a batch": 2_000,
    "settle": 200,
    "list batches": 150,
    "list by batch": 200,
    "list schedules by name": 1_500,
    "take": 350,
    "taken": 350,
    "poll": 6_000,
    "poll for a task that has none": 6_000,
    "reap": 7_000,
    "prune": 3_000,
    "list": 1_000,
}
"""Half as much again as was measured: a hundred rows and the forty lanes they are drawn from, or the
thousand held runs. What is not listed is of one row. Reading one index for each row is ten times that."""


@pytest.mark.parametrize("call", CALLS)
def test_a_step_reads_what_it_touches_and_no_more(steps: Steps, call: str) -> None:
    function, arguments = CALLS[call]
    steps.pages(function, *arguments())

    pages = steps.pages(function, *arguments())

    assert pages < MOST.get(call, 100)
