"""Transfers between accounts by three replicas that are killed all the time: sums and receipts are exact."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncron._model import NewRun, RunFilter, new_run_id
from tests.fault.fleet import Fleet, Load

ACCOUNTS = 10
OPENING = 1000


@dataclass
class Branch(Load):
    @property
    def target(self) -> str:
        return "tests.fault.bank:app"


class Bank:
    def __init__(self, url: str) -> None:
        self._url = url
        self.balances = Counter(dict.fromkeys(range(ACCOUNTS), OPENING))
        with self._connected() as connection:
            connection.execute("create table accounts (id integer primary key, balance integer not null)")
            connection.execute("create table bookings (run text not null, attempt integer not null)")
            for account, balance in self.balances.items():
                connection.execute(f"insert into accounts values ({account}, {balance})")
            connection.commit()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        is_sqlite = self._url.startswith("sqlite")
        connection: Any = (
            sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=30)
            if is_sqlite
            else psycopg.connect(self._url)
        )
        try:
            yield connection
        finally:
            connection.close()

    def read(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return connection.execute(sql).fetchall()

    def orders(self, count: int, chance: random.Random) -> list[NewRun]:
        """Transfers, and what the balances have to be after them."""
        orders: list[NewRun] = []
        for number in range(count):
            source, target = chance.sample(range(ACCOUNTS), 2)
            amount = chance.randrange(1, 100)
            self.balances[source] -= amount
            self.balances[target] += amount
            args = json.dumps({"source": source, "target": target, "amount": amount})
            task = "transfer_async" if number % 2 else "transfer"
            orders.append(NewRun(id=new_run_id(), task=task, args=args, retries=1000, retry_delay=50_000))
        return orders


def bank_holiday(url: str, home: Path, *, transfers: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    fleet = Fleet(url, home, Branch(fast=0, second=0, lease=2), offsets=(0, 0, 0))
    fleet.app.sync(fleet.app.migrate())
    bank = Bank(url)
    orders = bank.orders(transfers, chance)
    done: Callable[[], int] = lambda: bank.read("select count(*) from bookings")[0][0]  # noqa: E731
    with fleet.running():
        fleet.until(lambda: all(replica.up for replica in fleet.replicas), 30, "every replica to start")
        for kill in range(kills + 1):
            # A share of the orders for each kill, so that it meets replicas at work.
            share = orders[kill * transfers // (kills + 1) : (kill + 1) * transfers // (kills + 1)]
            before = done()
            fleet.store(lambda store, share=share: store.enqueue(share))
            fleet.app._life.engine.hint()
            if kill < kills:
                fleet.until(lambda before=before: done() > before, 30, "work to begin", every=0.002)
                time.sleep(chance.uniform(0, 0.05))
                victim = chance.choice(fleet.replicas)
                fleet.kill(victim)
                victim.start()
        fleet.until(lambda: done() >= transfers and not fleet._open(), 90, "every transfer and receipt", every=0.2)

    runs = fleet.store(lambda store: store.runs(RunFilter(limit=10 * transfers)))
    bookings = bank.read("select run, attempt from bookings")
    receipts = Counter(json.loads(run.args)["run"] for run in runs if run.task == "receipt")
    taken_over = sum(run.attempt > 1 for run in runs)
    print(f"\nseed {seed}: {len(bookings)} transfers, {kills} kills, {taken_over} runs begun more than once")
    assert Counter(run for run, _ in bookings) == Counter(order.id for order in orders)
    assert dict(bank.read("select id, balance from accounts")) == dict(bank.balances)
    assert receipts == Counter(order.id for order in orders)
    assert {run.state.value for run in runs} == {"succeeded"}
    assert dict(bookings) == {run.id: run.attempt for run in runs if run.task != "receipt"}
    assert taken_over, "the kills met nobody at work"


@pytest.mark.timeout(150)
def test_a_few_transfers_on_sqlite_are_exact(tmp_path: Path):
    bank_holiday(f"sqlite:///{tmp_path}/oncron.db", tmp_path, transfers=120, kills=4, seed=1)


@pytest.mark.timeout(150)
def test_a_few_transfers_on_postgresql_are_exact(postgres_url: str, tmp_path: Path):
    bank_holiday(postgres_url, tmp_path, transfers=120, kills=4, seed=2)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_thousand_transfers_on_sqlite_are_exact(tmp_path: Path, seed: int):
    bank_holiday(f"sqlite:///{tmp_path}/oncron.db", tmp_path, transfers=1000, kills=25, seed=seed)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [6, 7, 8])
def test_a_thousand_transfers_on_postgresql_are_exact(postgres_url: str, tmp_path: Path, seed: int):
    bank_holiday(postgres_url, tmp_path, transfers=1000, kills=25, seed=seed)
