"""Processes that die between two statements, fork, or lose an answer: nothing is half written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from oncron._model import FinishStatus, FireOutcome, FirePlan, NewRun, RunFilter, RunState, TickRun, new_id, new_run_id
from oncron.errors import StoreUnavailable
from oncron.stores.sqlite import SQLiteStore
from tests.contract.given import at, declared, enqueued, finish, fired, outcome, plan, seen, spec
from tests.unit.stores.sqlite_kit import child, opened

# Forks a child per statement of a step; each is killed just before that statement. Prints the number of
# statements that the step has, and what the file shows after each death.
KILLED = """
import asyncio, json, os, signal, sys
from tests.contract.given import at, declared, enqueued, fired, outcome, picture, plan, seen, spec
from oncron._model import Outcome, OutcomeKind, RunFilter, new_id
from oncron.stores.sqlite import SQLiteStore

path, site = sys.argv[1], sys.argv[2]

async def furnish(store):
    await store.migrate()
    await declared(store, overlap="wait")
    await fired(store, at(1), claim=spec())
    await fired(store, at(2))
    await enqueued(store, now=at(2))

async def act(store):
    if site == "fire":
        plans = [plan(await seen(store), at(3))]
        return lambda: store.fire(plans, spec(), fire_id="again", now=at(3))
    if site == "claim":
        return lambda: store.claim(spec("w2", tasks=("send",)), now=at(3))
    runs = await store.runs(RunFilter(state="running"))
    ends = [outcome(run) for run in runs]
    return lambda: store.finish(ends, now=at(3))

async def in_child(number):
    store = SQLiteStore(path)
    await store.open()
    step = await act(store)
    left = number
    def count(sql):
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
    await store._run(lambda connection, lane: connection.set_trace_callback(count))
    await step()
    os._exit(7)

async def look():
    store = SQLiteStore(path)
    await store.open()
    text = repr(await picture(store))
    await store.close()
    return text

async def setting_up():
    store = SQLiteStore(path)
    await furnish(store)
    await store.close()

def forked(work):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        result = asyncio.run(work())
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, json.loads(text) if text else None

forked(setting_up)
before = forked(look)[1]
number = 0
while True:
    code, _ = forked(lambda: in_child(number))
    after = forked(look)[1]
    if code == 7:
        break
    assert code == -signal.SIGKILL, code
    assert after == before, (number, before, after)
    number += 1
print(json.dumps({"statements": number, "changed": after != before}))
"""


@pytest.mark.parametrize("site", ["fire", "claim", "finish"])
async def test_a_process_killed_between_any_two_statements_leaves_nothing_behind(tmp_path: Path, site: str) -> None:
    said = json.loads(await child(KILLED, tmp_path / "a.db", site))

    assert said["statements"] >= 5, "it was killed at each of them"
    assert said["changed"], "and the step works when nobody kills it"


FORK = """
import asyncio, os, sys
from oncron._model import NewRun, RunFilter, new_run_id
from oncron.stores.sqlite import SQLiteStore

store = SQLiteStore(sys.argv[1])

async def writing(times):
    for _ in range(times):
        await store.enqueue([NewRun(id=new_run_id(), task="t")])

async def main():
    await store.migrate()
    await writing(3)

asyncio.run(main())
pid = os.fork()
if pid == 0:
    asyncio.run(writing(20))
    os._exit(0)
asyncio.run(writing(20))
assert os.waitpid(pid, 0)[1] == 0
print(len(asyncio.run(store.runs(RunFilter(limit=100)))))
"""


async def test_a_store_that_was_used_before_a_fork_works_on_both_sides(tmp_path: Path) -> None:
    assert await child(FORK, tmp_path / "a.db") == "43\n"


class Forgetful(SQLiteStore):
    """Commits, and then the answer is lost."""

    async def _write(self, work, now=None):
        await super()._write(work, now)
        raise StoreUnavailable("the answer was lost")


async def test_a_step_whose_answer_was_lost_is_repeated_without_doing_it_twice(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await declared(store)
        plans, claim, run = [plan(await seen(store), at(1))], spec(), NewRun(id=new_run_id(), task="send")
        lossy = Forgetful(tmp_path / "a.db")

        for lost in (
            lossy.fire(plans, claim, fire_id="f", now=at(1)),
            lossy.enqueue([run], now=at(1)),
        ):
            with pytest.raises(StoreUnavailable):
                await lost
        fired_again = await store.fire(plans, claim, fire_id="f", now=at(1))
        assert fired_again.results[0].outcome is FireOutcome.FIRED
        [lease] = fired_again.leases
        assert (await store.enqueue([run], now=at(1)))[0].is_new

        with pytest.raises(StoreUnavailable):
            await lossy.finish([outcome(lease)], now=at(2))
        assert (await finish(store, lease, now=at(2))).status is FinishStatus.REPEATED

        claim = spec()
        with pytest.raises(StoreUnavailable):
            await lossy.claim(claim, now=at(3))
        assert [run.id for run in (await store.claim(claim, now=at(3))).runs] == [run.id]
        assert len(await store.runs(RunFilter())) == 2
        await lossy.close()


async def test_a_call_that_its_caller_gave_up_does_not_block_the_next_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await declared(store)
        calls = [asyncio.ensure_future(enqueued(store, now=at(1))) for _ in range(20)]
        await asyncio.sleep(0)
        for call in calls[:10]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        assert (await enqueued(store, now=at(2))).state is RunState.PENDING
        assert 11 <= len(await store.runs(RunFilter())) <= 21


async def test_a_tick_that_is_on_record_makes_no_second_run_when_the_cursor_was_set_back(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        row = await declared(store)
        await fired(store, at(1))
        await store._write(lambda step: step.connection.execute("update oncron_cursors set cursor = ?", [row.cursor]))

        run = TickRun(run_id=plan(row, at(1)).ticks[0].run_id, tick=at(1), due_at=at(1))
        again = FirePlan(
            name=row.name, seen_revision=1, seen_cursor=row.cursor, new_cursor=at(1), next_at=at(2), ticks=(run,)
        )
        answer = await store.fire([again], fire_id=new_id(), now=at(1))

        assert (answer.results[0].outcome, answer.results[0].created) == (FireOutcome.FIRED, 0)
        assert len(await store.runs(RunFilter())) == 1
