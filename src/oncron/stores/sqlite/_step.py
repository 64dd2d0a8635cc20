"""One transaction, as the steps of the store see it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from oncron._clock import machine_us
from oncron._defaults import STALE_WALL
from oncron.errors import StoreUnavailable
from oncron.stores import _sql
from oncron.stores.sqlite._rows import RUN_COLUMNS

Row = tuple[Any, ...]


@cache
def statements(prefix: str) -> dict[str, str]:
    """The named statements for one namespace."""
    package = "oncron.stores.sqlite"
    named = _sql.statements(package) | _sql.statements(package, "groups.sql")
    return {name: filled(text, prefix) for name, text in named.items()}


def filled(text: str, prefix: str) -> str:
    """The SQL with the marks of `queries.sql` replaced."""
    for mark, meant in (
        ("{ns}", prefix),
        ("{run}", ", ".join(f"r.{column}" for column in RUN_COLUMNS)),
        ("{columns}", ", ".join(RUN_COLUMNS)),
        ("{marks}", ", ".join("?" for _ in RUN_COLUMNS)),
    ):
        text = text.replace(mark, meant)
    return text


class Step:
    """A transaction that has begun. `now` is the store's clock for all of it."""

    def __init__(self, connection: sqlite3.Connection, sql: dict[str, str], now: int = 0) -> None:
        self.connection, self._sql, self.now = connection, sql, now

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        return self.connection.execute(self._sql[name], values).fetchall()

    def row(self, name: str, /, **values: Any) -> Row | None:
        rows = self.rows(name, **values)
        return rows[0] if rows else None

    def value(self, name: str, /, **values: Any) -> Any:
        """The first column of the first row; None without one."""
        row = self.row(name, **values)
        return None if row is None else row[0]

    def do(self, name: str, /, **values: Any) -> int:
        """How many rows it changed."""
        return self.connection.execute(self._sql[name], values).rowcount

    def each(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """The statement once a row."""
        self.connection.executemany(self._sql[name], rows)

    def next_seq(self) -> int:
        """Where the next inserted run stands in the listing; at least `now`."""
        return self.value("run.next_seq", now=self.now)


def listed(values: Iterable[Any]) -> str:
    """Values as one parameter, for `json_each`."""
    return json.dumps(list(values))


def store_now(stored: int, where: str) -> int:
    """The store's clock: the wall's, but never behind what it said before. Raises StoreUnavailable
    while that is more than a minute ahead: then one of the machine's clocks was or is wrong."""
    wall = machine_us()
    if stored - wall > STALE_WALL:
        raise StoreUnavailable(
            f"{where}: its clock is {(stored - wall) // 1_000_000} s ahead of this machine's, so nothing may fire. "
            "Set this machine's clock right; if it was the earlier clock that was wrong, wait, or set now_at to 0 "
            "in the namespace's meta table"
        )
    return max(wall, stored)
