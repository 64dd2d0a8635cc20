"""fake_run: a context for calling a task's own function, without an app that runs."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncron import Oncron, RunContext, current_run
from oncron.errors import DefinitionError, InvalidArguments, InvalidOption
from oncron.testing import fake_run

app = Oncron("memory://")
TICK = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)


@app.task
def mail(to: str) -> None: ...


@app.task
def report(ctx: RunContext[Any], kind: str) -> str:
    ctx.progress(1, 2, "half")
    ctx.checkpoint({"page": (ctx.last_checkpoint or {"page": 0})["page"] + 1})
    ctx.enqueue(mail, to="a@example.org")
    return f"{kind} of {ctx.tick:%Y-%m-%d} by {current_run().task}"


def test_a_tasks_function_is_called_with_a_context_that_keeps_what_it_says() -> None:
    with fake_run(report, schedule="report-day", tick=TICK, checkpoint={"page": 6}) as ctx:
        assert report.fn(ctx, kind="day") == "day of 2026-03-29 by report"

    assert ctx.enqueued == [("mail", {"to": "a@example.org"})]
    assert ctx.last_checkpoint == {"page": 7}
    assert ctx.last_progress == {"done": 1, "total": 2, "note": "half"}


def test_the_options_describe_the_run() -> None:
    ctx = fake_run(
        "report", tick=TICK, now=TICK + timedelta(minutes=3), attempt=4, retries=3, token=9, timeout=60,
        missed_count=2, is_catchup=True, state={"db": 1}, args={"kind": "day"},
    )  # fmt: skip
    assert (ctx.task, ctx.attempt, ctx.is_last_attempt, ctx.token, ctx.missed_count) == ("report", 4, True, 9, 2)
    assert (ctx.late_by, ctx.is_catchup, ctx.state, ctx.args) == (
        timedelta(minutes=3),
        True,
        {"db": 1},
        {"kind": "day"},
    )
    assert ctx.deadline == TICK + timedelta(minutes=4)
    assert ctx.last_progress is None
    assert not ctx.stopping
    ctx.stop()
    assert ctx.stopping


def test_outside_a_schedule_there_is_no_tick() -> None:
    ctx = fake_run()
    assert (ctx.tick, ctx.schedule, ctx.attempt, ctx.late_by) == (None, None, 1, timedelta(0))


def test_a_transaction_yields_the_tests_connection_and_comes_once_and_last() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table effects (n)")
    ctx = fake_run(connection=connection)

    with ctx.transaction() as db:
        db.execute("insert into effects values (1)")
    assert connection.execute("select n from effects").fetchall() == [(1,)]
    assert ctx.committed
    with pytest.raises(DefinitionError, match="once"), ctx.transaction():
        pass
    with pytest.raises(DefinitionError, match="before"):
        ctx.checkpoint(1)
    connection.close()


async def test_an_async_transaction_that_fails_is_not_committed() -> None:
    ctx = fake_run(connection=object())
    with pytest.raises(ValueError, match="no"):
        async with ctx.transaction():
            raise ValueError("no")
    assert not ctx.committed


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tick": datetime(2026, 1, 1)}, "naive datetime"),
        ({"attempt": 0}, "attempt=0"),
        ({"timeout": -1}, "timeout=-1"),
        ({"schedule": ""}, "0 characters"),
    ],
)
def test_wrong_options_are_refused_with_the_mend(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        fake_run(**wrong)


def test_what_is_not_json_and_a_missing_connection_are_refused() -> None:
    with pytest.raises(InvalidArguments):
        fake_run(args={"x": object()})
    with pytest.raises(InvalidOption, match="connection="), fake_run().transaction():
        pass
