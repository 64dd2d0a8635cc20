"""The limiters' SQL says what `stores/_limits.py` says, whatever the rule, the takes and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from oncron._groups import LimitKind, LimitRule
from oncron.stores import _limits
from oncron.stores.postgres import _wire
from tests.servers import PostgresServer
from tests.unit.stores.postgres_kit import opened

NOW = 1_750_000_000_000_000

pers = st.one_of(st.integers(1, 50), st.sampled_from((1_000_000, 9_999_999, 60_000_000, 30 * 86_400_000_000)))
rules = st.builds(
    LimitRule, kind=st.sampled_from(LimitKind), amount=st.integers(1, 12) | st.integers(1, 10**9), per=pers
)
takes = st.lists(st.tuples(st.integers(-120, 60), st.integers(0, 6)), max_size=12)
"""(periods' hundredths before or after now, cost)."""

often = settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    url = postgres_server.create_database()
    asyncio.run(_migrated(url))
    with psycopg.connect(url, autocommit=True, options="-c search_path=oncron") as connection:
        yield connection


async def _migrated(url: str) -> None:
    async with opened(url):
        pass


@often
@given(rule=rules, found=takes, full=st.integers(-50, 150), cost=st.integers(0, 8) | st.integers(0, 10**12))
def test_a_verdict_is_that_of_the_pure_rules(
    connection: psycopg.Connection[Any], rule: LimitRule, found: list[tuple[int, int]], full: int, cost: int
) -> None:
    counted = [(NOW + hundredths * rule.per // 100, took) for hundredths, took in found]
    empty_at = NOW + full * rule.per // 100
    with connection.transaction(force_rollback=True):
        connection.cursor().executemany(
            "insert into takes (limiter, nonce, at, cost, until, empty_at) values ('m', %s, %s, %s, 0, 0)",
            [(str(n), at, took) for n, (at, took) in enumerate(counted)],
        )
        answer = connection.execute(
            "select granted, used, retry_in, empty_at from judged('m', %s, %s, %s, %s)",
            [_wire.encode(rule).decode(), empty_at, cost, NOW],
        ).fetchone()

    assert answer is not None
    verdict = _limits.judge(rule, sorted(counted), empty_at, cost, NOW)
    assert _limits.Verdict(answer[0], *(int(each) for each in answer[1:])) == verdict


@often
@given(
    rule=rules.filter(lambda rule: rule.kind is LimitKind.BUCKET),
    took=st.integers(0, 9) | st.integers(0, 10**12),
    cost=st.integers(0, 9) | st.integers(0, 10**12),
    until=st.integers(-200, 200),
)
def test_a_true_cost_moves_a_bucket_as_the_pure_rules_say(
    connection: psycopg.Connection[Any], rule: LimitRule, took: int, cost: int, until: int
) -> None:
    empty_at = NOW + until * rule.per // 100
    with connection.transaction(force_rollback=True):
        connection.execute(
            "insert into limiters values ('m', %s, %s, %s, %s)", [rule.kind, rule.amount, rule.per, empty_at + 7]
        )
        connection.execute("insert into takes values ('m', 'n', %s, %s, %s, %s)", [NOW, took, 10 * NOW, empty_at])
        connection.execute("select settle('m', 'n', %s, %s)", [cost, NOW])
        row = connection.execute("select l.empty_at, t.empty_at, t.cost from limiters l, takes t").fetchone()

    later = _limits.settled(rule, empty_at, took, cost, NOW)
    assert row is not None
    assert tuple(map(int, row)) == (empty_at + 7 + later, empty_at + later, cost)


@often
@given(rule=rules, keep_for=st.integers(0, 200_000_000))
def test_a_take_is_remembered_as_long_as_the_pure_rules_say(
    connection: psycopg.Connection[Any], rule: LimitRule, keep_for: int
) -> None:
    with connection.transaction(force_rollback=True):
        take = {"limiter": "m", "nonce": "n", "rule": rule, "cost": 1, "keep_for": keep_for}
        connection.execute("select take(%s, %s)", [_wire.encode(take).decode(), NOW])
        row = connection.execute("select until from takes").fetchone()

    assert row == (_limits.remembered_until(rule, NOW, keep_for),)
