"""Rows of another scheduler's tables, by the driver that is there: read only."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

Rows = list[dict[str, Any]]


class NoTable(Exception):
    """The database answers, but not with that table: its message."""


def rows(url: str, query: str, option: str) -> Rows:
    """What the query gives. Raises NoTable, and click.UsageError for a database that cannot be read."""
    scheme = urlsplit(url).scheme.partition("+")[0]
    try:
        if scheme == "sqlite":
            return _sqlite(url, query, option)
        if scheme in {"postgresql", "postgres"}:
            return _postgres(url, query)
        return _by_sqlalchemy(url, query, option)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{option}: {scheme} needs {error.name}, which is not installed here") from None


def table_name(name: str, option: str) -> str:
    """Quoted for SQL; `schema.table` is two names."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise click.UsageError(f"{option} {name!r} is no name of a table")
    return ".".join(f'"{part}"' for part in parts)


def _sqlite(url: str, query: str, option: str) -> Rows:
    file = Path(url.partition("://")[2].removeprefix("/").partition("?")[0])
    if not file.is_file():
        raise click.UsageError(f"{option}: there is no file {str(file)!r}; an absolute one has four slashes")
    try:
        # Read only: looking must not make a file, a journal, or a lock that keeps writers out.
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            cursor = connection.execute(query)
            return _named([column[0] for column in cursor.description], cursor.fetchall())
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            raise NoTable(str(error)) from None
        raise click.UsageError(f"{option}: {str(file)!r} cannot be read: {error}") from None
    except sqlite3.Error as error:
        raise click.UsageError(f"{option}: {str(file)!r} cannot be read: {error}") from None


def _postgres(url: str, query: str) -> Rows:
    import psycopg

    scheme, _, rest = url.partition("://")
    plain = f"{scheme.partition('+')[0]}://{rest}"
    try:
        with psycopg.connect(plain, connect_timeout=10, options="-c default_transaction_read_only=on") as connection:
            cursor = connection.execute(query.encode())
            return _named([column.name for column in cursor.description or ()], cursor.fetchall())
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise NoTable(str(error).splitlines()[0]) from None
    except psycopg.Error as error:
        raise click.UsageError(f"the database cannot be read: {' '.join(str(error).split())}") from None


def _by_sqlalchemy(url: str, query: str, option: str) -> Rows:
    import sqlalchemy
    from sqlalchemy import exc

    try:
        engine = sqlalchemy.create_engine(url)
        quoted = query.replace('"', engine.dialect.identifier_preparer.initial_quote)
        with engine.connect() as connection:
            answer = connection.exec_driver_sql(quoted)
            return _named(list(answer.keys()), [tuple(row) for row in answer])
    except exc.ProgrammingError as error:
        raise NoTable(str(error.orig)) from None
    except exc.SQLAlchemyError as error:
        said = " ".join(str(error).split())
        raise click.UsageError(f"{option}: the database cannot be read: {said}") from None


def _named(names: Sequence[str], found: Sequence[tuple[Any, ...]]) -> Rows:
    return [dict(zip(names, row, strict=True)) for row in found]
