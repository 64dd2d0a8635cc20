"""The schema's version: what is installed, and bringing it up to this release.

Within a major version the functions of a newer release serve the older ones too, so that both work on one
schema side by side; which of two is newer, the migrations tell, and after them the package's version.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from importlib.resources import files
from typing import Any

from psycopg import errors as pg

from oncron._defaults import CALL_DEADLINE
from oncron._version import version
from oncron.errors import SchemaOutdated, SchemaTooNew
from oncron.stores import _sql
from oncron.stores.postgres import _errors
from oncron.stores.postgres._connection import Connection

PACKAGE = "oncron.stores.postgres"
MAJOR = 1
"""Raised when older releases can no longer work with the schema."""
WAIT_S = 6 * CALL_DEADLINE // 1_000_000
"""How long a migration may take, and wait for another replica's."""


class Schema:
    """The schema of one namespace. `migrate` runs under a lock that N replicas queue for."""

    def __init__(self, namespace: str, where: str) -> None:
        self._namespace = namespace
        self._quoted = '"' + namespace.replace('"', '""') + '"'
        self._where = where
        self._queries = _sql.statements(PACKAGE)
        self._migrations = _sql.migrations(PACKAGE)
        self._functions = _function_files()
        self._digest = hashlib.sha256("\n".join(self._functions).encode()).hexdigest()[:32]

    async def check(self, connection: Connection) -> None:
        """Raises SchemaOutdated, SchemaTooNew."""
        until = asyncio.get_running_loop().time() + CALL_DEADLINE / 1_000_000
        schema, installed = await self._installed(connection, until)
        if not (schema and installed):
            raise SchemaOutdated(
                f"{self._where} has no oncron schema {self._namespace!r} yet; run `oncron migrate` "
                "(or check the database and the namespace)"
            )
        major, minor, functions = await self._version(connection, until)
        newest = len(self._migrations)
        if (major, minor) < (MAJOR, newest) or (minor == newest and self._replaces(functions)):
            raise SchemaOutdated(
                f"{self._where}: schema {self._namespace!r} has version {major}.{minor}, this release needs "
                f"{MAJOR}.{newest} as of this build; run `oncron migrate`"
            )

    async def migrate(self, connection: Connection) -> None:
        """Idempotent. Raises SchemaTooNew, StoreUnsafe if this user lacks a right."""
        until = asyncio.get_running_loop().time() + WAIT_S
        await self._run("schema.lock", connection, until, timeout=WAIT_S * 1000)
        schema, installed = await self._installed(connection, until)
        try:
            if not schema:
                await self._run("schema.create", connection, until)
            await self._run("schema.path", connection, until)
            _, minor, functions = await self._version(connection, until) if installed else (MAJOR, 0, "")
            await self._upgrade(connection, until, minor, functions)
        except pg.InsufficientPrivilege as error:
            raise _errors.not_allowed(error, self._where, f"write oncron's schema {self._namespace!r}") from error
        await self._run("schema.commit", connection, until)

    async def _upgrade(self, connection: Connection, until: float, minor: int, functions: str) -> None:
        newest = len(self._migrations)
        if minor > newest or (minor == newest and not self._replaces(functions)):
            return  # A newer release was here: its functions serve this one too.
        for migration in self._migrations[minor:]:
            await connection.send(migration.sql.encode(), until=until)
        for text in self._functions:
            await connection.send(text.encode(), until=until)
        await self._run(
            "schema.record",
            connection,
            until,
            major=MAJOR,
            minor=newest,
            functions=connection.literal(f"{version()} {self._digest}").decode(),
        )

    def _replaces(self, functions: str) -> bool:
        """Whether this release's functions take the place of those on record, of the same migrations: those of
        a newer release stay, or each replica that starts would exchange them under the others."""
        release, _, digest = functions.rpartition(" ")
        return digest != self._digest and _ordered(release) <= _ordered(version())

    async def _installed(self, connection: Connection, until: float) -> tuple[bool, bool]:
        row = await self._run("schema.installed", connection, until, name=connection.literal(self._quoted).decode())
        return row[0], row[1]

    async def _version(self, connection: Connection, until: float) -> tuple[int, int, str]:
        major, minor, functions = await self._run("schema.version", connection, until)
        if major > MAJOR:
            raise SchemaTooNew(
                f"{self._where}: schema {self._namespace!r} has version {major}.{minor}, newer than this release "
                f"can work with ({MAJOR}.{len(self._migrations)}); upgrade oncron"
            )
        return major, minor, functions

    async def _run(self, query: str, connection: Connection, until: float, **values: object) -> tuple[Any, ...]:
        values = {"schema": self._quoted, "literal": connection.literal(self._namespace).decode(), **values}
        rows = await connection.send(self._queries[query].format(**values).encode(), until=until)
        return rows[0] if rows else ()


def _ordered(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def _function_files() -> list[str]:
    folder = files(PACKAGE).joinpath("functions")
    return [entry.read_text(encoding="utf-8") for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)]
