"""`oncron doctor`: is the store as it should be, does anybody fire and execute? Reads only."""

from __future__ import annotations

from typing import Any

import click

from oncron._clock import wall_us
from oncron._model import RunFilter, RunRecord, RunState, sortable_version
from oncron._store import ReadableStore
from oncron.cli import render
from oncron.cli.findings import Facts, Finding, examine, misplaced
from oncron.cli.look import json_option
from oncron.cli.paging import every_run
from oncron.cli.target import Target, takes_target
from oncron.errors import SchemaOutdated, SchemaTooNew, StoreError, StoreUnsafe
from oncron.triggers.zones import tzdata_version

_LOOKED = 20_000
"""So many open runs are looked at, the running ones first."""
_LOOKED_AGAIN = 50


@click.command("doctor")
@takes_target(reaches=False)
@click.option("--strict", is_flag=True, help="Exit 1 on what is only worth knowing, too.")
@json_option
def doctor_command(target: Target, strict: bool, as_json: bool) -> int:
    """Check a live store: schema, clocks, overdue schedules, wrong next ticks, runs that nobody holds or claims,
    replicas that are missing. Writes nothing. With TARGET it also compares with the code.

    Exits 1 when something is wrong. One line for each finding: what, which, what to do.
    """
    target.import_all()
    facts, findings = target.app.sync(_examined(target))
    wrong = any(finding.wrong for finding in findings)
    if as_json:
        render.as_json(_plain(target, facts, findings))
    else:
        _print(target, facts, findings)
    return 1 if wrong or (strict and findings) else 0


async def _examined(target: Target) -> tuple[Facts | None, list[Finding]]:
    """What was read, and what that shows; only what is wrong if it could not be read."""
    try:
        async with target.own_store() as store:
            await store.check()
            facts = await gather(store, target)
    except (SchemaOutdated, SchemaTooNew) as error:
        return None, [Finding("schema", str(error))]
    except StoreUnsafe as error:
        return None, [Finding("unsafe", str(error))]
    except StoreError as error:
        return None, [Finding("unavailable", str(error))]
    return facts, examine(facts)


async def gather(store: ReadableStore, target: Target) -> Facts:
    """Read everything that the checks look at."""
    schedules = await store.schedules()
    open_runs = await _open_runs(store)
    suspects = [name for names in misplaced(open_runs) for name in names][:_LOOKED_AGAIN]
    for name in suspects:
        # Pages are read one after the other while runs go on; of one schedule, all at one moment.
        at_once = await store.runs(RunFilter(schedule=name, limit=_LOOKED))
        open_runs = [run for run in open_runs if run.schedule != name] + [run for run in at_once if run.state.is_open]
    expired = (await store.poll((), None)).expired
    workers, queues = await store.workers(), await store.queues()
    sent = wall_us()
    now = await store.now()
    received = wall_us()
    return Facts(
        url=store.url,
        now=now,
        skew=max(0, now - received) + min(0, now - sent),
        schedules=schedules,
        workers=workers,
        open_runs=open_runs,
        expired=expired,
        lease_for=target.lease_for,
        tzdata=sortable_version(tzdata_version()),
        tasks=frozenset(target.tasks) if target.in_code else None,
        declared=frozenset(target.declared),
        queues=queues,
    )


async def _open_runs(store: ReadableStore) -> list[RunRecord]:
    found: dict[str, RunRecord] = {}
    for state in (RunState.RUNNING, RunState.PENDING):
        async for run in every_run(store.runs, RunFilter(state=state)):
            if len(found) == _LOOKED:
                break
            found[run.id] = run
    return list(found.values())


def _print(target: Target, facts: Facts | None, findings: list[Finding]) -> None:
    if facts is None:
        render.lines([target.store_url], style="bold")
    else:
        counts = ", ".join(
            render.count(number, what)
            for number, what in (
                (len(facts.active), "active schedule"),
                (len(facts.open_runs), "open run"),
                (_replicas(facts), "replica"),
            )
        )
        render.lines([f"{target.store_url} at {render.utc(facts.now)}: {counts}"], style="bold")
    for finding in findings:
        word, colour = ("wrong", "red") if finding.wrong else ("note", "yellow")
        render.lines([f"{word}: {finding.name}: {finding.what}"], style=colour)
    if not any(finding.wrong for finding in findings):
        render.lines(["Nothing is wrong."], style="green")


def _replicas(facts: Facts) -> int:
    return len({worker.id for role in ("scheduler", "worker") for worker in facts.live(role)})


def _plain(target: Target, facts: Facts | None, findings: list[Finding]) -> dict[str, Any]:
    return {
        "store": target.store_url,
        "now": None if facts is None else render.iso(facts.now),
        "healthy": not any(finding.wrong for finding in findings),
        "findings": [
            {"name": item.name, "wrong": item.wrong, "what": item.what, "which": list(item.which)} for item in findings
        ],
        "schedules": None if facts is None else len(facts.active),
        "open_runs": None if facts is None else len(facts.open_runs),
        "replicas": None if facts is None else _replicas(facts),
    }
