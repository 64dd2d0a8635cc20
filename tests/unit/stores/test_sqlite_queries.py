"""Every statement is there, parses, and the hot ones never walk over a table or sort what they find."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncron.stores import _sql
from oncron.stores.sqlite._step import statements
from tests.unit.stores.sqlite_kit import opened, stranger

HOT = (
    "schedule.due", "fire.rows", "fire.on_record", "fire.insert_run", "fire.move_cursor", "gap.newest", "run.next_seq",
    "run.get", "run.open_of", "run.serial_of", "run.holders", "run.update", "claim.next_queue", "claim.next_priority",
    "claim.due", "claim.next_due", "claim.held", "claim.lease", "schedule.tokens", "schedule.put_token", "worker.lease",
    "worker.holds", "worker.report", "reap.holders", "reap.runs", "poll.next_tick", "run.prune", "gap.prune",
    "lock.holders", "lock.forget_expired", "lock.last_token", "lock.put_token", "lock.hold", "lock.prolong",
    "lock.release", "lock.idle", "limiter.get", "limiter.put", "take.get", "take.put", "take.settle", "take.used",
    "take.frees", "take.forget", "batch.get", "batch.takes_more", "batch.facts", "batch.runs", "batch.children",
    "batch.unsettled", "batch.prune", "batch.reopen",
)  # fmt: skip
SQL = statements("oncron")


async def plan_of(path: Path, name: str) -> list[str]:
    async with opened(path):
        sql = SQL[name]
        values = ["[]"] * sql.count("?") if "?" in sql else dict.fromkeys(re.findall(r":(\w+)", sql), "[]")
        return [row[3] for row in stranger(path).execute("explain query plan " + sql, values)]


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_statement_finds_by_index_what_it_touches(tmp_path: Path, name: str) -> None:
    plan = await plan_of(tmp_path / "a.db", name)

    walked = [line for line in plan if re.match(r"SCAN (oncron_|r\b|c\b|s\b|g\b)", line)]
    assert walked == []
    assert [line for line in plan if "TEMP B-TREE" in line] == []


@pytest.mark.parametrize("name", SQL)
async def test_a_statement_parses_against_the_tables(tmp_path: Path, name: str) -> None:
    await plan_of(tmp_path / "a.db", name)


def test_a_statement_is_in_use_or_not_there() -> None:
    source = "".join(file.read_text() for file in Path(_sql.__file__).parent.glob("sqlite/*.py"))

    assert [name for name in SQL if f'"{name}"' not in source] == []


def test_each_statement_says_what_it_is_for() -> None:
    text = "".join(file.read_text() for file in Path(_sql.__file__).parent.glob("sqlite/*.sql"))

    headers = re.findall(r"^-- name: (\S+)\n(.*)", text, re.MULTILINE)
    assert [name for name, following in headers if not following.startswith("-- ")] == []


def test_migrations_are_numbered_without_a_hole() -> None:
    numbers = [migration.number for migration in _sql.migrations("oncron.stores.sqlite")]

    assert numbers == list(range(1, len(numbers) + 1))
