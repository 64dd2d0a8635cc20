"""`locks`, `batches`, `runs --batch`, and what `show` says of a run that was taken over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from oncron import Oncron
from oncron._clock import SECOND
from oncron._groups import NewBatch
from oncron._model import ClaimSpec, NewRun, Outcome, OutcomeKind, new_id, new_run_id
from tests.faces.conftest import Call

STORE = ("--store", "sqlite:///groups.db")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    app = Oncron("sqlite:///groups.db")
    app.sync(app.migrate())
    yield app
    app._life.at_exit()


def ask(app: Oncron, work: Any) -> Any:
    return app.sync(app._desk.ask(work))


def test_locks_tells_who_holds_them(oncron: Call, app: Oncron) -> None:
    assert oncron("locks", *STORE).out == "No lock is held.\n"
    assert oncron("locks", *STORE, "--json").json == []
    with app.lock("import") as lock:
        (row,) = oncron("locks", *STORE, "--json").json
        assert (row["name"], row["token"]) == ("import", lock.token)
        assert row["since"].endswith("Z")
        assert row["lease_until"].endswith("Z")
        told = oncron("locks", *STORE).out
        assert f"import  process {os.getpid()} on " in told


def test_batches_tells_how_far_their_runs_are(oncron: Call, app: Oncron) -> None:
    batch, other, run = new_run_id(), new_run_id(), new_run_id()

    async def fill(store: Any) -> None:
        callback = NewRun(id=new_run_id(), task="report")
        await store.open_batch(NewBatch(id=other))
        await store.open_batch(NewBatch(id=batch, data='{"of": 7}', on_success=callback))
        await store.open_batch(NewBatch(id=new_run_id(), parent=batch))
        await store.enqueue([NewRun(id=each, task="t", batch=batch, retries=0) for each in (run, new_run_id())])
        await store.close_batch(batch)
        spec = ClaimSpec(claim_id=new_id(), worker="w", limit=1, lease_for=SECOND, tasks=("t",))
        (claimed,) = (await store.claim(spec)).runs
        await store.finish([Outcome(run_id=claimed.id, token=claimed.token, kind=OutcomeKind.FAILED)])
        await store.settle_batches([batch])

    ask(app, fill)
    rows = oncron("batches", *STORE, "--json").json
    assert len(rows) == 3
    (row,) = [row for row in rows if row["id"] == batch]
    assert row["runs"] == {"failed": 1, "pending": 1}
    assert (row["total"], row["pending"], row["children"], row["closed"]) == (2, 1, 1, True)
    assert (row["data"], row["on_success"], row["on_death"], row["completed_at"]) == ({"of": 7}, "report", None, None)
    assert row["died_at"].endswith("Z")
    assert [row["id"] for row in oncron("batches", *STORE, "--dead", "--json").json] == [batch]
    (line,) = [line for line in oncron("batches", *STORE).out.splitlines() if batch in line]
    assert line.split("  ", 1)[1].startswith("failed, goes on  ")
    assert line.endswith('1 of 2  1 failed, 1 pending; 1 open batch in it  {"of": 7}')
    page = oncron("batches", *STORE, "--before", batch, "--limit", "1", "--json").json
    assert [row["id"] for row in page] == [other]

    assert len(oncron("runs", *STORE, "--batch", batch, "--json").json) == 2
    assert oncron("runs", *STORE, "--batch", other, "--json").json == []
    told = oncron("runs", *STORE, "--batch", "nothing")
    assert (told.code, told.err) == (2, "oncron: no batch 'nothing'; `oncron batches` lists them\n")


def test_of_a_run_that_was_taken_over_what_came_first_stands_first(oncron: Call, app: Oncron) -> None:
    run = new_run_id()

    async def take_over(store: Any) -> None:
        await store.enqueue([NewRun(id=run, task="t", retries=3)])
        spec = ClaimSpec(claim_id=new_id(), worker="w", limit=1, lease_for=SECOND, tasks=("t",))
        (claimed,) = (await store.claim(spec)).runs
        again = Outcome(run_id=run, token=claimed.token, kind=OutcomeKind.RETRY, delay=60 * SECOND)
        await store.finish([again])

    ask(app, take_over)
    names = [line.split("  ")[0] for line in oncron("show", *STORE, run).out.splitlines()]
    assert names.index("created") + 1 == names.index("first started") == names.index("due again") - 1
